"""Gaps in the events of a log."""

from __future__ import annotations

import pytest

from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from elision.stores.store_base import LogCheck
from elision.trajectory.events import Event, PassDecided, TurnAdded
from tests.manager.agents import make_history
from tests.manager.damaged_stores import STRATEGY


@pytest.fixture
def events() -> list[Event]:
    """The log of a session of five turns, of which three are hidden."""
    store = MemoryStore()
    with ContextManager(STRATEGY, store=store, session="s") as context:
        for turns in range(6):
            context.prepare(make_history("openai", turns))
    return list(store.events("s"))


def find_gaps(events: list[Event]) -> list[str]:
    check = LogCheck()
    return [what for what in map(check.find_gap, events) if what]


def test_a_whole_log_has_no_gap(events: list[Event]) -> None:
    """Neither has a beginning of it: what a crash cuts off was never acknowledged."""
    assert all(find_gaps(events[:end]) == [] for end in range(len(events) + 1))


def test_a_turn_that_is_gone_is_found(events: list[Event]) -> None:
    """Whichever it is, but the newest, after which nothing names it. Only the first gap is told."""
    places = [place for place, event in enumerate(events) if isinstance(event, TurnAdded)]
    for number, place in enumerate(places[:-1], start=1):
        (what,) = find_gaps([*events[:place], *events[place + 1 :]])
        assert what == f"records before it are missing: it has turn {number + 1}, after turn {number - 1}"


def test_a_decision_about_a_turn_that_is_gone_is_found(events: list[Event]) -> None:
    """The log begins in its middle, with a decision."""
    first = next(place for place, event in enumerate(events) if isinstance(event, PassDecided) and event.masks)
    (what,) = find_gaps(events[first:])
    assert what == "records before it are missing: it hides turn 1, which is not there"


def test_what_cannot_be_read_is_no_gap(events: list[Event]) -> None:
    """It is a finding of its own."""
    check = LogCheck()
    check.skip()
    assert not any(map(check.find_gap, events[4:]))
