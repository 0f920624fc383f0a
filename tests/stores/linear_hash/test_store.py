"""What the linear-hash store does beyond the contract: placeholders in the bucket, group commit, statistics."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from elision.errors import ConflictError, StoreError, UnknownHandle
from elision.stores.linear_hash.records import INLINE, ObservationRecord, TurnRecord, unpack_turn
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.linear_hash.writer import WriterLimits
from elision.stores.packing import hash_text
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import Mask
from tests.stores.session_logs import add_turn, amend_turn, begin_session, make_turn, new_session, read_log


def noise(seed: int, size: int) -> str:
    return Random(seed).randbytes(size).hex()


def decided(*masks: Mask) -> PassDecided:
    return PassDecided(call=9, reason="due", masks=masks)


def test_a_masked_observation_is_a_placeholder_in_the_bucket(tmp_path: Path) -> None:
    """Its text stays where it was; what stands for it is read without reading it."""
    store, large = LinearHashStore(tmp_path), noise(1, 30_000)
    begin_session(store, "s", add_turn(1, large, "small"), add_turn(2, "x"))
    assert store.find_observation("s", (1, 1)) == ObservationRecord(1, hash_text(large.encode()))
    store.append("s", (decided(Mask((1, 1), "[t1.1 gone]"), Mask((1, 2), "[t1.2]")),), after=2, at=2.0)
    before = store.statistics().value_reads
    assert store.find_observation("s", (1, 1)) == ObservationRecord(1, hash_text(large.encode()), "[t1.1 gone]")
    assert store.find_observation("s", (1, 2)) == ObservationRecord(2, INLINE, "[t1.2]")
    assert store.statistics().value_reads == before
    assert store.observation("s", (1, 1)).text == large
    with pytest.raises(UnknownHandle, match=r"t2\.1"):
        store.find_observation("s", (2, 1))
    store.close()


def test_a_fork_has_the_placeholders_of_what_it_shares(tmp_path: Path) -> None:
    """Up to the shared record, and no further."""
    store = LinearHashStore(tmp_path)
    masks = [decided(Mask((number, 1), f"[{number}]")) for number in (1, 2)]
    begin_session(store, "s", add_turn(1, "a"), add_turn(2, "b"), *masks)
    store.create(new_session("b", parent="s", shared=3))
    assert store.find_observation("b", (1, 1)).placeholder == "[1]"
    with pytest.raises(UnknownHandle):
        store.find_observation("b", (2, 1))
    store.close()


def test_an_amended_turn_has_no_placeholder(tmp_path: Path) -> None:
    """Nothing of it was hidden yet."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s", add_turn(1, noise(1, 900)), amend_turn(1, noise(2, 900)))
    assert store.find_observation("s", (1, 1)) == ObservationRecord(1, hash_text(noise(2, 900).encode()))
    store.close()


def test_many_placeholders_leave_the_bucket_page() -> None:
    """What the head has no room for stands in the value."""
    many = TurnRecord(
        3, b"n" * 16, tuple(ObservationRecord(position, bytes(32), "p" * 400) for position in range(1, 9))
    )
    head, value = many.pack()
    assert value
    assert unpack_turn(head, value) == many
    assert unpack_turn(*many.mask(2, "q").pack()).seen[1].placeholder == "q"


def test_a_group_is_durable_at_flush(tmp_path: Path) -> None:
    """Appends wait for the group or the flush; others see them then."""
    store, other = LinearHashStore(tmp_path, WriterLimits(group=8)), LinearHashStore(tmp_path)
    begin_session(store, "s", add_turn(1))
    assert store.turns("s") == [make_turn(1)]
    assert other.sessions() == []
    store.flush()
    assert other.turns("s") == [make_turn(1)]
    for index in range(2, 10):
        store.append("s", (add_turn(index),), after=index - 1, at=1.0)
    assert other.length("s") == 9
    store.append("s", (add_turn(10),), after=9, at=1.0)
    store.close()
    assert other.length("s") == 10
    other.close()


def test_a_group_of_none_is_refused() -> None:
    """It would never be durable."""
    with pytest.raises(StoreError, match="group"):
        WriterLimits(group=0)


def test_reading_takes_no_lock_from_writers(tmp_path: Path) -> None:
    """A store that only reads never becomes the writer."""
    reader, writer = LinearHashStore(tmp_path), LinearHashStore(tmp_path)
    assert reader.sessions() == []
    begin_session(writer, "s", add_turn(1))
    assert read_log(reader) == [add_turn(1)]
    assert reader.check() == []
    assert reader.footprint().turns == 1
    with pytest.raises(ConflictError):
        reader.purge(older_than=9.0)
    writer.close()
    reader.close()


def test_a_deleted_session_leaves_its_pages_to_the_next(tmp_path: Path) -> None:
    """The file does not grow where as much goes as comes."""
    store = LinearHashStore(tmp_path)
    sizes = []
    for number in range(6):
        begin_session(store, "s", *(add_turn(index, noise(number * 100 + index, 5_000)) for index in range(1, 30)))
        store.delete("s")
        sizes.append(store.footprint().stored_bytes)
    assert sizes[-1] <= sizes[0] * 1.1
    assert store.statistics().records == 1
    assert store.check() == []
    store.close()


def test_statistics_of_a_store_never_written(tmp_path: Path) -> None:
    """All zero."""
    store = LinearHashStore(tmp_path)
    assert store.statistics().pages_per_lookup == 0.0
    assert store.statistics().records == 0
    store.close()
    store.close()
