"""mini-swe-agent `.traj.json` files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.mini_swe_agent import MiniSweAgentReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.usage import Usage
from tests.formats.found import read_one

DATA = Path(__file__).parents[1] / "data" / "mini_swe_agent"


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def read(value: Any) -> tuple[Trajectory, list[Problem]]:
    return read_one(MiniSweAgentReader(), Document("runs/y-2.traj.json", json.dumps(value).encode()))


def one(value: Any) -> Trajectory:
    run, problems = read(value)
    assert problems == []
    return run


def test_version_1_acts_in_text() -> None:
    """Bash blocks are actions, the user messages behind them observations; the last is what was handed in."""
    run = one(load("text.traj.json"))
    assert (run.id, run.model, run.tool_turns) == ("y-2", "anthropic/claude-sonnet-4", 2)
    assert [action.arguments for turn in run.turns for action in turn.actions] == [
        "ls",
        "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT",
    ]
    assert run.turns[0].observations[0].role == "user"
    assert run.turns[2].observations[0].text == "diff"


def test_a_text_without_an_action_has_no_observation() -> None:
    """The complaint about a missing action is an interjection."""
    turn = one(load("text.traj.json")).turns[1]
    assert turn.observations == ()
    assert [message.text for message in turn.interjections] == ["Please always provide EXACTLY ONE action."]


def test_tool_calls_in_parallel() -> None:
    """Version 1.1: parallel calls and their results are one turn; a return code other than 0 is a failure."""
    run = one(load("tools.traj.json"))
    first = run.turns[0]
    assert (run.id, run.model, run.tool_turns) == ("x__x-1", "deepseek-chat", 2)
    assert [action.id for action in first.actions] == ["c1", "c2"]
    assert [(seen.action_id, seen.text, seen.error) for seen in first.observations] == [
        ("c1", "a.py", False),
        ("c2", "No such file", True),
    ]
    assert first.reasoning == "First look."


def test_usage_cost_and_times() -> None:
    """Usage counts cached tokens once, costs are kept, and a request left when the last result was in."""
    first, last = one(load("tools.traj.json")).turns
    assert first.usage == Usage(input=36, cache_read=64, output=10, usd=0.002)
    assert last.usage == Usage(input=22, cache_read=128, output=5, usd=0.002)
    assert (first.at, last.at) == (1000.0, 1003.5)


def test_the_exit_answers_the_submitting_call() -> None:
    """Where the run ends by handing in, the exit message is what the last command printed."""
    assert [(seen.action_id, seen.text) for seen in one(load("tools.traj.json")).turns[1].observations] == [
        ("c3", "diff"),
    ]


def test_an_exit_for_another_reason_answers_nothing() -> None:
    """A run that ended by a limit or an error leaves its last call open."""
    value = load("tools.traj.json")
    value["messages"][-1]["extra"]["exit_status"] = "LimitsExceeded"
    assert one(value).turns[1].observations == ()


def test_responses_objects() -> None:
    """Whole Responses objects as messages: text, reasoning, calls, usage and results by call id."""
    run = one(load("responses.traj.json"))
    turn = run.turns[0]
    assert (turn.text, turn.reasoning, turn.model) == ("Looking.", "Look first.", "gpt-5-mini")
    assert [(action.id, action.decoded_arguments) for action in turn.actions] == [("c1", {"command": "ls"})]
    assert [seen.text for seen in turn.observations] == ["a.py"]
    assert turn.usage == Usage(input=36, cache_read=64, output=10, usd=0.001)


def test_an_action_that_only_extra_names() -> None:
    """A text model's command is taken from `extra`, where its version keeps the parsed one."""
    value = load("text.traj.json")
    value["messages"][2]["content"] = "I will list the files."
    value["messages"][2]["extra"]["actions"] = [{"command": "ls -la"}]
    turn = one(value).turns[0]
    assert [(action.arguments, action.implicit) for action in turn.actions] == [("ls -la", True)]
    assert turn.is_finished


def test_broken_messages_are_reported() -> None:
    """What is no message, has an unknown role or answers no call is a Problem; nothing else is lost."""
    value = load("tools.traj.json")
    value["messages"][3:3] = ["nonsense", {"role": "oracle"}, {"role": "tool", "tool_call_id": "c9", "content": "x"}]
    run, problems = read(value)
    assert run.tool_turns == 2
    assert [(problem.line, problem.reason.split(";")[0]) for problem in problems] == [
        (4, "a message that is not an object"),
        (5, "a message of unknown role 'oracle'"),
        (6, "result of call 'c9' has no such call before it"),
    ]


def test_a_file_without_messages_cannot_be_read() -> None:
    """The error says what is missing."""
    with pytest.raises(FormatError, match="no `messages`"):
        list(MiniSweAgentReader().read(Document("x", b'{"trajectory_format": "mini-swe-agent-1"}')))
