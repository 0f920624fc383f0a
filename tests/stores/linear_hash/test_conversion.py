"""Stores of the format before are converted once, whole, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elision.errors import ConflictError, CorruptError
from elision.stores.linear_hash.repair import repair
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.linear_hash.store_folder import WriterLock
from elision.stores.log_file import LogFile
from tests.stores.linear_hash.damage import flip_bit
from tests.stores.session_logs import add_turn

DATA = Path(__file__).parents[2] / "data"
#: Written by the format before: four sessions and a fork, large and small results, masks, amended turns, equal texts;
#: the newest records are in its log alone. `before.jsonl` is its export with `--log`.
OLD = DATA / "linear_hash_before" / "store"
#: Of two sessions: `s` with two appends (ids 1…, 2…), and `t`, which shares the first and has one of its own (3…).
WITH_IDS = DATA / "linear_hash_before" / "store_with_ids"
EXPORT = DATA / "linear_hash_before" / "before.jsonl"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD, tmp_path / "store"))


def test_every_event_is_there(folder: Path) -> None:
    """Those in pages, in chains of pages, in cells, and in the log since the last checkpoint."""
    export = LogFile(EXPORT)
    store = LinearHashStore(folder)
    assert store.sessions() == export.sessions()
    for info in export.sessions():
        assert list(store.events(info.key)) == list(export.events(info.key))
    assert store.check() == []
    assert {path.name for path in folder.iterdir()} == {"values", "lock"}
    after = store.length("fork")
    assert store.append("fork", [add_turn(99)], after=after, at=99.0) == after + 1
    store.close()


def test_the_ids_of_appends_are_kept(tmp_path: Path) -> None:
    """A converted store recognizes what was appended before; a fork keeps a record that it appended itself."""
    store = LinearHashStore(shutil.copytree(WITH_IDS, tmp_path / "store"))
    first, third = (add_turn(1, "x" * 5_000, node="n1"), add_turn(2)), (add_turn(3),)
    assert store.append("s", first, after=0, at=9.0, batch=b"1" * 16) == 2
    assert store.append("s", third, after=2, at=9.0, batch=b"2" * 16) == 3
    assert store.append("t", third, after=2, at=9.0, batch=b"3" * 16) == 3
    for after, events, batch in ((2, third, b"2" * 16), (0, first, b"1" * 16)):
        with pytest.raises(ConflictError):
            store.append("t", events, after=after, at=9.0, batch=batch)
    assert list(store.events("t")) == [*first, *third]
    assert store.check() == []
    store.close()


def test_a_fork_shares_its_parents_records_again(folder: Path) -> None:
    """Both name the same records, and the fork is found by its history."""
    store = LinearHashStore(folder)
    before = store.statistics().log_bytes
    store.delete("fork")
    store.compact()
    assert store.statistics().log_bytes > before * 0.8
    store.close()


def test_a_damaged_store_is_refused_and_repaired(folder: Path) -> None:
    """Nothing is changed until `repair`, which keeps the damaged files."""
    flip_bit(folder / "pages", 4096 * 6 + 700)
    before = (folder / "pages").read_bytes()
    with pytest.raises(CorruptError, match="--repair"):
        LinearHashStore(folder)
    assert (folder / "pages").read_bytes() == before
    done = repair(folder)
    assert done.lost
    assert [path.name for path in done.kept] == ["pages.damaged", "log.damaged"]
    export = LogFile(EXPORT)
    store = LinearHashStore(folder)
    assert store.check() == []
    for info in store.sessions():
        events = list(store.events(info.key))
        assert events == list(export.events(info.key))[: len(events)]
    store.close()


def test_a_store_in_use_is_not_converted(folder: Path) -> None:
    """The version that writes it is named by its process."""
    lock = WriterLock(folder / "lock")
    with pytest.raises(ConflictError, match="writes to this store"):
        LinearHashStore(folder)
    lock.close()
    LinearHashStore(folder).close()


def test_an_interrupted_conversion_is_begun_again(folder: Path) -> None:
    """Until the new log has its name the old files are the store."""
    (folder / "values.new").write_bytes(b"half")
    store = LinearHashStore(folder)
    assert store.sessions() == LogFile(EXPORT).sessions()
    store.close()
