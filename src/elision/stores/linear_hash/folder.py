"""A store's folder: its files, the log as a process has it open, and how new files take the place of old ones."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elision.errors import ConflictError, CorruptError, StoreError
from elision.stores.linear_hash.catalogue import Catalogue, SessionState
from elision.stores.linear_hash.directory import load_directory, save_directory
from elision.stores.linear_hash.log import FRAME, File, FrameReader, OsFile, sync_folder, write_log_header
from elision.stores.linear_hash.records import DraftRecord, LogView, RecordHeader, iterate_records
from elision.stores.store_errors import missing_session_error, missing_store_error
from elision.trajectory.events import TurnAdded, TurnAmended
from elision.trajectory.turn import Turn


@dataclass(slots=True)
class OpenLog:
    """A log, read to its end.

    directory_offset: how much of the log the directory's file has. directory_inode: of that file, 0 for
    none. directory_error: why it could not be used.
    """

    file: File
    reader: FrameReader
    view: LogView
    catalogue: Catalogue
    directory_offset: int = 0
    directory_inode: int = 0
    directory_error: str = ""

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        self.catalogue.directory.pages.close()

    def follow(self) -> None:
        """Enter the frames that were written since. Raises CorruptError."""
        for frame in self.reader.iterate_frames():
            for header in iterate_records(frame.data, frame.start):
                start = header.place - frame.start
                try:
                    self.catalogue.enter_record(header, frame.data[start : start + header.size])
                except CorruptError:
                    if not frame.is_damaged:
                        raise

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log, without the room that is reserved."""
        return self.reader.end + FRAME + len(self.view.pending)

    @property
    def stored_bytes(self) -> int:
        """Return the bytes of the log and of the directory."""
        return self.log_bytes + self.catalogue.directory_bytes

    @property
    def used_bytes(self) -> int:
        """Return the stored bytes that sessions use."""
        return self.stored_bytes - self.catalogue.unused_bytes

    def find_session(self, key: str) -> SessionState:
        """Return the session called `key`. Raises UnknownHandle."""
        session = self.catalogue.by_key.get(key)
        if session is None:
            raise missing_session_error(key)
        return session

    def find_record(self, session: SessionState, number: int) -> int:
        """Return the offset of a record. Raises CorruptError if it is missing."""
        offset = self.catalogue.find_record(session.number, number)
        if offset is None:
            raise CorruptError(f"record {number} of session {session.key!r} is missing")
        return offset

    def find_turns(self, session: SessionState, first: int, last: int) -> list[int]:
        """Return the offsets of the newest records of turns first … last."""
        first = max(1, first)
        last = min(last, session.newest)
        indices: Sequence[int] = range(first, last + 1)
        if session.turns != session.newest:
            indices = self._list_turns(session, first, last)
        offsets = [self.catalogue.find_turn(session, index) for index in indices]
        return [offset for offset in offsets if offset is not None]

    def read_turn(self, offset: int) -> Turn:
        """Return the turn of a record. Raises CorruptError."""
        event = self.view.read_event(offset)
        if not isinstance(event, TurnAdded | TurnAmended):
            raise CorruptError(f"the record at byte {offset} is no turn")
        return event.turn

    def read_draft(
        self, session: SessionState, number: int, read_text: Callable[[int], bytes] | None = None
    ) -> tuple[DraftRecord, float]:
        """Return a record of a session, and when it was written. Raises CorruptError.

        read_text: a large text by its place; by default as the log has it.
        """
        header, data = self._read_numbered(session, number)
        draft = self.view.packer.unpack_draft(header, data, read_text or self.view.read_text)
        if header.session == session.number:
            return draft, header.at
        # A fork was not changed when its parent's records were written, and does not have the ids of their appends.
        draft.mark = b""
        return draft, session.begun

    def read_batch_mark(self, session: SessionState, number: int) -> bytes:
        """Return what a record keeps of the id of the append that it begins; b"" for none. Raises CorruptError."""
        header, _ = self._read_numbered(session, number)
        return header.mark if header.session == session.number else b""

    def _read_numbered(self, session: SessionState, number: int) -> tuple[RecordHeader, bytes]:
        return self.view.read_record(self.find_record(session, number))

    def _list_turns(self, session: SessionState, first: int, last: int) -> list[int]:
        """Return the turns of a log that has gaps between them."""
        found = set()
        for number in range(1, session.records + 1):
            offset = self.catalogue.find_record(session.number, number)
            if offset is not None:
                turn = self.view.read_record(offset)[0].turn
                if turn and first <= turn <= last:
                    found.add(turn)
        return sorted(found)


def open_log_file(file: File, ids: tuple[int, int] | None = None) -> OpenLog:
    """Return the log in `file` before any of it is read. ids: its log id and key id, where its header is damaged."""
    reader = FrameReader(file, ids)
    view = LogView(file)
    return OpenLog(file, reader, view, Catalogue(reader.key_id, view))


def make_empty_log() -> OpenLog:
    """Return the log of a store that was never written."""
    return open_log_file(OsFile(Path(os.devnull), writable=False), (0, 0))


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
            raise ConflictError(f"the store was opened by process {self._owner} before it forked; open it again")

    def close(self) -> None:
        self._file.close()
