"""What every store promises of forgetting: delete, purge, footprint, compact, check."""

from __future__ import annotations

import random

import pytest

from elision.errors import UnknownHandle
from elision.stores.store import PurgeResult, Store
from elision.stores.store_urls import open_store
from tests.stores.conftest import Opener
from tests.stores.session_logs import add_turn, begin_session, make_turn, new_session, read_log


def noise(seed: int, size: int) -> str:
    """Text that hardly compresses; another one for another seed."""
    return random.Random(seed).randbytes(size // 2 + 1).hex()[:size]


def test_a_deleted_session_is_gone(store: Store) -> None:
    """Its name is free again; the others are untouched."""
    begin_session(store, "a", add_turn(1, "x" * 1_000, node="n1"))
    begin_session(store, "b", add_turn(1, "x" * 1_000))
    store.delete("a")
    with pytest.raises(UnknownHandle):
        store.length("a")
    assert store.locate("f", ["n1"]) is None
    assert store.turns("b") == [make_turn(1, "x" * 1_000)]
    begin_session(store, "a", add_turn(1, "again"))
    assert read_log(store, "a") == [add_turn(1, "again")]
    assert store.check() == []


def test_what_is_old_is_purged(store: Store) -> None:
    """By the last change, not by the beginning; what is exactly as old as the limit stays."""
    for key, at in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        begin_session(store, key, add_turn(1), at=at)
    store.append("a", (add_turn(2),), after=1, at=9.0)
    assert store.purge(older_than=3.0).sessions == ("b",)
    assert [info.key for info in store.sessions()] == ["a", "c"]
    assert store.purge(older_than=3.0) == PurgeResult(sessions=(), freed_bytes=0)


def test_nothing_is_purged_unasked(store: Store) -> None:
    """Without a limit there is none."""
    begin_session(store, "a", add_turn(1))
    assert store.purge() == PurgeResult(sessions=(), freed_bytes=0)
    assert store.purge(max_bytes=1 << 40).sessions == ()
    assert store.length("a") == 1


def test_the_oldest_go_until_the_rest_fits(store: Store) -> None:
    """In the order of their last change; then what is stored is within the limit."""
    for number, key in enumerate("abcdef"):
        begin_session(store, key, add_turn(1, noise(number, 400_000)), at=float(number))
    store.append("a", (add_turn(2),), after=1, at=10.0)
    limit = store.footprint().stored_bytes // 2
    purged = store.purge(max_bytes=limit)
    gone = list(purged.sessions)
    assert gone == ["b", "c", "d", "e", "f"][: len(gone)]
    assert 2 <= len(gone) <= 4
    assert purged.freed_bytes > 0
    assert store.footprint().stored_bytes <= limit
    assert store.turns("a") == [make_turn(1, noise(0, 400_000)), make_turn(2)]
    assert store.check() == []


def test_both_limits_hold_at_once(store: Store) -> None:
    """What is too old goes first, then what is too much."""
    for number, key in enumerate("abcd"):
        begin_session(store, key, add_turn(1, noise(number, 200_000)), at=float(number))
    assert store.purge(older_than=1.0, max_bytes=0).sessions == ("a", "b", "c", "d")
    assert store.sessions() == []


def test_a_purged_parent_leaves_what_its_forks_share(store: Store) -> None:
    """A fork that is in use outlives the old session that it came from."""
    begin_session(store, "s", add_turn(1, noise(1, 50_000)), add_turn(2, noise(2, 50_000)), at=1.0)
    store.create(new_session("b", parent="s", shared=1, at=9.0))
    assert store.purge(older_than=5.0).sessions == ("s",)
    assert store.turns("b") == [make_turn(1, noise(1, 50_000))]
    assert store.check() == []


def test_the_footprint_counts(store: Store) -> None:
    """Sessions, records, turns, and bytes before packing: what the sessions say of themselves."""
    empty = store.footprint()
    assert (empty.sessions, empty.records, empty.turns, empty.raw_bytes) == (0, 0, 0, 0)
    begin_session(store, "a", add_turn(1, noise(1, 20_000)), add_turn(2), add_turn(3))
    begin_session(store, "b", add_turn(1, noise(1, 20_000)))
    found = store.footprint()
    assert (found.sessions, found.records, found.turns) == (2, 4, 4)
    assert found.raw_bytes == sum(info.raw_bytes for info in store.sessions()) > 40_000
    assert found.stored_bytes > 0


def test_a_store_in_order_has_no_findings(store: Store) -> None:
    """Empty, filled, forked, deleted from and compacted."""
    assert store.check() == []
    begin_session(store, "a", *(add_turn(index, noise(index, 2_000), node=f"n{index}") for index in range(1, 30)))
    store.create(new_session("b", parent="a", shared=20))
    store.search("a", "x")
    store.delete("a")
    assert store.compact() >= 0
    assert store.check() == []
    assert store.turns("b", 20) == [make_turn(20, noise(20, 2_000))]


def test_texts_are_stored_once(url: str) -> None:
    """The same large text in many turns and sessions takes up its space once, but for tables of whole turns."""
    store = open_store(f"{url}&turns=short" if url.startswith("postgresql") else url)
    text = noise(7, 100_000)
    begin_session(store, "a", *(add_turn(index, text) for index in range(1, 6)))
    begin_session(store, "b", add_turn(1, text, text))
    store.create(new_session("c", parent="a", shared=5))
    found = store.footprint()
    assert found.texts == 1
    assert found.raw_bytes > 1_100_000
    store.compact()
    assert store.footprint().stored_bytes < 300_000
    store.close()


def test_space_is_given_back(opener: Opener) -> None:
    """What deleted sessions took up is free after compacting, and what is kept is unharmed."""
    store = opener()
    for number, key in enumerate("abcdefgh"):
        begin_session(store, key, *(add_turn(index, noise(number * 50 + index, 20_000)) for index in range(1, 21)))
    full = store.footprint().stored_bytes
    for key in "abcdefg":
        store.delete(key)
    freed = store.compact()
    left = store.footprint().stored_bytes
    assert left < full * 0.4
    assert freed > full * 0.4
    assert store.turns("h") == [make_turn(index, noise(350 + index, 20_000)) for index in range(1, 21)]
    assert store.compact() == 0
