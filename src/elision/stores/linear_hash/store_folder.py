"""A store's folder: its three files, who may open them, and how new ones take the old ones' place."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import StoreError
from elision.stores.linear_hash.changes import PUT, Change, Record
from elision.stores.linear_hash.file_access import OsFile, sync_folder
from elision.stores.linear_hash.locks import FileLocks
from elision.stores.linear_hash.reader import OpenFiles
from elision.stores.linear_hash.writer import Writer, WriterLimits

#: Records per transaction, and bytes of them, when a file is written anew.
_RECORDS: Final = 256
_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class StoreFolder:
    """The folder of one store."""

    path: Path

    @property
    def pages(self) -> Path:
        return self.path / "pages"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    def make_folder(self) -> None:
        """Make folder (0700) and files (0600) that are not there; the folder's own must be. Raises StoreError."""
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            for path in (self.lock, self.log, self.pages):
                if not path.exists():
                    OsFile(path, writable=True).close()
        except OSError as error:
            raise StoreError(f"{self.path}: no store can be opened there: {error}") from error

    def open_for_reading(self) -> OpenFiles:
        """Return the files, to be read beside a writer. Raises StoreError."""
        try:
            pages = OsFile(self.pages, writable=False)
            log = OsFile(self.log, writable=False)
        except OSError as error:
            raise StoreError(f"{self.path}: the store cannot be read: {error}") from error
        return OpenFiles(pages, log, FileLocks(pages, log), lambda: self._is(self.pages, pages))

    def open_for_writing(self, limits: WriterLimits) -> Writer:
        """Return the files, recovered and ready; the caller holds the writer's lock."""
        pages = OsFile(self.pages, writable=True)
        log = OsFile(self.log, writable=True)
        try:
            return Writer(pages, log, FileLocks(pages, log), limits)
        except BaseException:
            pages.close()
            log.close()
            raise

    def rebuild_pages(self, records: Iterable[Record], file_id: int) -> Path:
        """Write a page file with `records` alone beside the old one, and return its path.

        The caller holds the writer's lock. file_id: of the log that belongs to it.
        """
        pages = self.path / "pages.new"
        log = self.path / "log.new"
        for path in (pages, log):
            path.unlink(missing_ok=True)
        files = OsFile(pages, writable=True), OsFile(log, writable=True)
        writer = Writer(*files, limits=WriterLimits(group=64), file_id=file_id)
        with closing(writer):
            for batch in _batch_changes(records):
                writer.commit(batch)
            writer.flush()
            if not writer.checkpoint():
                raise StoreError(f"{self.path}: there is no room to write the store anew: {writer.last_failure}")
        log.unlink()
        return pages

    def swap_pages(self, pages: Path) -> None:
        """Put `pages` in the place of the page file, whose log is empty, durably."""
        os.replace(pages, self.pages)
        sync_folder(self.path)

    def _is(self, path: Path, opened: OsFile) -> bool:
        """Return whether `opened` is what `path` names."""
        there = os.stat(path)
        ours = os.fstat(opened.descriptor)
        return (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev)


def _batch_changes(records: Iterable[Record]) -> Iterable[list[Change]]:
    batch: list[Change] = []
    size = 0
    for key, head, value in records:
        batch.append(Change(PUT, key, head, value))
        size += len(value)
        if len(batch) >= _RECORDS or size >= _BYTES:
            yield batch
            batch = []
            size = 0
    if batch:
        yield batch
