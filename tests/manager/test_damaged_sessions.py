"""Damage to what a store keeps never reaches the agent: the request goes out, and the session continues."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from elision.errors import CorruptError
from elision.stores.store_errors import CHECK_COMMAND
from elision.stores.store_urls import open_store
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
            assert damaged.session in fault.what or damaged.url.split("/")[-1] in fault.what, damage.name
        assert view.diagnostics.faults == (), damage.name
        assert view.diagnostics.savings.masked == TURNS, damage.name
        # What is hidden can be read again.
        for turn in range(1, TURNS + 3):
            assert context.recall(f"t{turn}.1") == messages[2 * turn]["content"], damage.name
        return view.diagnostics.branch, bool(first.faults)


def check_durable(damaged: DamagedStore, damage: Damage, branch: str) -> None:
    """Another process continues the new branch without a fault, and every turn is in the store."""
    with open_context(damaged.url, damaged.session) as context:
        again = context.prepare(make_history("openai", TURNS + 3)).diagnostics
    assert (again.faults, again.branch) == ((), branch), damage.name
    with closing(open_store(damaged.url)) as store:
        assert [turn.index for turn in store.turns(branch)] == list(range(1, TURNS + 4)), damage.name


def check_raised(damaged: DamagedStore, damage: Damage) -> None:
    """With `on_fault="raise"` the same is an error that says what is damaged."""
    damaged.restore()
    damage.apply()
    with open_context(damaged.url, damaged.session, on_fault="raise") as context:
        with pytest.raises(CorruptError) as raised:
            context.prepare(make_history("openai", TURNS + 1))
        assert CHECK_COMMAND in str(raised.value), damage.name


def _select(found: list[Damage], part: int) -> list[Damage]:
    """Return a part of what is done: in a soak everything, else one way for each value of each record."""
    return [damage for damage in found if IS_SOAK or damage.is_quick][part::PARTS]
