"""The state that both files hold: that of the last checkpoint, and what committed transactions changed since.

Writers and readers both begin here. A finished set of page images in the log stands for a checkpoint that was not
finished in the page file: its images go before the file's pages, and the transactions before it are in it already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.changes import Change, decode_changes
from elision.stores.linear_hash.file_access import File
from elision.stores.linear_hash.layout import PAGE, verify_page
from elision.stores.linear_hash.log import (
    CHECKPOINT,
    FRAME,
    IMAGES,
    TRANSACTION,
    LogFrame,
    LogPosition,
    first_position,
    list_images,
    position_after,
    read_frames,
    read_header,
)
from elision.stores.linear_hash.meta import Meta, read_meta

_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class LogTail:
    """The log as read so far.

    place: after its last frame that counts. committed: after its last transaction or finished set of images.
    first_lsn: of its first frame. last: offset of its last one, 0 for none. sets: finished sets of images.
    images: page number -> offset of its image.
    changes: the newest change of each record since the checkpoint. file_id: 0 where the log is empty.
    """

    place: LogPosition
    committed: LogPosition
    first_lsn: int = 0
    last: int = 0
    sets: int = 0
    file_id: int = 0
    salt: int = 0
    images: dict[int, int] = field(default_factory=dict)
    changes: dict[bytes, Change] = field(default_factory=dict)
    _unfinished: dict[int, int] = field(default_factory=dict)

    def follow_log(self, log: File) -> None:
        """Read on from `place`."""
        for frame in read_frames(log, self.place):
            self.first_lsn = self.first_lsn or frame.lsn
            _TAKERS.get(frame.kind, _refuse_frame)(self, frame)
            self.place = position_after(frame)
            self.last = frame.at - FRAME
            if frame.kind != IMAGES:
                self.committed = self.place

    def _take_transaction(self, frame: LogFrame) -> None:
        for change in decode_changes(frame.payload):
            self.changes[change.key] = change.over(self.changes.get(change.key))

    def _take_images(self, frame: LogFrame) -> None:
        self._unfinished.update(list_images(frame))

    def _take_checkpoint(self, frame: LogFrame) -> None:
        self.images.update(self._unfinished)
        self.sets += 1
        self._unfinished.clear()
        self.changes.clear()


def _refuse_frame(tail: LogTail, frame: LogFrame) -> None:
    raise CorruptError(f"the log has a frame of kind {frame.kind}, which this version does not know")


_TAKERS: dict[int, Callable[[LogTail, LogFrame], None]] = {
    TRANSACTION: LogTail._take_transaction,
    IMAGES: LogTail._take_images,
    CHECKPOINT: LogTail._take_checkpoint,
}


def read_log(log: File) -> LogTail:
    """Return all of the log that counts. Raises CorruptError if its header is damaged."""
    header = read_header(log)
    if header is None:
        return LogTail(first_position(0), first_position(0))
    file_id, salt = header
    tail = LogTail(first_position(salt), first_position(salt), file_id=file_id, salt=salt)
    tail.follow_log(log)
    return tail


def read_state(pages: File, log: File, tail: LogTail) -> Meta | None:
    """Return the meta page as of the last checkpoint; None of a store that was never written. Raises CorruptError."""
    if 0 in tail.images:
        return read_meta(verify_page(log.read_at(tail.images[0], PAGE), 0))
    if _is_never_written(pages):
        if tail.first_lsn > 1:
            raise CorruptError("the page file is empty, and the log goes on from one that was not")
        return None
    meta = read_meta(verify_page(pages.read_at(0, PAGE), 0))
    if tail.file_id and tail.file_id != meta.file_id:
        raise CorruptError("the log belongs to another page file; put the two files of one store together again")
    return meta


def _is_never_written(pages: File) -> bool:
    """Return whether the file is empty, or all zeros: room that the first checkpoint took and did not come to fill."""
    size = pages.size()
    if any(pages.read_at(0, PAGE)):
        return False
    return not any(any(pages.read_at(at, _CHUNK)) for at in range(0, size, _CHUNK))
