"""Stores full of worked-through runs, and the dashboard's API over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elision.stores.sqlite import SqliteStore
from tests.gateway.dashboard.api_client import DashboardClient
from tests.gateway.dashboard.recorded_sessions import GPT, PI, SWE_AGENT, record_session


@pytest.fixture(autouse=True)
def _read_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages read every session, however busy the machine is."""
    monkeypatch.setattr("elision.gateway.dashboard.pages.READ_SECONDS", 600.0)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of `kept`."""
    return tmp_path_factory.mktemp("kept") / "agent.db"


@pytest.fixture(scope="module")
def kept(place: Path) -> Iterator[SqliteStore]:
    """Two sessions of recorded runs: one with summaries and a recall, one that masks."""
    store = SqliteStore(place)
    eager = "hybrid(window=4, summarize_at=12, tail=4, schedule=every-turn)"
    record_session(store, "billing", PI, 20, eager, recalls=(12, 14))
    record_session(
        store,
        "printer",
        SWE_AGENT,
        12,
        "masking(window=4, schedule=every-turn)",
        api="openai",
        model=GPT,
        now=1_700_100_000.0,
    )
    yield store
    store.close()


@pytest.fixture
def asking(kept: SqliteStore) -> DashboardClient:
    return DashboardClient(kept)
