"""A store's folder: its files, how they are opened, and how new ones take the place of old ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from elision.errors import CorruptError, StoreError
from elision.stores.linear_hash.catalogue import Catalogue, LogView, SessionState
from elision.stores.linear_hash.directory import load_directory, save_directory
from elision.stores.linear_hash.file_access import File, OsFile, sync_folder
from elision.stores.linear_hash.log import FrameReader, write_log_header
from elision.stores.linear_hash.records import DraftRecord, RecordHeader, RecordPacker, iterate_records


@dataclass(slots=True)
class OpenLog:
    """A log as it was read: its file, the reader after its last frame, and what its records add up to.

    directory_offset: how much of the log the directory's file has. directory_error: why it could not be used.
    """

    file: File
    reader: FrameReader
    view: LogView
    catalogue: Catalogue
    directory_offset: int
    directory_error: str = ""

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

    def read_draft(
        self,
        packer: RecordPacker,
        session: SessionState,
        number: int,
        read_text: Callable[[int], bytes] | None = None,
    ) -> tuple[DraftRecord, float]:
        """Return a record of a session, and when it was written. Raises CorruptError.

        read_text: a large text by its place; by default as the log has it.
        """
        header, data = self._read_numbered(session, number)
        draft = packer.unpack_draft(header, data, read_text or self.catalogue.read_text)
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
        offset = self.catalogue.find_record(session.number, number)
        if offset is None:
            raise CorruptError(f"record {number} of session {session.key!r} is missing; run `elision store fsck`")
        return self.view.read_record(offset)


class StoreFolder:
    """The folder of one store.

    values, directory, lock: its files. old_pages, old_log: those of the format before.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = path / "values"
        self.directory = path / "directory"
        self.lock = path / "lock"
        self.old_pages = path / "pages"
        self.old_log = path / "log"

    def is_old(self) -> bool:
        """Return whether a store of the format before is there and has not been converted."""
        return not self.values.exists() and (
            any(path.exists() and path.stat().st_size > 0 for path in (self.old_pages, self.old_log))
        )

    def make_folder(self) -> None:
        """Make the folder (0700); the folder it is in must be there. Raises StoreError."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{self.path}: no store can be opened there: {error}") from error

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

    def create_file(self, name: str) -> OsFile:
        """Return a new empty file of the folder. Raises OSError."""
        path = self.path / name
        path.unlink(missing_ok=True)
        return OsFile(path, writable=True)

    def open_values(self, *, writable: bool) -> File:
        """Return the log's file. Raises OSError."""
        return OsFile(self.values, writable=writable)

    def open_log(self, packer: RecordPacker, *, writable: bool = False, use_directory: bool = True) -> OpenLog | None:
        """Return the log, read to its end; None if the store was never written. Raises CorruptError, OSError."""
        if not self.values.exists():
            return None
        file = self.open_values(writable=writable)
        try:
            return self._read_log(file, packer, use_directory=use_directory)
        except BaseException:
            file.close()
            raise

    def _read_log(self, file: File, packer: RecordPacker, *, use_directory: bool) -> OpenLog:
        reader = FrameReader(file, self._find_ids(file))
        view = LogView(file)
        opened = OpenLog(file, reader, view, Catalogue(reader.key_id, view, packer), 0)
        if use_directory:
            self._load_directory(opened)
        opened.follow()
        return opened

    def _find_ids(self, file: File) -> tuple[int, int] | None:
        """Return the log's ids as the directory has them, where the log's header cannot be read."""
        try:
            FrameReader(file)
        except CorruptError:
            with suppress(OSError, CorruptError):
                header = load_directory(self.directory)[0]
                return header.log_id, header.key_id
        return None

    def _load_directory(self, opened: OpenLog) -> None:
        try:
            header, directory, packed = load_directory(self.directory)
            if header.log_id != opened.reader.log_id:
                # A compaction was interrupted after it had put the new log in its place.
                return
            opened.catalogue.load(directory, packed)
        except FileNotFoundError:
            return
        except CorruptError as error:
            opened.directory_error = str(error)
            return
        opened.reader.end = opened.directory_offset = header.offset

    def save_directory(self, opened: OpenLog, offset: int) -> None:
        """Write the directory, which has the log up to `offset`. Raises OSError."""
        catalogue = opened.catalogue
        ids = opened.reader.log_id, opened.reader.key_id
        save_directory(self.directory, catalogue.directory, ids, offset, catalogue.pack())
        opened.directory_offset = offset
        opened.directory_error = ""

    def swap_log(self, fresh: Path) -> None:
        """Put `fresh` in the place of the log, durably. The old directory is of no use then. Raises OSError."""
        os.replace(fresh, self.values)
        sync_folder(self.path)

    def is_current(self, file: File) -> bool:
        """Return whether `file` is still the log: a compaction puts another one there."""
        there = os.stat(self.values)
        return isinstance(file, OsFile) and file.identity == (there.st_ino, there.st_dev)
