"""SWE-agent `.traj` files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.swe_agent import SweAgentReader
from elision.trajectory.trajectory import Problem, Trajectory
from tests.formats.found import separate

DATA = Path(__file__).parents[1] / "data" / "swe_agent"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def read(value: Any, path: str = "runs/x-1.traj.gz") -> tuple[list[Trajectory], list[Problem]]:
    document = Document(path, json.dumps(value).encode())
    assert SweAgentReader().sniff(document)
    return separate(SweAgentReader().read(document))


def one(value: Any) -> Trajectory:
    runs, problems = read(value)
    assert problems == []
    assert len(runs) == 1
    return runs[0]


def test_text_protocol() -> None:
    """The user message that answers a command is its observation; the command stands inside the text."""
    run = one(load("text.traj"))
    first = run.turns[0]
    assert (run.id, run.format, run.tool_turns) == ("x-1", "swe-agent", 4)
    assert first.text == "Let me act.\n```\nls\n```"
    assert [(action.name, action.arguments, action.implicit) for action in first.actions] == [("bash", "ls", True)]
    assert [(seen.role, seen.text) for seen in first.observations] == [
        ("user", "a.py\nb.py\n(Open file: n/a)\nbash-$"),
    ]


def test_demonstrations_are_left_out() -> None:
    """The head is the system prompt and the task; messages marked is_demo are no part of the run."""
    head = one(load("text.traj")).head
    assert [message.role for message in head.messages] == ["system", "user"]
    assert head.messages[1].text.startswith("ISSUE")


def test_a_step_that_the_history_dropped_is_kept() -> None:
    """A step missing from the history is a turn with its raw observation, and the steps behind it stay aligned."""
    run = one(load("text.traj"))
    assert run.turns[1].observations[0].text == "Your proposed edit has introduced new syntax error(s)."
    assert run.turns[2].actions[0].arguments == "open a.py"


def test_an_elided_observation_is_raw_again() -> None:
    """Where the history holds the agent's own placeholder, the observation comes from the step."""
    assert one(load("text.traj")).turns[2].observations[0].text == "1:x = 1"


def test_the_last_step_has_its_observation() -> None:
    """The last observation, which the history ends before, comes from the step."""
    assert one(load("text.traj")).turns[3].observations[0].text == "diff --git a/a.py b/a.py"


def test_an_empty_observation_is_one() -> None:
    """A step that ran and printed nothing is answered all the same."""
    value = load("text.traj")
    value["trajectory"][3]["observation"] = ""
    run = one(value)
    assert run.tool_turns == 4
    assert run.turns[3].observations[0].text == ""


def test_tool_calls() -> None:
    """Version 1.x: calls, tool results by id, thinking, model and the recorded window from the configuration."""
    run = one(load("tools.traj"))
    first, last = run.turns
    assert [(action.id, action.name, action.implicit) for action in first.actions] == [("call_1", "bash", False)]
    assert (first.text, first.reasoning) == ("Looking.", "Where is it?")
    assert [(seen.action_id, seen.role, seen.text) for seen in first.observations] == [
        ("call_1", "tool", "OBSERVATION:\n./a.py"),
    ]
    assert [(seen.action_id, seen.text) for seen in last.observations] == [("call_2", "diff")]
    assert (run.model, run.recorded_window) == ("claude-sonnet-4", 5)


def test_a_remark_that_answers_a_call_is_no_result() -> None:
    """A user message where the tool message belongs stays an interjection; the call stays unanswered."""
    value = load("tools.traj")
    value["history"][3] = {"role": "user", "content": "Your output was malformed."}
    first = one(value).turns[0]
    assert first.observations == ()
    assert [message.text for message in first.interjections] == ["Your output was malformed."]


def test_the_window_that_the_sent_messages_show() -> None:
    """Without a configuration the window is what the last request left visible; without elided text there is none."""
    value = load("text.traj")
    assert one({**value, "history": value["history"][:7]}).recorded_window is None
    elided = {"role": "user", "content": "Old environment output: (3 lines omitted)"}
    seen = {"role": "user", "content": "ok"}
    value["trajectory"][-1]["query"] = [elided, elided, seen, {"role": "assistant", "content": "hm"}, seen]
    assert one(value).recorded_window == 2


def test_attempts_are_runs_of_their_own() -> None:
    """A retrying agent's attempts are kept apart; the best one, repeated at the top, is not counted twice."""
    value = load("text.traj")
    runs, problems = read({**value, "attempts": [load("tools.traj"), value]})
    assert [(run.id, len(run.turns)) for run in runs] == [("x-1 attempt 1", 2), ("x-1 attempt 2", 4)]
    assert problems == []


def test_steps_alone_and_history_alone_after_sniffing() -> None:
    """Steps without a history are still a run."""
    run = one({"trajectory": load("text.traj")["trajectory"]})
    assert run.tool_turns == 4
    assert run.head.messages == ()


def test_broken_steps_are_reported() -> None:
    """A step that is no step is a Problem, and the others are read."""
    value = load("text.traj")
    value["trajectory"].insert(1, "nonsense")
    runs, problems = read(value)
    assert runs[0].tool_turns == 4
    assert "1 steps without action" in problems[0].reason


def test_a_file_without_a_trajectory_cannot_be_read() -> None:
    """The error says what is missing."""
    with pytest.raises(FormatError, match="no SWE-agent trajectory"):
        list(SweAgentReader().read(Document("x.json", b"{}")))


@pytest.mark.parametrize("name", ["text.traj", "tools.traj"])
def test_tags_of_the_history(name: str) -> None:
    """Tags that the scaffold gave an observation, or the action before it, are the observation's."""
    value = load(name)
    kept = [item for item in value["history"] if not item.get("is_demo")]
    first = next(place for place, item in enumerate(kept) if item.get("role") == "assistant")
    kept[first]["tags"] = ["keep_output"]
    kept[first + 1]["tags"] = ["logs"]
    tags = [sorted(seen.tags) for turn in one(value).turns for seen in turn.observations]
    assert tags[0] == ["keep_output", "logs"]
    assert not any(tags[1:])
