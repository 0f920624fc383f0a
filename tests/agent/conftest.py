"""The sample runs, for agents that follow them; sessions are kept in a folder of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.trajectory.trajectory import Trajectory
from tests.testing.conftest import recorded


@pytest.fixture(scope="session")
def runs() -> dict[str, Trajectory]:
    return recorded()


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
