"""Every implementation, one after the other, at a place of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from elision.stores.store import Store
from elision.stores.store_urls import open_store
from tests.stores.implementations import DURABLE, STORES

Opener: TypeAlias = Callable[[], Store]


def mark_soak_only(names: Iterable[str]) -> list[Any]:
    """The pooler changes nothing of the contract but where a statement goes: it is tried whole in a soak only."""
    return [pytest.param(name, marks=pytest.mark.soak) if name == "pgbouncer" else name for name in names]


@pytest.fixture(params=mark_soak_only(STORES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """A fresh store of each kind."""
    opened = open_store(STORES[request.param](tmp_path))
    yield opened
    opened.close()


@pytest.fixture(params=mark_soak_only(DURABLE))
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
