"""Damage to what a store keeps never reaches the agent: the request goes out, and the session continues."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from elision.errors import CorruptError, StoreError
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
)

MAKERS: dict[str, Callable[[Path], DamagedStore]] = {
    "sqlite": DamagedSqlite,
    "linear-hash": DamagedLinearHash,
    "postgresql": lambda _: DamagedPostgres(),
}
IS_SOAK = os.environ.get("ELISION_SOAK") == "1"
#: Tests that share the work of one store.
PARTS = 4


@pytest.fixture(params=MAKERS)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DamagedStore]:
    """A store of each kind with one session."""
    made = MAKERS[request.param](tmp_path)
    yield made
    if isinstance(made, DamagedPostgres):
        made.close()


@pytest.mark.parametrize("part", range(PARTS))
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
        assert branch, damage.name
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
            assert context.recall(f"t{turn}.1") == messages[2 * turn]["content"], damage.name
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
    """Return a part of what is done: in a soak everything, else one way for each value of each record."""
    return [damage for damage in found if IS_SOAK or damage.is_quick][part::PARTS]


def list_structural_damage(folder: Path) -> Iterator[tuple[DamagedStore, Damage]]:
    """Yield damage to what a store finds its records by."""
    for damaged, found in (
        (sqlite := DamagedSqlite(folder), sqlite.list_page_damage()),
        (linear_hash := DamagedLinearHash(folder), linear_hash.list_cuts()),
    ):
        for damage in found:
            yield damaged, damage


def test_a_store_that_takes_no_writes_lets_requests_through(tmp_path: Path) -> None:
    """A page that SQLite needs, a log without its end: each call reports it, and the request is what was decided."""
    held = 0
    for number, (damaged, damage) in enumerate(list_structural_damage(tmp_path)):
        if not IS_SOAK and number % 3:
            continue
        damaged.restore()
        damage.apply()
        with suppress(StoreError), open_context(damaged.url) as context:
            for turns in (TURNS + 1, TURNS + 2):
                messages = make_history("openai", turns)
                view = context.prepare(messages)
                assert len(view.messages) == len(messages), damage.name
                assert all(CHECK_COMMAND in fault.what for fault in view.diagnostics.faults), damage.name
                if view.diagnostics.savings.masked == 0:
                    held += 1
                    assert view.messages == messages, damage.name
                    assert view.diagnostics.faults, damage.name
    # A store that cannot be opened at all is reported before the agent begins.
    assert held


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
            assert context.recall(f"t{turn}.1") == messages[2 * turn]["content"]
        with pytest.raises(CorruptError, match=CHECK_COMMAND):
            context.recall("t3.1")
        assert CHECK_COMMAND in context.recall_tools()[0].call({"handle": "t3.1"})
