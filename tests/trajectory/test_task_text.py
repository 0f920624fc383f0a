"""The task of a session in one line."""

from __future__ import annotations

import pytest

from elision.trajectory.content import Text
from elision.trajectory.events import HeadSet, SessionOpened
from elision.trajectory.trajectory import find_task, read_task
from elision.trajectory.turn import Head, Message


@pytest.mark.parametrize(
    ("said", "task"),
    [
        ("<system-reminder>\nUse tabs.\n</system-reminder>\nFix  the\nprinter", "Fix the printer"),
        ("<pr_description>\nFix it", "Fix it"),
        ("Fix <b>it</b> " + "x" * 400, "Fix <b>it</b> " + "x" * 285 + "…"),
        ("<system-reminder>only</system-reminder>", ""),
    ],
)
def test_a_task_is_the_users_own_words(said: str, task: str) -> None:
    """In one line, without what clients put before them, and not without end."""
    assert find_task(Head(messages=(Message(role="user", content=(Text(said),)),))) == task


def test_nothing_in_a_task_acts_on_a_terminal() -> None:
    """Colours, a title for the window and what turns the direction of writing are left out."""
    said = "Fix \x1b[31mthe\x1b[0m \x1b]0;owned\x07bug\u202e now\x9b"
    assert find_task(Head(messages=(Message(role="user", content=(Text(said),)),))) == "Fix the bug now"


def test_the_task_of_a_log_is_in_its_first_records() -> None:
    """No other record is read, and a log without a head has no task."""
    head = Head(messages=(Message(role="user", content=(Text("Find it."),)),))
    events = iter([SessionOpened(strategy="raw"), HeadSet(head), SessionOpened(strategy="raw")])
    assert read_task(events) == "Find it."
    assert len(list(events)) == 1
    assert read_task([SessionOpened(strategy="raw")]) == ""
