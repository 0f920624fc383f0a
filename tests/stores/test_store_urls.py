"""Stores by URL: what is opened, what is refused, and that no password is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.errors import StoreError
from elision.stores.memory import MemoryStore
from elision.stores.sqlite import SqliteStore
from elision.stores.store_urls import open_existing, open_store


def test_slashes_are_as_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three begin a path from the working folder, four an absolute one."""
    monkeypatch.chdir(tmp_path)
    for url, path in (
        ("sqlite:///here.db", tmp_path / "here.db"),
        (f"sqlite:///{tmp_path}/there.db", tmp_path / "there.db"),
        ("sqlite:///odd %20 ?a=b#c 'q'.db", tmp_path / "odd %20 ?a=b#c 'q'.db"),
    ):
        store = open_store(url)
        assert isinstance(store, SqliteStore)
        store.close()
        assert path.exists(), url


def test_memory_is_made_anew() -> None:
    """Each time another one."""
    first, second = open_store("memory:"), open_store("memory:")
    assert isinstance(first, MemoryStore)
    assert first is not second


@pytest.mark.parametrize("url", ["", "agent.db", "mysql://h/d", "sqlite", ":", "SQLITE:///x", "/tmp/agent.db"])
def test_what_is_no_store_is_said_with_what_is(url: str) -> None:
    """All forms are listed."""
    with pytest.raises(StoreError, match=r"give one of: memory:, sqlite:///FILE, postgresql://.*, linear-hash:///"):
        open_store(url)


@pytest.mark.parametrize("url", ["sqlite:", "sqlite://", "sqlite:///", "sqlite://host/file.db"])
def test_an_address_without_a_path_is_said(url: str) -> None:
    """Two slashes would begin a host."""
    with pytest.raises(StoreError, match="no path in it; three slashes"):
        open_store(url)


def test_no_password_is_shown() -> None:
    """Not even of a scheme that nobody knows."""
    with pytest.raises(StoreError) as caught:
        open_store("mysql://user:hunter2@host/database")
    assert "hunter2" not in str(caught.value)
    assert "host/database" in str(caught.value)


def test_what_must_be_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of a store do not begin one."""
    monkeypatch.chdir(tmp_path)
    for url in ("sqlite:///none.db", "linear-hash:///none", "memory:"):
        with pytest.raises(StoreError):
            open_existing(url)
    assert list(tmp_path.iterdir()) == []
    open_store("sqlite:///some.db").close()
    open_existing("sqlite:///some.db").close()
