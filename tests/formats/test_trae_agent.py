"""trae-agent trajectories, and those of its TypeScript port."""

from __future__ import annotations

from pathlib import Path

from elision.formats.registry import read_runs as read_path
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage

DATA = Path(__file__).parents[1] / "data" / "trae_agent"


def runs(name: str) -> list[Trajectory]:
    found = list(read_path(DATA / name))
    assert all(isinstance(item, Trajectory) for item in found)
    return [item for item in found if isinstance(item, Trajectory)]


def test_interactions_are_turns() -> None:
    """Each interaction is a turn with its usage; results come once, those of the last call out of its step."""
    (run,) = runs("trajectory.json")
    assert (run.format, run.id, run.model) == ("trae-agent", "trajectory", "claude-sonnet-4")
    assert [message.text for message in run.head.messages] == ["You are an agent.", "Count the files."]
    assert [[(o.text, o.error) for o in turn.observations] for turn in run.turns] == [
        [("a.py b.txt", False), ("Tool call failed with error:\nNo such file", True)],
        [("Task done.", False)],
    ]
    assert [turn.usage for turn in run.turns] == [
        Usage(input=900, output=40),
        Usage(input=60, cache_read=940, output=9),
    ]
    assert [(turn.at or 0) - (run.turns[0].at or 0) for turn in run.turns] == [0, 4]


def test_conversations_of_the_port() -> None:
    """Steps that go on with each other are one run, timed by each step; a new conversation is another run."""
    first, second = runs("port.json")
    assert [turn.text for turn in first.turns] == ["I begin.", "Done."]
    assert [o.text for turn in first.turns for o in turn.observations] == [
        '{"success":true,"result":{"id":1}}',
        '{"success": true, "result": "ok"}',
    ]
    assert [turn.at for turn in first.turns] == [1759383557.846, 1759383564.0]
    assert [message.text for message in second.head.messages] == ["You plan.", "Carry it out."]
    assert [run.id for run in (first, second)] == ["conversation 1", "conversation 2"]


def test_results_of_the_first_port_answer_the_calls_in_their_order() -> None:
    """They name no call. A response without calls is not part of the conversation, and its time is not another's."""
    (run,) = runs("port_first.json")
    assert [[(each.action_id, each.text) for each in turn.observations] for turn in run.turns] == [
        [
            ("c1", '{"success":true,"result":{"path":"/w/a.txt","created":true}}'),
            ("c2", '{"success":false,"error":"no such file"}'),
        ],
        [("c3", '{"success": true, "result": "hello"}'), ("c4", '{"success": true, "result": "done"}')],
    ]
    assert [(turn.at or 0) - (run.turns[0].at or 0) for turn in run.turns] == [0, 20]
