"""OpenHands histories in JSON: V0 flat, V0 pairs, V1 events in a list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.openhands_output import OpenHandsOutputReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.usage import Usage
from tests.formats.found import separate_by_id

DATA = Path(__file__).parents[1] / "data" / "openhands"


def split(document: Document) -> tuple[dict[str, Trajectory], list[Problem]]:
    assert OpenHandsOutputReader().sniff(document)
    return separate_by_id(OpenHandsOutputReader().read(document))


@pytest.fixture
def runs() -> dict[str, Trajectory]:
    found, problems = split(Document("output.jsonl", (DATA / "output.jsonl").read_bytes()))
    assert problems == []
    return found


def of(value: Any) -> tuple[dict[str, Trajectory], list[Problem]]:
    return split(Document("a/history.json", json.dumps(value).encode()))


def history() -> Any:
    return json.loads((DATA / "history.json").read_text())


def test_each_record_is_a_run(runs: dict[str, Trajectory]) -> None:
    """Every line of output.jsonl is a run of its own, named after its instance."""
    assert {id: (run.tool_turns, len(run.turns)) for id, run in runs.items()} == {
        "flat-1": (1, 2),
        "pairs-1": (1, 3),
        "v1-1": (2, 3),
    }


def test_head_of_a_flat_history(runs: dict[str, Trajectory]) -> None:
    """System prompt, tools, task, and what OpenHands recalled for it."""
    head = runs["flat-1"].head
    assert [(message.role, message.text) for message in head.messages] == [
        ("system", "You are OpenHands."),
        ("user", "Fix x."),
        ("user", "Use tabs.\n\nGitHub notes."),
    ]
    assert len(head.tools) == 1


def test_parallel_calls_of_one_answer(runs: dict[str, Trajectory]) -> None:
    """Actions that repeat one provider answer are one turn, whose text and usage count once."""
    turn = runs["flat-1"].turns[0]
    assert turn.text == "Looking."
    assert [(action.id, action.decoded_arguments) for action in turn.actions] == [
        ("c1", {"command": "ls"}),
        ("c2", {"command": "false"}),
    ]
    assert [(seen.action_id, seen.error) for seen in turn.observations] == [("c1", False), ("c2", True)]
    assert turn.observations[0].text == "a.py\n[Current working directory: /repo]\n[Command finished with exit code 0]"
    assert turn.usage == Usage(input=10, cache_read=60, cache_write=30, output=10)


def test_model_times_and_compactions(runs: dict[str, Trajectory]) -> None:
    """The answering model, the time of the event before the answer in UTC, and condensations."""
    run = runs["flat-1"]
    start = 1738015200.0  # 2025-01-27T22:00:00Z
    assert run.model == "claude-3-5-sonnet"
    assert [turn.at for turn in run.turns] == [start + 2, start + 8]
    assert [(item.before, item.summary) for item in run.compactions] == [(2, "Listed files.")]


def test_pairs_without_call_metadata(runs: dict[str, Trajectory]) -> None:
    """In pairs an action is a call and the observation beside it answers it; messages and finish only speak."""
    first, second, last = runs["pairs-1"].turns
    assert (first.text, [(action.name, action.decoded_arguments) for action in first.actions]) == (
        "Looking.",
        [("run", {"command": "ls"})],
    )
    assert [seen.text for seen in first.observations] == ["a.py"]
    assert (second.text, [message.text for message in second.interjections]) == ("Please check.", ["Go on."])
    assert (last.text, last.actions) == ("Done.", ())


def test_v1_events_in_a_list(runs: dict[str, Trajectory]) -> None:
    """V1 events in a record are read like a folder of them, with the usage of the record's metrics."""
    turn = runs["v1-1"].turns[0]
    assert [action.id for action in turn.actions] == ["c1", "c2"]
    assert turn.usage == Usage(input=4, cache_read=1000, cache_write=300, output=20)


@pytest.mark.parametrize("wrap", [lambda events: events, lambda events: {"trajectory": events}])
def test_one_history_as_json(wrap: Any) -> None:
    """A bare list of events, or one inside an export, is a run named after its file."""
    found, problems = of(wrap(history()))
    assert [(id, run.tool_turns) for id, run in found.items()] == [("history", 1)]
    assert problems == []


def test_a_pretty_printed_record() -> None:
    """A record that spans many lines is read as one value."""
    data = json.dumps({"instance_id": "x", "history": history()}, indent=2).encode()
    assert list(split(Document("x.json", data))[0]) == ["x"]


def test_what_the_user_ran_is_no_turn() -> None:
    """A command that the user ran is no call of the agent; what it printed are the user's words."""
    events = [
        *history(),
        {"id": 20, "source": "user", "action": "run", "args": {"command": "make"}},
        {"id": 21, "source": "agent", "cause": 20, "observation": "run", "content": "built", "extras": {}},
    ]
    found, problems = of(events)
    assert problems == []
    assert [message.text for message in found["history"].turns[-1].interjections] == ["built"]


def test_an_error_about_no_call() -> None:
    """An error that answers no call (a malformed answer, say) is shown to the model as a message."""
    events = [*history(), {"id": 20, "source": "agent", "observation": "error", "content": "Malformed.", "extras": {}}]
    found, problems = of(events)
    assert problems == []
    assert [message.text for message in found["history"].turns[-1].interjections] == ["Malformed."]


def test_results_without_calls_and_broken_events() -> None:
    """An observation of nothing and an event that is none are Problems; the rest is read."""
    events = history()
    events.insert(4, {"id": 99, "source": "agent", "cause": 77, "observation": "run", "content": "?", "extras": {}})
    events.insert(5, 12)
    found, problems = of(events)
    assert found["history"].tool_turns == 1
    assert [(problem.line, problem.reason.split(";")[0]) for problem in problems] == [
        (5, "run observation answers no action"),
        (6, "an event that is not an object"),
    ]


def test_stripped_answers() -> None:
    """Where the provider's answer was stripped, the action itself is the call, under its recorded id."""
    events = history()
    for event in events:
        if "tool_call_metadata" in event:
            event["tool_call_metadata"]["model_response"] = None
    found, problems = of(events)
    assert problems == []
    turns = found["history"].turns
    assert [(turn.text, [action.id for action in turn.actions], turn.is_finished) for turn in turns] == [
        ("Looking.", ["c1"], True),
        ("", ["c2"], True),
        ("Finished.", ["c3"], False),
    ]


def test_events_of_the_resolver() -> None:
    """The resolver's events name no source: messages that wait for nothing are the user's; fields of an action are its
    arguments; an exit code tells errors; a record is named after its issue."""
    found, problems = split(Document("output.jsonl", (DATA / "resolver.jsonl").read_bytes()))
    assert problems == []
    assert list(found) == ["someone/viewer#5", "someone/viewer#1"]
    run = found["someone/viewer#5"]
    assert [message.text for message in run.head.messages] == ["Please fix the issue."]
    assert [[action.name for action in turn.actions] for turn in run.turns] == [
        ["run"],
        ["run_ipython"],
        [],
        ["run"],
        [],
    ]
    assert [turn.text for turn in run.turns][::2] == ["I create the file.", "Shall I go on?", "The file is there."]
    assert [message.text for message in run.turns[2].interjections] == ["Please continue."]
    assert [o.error for turn in run.turns for o in turn.observations] == [False, None, True]
    assert run.turns[0].actions[0].decoded_arguments["command"] == "touch LICENSE"


def test_a_broken_record_costs_itself_alone() -> None:
    """A broken line, and one without events, are Problems with their lines; the other records are read."""
    good = json.dumps({"instance_id": "good", "history": history()})
    found, problems = split(Document("output.jsonl", f'{{broken\n{good}\n{{"instance_id": "none"}}\n'.encode()))
    assert list(found) == ["good"]
    assert [problem.line for problem in problems] == [1, 3]


def test_a_run_without_an_answer() -> None:
    """A history in which the agent never spoke is reported, not silently dropped."""
    found, problems = of(history()[:4])
    assert found == {}
    assert "no assistant message" in problems[0].reason


def test_a_list_without_events_cannot_be_read() -> None:
    """The error says what is missing."""
    with pytest.raises(FormatError, match="no OpenHands events"):
        list(OpenHandsOutputReader().read(Document("x", b"[1]")))
