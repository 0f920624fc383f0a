"""The same program run twice on one store, under one name."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from elision.manager import ContextManager
from elision.stores.sqlite import SqliteStore
from tests.manager.agents import make_history


def run_program(store: str, steps: int = 4) -> None:
    """A client that begins with the task alone and adds a step before each further call."""
    with ContextManager(model="claude-sonnet-4-5", store=store, session="task-41") as context:
        for done in range(steps):
            context.prepare(make_history("openai", done))


def test_a_second_run_of_a_program_is_one_session(tmp_path: Path) -> None:
    """All of its calls are in one branch, beside the first run's."""
    path = tmp_path / "agent.db"
    for _ in range(2):
        run_program(f"sqlite:///{path}")
    with closing(SqliteStore(path)) as store:
        assert len(store.sessions()) == 2
