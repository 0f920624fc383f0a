"""Stores by URL: what is opened, what is refused, and that no password is shown."""

from __future__ import annotations

import stat
from contextlib import closing
from pathlib import Path

import pytest

from elision.errors import MissingStore, StoreError
from elision.stores.memory import MemoryStore
from elision.stores.sqlite import SqliteStore
from elision.stores.store import NewSession
from elision.stores.store_urls import locate_store, open_existing, open_for_reading, open_store


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


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/file.db"])
def test_an_address_without_a_path_is_said(url: str) -> None:
    """Two slashes would begin a host."""
    with pytest.raises(StoreError, match="no path in it; three slashes"):
        open_store(url)


def test_the_default_is_a_file_in_the_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sqlite:` makes its folder, for the user alone; it is the only store that makes one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "state" / "elision"
    assert locate_store("sqlite:") == f"sqlite:///{folder / 'sessions.db'}"
    assert locate_store("sqlite:?turns=full") == f"sqlite:///{folder / 'sessions.db'}?turns=full"
    assert locate_store("sqlite:///here.db") == "sqlite:///here.db"
    with pytest.raises(MissingStore):
        open_for_reading("sqlite:")
    with closing(open_store("sqlite:")) as store:
        store.create(NewSession(key="s", family="s", at=1.0))
    with closing(open_existing(locate_store("sqlite:"))) as again:
        assert again.length("s") == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.parametrize("url", ["sqlite:", "located"])
def test_a_state_folder_that_cannot_be_made(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the folder, and how to name another store."""
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/nope")
    with pytest.raises(StoreError, match=r"/dev/null/nope/elision: the folder for sessions cannot be made .*--store"):
        open_store(url if url == "sqlite:" else locate_store("sqlite:"))


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
