"""The SQLite store as a file: how it is made, what it promises of durability, and what it says when something fails."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from elision.errors import ConflictError, CorruptError, StoreError
from elision.stores import sqlite
from elision.stores.packing import measure_event
from elision.stores.sqlite import SqliteStore
from elision.stores.sqlite_file import APPLICATION, VERSION, SqliteFile
from elision.stores.store_urls import open_store
from elision.trajectory.events import TurnAdded
from tests.processes import start_processes
from tests.stores.full_disk import full_disk
from tests.stores.session_logs import (
    add_turn,
    amend_turn,
    begin_session,
    list_every_event,
    make_turn,
    new_session,
    read_log,
)
from tests.stores.test_contract_space import noise

ROOT = Path(__file__).parents[2]
Fault = Callable[[SqliteStore], AbstractContextManager[None]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(path, busy_seconds=0.05)) as opened:
        yield opened


def asked(store: SqliteStore, question: str) -> object:
    """One value from the store's own connection."""
    with store._file.use_connection() as connection:
        return connection.execute(question).fetchone()[0]


# --- durability --------------------------------------------------------------------------------------------------


def test_every_append_is_synced(store: SqliteStore) -> None:
    """Write-ahead log, and `synchronous` is FULL (2) on the connection that writes."""
    assert asked(store, "PRAGMA journal_mode") == "wal"
    assert asked(store, "PRAGMA synchronous") == 2


def test_who_may_not_wait_does_not(store: SqliteStore) -> None:
    """While another thread writes, a length that is asked for at once is the one that is on the disk; while another one
    asks as well, it is not known."""
    begin_session(store, "s", add_turn(1))
    with ThreadPoolExecutor(1) as pool, store._file.write_transaction() as connection:
        connection.execute("UPDATE sessions SET records = records + 1")
        assert pool.submit(store.try_length, "s").result(20) == 1
    assert store.try_length("s") == 2
    with store._file._waitless_lock:
        assert store.try_length("s") is None


def test_a_damaged_row_keeps_no_old_session(store: SqliteStore, path: Path) -> None:
    """What is full can be emptied, although a listing says that a row is damaged."""
    for number, key in enumerate("abc"):
        begin_session(store, key, add_turn(1), at=float(number))
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE sessions SET family = 7 WHERE key = ?", (b"b",))
    with pytest.raises(CorruptError):
        store.sessions()
    assert store.purge(older_than=2.0).sessions == ("a", "b")
    assert [info.key for info in store.sessions()] == ["c"]


def test_what_is_forgotten_is_overwritten(store: SqliteStore, path: Path) -> None:
    """A deleted session's words are in no file once it is compacted, nor in the index."""
    words = "unforgettable words"
    begin_session(store, "s", *(add_turn(index, f"{words} {index}", said=words) for index in range(1, 700)))
    assert store.search("s", "unforgettable")
    store.delete("s")
    store.compact()
    store.close()
    assert b"unforgettable" not in b"".join(file.read_bytes() for file in path.parent.iterdir())


def test_a_long_session_has_a_short_write_ahead_log(store: SqliteStore, path: Path) -> None:
    """It is folded in as it grows; a huge text does not leave it huge."""
    begin_session(store, "s", add_turn(1, noise(1, 50_000_000)))
    for index in range(2, 40):
        store.append("s", (add_turn(index, noise(index, 100_000)),), after=index - 1, at=1.0)
    assert path.with_name("agent.db-wal").stat().st_size <= 20_000_000


# --- the file ----------------------------------------------------------------------------------------------------


def test_new_files_are_for_their_owner_alone(store: SqliteStore, path: Path) -> None:
    """The file, its log and its shared memory, whatever the umask."""
    begin_session(store, "s", add_turn(1))
    found = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert found == {"agent.db": 0o600, "agent.db-wal": 0o600, "agent.db-shm": 0o600}


def test_an_old_file_keeps_its_mode(path: Path) -> None:
    """Whoever shared it meant to."""
    SqliteStore(path).close()
    path.chmod(0o640)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_folder_is_not_made(tmp_path: Path) -> None:
    """A misspelt path is said, not obeyed."""
    with pytest.raises(StoreError, match=r"no folder .*missing; make it first"):
        SqliteStore(tmp_path / "missing" / "agent.db")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    """The error names it."""
    with pytest.raises(StoreError, match="is a folder"):
        SqliteStore(tmp_path)


def test_other_files_are_left_alone(path: Path) -> None:
    """What is no database, or another program's, is refused and not changed."""
    path.write_bytes(b"not a database, and longer than the header of one: " * 20)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"agent\.db: it is not an SQLite database"):
        SqliteStore(path)
    assert path.read_bytes() == before
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE sessions (theirs)")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    """`touch` or a temporary file made beforehand is no obstacle."""
    path.touch()
    with closing(SqliteStore(path)) as store:
        begin_session(store, "s", add_turn(1))


def test_sqlite_in_memory_is_refused() -> None:
    """There is a store for that, and a file of that name helps nobody."""
    with pytest.raises(StoreError, match="memory:"):
        open_store("sqlite:///:memory:")


# --- versions ----------------------------------------------------------------------------------------------------


def test_a_file_says_whose_and_which_version_it_is(store: SqliteStore) -> None:
    """In its header, where `file` and other programs look."""
    assert asked(store, "PRAGMA application_id") == APPLICATION
    assert asked(store, "PRAGMA user_version") == VERSION


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_of_another_version_is_refused(path: Path, read_only: bool) -> None:
    """And not changed: half-understood sessions would be damaged."""
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"agent\.db: has a schema of version 99, and .* reads version 1 alone"):
        SqliteStore(path, read_only=read_only)
    assert path.read_bytes() == before


# --- processes ---------------------------------------------------------------------------------------------------

_CHILD = """
import sys
from pathlib import Path
from elision.errors import ConflictError
from elision.stores.packing import LARGE, measure_event
from elision.stores.sqlite import SqliteStore
from tests.stores.session_logs import add_turn, new_session
store, own = SqliteStore(Path(sys.argv[1])), sys.argv[2]
store.create(new_session(own))
won = 0
for after in range(30):
    store.append(own, (add_turn(after + 1, own * 700),), after=after, at=1.0)
    try:
        store.append("shared", (add_turn(after + 1, own),), after=after, at=1.0)
        won += 1
    except ConflictError:
        pass
print(won)
"""


def test_processes_write_one_file(path: Path) -> None:
    """Each its own session in full; of those that write one session, one wins each record, and the rest are told."""
    with closing(SqliteStore(path)) as store:
        begin_session(store, "shared")
        command = [sys.executable, "-c", _CHILD, str(path)]
        commands = [[*command, name] for name in "abc"]
        piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with start_processes(commands, cwd=ROOT, **piped) as children:
            said = [child.communicate() for child in children]
        assert [child.returncode for child in children] == [0, 0, 0], said
        assert sum(int(out) for out, _ in said) == store.length("shared")
        assert [each.index for each in store.turns("shared")] == list(range(1, store.length("shared") + 1))
        for name in "abc":
            assert store.turns(name) == [make_turn(index, name * 700) for index in range(1, 31)]
        assert store.check() == []


def test_processes_may_make_one_file_at_once(path: Path) -> None:
    """Whoever comes second finds it made."""
    program = "import sys; from elision.stores.store_urls import open_store; open_store(sys.argv[1]).close()"
    command = [sys.executable, "-c", program, f"sqlite:///{path}"]
    with start_processes([command] * 4, cwd=ROOT, stderr=subprocess.PIPE, text=True) as children:
        said = [child.communicate()[1] for child in children]
    assert [child.returncode for child in children] == [0] * 4, said


@pytest.mark.parametrize("read", ["PRAGMA user_version", "PRAGMA application_id"])
def test_another_process_may_make_the_file_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    """A file that was empty a moment ago, and has tables now, is no database of another program."""
    connect, tried = sqlite3.connect, list[str]()

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            found = super().execute(sql, *values)
            if sql == read and not tried:
                tried.append(sql)
                monkeypatch.setattr(sqlite3, "connect", connect)
                # A statement that has not ended would keep others from writing.
                [(value,)] = found.fetchall()
                found = super().execute("SELECT ?", (value,))
                # It makes the tables, or waits for the one that reads.
                with suppress(StoreError):
                    SqliteStore(path, busy_seconds=0.0).close()
            return found

    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=Watched))
    SqliteStore(path).close()
    assert tried == [read]


def test_the_journal_mode_waits_for_another_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself fails at once, where another process makes the same file."""
    connect, tried = sqlite3.connect, list[str]()

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            if sql == "PRAGMA journal_mode = WAL" and len(tried) < 3:
                tried.append(sql)
                error = sqlite3.OperationalError("database is locked")
                error.sqlite_errorname = "SQLITE_BUSY"
                raise error
            return super().execute(sql, *values)

    monkeypatch.setattr(sqlite3, "connect", lambda *given, **named: connect(*given, **named, factory=Watched))
    with closing(SqliteStore(path)) as store:
        assert asked(store, "PRAGMA journal_mode") == "wal"
    tried.clear()
    with pytest.raises(StoreError, match=r"kept it locked for 0 s"):
        SqliteStore(path, busy_seconds=0.0)


def test_two_openings_see_each_other(path: Path) -> None:
    """At once, and the one that is behind gets a conflict."""
    with closing(SqliteStore(path)) as one, closing(SqliteStore(path)) as two:
        begin_session(one, "s", add_turn(1))
        assert two.append("s", (add_turn(2),), after=1, at=1.0) == 2
        with pytest.raises(ConflictError):
            one.append("s", (add_turn(2),), after=1, at=1.0)
        assert read_log(one) == read_log(two) == [add_turn(1), add_turn(2)]


def test_a_forked_process_is_told_to_open_it_again(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's connections do not survive a fork; using one would damage the file."""
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StoreError, match="forked; open it again"):
        store.sessions()


# --- faults ------------------------------------------------------------------------------------------------------


def test_a_locked_file_is_said_and_goes_on(store: SqliteStore, path: Path) -> None:
    """The append did not happen, the search scans, and once the lock is gone everything works."""
    begin_session(store, "s", *(add_turn(index, "word") for index in range(1, 700)))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreError, match=r"agent\.db: another process kept it locked for 0\.05 s; nothing was written"
        ):
            store.append("s", (add_turn(700),), after=699, at=2.0)
        assert store.length("s") == 699
        assert len(store.search("s", "word")) == 20
        other.execute("ROLLBACK")
    assert store.append("s", (add_turn(700),), after=699, at=2.0) == 700


def test_a_lock_is_waited_for_once(store: SqliteStore, path: Path) -> None:
    """While another process holds the file, only the first writer waits; once one was served, the next waits again."""
    begin_session(store, "s", add_turn(1))
    for records in (1, 2):
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waited = [waits(store)]
            for said in ("kept it locked for 0.05 s", "still keeps it locked", "still keeps it locked"):
                with pytest.raises(StoreError, match=f"another process {said}; nothing was written, try again"):
                    store.append("s", (add_turn(records + 1),), after=records, at=2.0)
                waited.append(waits(store))
            assert waited == [50, 0, 0, 0]
            assert store.length("s") == records
            other.execute("ROLLBACK")
        assert store.append("s", (add_turn(records + 1),), after=records, at=2.0) == records + 1
        assert waits(store) == 50


def waits(store: SqliteStore) -> int:
    """Milliseconds that the next writer would wait for another process."""
    with store._file.use_connection() as connection:
        found: int = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    return found


def test_an_interrupted_write_did_not_happen(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of an append, or of a read, leaves the store as it was and in working order."""
    begin_session(store, "s", add_turn(1))
    with monkeypatch.context() as patch:
        patch.setattr(store, "_write_row", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append("s", (add_turn(2),), after=1, at=2.0)
        patch.setattr(store, "_find_session", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.length("s")
    assert read_log(store) == [add_turn(1)]
    assert store.info("s").changed == 1.0
    assert store.append("s", (add_turn(2),), after=1, at=2.0) == 2


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def full_pages(store: SqliteStore) -> Iterator[None]:
    """SQLite may not take one more page."""
    pages = asked(store, "PRAGMA page_count")
    asked(store, f"PRAGMA max_page_count = {pages}")
    yield
    asked(store, "PRAGMA max_page_count = 1000000000")


@pytest.mark.parametrize(
    ("full", "said"), [(full_pages, "the disk is full"), (lambda store: full_disk(store._file.path), "the disk failed")]
)
def test_a_full_disk_loses_nothing(store: SqliteStore, path: Path, full: Fault, said: str) -> None:
    """What was acknowledged stays, what was refused is not there, and with room again the session goes on."""
    begin_session(store, "s", add_turn(1, noise(1, 50_000)))
    with full(store):
        with pytest.raises(StoreError, match=f"{path.name}: {said}"):
            store.append("s", (add_turn(2, noise(2, 5_000_000)),), after=1, at=2.0)
        assert read_log(store) == [add_turn(1, noise(1, 50_000))]
    assert store.append("s", (add_turn(2, noise(2, 5_000_000)),), after=1, at=2.0) == 2
    assert store.turns("s", 2) == [make_turn(2, noise(2, 5_000_000))]
    assert store.check() == []


# --- damage ------------------------------------------------------------------------------------------------------


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute(statement, values).rowcount > 0


DAMAGES = {
    "a record": ("UPDATE records SET body = x'00' WHERE id & 4294967295 = 2", "record 2"),
    "a text": ("UPDATE bodies SET body = x'0101'", "record 1"),
    "a missing text": ("DELETE FROM bodies", "missing"),
    "a missing record": ("DELETE FROM records WHERE id & 4294967295 = 2", "has 2 records, not 3"),
    "a wrong count": ("UPDATE texts SET uses = 7", "is used 1 times, not 7"),
    "a turn not listed": ("DELETE FROM turns WHERE turn = 2", "record 2"),
    "a stray record": (
        "INSERT INTO records VALUES (99 << 32, x'', NULL, 0, NULL)",
        "the row of session 99 is lost: 1 rows of records",
    ),
}


@pytest.mark.parametrize(("statement", "place"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_found(store: SqliteStore, path: Path, statement: str, place: str) -> None:
    """`check` names the place, and reads on around it."""
    begin_session(store, "s", add_turn(1, noise(1, 5_000)))
    store.append("s", (add_turn(2),), after=1, at=1.0)
    store.append("s", (amend_turn(3),), after=2, at=1.0)
    begin_session(store, "t", add_turn(1))
    damage(path, statement)
    found = store.check()
    assert any(place in f"{each.place} {each.what}" for each in found), found
    assert store.turns("t") == [make_turn(1)]


def test_a_damaged_record_is_said_when_it_is_read(store: SqliteStore, path: Path) -> None:
    """And the ones around it can still be read."""
    begin_session(store, "s", add_turn(1))
    for turn in (2, 3):
        store.append("s", (add_turn(turn),), after=turn - 1, at=1.0)
    damage(path, "UPDATE records SET body = substr(body, 1, 20) WHERE id & 4294967295 = 2")
    with pytest.raises(CorruptError, match=r"agent\.db: .*`elision sessions check`"):
        store.turns("s")
    assert store.turns("s", 3) == [make_turn(3)]


def test_damaged_pages_are_said(path: Path) -> None:
    """Bytes that a disk changed below SQLite are an error of ours, and a finding."""
    with closing(SqliteStore(path)) as store:
        begin_session(store, "s", *(add_turn(index, noise(index, 3_000)) for index in range(1, 200)))
    data = bytearray(path.read_bytes())
    for page in range(4, 40):
        data[page * 4_096 : page * 4_096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    with closing(SqliteStore(path)) as store:
        with pytest.raises(CorruptError, match=r"agent\.db: "):
            read_log(store)
        assert any(finding.lost for finding in store.check())


def test_damage_within_an_append_is_found(store: SqliteStore, path: Path) -> None:
    """Of a row with several records all are lost; records that a row lacks are counted."""
    begin_session(store, "s", add_turn(1), add_turn(2))
    store.append("s", (add_turn(3), add_turn(4)), after=2, at=1.0)
    damage(path, "UPDATE records SET body = x'00' WHERE id & 4294967295 = 1")
    assert [(each.place, each.lost) for each in store.check()] == [("session 's', record 1", True)]
    assert store.turns("s", 3) == [make_turn(3), make_turn(4)]
    damage(path, "UPDATE records SET body = (SELECT body FROM records WHERE id & 4294967295 = 3)")
    damage(path, "UPDATE sessions SET records = 5")
    assert "has 4 records, not 5" in {each.what for each in store.check()}


# --- rows --------------------------------------------------------------------------------------------------------


def test_an_append_is_one_row(store: SqliteStore) -> None:
    """With all its records, whatever they are; a row takes no further turn from 4 KB on."""
    begin_session(store, "s", *list_every_event())
    assert asked(store, "SELECT count(*) FROM records") == 1
    begin_session(store, "t", *(add_turn(index, noise(index, 2_040)) for index in range(1, 9)))
    assert asked(store, "SELECT count(*) FROM records") == 5
    assert [store.observation("t", (turn, 1)).text for turn in range(1, 9)] == [
        noise(turn, 2_040) for turn in range(1, 9)
    ]


@pytest.mark.parametrize("shared", range(1, 8))
def test_a_fork_shares_a_part_of_an_append(store: SqliteStore, shared: int) -> None:
    """Wherever it begins; both go on, and what one has alone goes with it."""
    events = [add_turn(index, noise(index, 300 + 900 * index), node=f"n{index}") for index in range(1, 8)]
    begin_session(store, "s", *events[:4])
    store.append("s", events[4:], after=4, at=1.0)
    store.create_with_events(new_session("t", parent="s", shared=shared), (add_turn(shared + 1, "own"),), at=2.0)
    sizes = sum(map(measure_event, [*events[:shared], add_turn(shared + 1, "own")]))
    assert read_log(store, "t") == [*events[:shared], add_turn(shared + 1, "own")]
    assert (store.info("t").raw_bytes, store.info("t").turns) == (sizes, shared + 1)
    assert store.turns("t") == [event.turn for event in read_log(store, "t") if isinstance(event, TurnAdded)]
    assert store.check() == []
    store.delete("s")
    assert store.check() == []
    assert read_log(store, "t") == [*events[:shared], add_turn(shared + 1, "own")]
    store.delete("t")
    assert asked(store, "SELECT (SELECT count(*) FROM records) + (SELECT count(*) FROM texts)") == 0


# --- search ------------------------------------------------------------------------------------------------------


def test_short_sessions_have_no_index(store: SqliteStore) -> None:
    """Whether there is one is a question of what is new, and no question of the result."""
    begin_session(store, "s", *(add_turn(index, "word") for index in range(1, sqlite.SCANNED + 1)))
    store.search("s", "word")
    assert asked(store, "SELECT indexed FROM sessions") == 0
    store.append("s", (add_turn(999, "other"),), after=sqlite.SCANNED, at=1.0)
    assert [hit.turn for hit in store.search("s", "other")] == [999]
    assert asked(store, "SELECT indexed FROM sessions") == sqlite.SCANNED + 1


def test_the_index_is_used(store: SqliteStore, path: Path) -> None:
    """Of an indexed session only what may hold the words is read: damage elsewhere goes unnoticed."""
    begin_session(store, "s", *(add_turn(index, f"number{index}") for index in range(1, 700)))
    assert [hit.turn for hit in store.search("s", "number77")] == [77]
    damage(
        path, "UPDATE records SET body = x'00' WHERE id NOT IN (SELECT max(id) FROM records WHERE id <= (1 << 32) + 77)"
    )
    assert [hit.turn for hit in store.search("s", "number77")] == [77]


def test_without_fts5_everything_is_scanned(store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQLite without it finds the same, beside an index that another one made, and deletes like any other."""
    begin_session(store, "s", *(add_turn(index, f"number{index}") for index in range(1, 700)))
    begin_session(store, "t", add_turn(1, "number77"))
    expected = store.search("s", "ber77")
    monkeypatch.setattr(sqlite, "can_index", lambda connection: False)
    with closing(SqliteStore(path)) as lacking:
        assert lacking.search("s", "ber77") == expected != []
        lacking.delete("s")
        begin_session(lacking, "s", add_turn(1, "other"))
    monkeypatch.undo()
    assert store.search("s", "ber77") == []
    assert [hit.turn for hit in store.search("t", "ber77")] == [1]


def test_a_deleted_session_takes_the_index_with_it(store: SqliteStore) -> None:
    """Those that remain are indexed again when they are searched."""
    for key in "st":
        begin_session(store, key, *(add_turn(index, f"{key}word{index:04}") for index in range(1, 700)))
        assert store.search(key, f"{key}word", 1)
    store.delete("s")
    assert asked(store, "SELECT indexed FROM sessions") == 0
    assert [hit.turn for hit in store.search("t", "word0055")] == [55]
    assert asked(store, "SELECT indexed FROM sessions") == 699


def test_a_closed_file_can_be_closed_again(path: Path) -> None:
    """Closing lets go of the file: its write-ahead log is folded in and gone."""
    store = SqliteStore(path)
    store.create(new_session("s"))
    store.close()
    store.close()
    assert [file.name for file in path.parent.iterdir()] == ["agent.db"]
    with closing(SqliteFile(path)) as file, file.read_transaction() as connection:
        assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
