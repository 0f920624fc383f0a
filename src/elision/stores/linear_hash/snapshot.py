"""What the two files say together: the state of the last checkpoint, and what committed transactions did since.

Writers and readers both begin here. A finished set of page images in the log stands for a checkpoint that was not
finished in the page file: its images go before the file's pages, and the transactions in front of it are in it already.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.changes import Change, decode
from elision.stores.linear_hash.files import File
from elision.stores.linear_hash.layout import PAGE, verified
from elision.stores.linear_hash.log import (
    CHECKPOINT,
    FRAME,
    IMAGES,
    TRANSACTION,
    Frame,
    Place,
    behind,
    first_place,
    frames,
    images_in,
    read_header,
)
from elision.stores.linear_hash.meta import Meta, read_meta

_CHUNK: Final = 1 << 20


@dataclass(slots=True)
class Tail:
    """The log as read so far.

    place: behind its last frame that counts. committed: behind its last transaction or finished set of images.
    first_lsn: of its first frame. last: offset of its last one, 0 for none. sets: finished sets of images.
    images: page number -> offset of its image.
    changes: the newest change of each record since the checkpoint. file_id: 0 where the log is empty.
    """

    place: Place
    committed: Place
    first_lsn: int = 0
    last: int = 0
    sets: int = 0
    file_id: int = 0
    salt: int = 0
    images: dict[int, int] = field(default_factory=dict)
    changes: dict[bytes, Change] = field(default_factory=dict)
    _unfinished: dict[int, int] = field(default_factory=dict)

    def follow(self, log: File) -> None:
        """Read on from `place`."""
        for frame in frames(log, self.place):
            self.first_lsn = self.first_lsn or frame.lsn
            _TAKE.get(frame.kind, _unknown)(self, frame)
            self.place = behind(frame)
            self.last = frame.at - FRAME
            if frame.kind != IMAGES:
                self.committed = self.place

    def _transaction(self, frame: Frame) -> None:
        for change in decode(frame.payload):
            self.changes[change.key] = change.over(self.changes.get(change.key))

    def _images(self, frame: Frame) -> None:
        self._unfinished.update(images_in(frame))

    def _checkpoint(self, frame: Frame) -> None:
        self.images.update(self._unfinished)
        self.sets += 1
        self._unfinished.clear()
        self.changes.clear()


def _unknown(tail: Tail, frame: Frame) -> None:
    raise CorruptError(f"the log has a frame of kind {frame.kind}, which this version does not know")


_TAKE: dict[int, Callable[[Tail, Frame], None]] = {
    TRANSACTION: Tail._transaction,
    IMAGES: Tail._images,
    CHECKPOINT: Tail._checkpoint,
}


def read_log(log: File) -> Tail:
    """All of the log that counts. Raises CorruptError if its header is damaged."""
    header = read_header(log)
    if header is None:
        return Tail(first_place(0), first_place(0))
    file_id, salt = header
    tail = Tail(first_place(salt), first_place(salt), file_id=file_id, salt=salt)
    tail.follow(log)
    return tail


def read_state(pages: File, log: File, tail: Tail) -> Meta | None:
    """The meta page as of the last checkpoint; None of a store that was never written. Raises CorruptError."""
    if 0 in tail.images:
        return read_meta(verified(log.read_at(tail.images[0], PAGE), 0))
    if _never_written(pages):
        if tail.first_lsn > 1:
            raise CorruptError("the page file is empty, and the log goes on from one that was not")
        return None
    meta = read_meta(verified(pages.read_at(0, PAGE), 0))
    if tail.file_id and tail.file_id != meta.file_id:
        raise CorruptError("the log belongs to another page file; put the two files of one store together again")
    return meta


def _never_written(pages: File) -> bool:
    """Whether the file is empty, or all zeros: room that the first checkpoint took and did not come to fill."""
    size = pages.size()
    if any(pages.read_at(0, PAGE)):
        return False
    return not any(any(pages.read_at(at, _CHUNK)) for at in range(0, size, _CHUNK))
