"""What `elision sessions` keeps from one listing to the next: only sessions that changed are read again."""

from __future__ import annotations

import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision.cli.session_figures import find_listing_file
from elision.manager import session_history
from elision.manager.session_history import SessionLog
from elision.stores.sqlite import SqliteStore
from elision.stores.store import SessionInfo, Store
from elision.trajectory.events import UsageReported
from elision.trajectory.usage import Usage
from tests.cli import stored
from tests.cli.in_process import run_elision

#: What a listing of sessions that did not change has no need of.
HEAVY = {
    "elision.manager",
    "elision.engine",
    "elision.lab.replay",
    "elision.summarizers",
    "tiktoken",
    "gigatoken",
    "numpy",
}


@pytest.fixture
def logs_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions whose whole logs are read, in order; their tasks are in the first records."""
    read: list[str] = []
    load = session_history.load_session_log

    def note(store: Store, info: SessionInfo, *arguments: Any) -> SessionLog:
        read.append(info.key)
        return load(store, info, *arguments)

    monkeypatch.setattr(session_history, "load_session_log", note)
    return read


def list_sessions(folder: Path, *arguments: str) -> str:
    done = run_elision("sessions", "--store", stored.url(folder), *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_what_changed_is_read_again(tmp_path: Path, logs_read: list[str]) -> None:
    """The second listing reads no log and prints the same; after a change it reads one."""
    stored.played(tmp_path, "one", 4)
    stored.played(tmp_path, "two", 3)
    first = list_sessions(tmp_path)
    assert sorted(logs_read) == ["one", "two"]
    logs_read.clear()
    assert list_sessions(tmp_path) == first
    assert logs_read == []
    with closing(SqliteStore(tmp_path / "agent.db")) as store:
        reported = UsageReported(call=1, usage=Usage(input=123_456, output=7))
        store.append("one", [reported], after=store.length("one"), at=2e9)
    assert list_sessions(tmp_path) != first
    assert logs_read == ["one"]


def test_other_prices_counts_or_limits_read_the_logs(
    tmp_path: Path, logs_read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures are kept for the prices of each model, exact counts and the limits in force."""
    stored.played(tmp_path, "one", 4)
    list_sessions(tmp_path)
    for arguments in (("--model", "gpt-5"), ("--tokens", "estimate"), ("--json",)):
        logs_read.clear()
        list_sessions(tmp_path, *arguments)
        assert logs_read == ["one"], arguments
    logs_read.clear()
    list_sessions(tmp_path)
    assert logs_read == []
    monkeypatch.setenv("ELISION_MAX_TURNS", "2")
    assert "turn limit" in list_sessions(tmp_path)
    assert logs_read == ["one"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"stamp": 1, "sessions": {}}', b"\xff"])
def test_a_damaged_listing_is_made_anew(tmp_path: Path, content: bytes) -> None:
    """The logs have everything."""
    stored.played(tmp_path, "one", 4)
    first = list_sessions(tmp_path)
    find_listing_file().write_bytes(content)
    assert list_sessions(tmp_path) == first
    assert find_listing_file().read_bytes() != content


def test_the_listing_is_for_its_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no name of a session; where it cannot be kept, the sessions are listed all the same."""
    stored.played(tmp_path, "very-secret-name", 3)
    first = list_sessions(tmp_path)
    file = find_listing_file()
    assert b"very-secret-name" not in file.read_bytes()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["listing.json"]
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/nope")
    assert list_sessions(tmp_path) == first


def modules_of(*arguments: str) -> set[str]:
    """What a process that runs `elision` with `arguments` has imported at its end."""
    program = (
        "import sys\nfrom elision.cli import main\nsys.argv[0] = 'elision'\n"
        "try:\n    main()\nexcept SystemExit as ended:\n    assert not ended.code, ended\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return set(done.stderr.splitlines()[-1].split())


def test_a_listing_without_changes_loads_no_vocabulary(tmp_path: Path) -> None:
    """Nor the library, the lab or a summarizer: it takes 0.4 s of processor time at most."""
    stored.played(tmp_path, "one", 3)
    with closing(SqliteStore(tmp_path / "agent.db")):
        assert HEAVY & modules_of("sessions", "--store", stored.url(tmp_path))
        found = modules_of("sessions", "--store", stored.url(tmp_path))
    assert not HEAVY & found
    assert len(found) < 520


@pytest.mark.parametrize("arguments", ["--help", "sessions --help", "replay --help-all", "serve --help", "lab --help"])
def test_help_loads_the_command_alone(arguments: str) -> None:
    """No settings, strategy, store or table: it takes 0.25 s of processor time at most."""
    found = modules_of(*arguments.split())
    assert not {"elision.config", "elision.strategies", "elision.stores", "elision.manager", "rich"} & found
    assert len(found) < 160
