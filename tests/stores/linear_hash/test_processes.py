"""One process writes, others read beside it, and any of them may be killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from random import Random

import pytest

from elision.errors import ConflictError
from elision.stores.linear_hash.fsck import check_pages
from elision.stores.linear_hash.locks import WriterLock
from elision.stores.linear_hash.reader import Reader
from elision.stores.linear_hash.store import LinearHashStore
from elision.stores.linear_hash.store_folder import StoreFolder
from tests.processes import start_process
from tests.stores.linear_hash.child_processes import LIMITS, find_version
from tests.stores.session_logs import add_turn, begin_session, read_log

ROOT = Path(__file__).parents[3]
SOAK = os.environ.get("ELISION_SOAK") == "1"
KILLS = 500 if SOAK else 8
VERSIONS = 20_000 if SOAK else 400


def child(*given: object) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.stores.linear_hash.child_processes", *map(str, given)]
    return start_process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def killed_once(folder: Path, rng: Random) -> int:
    """Let a writer work and kill it; the newest transaction that it acknowledged, 0 for none."""
    with child("write", folder) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        heard, wanted = b"", rng.choice((1, 3, 10, 40, 120))
        while heard.count(b"\n") < wanted:
            piece = os.read(writer.stdout.fileno(), 4_096)
            assert piece, writer.stderr.read().decode()
            heard += piece
        select.select([], [], [], rng.uniform(0, 0.01))
        writer.send_signal(signal.SIGKILL)
        heard += writer.stdout.read()
    whole = heard[: heard.rfind(b"\n") + 1].split()
    return int(whole[-1])


def test_kills_amid_checkpoints_lose_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every few transactions a checkpoint runs; whenever the writer is killed, what it acknowledged is there whole."""
    StoreFolder(tmp_path).make_folder()
    rng, lost = Random(3), 0
    for _ in range(KILLS):
        acknowledged = killed_once(tmp_path, rng)
        reader = Reader(StoreFolder(tmp_path).open_for_reading)
        with reader.open_snapshot() as state:
            lost += max(0, acknowledged - find_version(state))
        reader.close()
        lock, writer = WriterLock(tmp_path / "lock"), StoreFolder(tmp_path).open_for_writing(LIMITS)
        lost += max(0, acknowledged - find_version(writer))
        writer.close()
        lock.close()
        files = StoreFolder(tmp_path).open_for_reading()
        assert check_pages(files.pages, files.log).findings == []
        files.close()
    with capsys.disabled():
        print(f"\n  {KILLS} kills amid checkpoints: {version_in_folder(tmp_path):,} transactions, {lost} lost")
    assert lost == 0


def version_in_folder(folder: Path) -> int:
    reader = Reader(StoreFolder(folder).open_for_reading)
    with reader.open_snapshot() as state:
        version = find_version(state)
    reader.close()
    return version


def test_readers_beside_a_writer_see_whole_transactions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Snapshots hold all of one transaction and nothing of the next, never go back; checkpoints run between them."""
    StoreFolder(tmp_path).make_folder()
    readers = [Reader(StoreFolder(tmp_path).open_for_reading, cache=8) for _ in range(2)]
    seen, snapshots, salts = [0, 0], 0, set()
    with child("write", tmp_path, VERSIONS) as writer:
        assert writer.stdout is not None
        os.set_blocking(writer.stdout.fileno(), False)
        while writer.poll() is None:
            writer.stdout.read()
            for number, reader in enumerate(readers):
                with reader.open_snapshot() as state:
                    version = find_version(state)
                    assert find_version(state) == version
                assert version >= seen[number]
                seen[number] = version
                snapshots += 1
            salts.add((tmp_path / "log").read_bytes()[:36])
        assert writer.returncode == 0
    for reader in readers:
        with reader.open_snapshot() as state:
            assert find_version(state) == VERSIONS
        reader.close()
    with capsys.disabled():
        print(f"\n  {snapshots} snapshots beside {VERSIONS} transactions, {len(salts)} logs", end="")
    assert snapshots > 10
    assert len(salts) > 2


def test_an_open_snapshot_stays_as_it_was(tmp_path: Path) -> None:
    """Whatever is committed meanwhile; checkpoints wait, and catch up when it is closed."""
    StoreFolder(tmp_path).make_folder()
    with child("write", tmp_path, 5) as first:
        first.communicate()
    reader = Reader(StoreFolder(tmp_path).open_for_reading)
    with reader.open_snapshot() as state:
        with child("write", tmp_path, 20) as second:
            second.communicate()
        assert second.returncode == 0
        assert find_version(state) == 5
        assert (tmp_path / "log").stat().st_size > LIMITS.log_bytes * 2
    with reader.open_snapshot() as state:
        assert find_version(state) == 20
    reader.close()


def test_a_second_writer_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    """Reading goes on beside the first; its end lets the second write."""
    first, second = LinearHashStore(tmp_path), LinearHashStore(tmp_path)
    begin_session(first, "s", add_turn(1))
    with pytest.raises(ConflictError, match=f"process {os.getpid()} writes"):
        second.append("s", (add_turn(2),), after=1, at=2.0)
    assert read_log(second) == [add_turn(1)]
    first.append("s", (add_turn(2),), after=1, at=2.0)
    assert read_log(second) == [add_turn(1), add_turn(2)]
    first.close()
    assert second.append("s", (add_turn(3),), after=2, at=3.0) == 3
    second.close()


def test_a_forked_child_does_not_write(tmp_path: Path) -> None:
    """It shares the lock with its parent; two who think they hold it would mix up the file."""
    store = LinearHashStore(tmp_path)
    begin_session(store, "s", add_turn(1))
    child = os.fork()
    if not child:
        try:
            store.append("s", (add_turn(2),), after=1, at=2.0)
        except ConflictError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert read_log(store) == [add_turn(1)]
    store.close()


def test_a_compaction_beside_a_reader(tmp_path: Path) -> None:
    """The reader goes over to the new file, and an open one keeps the old."""
    store, reader = LinearHashStore(tmp_path), LinearHashStore(tmp_path)
    noise = Random(1)
    for key in "abc":
        begin_session(store, key, *(add_turn(index, noise.randbytes(4_000).hex()) for index in range(1, 20)))
    assert len(read_log(reader, "c")) == 19
    store.delete("a")
    store.delete("b")
    assert store.compact() > 100_000
    assert [info.key for info in reader.sessions()] == ["c"]
    assert read_log(reader, "c") == read_log(store, "c")
    begin_session(store, "d", add_turn(1))
    assert len(reader.sessions()) == 2
    store.close()
    reader.close()


def test_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    """0600, whatever the umask; the folder 0700."""
    old = os.umask(0)
    try:
        store = LinearHashStore(tmp_path / "new")
        begin_session(store, "s", add_turn(1))
        store.close()
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
    assert modes == {"pages": 0o600, "log": 0o600, "lock": 0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
