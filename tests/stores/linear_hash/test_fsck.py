"""A check names what is damaged by its page; a repair keeps everything that can be read."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from elision.errors import ConflictError, CorruptError, ElisionError
from elision.stores.linear_hash.fsck import check_pages
from elision.stores.linear_hash.layout import (
    AT_COUNT,
    AT_FREE,
    AT_NEXT,
    AT_OWNER,
    BODY,
    BUCKET,
    CELLS,
    DIRECTORY,
    PAGE,
    VALUE,
)
from elision.stores.linear_hash.repair import repair
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.linear_hash.store_folder import StoreFolder
from elision.stores.store import Finding
from elision.trajectory.events import TurnAdded
from tests.stores.linear_hash.damage import fill_store, flip_bit, list_pages, set_field
from tests.stores.session_logs import add_turn, begin_session

#: A field of the first page of a kind, what it is set to, and words of what the check says then.
WRONG = {
    "a bucket's owner": (BUCKET, AT_OWNER, "<I", 77, "names another one as its own"),
    "free bytes of a bucket": (BUCKET, AT_FREE, "<H", 9, "does not go with the free ones"),
    "a record that is not counted": (BUCKET, AT_COUNT, "<H", 1, "states"),
    "a link to another bucket": (BUCKET, AT_NEXT, "<I", 2, "refers to it"),
    "a link behind the end": (BUCKET, AT_NEXT, "<I", 60_000, "the file has"),
    "a hash": (BUCKET, BODY, "<Q", 12_345, "is not the key's"),
    "a slot that names no record": (BUCKET, BODY + 8, "<H", 4_095, "a slot names bytes"),
    "bytes of a value": (VALUE, AT_COUNT, "<H", 7, "has a wrong length"),
    "a value's link": (VALUE, AT_NEXT, "<I", 1, "has a wrong length"),
    "cells in use": (CELLS, BODY, "<Q", 0, "used and stated free"),
    "cells that nobody uses": (CELLS, BODY, "<Q", 2**64 - 1, "used by no record"),
    "a bucket of no page": (DIRECTORY, BODY, "<I", 0, "names no page"),
    "two buckets of one page": (DIRECTORY, BODY, "<I", 2, "refers to it"),
}


def found(folder: Path) -> list[Finding]:
    files = StoreFolder(folder).open_for_reading()
    try:
        return check_pages(files.pages, files.log).findings
    finally:
        files.close()


def everything(folder: Path) -> dict[str, list[object]]:
    store = LinearHashStore(folder)
    try:
        return {info.key: list(store.events(info.key)) for info in store.sessions()}
    finally:
        store.close()


def test_a_store_in_order_has_no_findings(tmp_path: Path) -> None:
    """Pages and records of a filled store go together."""
    fill_store(tmp_path)
    assert found(tmp_path) == []
    store = LinearHashStore(tmp_path)
    assert store.check() == []
    store.close()


@pytest.mark.parametrize("kind", [BUCKET, VALUE, CELLS, DIRECTORY])
def test_a_flipped_bit_is_named_by_its_page(tmp_path: Path, kind: int) -> None:
    """Wherever in the page it is."""
    fill_store(tmp_path)
    number, rng = list_pages(tmp_path, kind)[0], random.Random(kind)
    before = (tmp_path / "pages").read_bytes()
    for _ in range(4):
        flip_bit(tmp_path / "pages", number * PAGE + rng.randrange(PAGE))
        assert any(each.place == f"page {number}" and "checksum" in each.what for each in found(tmp_path))
        (tmp_path / "pages").write_bytes(before)
    assert found(tmp_path) == []


@pytest.mark.parametrize("what", WRONG)
def test_what_a_checksum_does_not_show_is_found(tmp_path: Path, what: str) -> None:
    """A page that is whole and says what cannot be."""
    fill_store(tmp_path)
    kind, offset, form, value, words = WRONG[what]
    set_field(tmp_path, list_pages(tmp_path, kind)[0], offset, form, value)
    assert any(words in each.what for each in found(tmp_path)), found(tmp_path)


def test_a_page_in_the_place_of_another_is_found(tmp_path: Path) -> None:
    """The checksum covers the page's number."""
    fill_store(tmp_path)
    first, second = list_pages(tmp_path, BUCKET)[:2]
    data = bytearray((tmp_path / "pages").read_bytes())
    data[first * PAGE : (first + 1) * PAGE] = data[second * PAGE : (second + 1) * PAGE]
    (tmp_path / "pages").write_bytes(data)
    assert any(each.place == f"page {first}" for each in found(tmp_path))


def test_a_damaged_page_is_never_read_as_good(tmp_path: Path) -> None:
    """Reading what stands on it raises; the rest of the store can be read."""
    fill_store(tmp_path)
    whole = everything(tmp_path)
    for number in list_pages(tmp_path, VALUE)[:3]:
        flip_bit(tmp_path / "pages", number * PAGE + 500)
    store, refused = LinearHashStore(tmp_path), 0
    for key, events in whole.items():
        try:
            assert list(store.events(key)) == events
        except CorruptError:
            refused += 1
    store.close()
    assert 0 < refused < len(whole)


def test_a_repair_of_a_sound_store_changes_nothing(tmp_path: Path) -> None:
    """Every event is as it was, and the check has nothing to say."""
    fill_store(tmp_path)
    whole = everything(tmp_path)
    done = repair(tmp_path)
    assert done.lost == ()
    assert (done.sessions, done.records) == (len(whole), sum(map(len, whole.values())))
    assert everything(tmp_path) == whole
    store = LinearHashStore(tmp_path)
    assert store.check() == []
    assert store.locate("f", ["session 1 n3"]) == ("session 1", 3)
    store.close()


def test_a_repair_takes_what_is_only_in_the_log(tmp_path: Path) -> None:
    """Transactions since the last checkpoint are replayed."""
    fill_store(tmp_path)
    store = LinearHashStore(tmp_path)
    store.append("fork", [add_turn(7, "new " * 400)], after=12, at=50.0)
    for name in ("pages", "log"):
        (tmp_path / "copy").mkdir(exist_ok=True)
        (tmp_path / "copy" / name).write_bytes((tmp_path / name).read_bytes())
    store.close()
    repair(tmp_path / "copy")
    assert everything(tmp_path / "copy")["fork"][-1] == add_turn(7, "new " * 400)


@pytest.mark.parametrize("seed", range(8))
def test_a_repair_keeps_what_can_be_read(tmp_path: Path, seed: int) -> None:
    """Pages of any kind are damaged: what is left is a prefix of each log, but for texts noted as lost.

    Where keys lie differs from store to store, so a bit may be in a page that nothing uses: then nothing is missing.
    """
    fill_store(tmp_path)
    whole, rng = everything(tmp_path), random.Random(seed)
    size = (tmp_path / "pages").stat().st_size
    for _ in range(rng.randrange(1, 4)):
        flip_bit(tmp_path / "pages", rng.randrange(size))
    done = repair(tmp_path)
    left, noted = everything(tmp_path), 0
    assert done.lost or left == whole
    for key, events in left.items():
        if key.startswith("recovered"):
            continue
        for before, now in zip(whole[key], events, strict=False):
            if before != now:
                assert isinstance(now, TurnAdded)
                assert "[lost: " in now.turn.observations[0].text
                noted += 1
    store = LinearHashStore(tmp_path)
    assert store.check() == []
    key = next(iter(left))
    after = store.length(key)
    assert store.append(key, [add_turn(99, "goes on")], after=after, at=99.0) == after + 1
    store.close()
    assert (tmp_path / "pages.damaged").stat().st_size == size


def test_a_lost_meta_page_is_no_loss_of_records(tmp_path: Path) -> None:
    """Opening refuses; a repair finds the records by their pages."""
    fill_store(tmp_path)
    whole = everything(tmp_path)
    flip_bit(tmp_path / "pages", 100)
    store = LinearHashStore(tmp_path)
    with pytest.raises(CorruptError, match="page 0"):
        store.sessions()
    assert any("page 0" in each.what and each.lost for each in store.check())
    store.close()
    repair(tmp_path)
    assert everything(tmp_path) == whole


def test_a_repair_keeps_the_ids_of_appends(tmp_path: Path) -> None:
    """An append whose answer was lost before the damage is written once after it."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s")
    events, batch = (add_turn(1, "x" * 5_000), add_turn(2)), bytes(range(16))
    assert store.append("s", events, after=0, at=1.0, batch=batch) == 2
    assert store.append("s", [add_turn(3)], after=2, at=1.0) == 3
    store.close()
    repair(tmp_path)
    store = LinearHashStore(tmp_path)
    assert store.append("s", events, after=0, at=1.0, batch=batch) == 2
    with pytest.raises(ConflictError):
        store.append("s", events, after=0, at=1.0, batch=bytes(16))
    store.close()


def test_a_damaged_log_header_is_refused(tmp_path: Path) -> None:
    """Frames may stand behind it, so it is not taken for an empty log."""
    store = LinearHashStore(tmp_path)
    filled_log = tmp_path / "log"
    begin_session(store, "s", add_turn(1))
    flip_bit(filled_log, 20)
    reader = LinearHashStore(tmp_path)
    with pytest.raises(ElisionError, match="log's header"):
        reader.sessions()
    reader.close()
    flip_bit(filled_log, 20)
    store.close()


def test_a_store_in_use_is_not_repaired(tmp_path: Path) -> None:
    """Its writer is named."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s")
    with pytest.raises(ConflictError, match="writes to this store"):
        repair(tmp_path)
    store.close()
