"""Sessions of the tests of the manager are kept in a folder of their own, and the vocabulary is loaded before them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.trajectory.tokens import make_counter


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session", autouse=True)
def _vocabulary() -> None:
    """Count before any thread does: counting imports numpy, and `pytest.approx` looks at what is half imported."""
    make_counter().count("load the vocabulary")
