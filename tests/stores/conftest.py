"""Every implementation, one after the other, at a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from elision.stores.store import Store
from elision.stores.store_urls import open_store
from tests.soak import leave_to_soak
from tests.stores.implementations import DURABLE, STORES

Opener: TypeAlias = Callable[[], Store]


# The pooler changes nothing of the contract but where a statement goes.
@pytest.fixture(params=leave_to_soak(STORES, "pgbouncer"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store of each kind."""
    opened = open_store(STORES[request.param](tmp_path))
    yield opened
    opened.close()


@pytest.fixture(params=leave_to_soak(DURABLE, "pgbouncer"))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The place of a fresh durable store of each kind."""
    return STORES[request.param](tmp_path)


@pytest.fixture
def opener(url: str) -> Iterator[Opener]:
    """Opens the store of `url`, as often as it is asked to."""
    opened: list[Store] = []

    def open_again() -> Store:
        opened.append(open_store(url))
        return opened[-1]

    yield open_again
    for each in opened:
        each.close()
