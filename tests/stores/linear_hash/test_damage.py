"""Damage is found wherever it is, hits what it hits alone, and no byte that was changed is ever returned."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from elision.errors import ConflictError, CorruptError, ElisionError
from elision.stores.linear_hash.check import repair
from elision.stores.linear_hash.log import FRAME, START
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.store import Finding
from elision.trajectory.events import TurnAdded
from tests.stores.linear_hash.damage import fill_store, flip_bit, read_everything
from tests.stores.session_logs import add_turn, begin_session, new_session, read_log


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill_store(tmp_path)
    return tmp_path


def find_damage(folder: Path) -> list[Finding]:
    store = LinearHashStore(folder)
    try:
        return store.check()
    finally:
        store.close()


def copy_unclosed(source: Path, target: Path) -> None:
    """Copy the files of a store that is open, as a crash would leave them."""
    target.mkdir(exist_ok=True)
    for name in ("values", "directory"):
        if (source / name).exists():
            (target / name).write_bytes((source / name).read_bytes())


def list_frames(path: Path) -> list[int]:
    """Return the offsets of the frames of a log."""
    data = path.read_bytes()
    return [at for at in range(START, len(data) - FRAME) if data[at : at + 4] == b"\xf5LH\x01"]


def test_a_store_in_order_has_no_findings(folder: Path) -> None:
    """Frames, records, texts, pages and the catalogue go together."""
    assert find_damage(folder) == []


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_flipped_bit_of_the_log_is_found(tmp_path: Path, *, is_closed: bool) -> None:
    """In any frame, the newest included, of a store that was closed or was not; other sessions are read."""
    fill_store(tmp_path / "whole", sessions=3)
    whole = read_everything(tmp_path / "whole")
    if not is_closed:
        store = LinearHashStore(tmp_path / "whole")
        store.append("session 0", [add_turn(13, "new " * 400)], after=24, at=9.0)
        store.append("session 1", [add_turn(13, "newer")], after=24, at=9.0)
        whole = {info.key: list(store.events(info.key)) for info in store.sessions()}
        copy_unclosed(tmp_path / "whole", tmp_path / "copy")
        store.close()
    else:
        copy_unclosed(tmp_path / "whole", tmp_path / "copy")
    path, rng = tmp_path / "copy" / "values", Random(is_closed)
    before = path.read_bytes()
    frames = list_frames(path)
    end = len(before.rstrip(b"\0")) - FRAME - 2 if is_closed else before.rindex(b"\xfa\xce")
    offsets = [rng.randrange(START, end) for _ in range(25)] + [frames[-1] + each for each in (0, 5, 9, 20, 40)]
    for offset in offsets:
        flip_bit(path, offset, rng.randrange(8))
        assert any(each.lost for each in find_damage(tmp_path / "copy")), offset
        store = LinearHashStore(tmp_path / "copy")
        refused = []
        for key, events in whole.items():
            try:
                found = list(store.events(key))
            except ElisionError:
                refused.append(key)
            else:
                assert found == events[: len(found)]
                refused += [key] if found != events else []
        store.close()
        # One frame is one append to one session, which a fork may share.
        assert len(refused) <= 2, offset
        path.write_bytes(before)
    assert find_damage(tmp_path / "copy") == []


def test_a_log_that_is_gone_is_found(folder: Path) -> None:
    """An empty folder is in order; one that has the directory of a log without the log is not."""
    (folder / "values").unlink()
    assert [(each.place, each.lost) for each in find_damage(folder)] == [("log", True)]
    (folder / "directory").unlink()
    assert find_damage(folder) == []


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_cut_log_is_found(tmp_path: Path, *, is_closed: bool) -> None:
    """Wherever it is cut, between two frames too; a writer refuses it and names the repair."""
    fill_store(tmp_path / "whole", sessions=2)
    store = LinearHashStore(tmp_path / "whole")
    if not is_closed:
        store.append("session 0", [add_turn(13, "new " * 400)], after=24, at=9.0)
    copy_unclosed(tmp_path / "whole", tmp_path / "copy")
    store.close()
    path, rng = tmp_path / "copy" / "values", Random(1)
    before = path.read_bytes()
    frames = list_frames(path)
    for size in [*(rng.randrange(START, len(before)) for _ in range(10)), *frames[1::9], frames[-1], len(before) - 1]:
        path.write_bytes(before[:size])
        assert any(each.lost for each in find_damage(tmp_path / "copy")), size
        store = LinearHashStore(tmp_path / "copy")
        with pytest.raises(CorruptError, match="--repair"):
            store.create(new_session("new"))
        store.close()
    repair(tmp_path / "copy")
    assert find_damage(tmp_path / "copy") == []


def test_a_damaged_or_lost_directory_loses_nothing(folder: Path) -> None:
    """It is found, read around, and written anew by the next writer."""
    whole = read_everything(folder)
    size, rng = (folder / "directory").stat().st_size, Random(1)
    for _ in range(6):
        flip_bit(folder / "directory", rng.randrange(size))
        [found] = find_damage(folder) or [Finding(place="unused byte", what="")]
        assert not found.lost
        assert read_everything(folder) == whole
    (folder / "directory").unlink()
    assert read_everything(folder) == whole
    store = LinearHashStore(folder)
    begin_session(store, "new", add_turn(1))
    store.close()
    assert find_damage(folder) == []


def test_one_copy_of_the_header_is_enough(folder: Path) -> None:
    """With both damaged the directory knows the log's numbers; without it the store is refused."""
    whole = read_everything(folder)
    flip_bit(folder / "values", 9)
    [found] = find_damage(folder)
    assert (found.place, found.lost) == ("log", False)
    flip_bit(folder / "values", 512 + 9)
    assert read_everything(folder) == whole
    (folder / "directory").unlink()
    store = LinearHashStore(folder)
    with pytest.raises(CorruptError, match="header"):
        store.sessions()
    assert [each.lost for each in store.check()] == [True]
    store.close()


def test_a_writer_goes_on_after_damage(folder: Path) -> None:
    """The session that is hit says so, all others are read and written, and the damage stays known."""
    offset = list_frames(folder / "values")[5] + FRAME + 60
    flip_bit(folder / "values", offset)
    (folder / "directory").unlink()
    store = LinearHashStore(folder)
    assert store.append("session 3", [add_turn(13, "goes on")], after=24, at=9.0) == 25
    with pytest.raises(CorruptError, match="session 0"):
        list(store.events("session 0"))
    assert len(read_log(store, "session 3")) == 25
    store.close()
    assert any(each.lost and each.place.startswith("log, bytes") for each in find_damage(folder))


def test_a_repair_of_a_sound_store_changes_nothing(folder: Path) -> None:
    """Every event is as it was, and the check has nothing to say."""
    whole = read_everything(folder)
    store = LinearHashStore(folder)
    infos = store.sessions()
    store.close()
    done = repair(folder)
    assert done.lost == ()
    assert (done.sessions, done.records) == (len(whole), sum(map(len, whole.values())))
    assert read_everything(folder) == whole
    assert find_damage(folder) == []
    store = LinearHashStore(folder)
    assert store.sessions() == infos
    assert store.locate("f", ["session 1 n3"]) == ("session 1", 3)
    store.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_repair_keeps_what_can_be_read(folder: Path, seed: int) -> None:
    """Any part of the log is damaged: what is left is a prefix of each log, but for texts noted as lost."""
    whole, rng = read_everything(folder), Random(seed)
    size = (folder / "values").stat().st_size
    # Frames follow one another without a gap, and before the last one no byte is of a write that a crash may have torn,
    # or of reserved room: each is of something that can be lost. Different bytes: a bit that is flipped twice is whole.
    for offset in rng.sample(range(START, list_frames(folder / "values")[-1]), rng.randrange(1, 4)):
        flip_bit(folder / "values", offset)
    done = repair(folder)
    assert done.lost
    left = read_everything(folder)
    for key, events in left.items():
        if key.startswith("recovered"):
            continue
        for before, now in zip(whole[key], events, strict=False):
            if before != now:
                assert isinstance(now, TurnAdded)
                assert "[lost: " in now.turn.observations[0].text
    assert sum(left.get(key) == events for key, events in whole.items()) >= 1
    assert find_damage(folder) == []
    store = LinearHashStore(folder)
    key = next(iter(left))
    after = store.length(key)
    assert store.append(key, [add_turn(99, "goes on")], after=after, at=99.0) == after + 1
    store.close()
    assert (folder / "values.damaged").stat().st_size == size


def test_a_lost_text_is_noted(tmp_path: Path) -> None:
    """A session that refers to a damaged record of another one keeps its turns."""
    store = LinearHashStore(tmp_path)
    text = Random(1).randbytes(4_000).hex()
    begin_session(store, "a", add_turn(1, text))
    begin_session(store, "b", add_turn(1, text), add_turn(2, "more"))
    store.close()
    frame = list_frames(tmp_path / "values")[1]
    flip_bit(tmp_path / "values", frame + FRAME + 500)
    repair(tmp_path)
    store = LinearHashStore(tmp_path)
    assert store.length("a") == 0
    assert store.observation("b", (1, 1)).text == "[lost: this text was damaged in the store]"
    assert store.observation("b", (2, 1)).text == "more"
    store.close()


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


def test_a_store_in_use_is_not_repaired(tmp_path: Path) -> None:
    """Its writer is named."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s")
    with pytest.raises(ConflictError, match="writes to this store"):
        repair(tmp_path)
    store.close()
