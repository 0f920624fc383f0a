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
from elision.stores.linear_hash.store import LinearHashStore
from tests.figures import ReportFigures
from tests.processes import start_process
from tests.soak import SOAK
from tests.stores.linear_hash.child_processes import SESSION, WIDTH, find_version
from tests.stores.session_logs import add_turn, begin_session, read_log

ROOT = Path(__file__).parents[3]
KILLS = 500 if SOAK else 5
VERSIONS = 5_000 if SOAK else 150


def child(*given: object) -> AbstractContextManager[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.stores.linear_hash.child_processes", *map(str, given)]
    return start_process(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def killed_once(folder: Path, rng: Random) -> int:
    """Let a writer work and kill it; the newest append that it acknowledged, 0 for none."""
    with child(folder) as writer:
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


def read_version(folder: Path) -> int:
    """Return the last append that a reader of its own finds; assert that the store is in order."""
    store = LinearHashStore(folder)
    try:
        assert store.check() == []
        return find_version(store)
    finally:
        store.close()


def test_kills_amid_checkpoints_lose_nothing(tmp_path: Path, report_figures: ReportFigures) -> None:
    """Every few appends a checkpoint runs; whenever the writer is killed, what it acknowledged is there whole."""
    rng, lost = Random(3), 0
    for _ in range(KILLS):
        acknowledged = killed_once(tmp_path, rng)
        lost += max(0, acknowledged - read_version(tmp_path))
    report_figures(f"linear-hash: {KILLS} kills amid checkpoints, {read_version(tmp_path):,} appends, {lost} lost")
    assert lost == 0


def test_readers_beside_a_writer_see_whole_appends(tmp_path: Path, report_figures: ReportFigures) -> None:
    """Readers have all of one append and nothing of the next, never go back; checkpoints and compactions run."""
    readers = [LinearHashStore(tmp_path) for _ in range(2)]
    seen, looks, files = [0, 0], 0, set()
    with child(tmp_path, VERSIONS) as writer:
        assert writer.stdout is not None
        os.set_blocking(writer.stdout.fileno(), False)
        while writer.poll() is None:
            writer.stdout.read()
            for number, reader in enumerate(readers):
                version = find_version(reader)
                assert version >= seen[number]
                seen[number] = version
                looks += 1
            files |= {path.stat().st_ino for path in (tmp_path / "values", tmp_path / "directory") if path.exists()}
        assert writer.returncode == 0
    for reader in readers:
        assert find_version(reader) == VERSIONS
        reader.close()
    report_figures(f"linear-hash: {looks:,} reads beside {VERSIONS:,} appends, {len(files)} files")
    assert looks > 4
    assert len(files) > 2


def test_an_iterator_is_of_the_moment_of_its_call(tmp_path: Path) -> None:
    """Whatever another process appends, deletes beside it or compacts meanwhile."""
    with child(tmp_path, 50) as first:
        first.communicate()
    reader = LinearHashStore(tmp_path)
    reading = reader.events(SESSION)
    events = [next(reading)]
    with child(tmp_path, 70) as second:
        second.communicate()
    assert second.returncode == 0
    events += reading
    assert len(events) == 50 * WIDTH
    assert find_version(reader) == 70
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
    assert modes == {"values": 0o600, "directory": 0o600, "lock": 0o600}
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
