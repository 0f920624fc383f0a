"""Stored sessions for the commands that show them."""

from __future__ import annotations

import pytest

from elision.manager import ContextView
from tests.cli import stored


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[ContextView]]:
    """The address of a store with sessions of every kind, and their views."""
    at = tmp_path_factory.mktemp("kept")
    views = stored.everything(at)
    return stored.url(at), views
