"""A store's folder: its files, how they are opened, and how new ones take the place of old ones."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from elision.errors import ConflictError, CorruptError, StoreError
from elision.stores.linear_hash.directory_file import load_directory, save_directory
from elision.stores.linear_hash.file_access import File, OsFile, sync_folder
from elision.stores.linear_hash.log import FrameReader, write_log_header
from elision.stores.linear_hash.open_log import OpenLog, open_log_file
from elision.stores.store_errors import missing_store_error


class StoreFolder:
    """The folder of one store. values, directory, lock: its files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = path / "values"
        self.directory = path / "directory"
        self.lock = path / "lock"

    @property
    def identity(self) -> tuple[int, int]:
        """Which folder this is: device and number. Raises OSError."""
        status = os.stat(self.path)
        return status.st_dev, status.st_ino

    def make_folder(self) -> None:
        """Make the folder (0700); the folder it is in must be there. Raises StoreError."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path}: no store can be opened there: {error}") from error

    def check_writable(self) -> None:
        """Raise StoreError unless the files here can be written. It takes no lock, as any process may read beside."""
        try:
            for path in (self.lock, self.values):
                if path is self.lock or path.exists():
                    OsFile(path, writable=True).close()
        except OSError as error:
            raise StoreError(f"{self.path}: the store cannot be written ({error.strerror})") from error

    def check_readable(self) -> None:
        """Raise MissingStore where there is no folder."""
        if not self.path.is_dir():
            raise missing_store_error(str(self.path))

    def make_log(self) -> None:
        """Make an empty log if there is none, whole or not at all. Raises OSError."""
        if self.values.exists():
            return
        fresh = self.create_file("values.new")
        try:
            write_log_header(fresh)
        finally:
            fresh.close()
        os.replace(fresh.path, self.values)
        sync_folder(self.path)

    def try_write(self) -> None:
        """Write a file and remove it. Raises OSError."""
        tried = self.create_file("probe")
        try:
            tried.write_at(0, bytes(4096))
            tried.fsync()
        finally:
            tried.close()
            tried.path.unlink()

    def create_file(self, name: str) -> OsFile:
        """Return a new empty file of the folder. Raises OSError."""
        path = self.path / name
        path.unlink(missing_ok=True)
        return OsFile(path, writable=True)

    def open_values(self, *, writable: bool) -> File:
        """Return the log's file. Raises OSError."""
        return OsFile(self.values, writable=writable)

    def open_log(self, *, writable: bool = False) -> OpenLog:
        """Return the log, read to its end. Raises CorruptError, OSError; FileNotFoundError if there is none."""
        file = self.open_values(writable=writable)
        try:
            log = open_log_file(file, self._find_ids(file))
            self._load_directory(log)
            log.follow()
        except BaseException:
            file.close()
            raise
        return log

    def _find_ids(self, file: File) -> tuple[int, int] | None:
        """Return the log's ids as the directory has them, where the log's header cannot be read."""
        try:
            FrameReader(file)
        except CorruptError:
            with suppress(OSError, CorruptError):
                saved = load_directory(self.directory)
                return saved.log_id, saved.key_id
        return None

    def _load_directory(self, log: OpenLog) -> None:
        try:
            log.directory_inode = os.stat(self.directory).st_ino
            saved = load_directory(self.directory)
            if saved.log_id != log.reader.log_id:
                # A compaction was interrupted after it had put the new log in its place.
                return
            log.catalogue.load(saved.directory, saved.catalogue)
        except FileNotFoundError:
            return
        except CorruptError as error:
            log.directory_error = str(error)
            return
        log.reader.end = log.directory_offset = saved.offset

    def save_directory(self, log: OpenLog) -> None:
        """Write the directory of a log, all of which is written. Raises OSError."""
        ids = log.reader.log_id, log.reader.key_id
        save_directory(self.directory, log.catalogue.directory, ids, log.reader.end, log.catalogue.pack())
        log.directory_offset = log.reader.end
        log.directory_error = ""

    def swap_log(self, fresh: Path) -> None:
        """Put `fresh` in the place of the log, durably. The old directory is of no use then. Raises OSError."""
        os.replace(fresh, self.values)
        sync_folder(self.path)

    def has_log(self) -> bool:
        return self.values.exists()

    def is_current(self, file: File) -> bool:
        """Return whether `file` is still the log: a compaction puts another one there. Raises OSError."""
        try:
            there = os.stat(self.values)
        except FileNotFoundError:
            return False
        return isinstance(file, OsFile) and file.identity == (there.st_ino, there.st_dev)

    def has_new_directory(self, log: OpenLog) -> bool:
        """Return whether the directory's file was written since `log` was opened."""
        with suppress(OSError):
            return os.stat(self.directory).st_ino != log.directory_inode
        return False


class WriterLock:
    """Held by the one process that may write: an `flock` on a file of its own, which ends with its process.

    Readers need none: they read files that are never changed where they have read them. Raises ConflictError if another
    process writes.
    """

    def __init__(self, path: Path) -> None:
        self._file = OsFile(path, writable=True)
        try:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = self._file.read_at(0, 20).decode("ascii", "replace").strip() or "unknown"
            self._file.close()
            raise ConflictError(
                f"{path.parent}: process {owner} writes to this store; close it there, or open the store for reading"
            ) from error
        self._owner = os.getpid()
        self._file.truncate(0)
        self._file.write_at(0, f"{self._owner}\n".encode())

    def is_current(self) -> bool:
        """Return whether the file is still there: another one could be locked by another process."""
        try:
            there = os.stat(self._file.path)
        except OSError:
            return False
        return self._file.identity == (there.st_ino, there.st_dev)

    def check(self) -> None:
        """Raises ConflictError in a forked child, which shares the lock and must not write."""
        if os.getpid() != self._owner:
            raise ConflictError(f"the store was opened by process {self._owner} before it forked; open it anew")

    def close(self) -> None:
        self._file.close()
