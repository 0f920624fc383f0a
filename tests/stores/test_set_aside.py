"""Keeping a damaged store under another name."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from elision.errors import StoreError
from elision.stores.store_errors import CHECK_COMMAND, DamagedStoreError, set_aside
from elision.stores.store_urls import describe_set_aside, open_store


def make_damage(path: Path) -> DamagedStoreError:
    status = path.stat()
    return DamagedStoreError(f"{path}: is damaged", path, (status.st_dev, status.st_ino))


@pytest.fixture(params=["sqlite", "linear-hash"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a store with nothing in it."""
    address = f"{request.param}:///{tmp_path}/store"
    open_store(address).close()
    return address


def find_path(url: str) -> Path:
    return Path(url.partition(":///")[2])


def test_an_empty_store_is_in_its_place(url: str) -> None:
    """Only its owner may read it, like any new one, and it can be opened; the error and the names tell the rest."""
    path = find_path(url)
    before = path.stat().st_ino
    damage = make_damage(path)
    kept = set_aside(damage)
    assert kept.name == "store.damaged"
    assert kept.stat().st_ino == before
    assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    with closing(open_store(url)) as store:
        assert store.sessions() == []
    text = describe_set_aside(damage, kept)
    assert CHECK_COMMAND in text
    assert f"elision sessions copy {url.partition(':')[0]}:///{kept} {url}" in text


def test_the_second_process_finds_it_done(url: str) -> None:
    """Both saw the same damage: what the first began is not set aside by the second."""
    path = find_path(url)
    damage = make_damage(path)
    kept = set_aside(damage)
    fresh = path.stat().st_ino
    assert set_aside(damage) == kept
    assert path.stat().st_ino == fresh


def test_a_disk_that_damages_every_store_needs_its_owner(url: str) -> None:
    """Nine are kept; then the agent goes on without a store, and the fault says why."""
    path = find_path(url)
    kept = [set_aside(make_damage(path)).name for _ in range(9)]
    assert kept[-1] == "store.damaged-9"
    with pytest.raises(StoreError, match="9 damaged stores are kept beside it"):
        set_aside(make_damage(path))


def test_a_link_to_a_file_stays(tmp_path: Path) -> None:
    """The file that it leads to is kept beside itself, as SQLite keeps its log there."""
    disk = tmp_path / "disk"
    disk.mkdir()
    open_store(f"sqlite:///{disk}/a.db").close()
    link = tmp_path / "a.db"
    link.symlink_to(disk / "a.db")
    assert set_aside(make_damage(link)) == disk / "a.db.damaged"
    assert link.is_symlink()
    open_store(f"sqlite:///{link}").close()


def test_the_log_of_a_database_that_was_moved_elsewhere_stays(tmp_path: Path) -> None:
    """Its owner took the damaged database away and forgot the log, which may have the newest records."""
    path = tmp_path / "store"
    open_store(f"sqlite:///{path}").close()
    forgotten = tmp_path / "store.damaged-wal"
    forgotten.write_bytes(b"records")
    assert set_aside(make_damage(path)).name == "store.damaged-2"
    assert forgotten.read_bytes() == b"records"


def test_a_crash_before_the_log_has_lost_its_name_does_no_harm(tmp_path: Path) -> None:
    """The log of the database that was moved is not read into the empty one, and is kept as it was."""
    path, kept = tmp_path / "a.db", tmp_path / "a.db.damaged"
    running = open_store(f"sqlite:///{tmp_path}/running.db")
    shutil.copy(tmp_path / "running.db", kept)
    shutil.copy(tmp_path / "running.db-wal", f"{kept}-wal")
    running.close()
    os.link(f"{kept}-wal", f"{path}-wal")
    log = Path(f"{kept}-wal").read_bytes()
    assert log
    path.touch(mode=0o600)
    with closing(open_store(f"sqlite:///{path}")) as store:
        assert store.sessions() == []
    assert Path(f"{kept}-wal").read_bytes() == log
