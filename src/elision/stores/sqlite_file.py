"""One SQLite file: how it is made, opened and brought up to date, its transactions, and its errors in our words.

Write-ahead log with `synchronous=FULL`: a transaction is on the disk before `writing` ends. Several threads take turns
on one connection; several processes may use the file at once. A glance has a connection of its own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final, TypeVar

from elision.errors import CorruptError, StoreError
from elision.stores.refusals import closed

_T = TypeVar("_T")

#: The version of the schema, in the file's `user_version`: one migration a step.
VERSION: Final = 2
#: "Lacn": whose file it is, in its header.
APPLICATION: Final = 0x4C61636E
#: Seconds that a writer waits for another one.
BUSY_SECONDS: Final = 5.0
#: The write-ahead log is cut back to this many bytes where it grew beyond.
_LOG_BYTES: Final = 16 << 20

_WRITE: Final = "BEGIN IMMEDIATE"
_SETTINGS: Final = (
    # Before the first table: pages that become free can be given back without writing the file anew.
    "PRAGMA auto_vacuum = INCREMENTAL",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = OFF",
    # What is forgotten is overwritten.
    "PRAGMA secure_delete = ON",
    f"PRAGMA journal_size_limit = {_LOG_BYTES}",
    "PRAGMA cache_size = -16384",
)

#: SQLite's name of an error (or how it begins) -> what it is and how to mend it.
_MENDS: Final = (
    ("SQLITE_BUSY", "another process {locked}; nothing was written, try again"),
    ("SQLITE_LOCKED", "it is locked; nothing was written, try again"),
    ("SQLITE_FULL", "the disk is full; nothing of this was written and nothing is lost, make room and try again"),
    ("SQLITE_READONLY", "it cannot be written; check the permissions of the file and of its folder"),
    ("SQLITE_CANTOPEN", "it cannot be opened; check that it is there, and the permissions of file and folder"),
    ("SQLITE_NOTADB", "it is no SQLite database; name another file"),
    ("SQLITE_IOERR", "the disk failed ({name}); nothing of this was written, see the system's log and try again"),
    ("SQLITE_TOOBIG", "a text is larger than SQLite keeps (1 GB)"),
)


class SqliteFile:
    """A connection to `path`, which is made if it is not there (mode 0600); its folder is not.

    Raises StoreError for a file that is no store of ours, is newer than this version, or cannot be opened.
    """

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self.path = path
        self._busy = busy_seconds
        #: Writers in a row that another process kept out.
        self._refusals = 0
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._connection: sqlite3.Connection | None = None
        #: Reads while the other is on its way to the disk; opened when it is first asked for.
        self._glance: sqlite3.Connection | None = None
        self._glances = threading.Lock()
        _make(path)
        with self._said():
            self._connection = self._opened(busy_seconds)
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A transaction that sees one state of the file."""
        with self._transaction("BEGIN", "ROLLBACK") as connection:
            yield connection

    def at_once(self, read: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """What `read` finds by one statement, on a connection that waits for no writer; None where it would wait.

        It sees what is on the disk: what a writer is still at is not there yet.
        """
        if not self._glances.acquire(blocking=False):
            return None
        try:
            with self._said():
                return self._unless_busy(read)
        finally:
            self._glances.release()

    def _unless_busy(self, read: Callable[[sqlite3.Connection], _T]) -> _T | None:
        self._ready()
        try:
            if self._glance is None:
                self._glance = self._opened(0.0)
                self._glance.execute("PRAGMA query_only = ON")
            return read(self._glance)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                return None
            raise

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is on the disk when this ends, or did not happen."""
        with self._transaction(_WRITE, "COMMIT") as connection:
            yield connection

    @contextmanager
    def plain(self) -> Iterator[sqlite3.Connection]:
        """The connection without a transaction, for what SQLite does not do within one."""
        with self._lock, self._said():
            yield self._ready()

    def close(self) -> None:
        with self._lock, self._glances:
            open_here = [each for each in (self._glance, self._connection) if each is not None]
            self._glance = self._connection = None
            if self._process == os.getpid():
                with self._said():
                    for connection in open_here:
                        connection.close()

    def _opened(self, timeout: float) -> sqlite3.Connection:
        return sqlite3.connect(self.path.absolute(), timeout=timeout, isolation_level=None, check_same_thread=False)

    def corrupt(self, what: str) -> CorruptError:
        return CorruptError(f"{self.path}: {what}; `elision store fsck` reads everything and lists what is wrong")

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Iterator[sqlite3.Connection]:
        with self._lock, self._said():
            connection = self._ready()
            try:
                self._start(connection, begin)
                yield connection
                connection.execute(end)
            except BaseException:
                # Ctrl-C may come at any moment; and after some errors SQLite has rolled back already.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _start(self, connection: sqlite3.Connection, begin: str) -> None:
        """Begin a transaction. After a wait in vain nobody waits again until a transaction begins."""
        try:
            connection.execute(begin)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY"):
                self._refusals += 1
                connection.execute("PRAGMA busy_timeout = 0")
            raise
        if self._refusals and begin == _WRITE:
            self._refusals = 0
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy * 1_000)}")

    def _ready(self) -> sqlite3.Connection:
        if self._connection is None:
            raise closed(str(self.path))
        if self._process != os.getpid():
            raise StoreError(f"{self.path}: opened before this process was forked; open it again in here")
        return self._connection

    @contextmanager
    def _said(self) -> Iterator[None]:
        """SQLite's errors in our words."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith("SQLITE_CORRUPT"):
                raise self.corrupt(f"the file is damaged ({error})") from error
            said = next((text for start, text in _MENDS if name.startswith(start)), str(error))
            raise StoreError(f"{self.path}: {said.format(locked=self._describe_lock(), name=name)}") from error

    def _describe_lock(self) -> str:
        if self._refusals > 1:
            return "still keeps it locked"
        return f"kept it locked for {self._busy:g} s"

    def _begin(self) -> None:
        with self.plain() as connection:
            foreign = _foreign(connection)
            if not foreign:
                for setting in _SETTINGS:
                    connection.execute(setting).fetchall()
        if foreign:
            raise StoreError(f"{self.path}: is a database of another program; name another file")
        if self._version() != VERSION:
            with self.writing() as connection:
                _bring_up_to_date(connection)

    def _version(self) -> int:
        with self.plain() as connection:
            found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > VERSION:
            raise StoreError(
                f"{self.path}: is in format {found}, newer than this Elision reads ({VERSION}); update elision"
            )
        return found


def migrations() -> list[str]:
    """The texts that lead from version 0 to `VERSION`, in order."""
    found = [file for file in files("elision.stores").joinpath("sql").iterdir() if file.name.startswith("sqlite_0")]
    return [file.read_text(encoding="utf-8") for file in sorted(found, key=lambda file: file.name)]


def script(name: str) -> str:
    """A text of `sql/`."""
    return files("elision.stores").joinpath("sql", name).read_text(encoding="utf-8")


def run(connection: sqlite3.Connection, text: str) -> None:
    """Run the statements of `text` within the transaction that is open; `executescript` would end it."""
    statement = ""
    for line in text.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            connection.execute(statement)
            statement = ""


def _bring_up_to_date(connection: sqlite3.Connection) -> None:
    # Asked again: another process may have done it while this one waited for the lock.
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        run(connection, script("sqlite_schema.sql"))
    else:
        for text in migrations()[version:]:
            run(connection, text)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def _foreign(connection: sqlite3.Connection) -> bool:
    """Whether somebody else's tables are in the file."""
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return bool(application != APPLICATION and (application or tables))


def _make(path: Path) -> None:
    """An empty file that nobody else may read, its name on the disk."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise StoreError(f"{path}: is a folder; name a file in it") from None
        return
    except FileNotFoundError as error:
        raise StoreError(f"{path}: there is no folder {path.parent}; make it first") from error
    except OSError as error:
        raise StoreError(f"{path}: cannot be made ({error.strerror}); check the folder's permissions") from error
    folder = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
