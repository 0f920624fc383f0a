"""The store that forgets does no more work than it must."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elision.errors import StoreError
from elision.stores import packing
from elision.stores.memory import MemoryStore
from elision.trajectory.events import TurnAdded
from elision.trajectory.turn import Turn, make_content
from tests.stores.session_logs import new_session


class Node(str):
    """A name that counts how often it is looked up or compared."""

    asked = 0

    def __hash__(self) -> int:
        Node.asked += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        Node.asked += 1
        return super().__eq__(other)


def filled(sessions: int) -> MemoryStore:
    store = MemoryStore()
    for number in range(sessions):
        store.create(new_session(f"s{number}", at=float(number)))
        added = [TurnAdded(Turn(index=turn, content=make_content("x")), f"{number}-{turn}") for turn in range(1, 21)]
        store.append(f"s{number}", added, after=0, at=float(number))
    return store


@pytest.mark.parametrize("sessions", [1, 40])
def test_a_history_is_looked_up_by_its_names(sessions: int) -> None:
    """Each name is asked for once, however many sessions and turns there are."""
    store = filled(sessions)
    Node.asked = 0
    assert store.locate("f", [Node(f"unknown-{turn}") for turn in range(50)]) is None
    assert Node.asked <= 50
    assert store.locate("f", [Node("0-7"), Node("unknown")]) == ("s0", 7)


def test_nothing_is_hashed_or_compressed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a log would take on a disk is known from its texts."""

    def fail(*_: object) -> bytes:
        raise AssertionError

    expected = packing.Packer().pack(TurnAdded(Turn(index=1, content=make_content("x" * 9_000)), "n")).size
    monkeypatch.setattr(packing, "hash_text", fail)
    monkeypatch.setattr(packing.Packer, "compress", fail)
    store = MemoryStore()
    store.create(new_session("s"))
    store.append("s", [TurnAdded(Turn(index=1, content=make_content("x" * 9_000)), "n")], after=0, at=1.0)
    assert store.info("s").raw_bytes == expected > 9_000


def test_a_log_is_read_from_its_beginning_at_the_earliest() -> None:
    """Fewer records than none is none, as in every store."""
    assert len(list(filled(1).events("s0", -1))) == 20


@pytest.mark.parametrize("ask", [MemoryStore.sessions, MemoryStore.check, MemoryStore.compact])
def test_a_closed_store_says_so(ask: Callable[[MemoryStore], object]) -> None:
    """In one sentence."""
    store = MemoryStore()
    store.close()
    with pytest.raises(StoreError) as told:
        ask(store)
    assert str(told.value) == "memory: the store is closed; open it again"
