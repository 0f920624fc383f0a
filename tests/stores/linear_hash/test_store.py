"""What the linear-hash store does beyond the contract: placeholder references, group commit, statistics."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from elision.errors import ConflictError, StoreError, UnknownHandle
from elision.stores.linear_hash.folder import StoreFolder
from elision.stores.linear_hash.store import LinearHashStore, LogAccess
from elision.stores.linear_hash.writer import WriterLimits
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import Edit
from tests.stores.session_logs import add_turn, amend_turn, begin_session, make_turn, new_session, read_log


def noise(seed: int, size: int) -> str:
    return Random(seed).randbytes(size).hex()


def decided(*masks: Edit) -> PassDecided:
    return PassDecided(call=9, reason="due", edits=masks)


def test_a_masked_observation_is_a_placeholder_reference(tmp_path: Path) -> None:
    """Its text stays where it was; what stands for it is read without reading it."""
    store, large = LinearHashStore(tmp_path), noise(1, 30_000)
    begin_session(store, "s", add_turn(1, large, "small"), add_turn(2, "x"))
    with pytest.raises(UnknownHandle, match=r"t1\.1"):
        store.find_observation("s", (1, 1))
    store.append("s", (decided(Edit((1, 1), "mask", "[t1.1 gone]"), Edit((1, 2), "mask", "[t1.2]")),), after=2, at=2.0)
    before = store.statistics()
    found = store.find_observation("s", (1, 1))
    after = store.statistics()
    assert (found.key, found.placeholder) == ((1, 1), "[t1.1 gone]")
    assert after.value_reads - before.value_reads == 1
    assert store.find_observation("s", (1, 2)).placeholder == "[t1.2]"
    assert store.observation("s", (1, 1)).text == large
    with pytest.raises(UnknownHandle, match=r"t2\.1"):
        store.find_observation("s", (2, 1))
    store.close()


def test_a_fork_has_the_placeholders_of_what_it_shares(tmp_path: Path) -> None:
    """Up to the shared record, and no further."""
    store = LinearHashStore(tmp_path)
    masks = [decided(Edit((number, 1), "mask", f"[{number}]")) for number in (1, 2)]
    begin_session(store, "s", add_turn(1, "a"), add_turn(2, "b"), *masks)
    store.create(new_session("b", parent="s", shared=3))
    assert store.find_observation("b", (1, 1)).placeholder == "[1]"
    with pytest.raises(UnknownHandle):
        store.find_observation("b", (2, 1))
    store.close()


def test_an_amended_turn_has_no_placeholder(tmp_path: Path) -> None:
    """Nothing of it was hidden yet, in the session and after a compaction."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s", add_turn(1, "a"), decided(Edit((1, 1), "mask", "[1]")), amend_turn(1, "b"))
    begin_session(store, "other", add_turn(1, noise(2, 900)))
    store.delete("other")
    for _ in range(2):
        with pytest.raises(UnknownHandle):
            store.find_observation("s", (1, 1))
        assert store.compact() >= 0
    store.close()


def test_a_lookup_reads_one_page_and_one_value(tmp_path: Path) -> None:
    """Also of a large text, which is part of its turn's record."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s", *(add_turn(index, noise(index, 2_000)) for index in range(1, 200)))
    store.close()
    store = LinearHashStore(tmp_path)
    before = store.statistics()
    for index in range(1, 200):
        assert store.observation("s", (index, 1)).text == noise(index, 2_000)
    after = store.statistics()
    assert after.lookups - before.lookups == after.value_reads - before.value_reads == 199
    assert after.bucket_reads - before.bucket_reads <= 199 * 1.1
    store.close()


def test_a_turn_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    """Nothing is written, and the session goes on."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s", add_turn(1))
    with pytest.raises(StoreError, match="turn 4294967296"):
        store.append("s", (add_turn(2), add_turn(1 << 32)), after=1, at=2.0)
    assert store.append("s", (add_turn(7), add_turn(9)), after=1, at=2.0) == 3
    assert [turn.index for turn in store.turns("s", 2)] == [7, 9]
    store.close()


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


def test_a_store_does_not_grow_where_as_much_goes_as_comes(tmp_path: Path) -> None:
    """A new session compacts the log once deleted ones take up most of it; their bytes are gone then."""
    store = LinearHashStore(tmp_path)
    sizes = []
    for number in range(9):
        begin_session(store, "s", *(add_turn(index, noise(number * 100 + index, 20_000)) for index in range(1, 30)))
        store.delete("s")
        sizes.append(store.footprint().stored_bytes)
    assert max(sizes) <= sizes[0] * 3.1
    assert store.check() == []
    begin_session(store, "secret", add_turn(1, "sk-" + noise(1, 100)))
    store.delete("secret")
    store.compact()
    store.close()
    assert (tmp_path / "values").stat().st_size < 3_000


def test_a_reader_maps_a_directory_that_was_written_anew(tmp_path: Path) -> None:
    """It sees every append at once, and keeps in memory what was written since the last checkpoint only."""
    writer = LinearHashStore(tmp_path, WriterLimits(log_bytes=20_000))
    begin_session(writer, "s")
    reader = LogAccess(StoreFolder(tmp_path), WriterLimits())
    offsets = set()
    for index in range(1, 60):
        writer.append("s", [add_turn(index, noise(index, 2_000))], after=index - 1, at=1.0)
        with reader as log:
            assert log.find_session("s").records == index
            offsets.add(log.directory_offset)
    assert len(offsets) > 2
    reader.close()
    writer.close()


def test_a_reader_keeps_few_files_open(tmp_path: Path) -> None:
    """However often the directory is written anew, or the log is looked for before there is one."""
    descriptors = Path("/proc/self/fd")
    path = tmp_path / "agents.lh"
    before = len(list(descriptors.iterdir()))
    reader = LinearHashStore(path)
    for _ in range(50):
        assert reader.sessions() == []
    writer = LinearHashStore(path)
    begin_session(writer, "s")
    for index in range(50):
        writer.append("s", [add_turn(index + 1)], after=index, at=0.0)
        writer.compact()
        assert reader.length("s") == index + 1
    assert len(list(descriptors.iterdir())) <= before + 8
    reader.close()
    writer.close()


def test_a_compaction_keeps_the_ids_of_appends(tmp_path: Path) -> None:
    """A fork gets its parent's records without their ids when the parent is gone."""
    store = LinearHashStore(tmp_path)
    events, own = (add_turn(1, noise(1, 5_000)), add_turn(2)), (add_turn(3),)
    begin_session(store, "s")
    store.append("s", events, after=0, at=1.0, batch=b"1" * 16)
    store.create_with_events(new_session("t", parent="s", shared=2), own, at=1.0, batch=b"2" * 16)
    store.delete("s")
    assert store.compact() > 0
    store.close()
    store = LinearHashStore(tmp_path)
    assert store.append("t", own, after=2, at=9.0, batch=b"2" * 16) == 3
    with pytest.raises(ConflictError):
        store.append("t", events, after=0, at=9.0, batch=b"1" * 16)
    assert read_log(store, "t") == [*events, *own]
    store.close()


def test_statistics_of_a_store_never_written(tmp_path: Path) -> None:
    """All zero."""
    store = LinearHashStore(tmp_path)
    assert store.statistics().pages_per_lookup == 0.0
    assert store.statistics().entries == 0
    store.close()
    store.close()
