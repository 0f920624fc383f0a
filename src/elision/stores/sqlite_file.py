"""One SQLite file: how it is made and opened, its transactions, and its errors in our words.

Write-ahead log with `synchronous=FULL`: a transaction is on the disk before `write_transaction` ends. Several threads
take turns on one connection; several processes may use the file at once. `try_read` has a connection of its own. A file
that is opened for reading alone is neither made nor changed.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from elision.errors import CorruptError, StoreError
from elision.stores.sql_dialect import split_statements
from elision.stores.sqlite_check import describe_lost_transactions
from elision.stores.store_errors import (
    DamagedStoreError,
    check_disk,
    closed_store_error,
    hold_place,
    missing_store_error,
    name_check_command,
    read_only_store_error,
    vanished_store_error,
)

_T = TypeVar("_T")

#: The version of the schema, in the file's `user_version`.
VERSION: Final = 1
#: "Elis": whose file it is, in its header.
APPLICATION: Final = 0x456C6973
#: Where both are in the file.
_VERSION_PLACE: Final = slice(60, 64)
_APPLICATION_PLACE: Final = slice(68, 72)
#: Seconds that a writer waits for another one.
BUSY_SECONDS: Final = 5.0
#: Seconds until a setting is tried again that SQLite did not wait for.
_RETRY_SECONDS: Final = 0.005
#: The write-ahead log is cut back to this many bytes where it grew beyond.
_LOG_BYTES: Final = 16 << 20
#: Memory for pages of the file; the system keeps the others in its own cache.
_PAGE_CACHE_KIB: Final = 4 << 10

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
    # In KiB. A cache that holds the whole file would look like a leak for as long as the file is smaller.
    f"PRAGMA cache_size = -{_PAGE_CACHE_KIB}",
)

#: Beginnings of SQLite's names of errors that no undamaged file leads to. One without a name is of a text that is none.
_DAMAGED: Final = ("SQLITE_CORRUPT", "SQLITE_CONSTRAINT", "SQLITE_MISMATCH")
#: That of them which means the file and not a row.
_FILE_DAMAGED: Final = "SQLITE_CORRUPT"
#: What is raised within a transaction by a value of another type or size than was written.
_WRONG_VALUES: Final = (TypeError, ValueError, AttributeError, LookupError, OverflowError)
#: SQLite's name of an error (or its beginning) -> what it is and what to do about it.
_ERROR_HINTS: Final = (
    ("SQLITE_BUSY", "another process {locked}; nothing was written, try again"),
    ("SQLITE_LOCKED", "it is locked; nothing was written, try again"),
    ("SQLITE_FULL", "the disk is full; nothing of this was written and nothing is lost, make room and try again"),
    ("SQLITE_READONLY", "it cannot be written; check the permissions of the file and of its folder"),
    ("SQLITE_CANTOPEN", "it cannot be opened; check that it exists, and the permissions of file and folder"),
    ("SQLITE_NOTADB", "it is not an SQLite database; name another file"),
    ("SQLITE_IOERR", "the disk failed ({name}); nothing of this was written, see the system's log and try again"),
    ("SQLITE_TOOBIG", "a text is larger than SQLite keeps (1 GB)"),
)


class SqliteFile:
    """A connection to `path`, which is made if it is not there (mode 0600); its folder is not.

    read_only: the file must be there, and nothing is written to it.
    Raises StoreError for a file that is no store of ours, has a schema of another version, or cannot be opened.
    """

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS, read_only: bool = False) -> None:
        self.path = path
        self._is_read_only = read_only
        self._busy_seconds = busy_seconds
        #: Transactions in a row that another process kept from writing.
        self._busy_failures = 0
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._is_closed = False
        self._is_opening = False
        #: None while the file at `path` is another one that could not be opened.
        self._connection: sqlite3.Connection | None = None
        #: Which file the connections have open: device and number.
        self._identity = (0, 0)
        #: Reads while the other connection writes; opened at the first `try_read`.
        self._waitless_connection: sqlite3.Connection | None = None
        self._waitless_lock = threading.Lock()
        if not read_only:
            _create_file(path)
        elif not path.exists():
            raise missing_store_error(str(path))
        elif path.is_dir():
            raise _folder_error(path)
        self._open_file()

    def check_writes(self, *, is_tried: bool) -> None:
        """Raise StoreError where nothing can be written now. is_tried: write, durably, what changes nothing.

        On a connection of its own, beside whatever another thread does, and for a writer's usual wait at most.
        """
        self.check_writable()
        self._check_open()
        if self._find_identity() is None:
            raise vanished_store_error(str(self.path))
        check_disk(self.path.absolute().parent)
        with self._translate_errors(), closing(self._connect(self._busy_seconds)) as connection:
            connection.execute(_WRITE)
            if is_tried:
                # The same number again: the page of the header is written and synced all the same.
                connection.execute(f"PRAGMA user_version = {VERSION}")
            connection.execute("COMMIT" if is_tried else "ROLLBACK")

    def read(self, work: Callable[[sqlite3.Connection], _T], *, patient: bool = False) -> _T:
        with self._run_transaction("BEGIN", "ROLLBACK") as connection:
            return work(connection)

    def write(self, work: Callable[[sqlite3.Connection], _T], *, patient: bool = False) -> _T:
        self.check_writable()
        with self._run_transaction(_WRITE, "COMMIT") as connection:
            return work(connection)

    def read_transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a transaction that sees one state of the file."""
        return self._run_transaction("BEGIN", "ROLLBACK")

    def try_read(self, read: Callable[[sqlite3.Connection], _T]) -> _T | None:
        """Return what `read` finds by one statement, on a connection that waits for no writer; None if it would wait.

        It sees what is on the disk, without a transaction that is still being written.
        """
        if not self._waitless_lock.acquire(blocking=False):
            return None
        try:
            with self._translate_errors():
                return self._read_unless_busy(read)
        finally:
            self._waitless_lock.release()

    def _read_unless_busy(self, read: Callable[[sqlite3.Connection], _T]) -> _T | None:
        self._check_open()
        if self._find_identity() != self._identity:
            # The other connection finds out what became of the file.
            return None
        try:
            if self._waitless_connection is None:
                self._waitless_connection = self._connect(0.0)
                self._waitless_connection.execute("PRAGMA query_only = ON")
            return read(self._waitless_connection)
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                return None
            raise

    def write_transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a transaction that is on the disk when the block ends, or did not happen.

        Raises StoreError where the file was opened for reading alone.
        """
        self.check_writable()
        return self._run_transaction(_WRITE, "COMMIT")

    @contextmanager
    def use_connection(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection without a transaction, for what SQLite does not do within one."""
        with self._lock, self._translate_errors():
            yield self._check_ready()

    def check_writable(self) -> None:
        """Raise StoreError where the file was opened for reading alone."""
        if self._is_read_only:
            raise read_only_store_error(str(self.path))

    def close(self) -> None:
        with self._lock, self._waitless_lock:
            self._is_closed = True
            self._close_connections()

    def _close_connections(self) -> None:
        open_here = [each for each in (self._waitless_connection, self._connection) if each is not None]
        self._waitless_connection = self._connection = None
        if self._process == os.getpid():
            with self._translate_errors():
                for connection in open_here:
                    connection.close()

    def _open_file(self) -> sqlite3.Connection:
        """Open the file at `path`, with the tables of a new one, and return the connection to it."""
        self._is_opening = True
        try:
            with hold_place(self.path):
                with self._translate_errors():
                    # Before it is opened: a file that is replaced meanwhile is found to be another one.
                    self._identity = self._find_identity() or (0, 0)
                    self._check_log()
                    self._connection = connection = self._connect(self._busy_seconds)
                self._prepare_file()
        except BaseException:
            self._close_connections()
            raise
        finally:
            self._is_opening = False
        return connection

    def _check_log(self) -> None:
        """Raise DamagedStoreError where all that the store has is in its log, and SQLite leaves out all of that.

        So it may be in a young store whose process was killed. SQLite would find no table, and write over the log.
        """
        if _read_header(self.path)[_VERSION_PLACE] != bytes(4):
            return
        if what := describe_lost_transactions(self.path, only_all=True):
            raise self.make_damage_error(what)

    def _connect(self, timeout: float) -> sqlite3.Connection:
        place: str | Path = self.path.absolute()
        if self._is_read_only:
            place = f"{self.path.absolute().as_uri()}?mode=ro"
        return sqlite3.connect(
            place, timeout=timeout, isolation_level=None, check_same_thread=False, uri=self._is_read_only
        )

    def make_corrupt_error(self, what: str) -> CorruptError:
        return CorruptError(name_check_command(f"{self.path}: {what}"))

    def make_damage_error(self, what: str) -> DamagedStoreError:
        return DamagedStoreError(f"{self.path}: the file is damaged ({what})", self.path, self._identity)

    @contextmanager
    def _run_transaction(self, begin: str, end: str) -> Iterator[sqlite3.Connection]:
        with self._lock, self._translate_errors():
            connection = self._check_ready()
            try:
                self._begin_transaction(connection, begin)
                yield connection
                connection.execute(end)
            except BaseException:
                # Ctrl-C may come at any moment; and after some errors SQLite has rolled back already.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def _begin_transaction(self, connection: sqlite3.Connection, begin: str) -> None:
        """Begin a transaction. After one wait in vain, further calls fail at once, until a transaction begins."""
        try:
            connection.execute(begin)
        except sqlite3.OperationalError as error:
            if _is_busy(error):
                self._busy_failures += 1
                connection.execute("PRAGMA busy_timeout = 0")
            raise
        if self._busy_failures and begin == _WRITE:
            self._busy_failures = 0
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy_seconds * 1_000)}")

    def _check_ready(self) -> sqlite3.Connection:
        """Return the connection to the file that is at `path` now. The caller holds the lock.

        Nothing is written to a file that was deleted: it would be lost when the file is closed.
        """
        self._check_open()
        found = self._find_identity()
        if self._connection is not None and (found == self._identity or self._is_opening):
            return self._connection
        if found is None:
            raise vanished_store_error(str(self.path))
        with self._waitless_lock:
            self._close_connections()
            return self._open_file()

    def _check_open(self) -> None:
        if self._is_closed:
            raise closed_store_error(str(self.path))
        if self._process != os.getpid():
            raise StoreError(f"{self.path}: opened before this process was forked; open it again in here")

    def _find_identity(self) -> tuple[int, int] | None:
        """Return device and number of the file at `path`; None where there is none."""
        try:
            status = os.stat(self.path)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate SQLite's errors into ours, and what values raise that no row of ours has."""
        try:
            yield
        except _WRONG_VALUES as error:
            raise self.make_corrupt_error(f"a row has a value that was not written ({error})") from error
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", "")
            # By the application in its header a file that is no database any more was one of ours.
            was_own = _read_header(self.path)[_APPLICATION_PLACE] == APPLICATION.to_bytes(4, "big")
            if name.startswith(_FILE_DAMAGED) or (name == "SQLITE_NOTADB" and was_own):
                raise self.make_damage_error(str(error)) from error
            if name.startswith(_DAMAGED) or (not name and isinstance(error, sqlite3.OperationalError)):
                raise self.make_corrupt_error(f"the file is damaged ({error})") from error
            hint = str(error)
            locked = f"kept it locked for {self._busy_seconds:g} s"
            if self._busy_failures > 1:
                locked = "still keeps it locked"
            for beginning, text in _ERROR_HINTS:
                if name.startswith(beginning):
                    hint = text.format(locked=locked, name=name)
                    break
            raise StoreError(f"{self.path}: {hint}") from error

    def _prepare_file(self) -> None:
        """Make the tables of a new file. Raises StoreError for a file that is not changed: another program's, or ours
        with a schema of another version.
        """
        # One state of the file: another process may make its tables in this moment.
        with self.read_transaction() as connection:
            version = _read_version(connection)
            application = connection.execute("PRAGMA application_id").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if application != APPLICATION and (application or tables):
                raise StoreError(f"{self.path}: it is a database of another program; name another file")
            if version not in (0, VERSION):
                raise StoreError(
                    f"{self.path}: has a schema of version {version}, and this Elision reads version {VERSION} alone; "
                    "use the elision that made it, or name another file"
                )
            if self._is_read_only and version == 0:
                raise missing_store_error(str(self.path))
        if self._is_read_only:
            return
        with self.use_connection() as connection:
            for setting in _SETTINGS:
                self._set_patiently(connection, setting)
        if version == 0:
            with self.write_transaction() as connection:
                # Asked again: another process may have done it while this one waited for the lock.
                if _read_version(connection) == 0:
                    for statement in split_statements("sqlite_schema.sql"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA application_id = {APPLICATION}")
                    connection.execute(f"PRAGMA user_version = {VERSION}")

    def _set_patiently(self, connection: sqlite3.Connection, setting: str) -> None:
        """Execute a setting, and wait for other processes where SQLite does not: while it changes the journal mode."""
        until = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute(setting).fetchall()
                return
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() >= until:
                    raise
            time.sleep(_RETRY_SECONDS)


def _is_busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY")


def _read_version(connection: sqlite3.Connection) -> int:
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return found


def _read_header(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_APPLICATION_PLACE.stop)
    except OSError:
        return b""


def _folder_error(path: Path) -> StoreError:
    return StoreError(f"{path}: is a folder; name a file in it")


def _create_file(path: Path) -> None:
    """Create an empty file that only its owner may read, with its name synced."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if path.is_dir():
            raise _folder_error(path) from None
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
