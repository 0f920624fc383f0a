"""OpenHands V1 conversations: folders of event files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elision.formats.document import Document
from elision.formats.openhands_events import OpenHandsEventsReader, format_shell_output
from elision.formats.source import read_documents
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.usage import Usage
from tests.formats.found import read_one

FOLDER = Path(__file__).parents[1] / "data" / "openhands" / "conversation"


@pytest.fixture
def members() -> dict[str, bytes]:
    document = next(read_documents(FOLDER))
    assert isinstance(document, Document)
    return dict(document.members)


def read(members: dict[str, bytes]) -> tuple[Trajectory, list[Problem]]:
    return read_one(OpenHandsEventsReader(), Document("conversation", members=members))


def one(members: dict[str, bytes]) -> Trajectory:
    run, problems = read(members)
    assert problems == []
    return run


def test_head(members: dict[str, bytes]) -> None:
    """System prompt, tools, and the task with what OpenHands appended to it."""
    run = one(members)
    assert [(message.role, message.text) for message in run.head.messages] == [
        ("system", "You are OpenHands."),
        ("user", "Fix x.\nRepo notes."),
    ]
    assert len(run.head.tools) == 1
    assert (run.id, run.model) == ("conv-1", "anthropic/claude-sonnet-4")


def test_one_response_is_one_turn(members: dict[str, bytes]) -> None:
    """Action events of one response are one assistant message with parallel calls."""
    run = one(members)
    assert [[action.id for action in turn.actions] for turn in run.turns] == [["c1", "c2"], ["c3"], []]
    assert run.turns[0].text == "Looking."
    assert run.tool_turns == 2


def test_results_as_the_model_saw_them(members: dict[str, bytes]) -> None:
    """A command's result carries directory and exit code; agent errors and rejections are failed results."""
    first, second, _ = one(members).turns
    assert [(seen.text, seen.error) for seen in first.observations] == [
        ("a.py\n[Done.]\n[Current working directory: /repo]\n[Command finished with exit code 0]", False),
        ("No such file: b.py", True),
    ]
    assert [(seen.text, seen.error) for seen in second.observations] == [("Action rejected: never", True)]


def test_messages_between_and_at_the_end(members: dict[str, bytes]) -> None:
    """A user message between turns is an interjection, an agent's message a turn without calls; a pause is nothing."""
    run = one(members)
    assert [message.text for message in run.turns[1].interjections] == ["Stop there."]
    assert run.turns[2].text == "I stopped."


def test_condensation_is_a_compaction(members: dict[str, bytes]) -> None:
    """A condensation is a compaction before the next call, with its summary."""
    assert [(item.before, item.summary) for item in one(members).compactions] == [(2, "Listed files.")]


def test_usage_by_response(members: dict[str, bytes]) -> None:
    """Each response has its usage and cost; where prompt tokens leave cache writes out, they are not taken off."""
    assert [turn.usage for turn in one(members).turns] == [
        Usage(input=4, cache_read=1000, cache_write=300, output=20, usd=0.01),
        Usage(input=10, cache_read=1300, cache_write=50, output=10, usd=0.02),
        Usage(input=1400, output=5, usd=0.03),
    ]


def test_times_of_requests(members: dict[str, bytes]) -> None:
    """A request left its latency before its answer was booked; without latencies, with the event before the answer."""
    assert [turn.at for turn in one(members).turns] == [1700000006.0, 1700000016.0, 1700000026.0]
    del members["base_state.json"]
    start = 1758823200.0  # 2025-09-25T18:00:00Z
    assert [turn.at for turn in one(members).turns] == [start + 1, start + 9, start + 15]


def test_times_are_not_mixed(members: dict[str, bytes]) -> None:
    """If one response lacks its latency, all times come from the events: the two clocks may be hours apart."""
    state = json.loads(members["base_state.json"])
    state["stats"]["service_to_metrics"]["default"]["response_latencies"].pop()
    members["base_state.json"] = json.dumps(state).encode()
    assert {turn.at for turn in one(members).turns} == {1758823201.0, 1758823209.0, 1758823215.0}


def test_a_broken_event_is_reported(members: dict[str, bytes]) -> None:
    """An event file that is cut off is a Problem that names it; its call stays open and nothing else is lost."""
    name = next(name for name in members if "00004" in name)
    members[name] = members[name][:50]
    run, problems = read(members)
    assert [len(turn.observations) for turn in run.turns] == [1, 1, 0]
    assert len(problems) == 1
    assert name in problems[0].reason


def test_a_broken_state_costs_the_usage_only(members: dict[str, bytes]) -> None:
    """Without a readable base_state.json the run is read without usage."""
    members["base_state.json"] = b"{"
    run, problems = read(members)
    assert [turn.usage for turn in run.turns] == [None] * 3
    assert len(problems) == 1


def test_results_without_calls(members: dict[str, bytes]) -> None:
    """A result whose call is missing is a Problem."""
    action = next(name for name in members if "00002" in name)
    del members[action]
    _, problems = read(members)
    assert ["'c1' has no such call" in problem.reason for problem in problems] == [True]


def test_other_documents_are_not_ours() -> None:
    """A folder without events is not recognised."""
    assert not OpenHandsEventsReader().sniff(Document("x", members={"a.json": b"{}"}))


def test_a_command_that_runs_on_has_no_exit_code() -> None:
    """Only its directory is shown."""
    assert format_shell_output("x", {"working_dir": "/r"}) == "x\n[Current working directory: /r]"
