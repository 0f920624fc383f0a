"""Magentic-One conversations."""

from __future__ import annotations

from pathlib import Path

from elision.formats.registry import read_runs as read_path
from elision.trajectory.trajectory import Trajectory

DATA = Path(__file__).parents[1] / "data" / "magentic_one" / "history.json"


def test_the_orchestrator_is_the_agent() -> None:
    """Plans and ledgers are turns, an instruction is a call, and what the instructed agent answers is its result; notes
    of the program are left out."""
    (run,) = read_path(DATA)
    assert isinstance(run, Trajectory)
    assert (run.format, run.id) == ("magentic-one", "q-1")
    assert [message.text for message in run.head.messages] == ["When was the first?\n"]
    assert [turn.text[:12] for turn in run.turns] == [
        "Initial plan",
        "Updated Ledg",
        "Updated Ledg",
        "Updated Ledg",
        "New plan:\n\nC",
        "Updated Ledg",
    ]
    assert [[action.name for action in turn.actions] for turn in run.turns] == [
        [],
        ["WebSurfer"],
        ["WebSurfer"],
        [],
        [],
        ["Assistant"],
    ]
    assert run.turns[1].actions[0].decoded_arguments == {"instruction": "Please search."}
    assert [o.text for turn in run.turns for o in turn.observations] == ["I typed 'first'. Here is a page.", "1976"]
    assert not any(turn.interjections for turn in run.turns)
