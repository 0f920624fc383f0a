"""A store that cannot be written: one rule for all of them. Opening it to write is an error, reading it is none."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elision import ContextManager, Sessions
from elision.errors import StoreError
from elision.gateway.worker import Worker
from elision.stores.store import NewSession
from elision.stores.store_errors import MIN_FREE_BYTES, check_disk
from elision.stores.store_urls import open_for_reading, open_store
from tests.gateway.loopback_gateway import make_settings
from tests.stores.unprivileged import nobody

STARTS: dict[str, Callable[[str], object]] = {
    "a store": open_store,
    "a context manager": lambda url: ContextManager(store=url),
    "a pool of sessions": lambda url: Sessions(store=url),
    "a gateway": lambda url: Worker(make_settings(store=url, gateway_off=False)),
}


@pytest.fixture(params=["sqlite", "linear-hash"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """A store with one session that only its owner may write, in a folder that others may read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kept"
        store = open_store(f"{request.param}:///{path}")
        store.create(NewSession(key="s", family="s", at=1.0))
        store.close()
        places = [Path(folder), *Path(folder).rglob("*")]
        for each in places:
            each.chmod(0o555 if each.is_dir() else 0o444)
        yield f"{request.param}:///{path}"
        for each in places:
            if each.exists():
                each.chmod(0o700)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no users")
@pytest.mark.parametrize("start", STARTS)
def test_a_start_that_cannot_write_is_refused(start: str, url: str) -> None:
    """In library and gateway alike, whatever the store: at the start, not at the first turn that is lost."""
    with nobody(), pytest.raises(StoreError, match=r"kept.*cannot be (written|opened)"):
        STARTS[start](url)


@pytest.mark.skipif(not hasattr(os, "seteuid"), reason="no users")
@pytest.mark.parametrize("url", ["linear-hash"], indirect=True)
def test_reading_alone_needs_no_right_to_write(url: str) -> None:
    """Pages and audits read what they may not change; SQLite keeps the index of its write-ahead log in the folder."""
    with nobody():
        store = open_for_reading(url)
        assert [info.key for info in store.sessions()] == ["s"]
        store.close()


@pytest.mark.parametrize("scheme", ["sqlite", "linear-hash"])
def test_a_server_that_is_not_there_is_refused_as_well(scheme: str, tmp_path: Path) -> None:
    """PostgreSQL that is not reached, a folder that is missing: the same."""
    for url in ("postgresql://127.0.0.1:1/agents", f"{scheme}:///{tmp_path}/missing/kept"):
        for start in STARTS.values():
            with pytest.raises(StoreError):
                start(url)


def test_a_disk_without_room_is_told_before_a_write_fails(tmp_path: Path) -> None:
    """One that is read-only as well, and one that is gone."""
    check_disk(tmp_path, 1)
    with pytest.raises(StoreError, match=r"the disk is full .* make room"):
        check_disk(tmp_path, 1 << 62)
    with pytest.raises(StoreError, match="cannot be read"):
        check_disk(tmp_path / "missing")
    assert os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize > MIN_FREE_BYTES
    for line in Path("/proc/mounts").read_text().splitlines():
        folder, options = line.split()[1], line.split()[3].split(",")
        if "ro" in options and os.path.isdir(folder):
            with pytest.raises(StoreError, match="for reading only"):
                check_disk(Path(folder), 0)
