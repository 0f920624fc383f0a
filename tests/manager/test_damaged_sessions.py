"""Damage to what a store keeps never reaches the agent: the request goes out, and the session continues."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from elision.errors import CorruptError, StoreError
from elision.stores.session_copy import copy_all
from elision.stores.store_errors import CHECK_COMMAND
from elision.stores.store_urls import open_store
from elision.trajectory.events import TurnAdded
from tests.manager.agents import make_history
from tests.manager.damaged_stores import (
    TURNS,
    Damage,
    DamagedLinearHash,
    DamagedPostgres,
    DamagedSqlite,
    DamagedStore,
    open_context,
    write_session,
)
from tests.soak import SOAK

MAKERS: dict[str, Callable[[Path], DamagedStore]] = {
    "sqlite": DamagedSqlite,
    "linear-hash": DamagedLinearHash,
    "postgresql": lambda _: DamagedPostgres(),
}
#: What removes a session's own record in each store.
LOST_SESSIONS = ("sessions[0] removed", "record 0 of session 1 overwritten")
#: Tests that share the work of one store in a soak; else its share of the damage, in one test.
PARTS = 5


@pytest.fixture(params=MAKERS)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DamagedStore]:
    """A store of each kind with one session."""
    made = MAKERS[request.param](tmp_path)
    yield made
    if isinstance(made, DamagedPostgres):
        made.close()


@pytest.mark.parametrize("part", range(PARTS) if SOAK else [0])
def test_no_damaged_record_reaches_the_agent(damaged: DamagedStore, part: int) -> None:
    """Every record of a small session, flipped, cut or removed: `prepare` raises nothing, names the damage and the
    command, and continues durably; nothing of the damaged session is deleted or overwritten."""
    tried = 0
    for damage in _select(damaged.list_damage(), part):
        damaged.restore()
        if not damage.apply():
            continue
        tried += 1
        before = damaged.read_contents()
        branch, has_fault = continue_session(damaged, damage)
        # A name of one letter that is cut is a name all the same: the session continues under it, whole.
        is_nameless = damage.name in ("sessions[0].key cut", "sessions[0].key emptied")
        assert branch or is_nameless, damage.name
        assert before <= damaged.read_contents(), damage.name
        check_durable(damaged, damage, branch)
        if has_fault:
            check_raised(damaged, damage)
    assert tried > 5


def continue_session(damaged: DamagedStore, damage: Damage) -> tuple[str, bool]:
    """Make two calls after the damage; return the branch of the second, and whether the first reported a fault."""
    with open_context(damaged.url, damaged.session) as context:
        first = context.prepare(make_history("openai", TURNS + 1)).diagnostics
        messages = make_history("openai", TURNS + 2)
        view = context.prepare(messages)
        for fault in first.faults:
            assert fault.kind == "store", damage.name
            assert CHECK_COMMAND in fault.what, damage.name
            assert f"session {damaged.session!r}" in fault.what or damaged.place in fault.what, damage.name
        assert view.diagnostics.faults == (), damage.name
        assert view.diagnostics.savings.masked == TURNS, damage.name
        # What is hidden can be read again.
        for turn in range(1, TURNS + 3):
            assert context.session.recall(f"t{turn}.1") == messages[2 * turn]["content"], damage.name
        return view.diagnostics.branch, bool(first.faults)


def check_durable(damaged: DamagedStore, damage: Damage, branch: str) -> None:
    """Another process continues the new branch without a fault, and the store has its whole log."""
    with open_context(damaged.url, damaged.session) as context:
        again = context.prepare(make_history("openai", TURNS + 3)).diagnostics
    assert (again.faults, again.branch) == ((), branch), damage.name
    with closing(open_store(damaged.url)) as store:
        turns = [event.turn.index for event in store.events(branch) if isinstance(event, TurnAdded)]
    assert turns == list(range(1, TURNS + 4)), damage.name


def check_raised(damaged: DamagedStore, damage: Damage) -> None:
    """With `on_fault="raise"` the same is an error that says what is damaged."""
    damaged.restore()
    if not damage.apply():
        # PostgreSQL has the text under the wrong address already, from the first time.
        return
    with open_context(damaged.url, damaged.session, on_fault="raise") as context:
        with pytest.raises(CorruptError) as raised:
            context.prepare(make_history("openai", TURNS + 1))
        assert CHECK_COMMAND in str(raised.value), damage.name


def _select(found: list[Damage], part: int) -> list[Damage]:
    """Return a part of what is done: in a soak of everything, else of one way for each value of each record."""
    return found[part::PARTS] if SOAK else [damage for damage in found if damage.is_quick][:: 2 * PARTS + 1]


def list_structural_damage(folder: Path) -> Iterator[tuple[DamagedStore, Damage]]:
    """Yield damage to what a store finds its records by."""
    for damaged, found in (
        (sqlite := DamagedSqlite(folder), sqlite.list_page_damage()),
        (linear_hash := DamagedLinearHash(folder), linear_hash.list_cuts()),
    ):
        for number, damage in enumerate(found):
            if SOAK or number % 3 == 0:
                yield damaged, damage


def list_kept(folder: Path) -> list[Path]:
    """Return the damaged stores that are kept under another name."""
    return [each for each in folder.iterdir() if each.name.endswith(".damaged")]


def test_a_store_that_takes_no_writes_is_set_aside(tmp_path: Path) -> None:
    """A page that SQLite needs, a log without its end: one call reports it, and the session goes on durably in a new
    store at the same place. The damaged one is kept as it is, under a name and with a command that the fault says."""
    kept = 0
    for damaged, damage in list_structural_damage(tmp_path):
        damaged.restore()
        damage.apply()
        branch, _ = continue_session(damaged, damage)
        check_durable(damaged, damage, branch)
        kept += len(list_kept(tmp_path))
    assert kept > 5


def test_what_is_set_aside_is_whole(tmp_path: Path) -> None:
    """Not a byte of the damaged file is changed, the fault names it, and `migrate` saves its other sessions."""
    damaged = DamagedSqlite(tmp_path)
    write_session(damaged.url, "other")
    file = tmp_path / "store.db"
    empty_root_page(file, "turns_by_node")
    before = file.read_bytes()
    with open_context(damaged.url) as context:
        faults = context.prepare(make_history("openai", TURNS + 1)).diagnostics.faults
    (kept,) = list_kept(tmp_path)
    assert kept.name == "store.db.damaged"
    assert kept.read_bytes() == before
    assert "kept as store.db.damaged" in faults[-1].what
    command = f"elision sessions copy sqlite:///{kept} {damaged.url}"
    assert command in faults[-1].what
    with closing(open_store(f"sqlite:///{kept}")) as one, closing(open_store(damaged.url)) as two:
        done = list(copy_all(one, two))
        assert len(two.turns("other")) == TURNS
    # The session that went on is there already, under the name of a branch.
    assert {each.key for each in done if not isinstance(each, StoreError)} == {"s", "other"}


def test_records_that_are_in_the_write_ahead_log_are_set_aside_with_the_file(tmp_path: Path) -> None:
    """Another process keeps the file open, so that its newest records are in the log beside it."""
    damaged = DamagedSqlite(tmp_path)
    file = tmp_path / "store.db"
    empty_root_page(file, "turns_by_node")
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM sqlite_master").fetchall()
        with closing(sqlite3.connect(file)) as writer, writer:
            writer.execute("CREATE TABLE noted (what)")
        with open_context(damaged.url) as context:
            context.prepare(make_history("openai", TURNS + 1))
            assert context.prepare(make_history("openai", TURNS + 2)).diagnostics.faults == ()
    (kept,) = list_kept(tmp_path)
    with closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT count(*) FROM noted").fetchone() == (0,)
    with closing(open_store(damaged.url)) as store:
        assert store.check() == []
        assert len(store.turns("s~2")) == TURNS + 2


def test_nothing_is_set_aside_where_faults_are_raised(tmp_path: Path) -> None:
    """Whoever wants to see every failure decides what becomes of the file."""
    damaged = DamagedSqlite(tmp_path)
    empty_root_page(tmp_path / "store.db", "turns_by_node")
    with open_context(damaged.url, on_fault="raise") as context, pytest.raises(CorruptError, match=CHECK_COMMAND):
        context.prepare(make_history("openai", TURNS + 1))
    assert list_kept(tmp_path) == []


@pytest.mark.parametrize("on_fault", ["send", "raise"])
def test_a_store_that_cannot_be_opened_does_not_stop_the_agent(on_fault: str, tmp_path: Path) -> None:
    """The constructor raises only where every fault is to be raised."""
    damaged = DamagedSqlite(tmp_path)
    empty_root_page(tmp_path / "store.db", "sqlite_master")
    if on_fault == "raise":
        with pytest.raises(CorruptError, match=CHECK_COMMAND):
            open_context(damaged.url, on_fault=on_fault)
        assert list_kept(tmp_path) == []
        return
    with open_context(damaged.url, on_fault=on_fault) as context:
        faults = context.prepare(make_history("openai", TURNS + 1)).diagnostics.faults
        assert [fault.kind for fault in faults] == ["store"]
        assert "kept as store.db.damaged" in faults[0].what
        assert context.prepare(make_history("openai", TURNS + 2)).diagnostics.faults == ()
    with closing(open_store(damaged.url)) as store:
        assert len(store.turns("s")) == TURNS + 2


def test_a_file_of_another_kind_is_never_set_aside(tmp_path: Path) -> None:
    """A wrong address is the caller's to correct."""
    file = tmp_path / "notes.txt"
    file.write_text("what the user wrote, " * 400)
    with pytest.raises(StoreError, match="not an SQLite database"):
        open_context(f"sqlite:///{file}")
    assert list(tmp_path.iterdir()) == [file]


def test_sessions_in_other_processes_go_on_in_the_new_store(tmp_path: Path) -> None:
    """They find another file in the place of theirs: one call is sent unchanged, and the next is durable again."""
    damaged = DamagedSqlite(tmp_path)
    with open_context(damaged.url, "other") as other:
        other.prepare(make_history("openai", TURNS + 1))
        empty_root_page(tmp_path / "store.db", "turns_by_node")
        with open_context(damaged.url) as context:
            context.prepare(make_history("openai", TURNS + 1))
        other.prepare(make_history("openai", TURNS + 2))
        view = other.prepare(make_history("openai", TURNS + 3))
        assert view.diagnostics.faults == ()
        assert view.diagnostics.savings.masked == TURNS + 1
    assert len(list_kept(tmp_path)) == 1
    with closing(open_store(damaged.url)) as store:
        assert store.check() == []
        assert len(store.turns("other")) == TURNS + 3
        assert {info.key for info in store.sessions()} == {"s~2", "other"}


def empty_root_page(file: Path, name: str) -> None:
    """Overwrite the page where a table or an index begins."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        found = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)).fetchone()
        # The list of tables begins after the header, in the first page.
        start = (found[0] - 1) * 4096 if found else 100
    whole = file.read_bytes()
    end = 4096 if start == 100 else start + 4096
    file.write_bytes(whole[:start] + bytes(end - start) + whole[end:])


def test_turns_whose_session_is_lost_are_a_fault(damaged: DamagedStore) -> None:
    """A history that the store knows, without the session's own record: the session begins anew, and says why."""
    (lost,) = [each for each in damaged.list_damage() if each.name in LOST_SESSIONS]
    if isinstance(damaged, DamagedLinearHash):
        # The session's record is read where the directory has to be made anew.
        (tmp_directory,) = [each for each in damaged.list_damage() if each.name == "the directory is removed"]
        tmp_directory.apply()
    lost.apply()
    with open_context(damaged.url, damaged.session) as context:
        view = context.prepare(make_history("openai", TURNS + 1))
        (fault,) = view.diagnostics.faults
        assert "lost" in fault.what
        assert CHECK_COMMAND in fault.what
        assert view.diagnostics.savings.masked == TURNS - 1
        assert context.prepare(make_history("openai", TURNS + 2)).diagnostics.faults == ()
    with open_context(damaged.url, damaged.session) as context:
        assert context.prepare(make_history("openai", TURNS + 3)).diagnostics.faults == ()
    with closing(open_store(damaged.url)) as store:
        assert any(finding.lost for finding in store.check())


def test_a_damaged_name_is_found() -> None:
    """What no name is written as in PostgreSQL cannot be asked for: the check names it."""
    damaged = DamagedPostgres()
    (damage,) = [each for each in damaged.list_damage() if each.name == "sessions[0].session bytes"]
    damage.apply()
    with closing(open_store(damaged.url)) as store:
        (finding,) = store.check()
    damaged.close()
    assert finding.lost
    assert finding.what == r"'\\xfffe' is not a session name"


def test_damage_that_appears_while_a_session_runs(tmp_path: Path) -> None:
    """A count that changes under a running session looks like another writer: the session continues all the same."""
    damaged = DamagedSqlite(tmp_path)
    for records in (3, 900):
        damaged.restore()
        with open_context(damaged.url) as context:
            before = context.prepare(make_history("openai", TURNS + 1))
            with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
                connection.execute("UPDATE sessions SET records = ?", (records,))
            view = context.prepare(make_history("openai", TURNS + 2))
            assert [fault.kind for fault in view.diagnostics.faults] == ["store"]
            # What was hidden stays hidden: the log in memory is whole.
            assert view.messages[: len(before.messages) - 4] == before.messages[:-4]
            assert view.diagnostics.branch == "s~2"
            assert context.prepare(make_history("openai", TURNS + 3)).diagnostics.faults == ()
        with closing(open_store(damaged.url)) as store:
            assert store.info("s~2").parent == "s"
            assert len(store.turns("s~2")) == TURNS + 3


def test_recall_of_what_is_readable_in_a_damaged_session(tmp_path: Path) -> None:
    """Before the first call nothing is in memory: each turn is read by itself, and only the damaged one is not."""
    damaged = DamagedSqlite(tmp_path)
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        (number,) = connection.execute("SELECT min(number) FROM turns WHERE turn = 3").fetchone()
        (row,) = connection.execute("SELECT max(id) FROM records WHERE id % 4294967296 <= ?", (number,)).fetchone()
        connection.execute("UPDATE records SET body = x'00' WHERE id = ?", (row,))
    messages = make_history("openai", TURNS)
    with open_context(damaged.url) as context:
        for turn in (1, 2, 4, 5):
            assert context.session.recall(f"t{turn}.1") == messages[2 * turn]["content"]
        with pytest.raises(CorruptError, match=CHECK_COMMAND):
            context.session.recall("t3.1")
        assert CHECK_COMMAND in context.session.recall_tools()[0].call({"handle": "t3.1"})
