"""What SQLite leaves out of a damaged write-ahead log."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from elision.errors import CorruptError
from elision.manager import ContextManager
from elision.stores.sqlite_check import describe_lost_transactions
from elision.stores.store_urls import open_or_replace, open_store
from tests.manager.agents import make_history
from tests.manager.damaged_stores import STRATEGY

TURNS = 8


YOUNG = pytest.mark.parametrize("killed", [False], ids=["young"], indirect=True)


@pytest.fixture(params=[False, True], ids=["young", "folded"])
def killed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file of a process that was killed, with its log beside it. folded: the log has only its newest turns."""
    running = tmp_path / "running"
    running.mkdir()
    for first, last in ((0, TURNS // 2), (TURNS // 2, TURNS)) if request.param else ((0, TURNS),):
        with ContextManager(STRATEGY, store=f"sqlite:///{running}/a.db", session="s") as context:
            for turns in range(first, last):
                context.prepare(make_history("openai", turns))
            shutil.copytree(running, tmp_path / "killed", dirs_exist_ok=True)
    return tmp_path / "killed" / "a.db"


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)


def list_frames(log: Path) -> Iterator[int]:
    yield from range(32, log.stat().st_size, 24 + 4096)


def test_a_log_that_is_whole_or_cut_has_no_finding(killed: Path) -> None:
    """A power cut leaves a part of it, in its last frames or without them."""
    log = killed.with_name("a.db-wal")
    whole = log.read_bytes()
    assert describe_lost_transactions(killed) == ""
    for start in list(list_frames(log))[::7]:
        log.write_bytes(whole[: start + 1000])
        assert describe_lost_transactions(killed) == ""
    log.write_bytes(whole)
    flip(log, len(whole) - 100)
    assert describe_lost_transactions(killed) == ""
    log.unlink()
    assert describe_lost_transactions(killed) == ""


def test_a_changed_bit_before_other_transactions_is_found(killed: Path) -> None:
    """In the log's header, in a frame's header, in a page: SQLite reads nothing from there on, and says nothing."""
    log = killed.with_name("a.db-wal")
    whole = log.read_bytes()
    places = list(list_frames(log))
    chosen = random.Random(3)
    starts = chosen.sample(places[: len(places) // 2], 4)
    for at in (
        0,
        17,
        20,
        25,
        *(start + within for start in starts for within in (1, 9, 17, 24 + chosen.randrange(4096))),
    ):
        log.write_bytes(whole)
        flip(log, at)
        assert "SQLite leaves out the" in describe_lost_transactions(killed), at


def test_the_check_of_the_store_tells(killed: Path) -> None:
    """Before anything is written, which would be written over it. A file of which nothing else is left is damaged."""
    log = killed.with_name("a.db-wal")
    starts = list(list_frames(log))
    flip(log, starts[len(starts) // 2] + 300)
    with closing(open_store(f"sqlite:///{killed}")) as store:
        (finding,) = [each for each in store.check() if each.lost]
    assert "a.db-wal: frame" in finding.what


def test_frames_of_an_earlier_round_are_no_loss(killed: Path) -> None:
    """A process is killed when it has begun a new round: the old frames are in the database, and still behind it."""
    log = killed.with_name("a.db-wal")
    header = bytearray(log.read_bytes()[:32])
    header[16:24] = b"12345678"
    first = second = 0
    numbers = struct.unpack(f"{'>' if header[3] & 1 else '<'}6I", header[:24])
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    header[24:] = struct.pack(">II", first, second)
    log.write_bytes(header + log.read_bytes()[32:])
    assert describe_lost_transactions(killed) == ""


@YOUNG
def test_a_file_whose_beginning_is_in_a_damaged_log_is_not_begun_anew(killed: Path) -> None:
    """It has no table yet without the log: new ones would be written over what can still be read there."""
    log = killed.with_name("a.db-wal")
    # Within the transaction that made the tables.
    flip(log, list(list_frames(log))[3])
    before = log.read_bytes()
    with pytest.raises(CorruptError, match="frame 4 is damaged"):
        open_store(f"sqlite:///{killed}")
    store, what = open_or_replace(f"sqlite:///{killed}")
    with closing(store):
        assert "kept as a.db.damaged" in what
        assert store.sessions() == []
    assert killed.with_name("a.db.damaged-wal").read_bytes() == before
