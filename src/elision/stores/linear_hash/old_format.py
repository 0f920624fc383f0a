"""Reads stores of the format before: a page file whose buckets hold records, and a write-ahead log.

Nothing is looked up: every bucket page is read, the log's changes are laid over it, and the records are what is left.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from elision.errors import CorruptError
from elision.stores.packing import Packer
from elision.stores.store import NewSession
from elision.trajectory.events import Event

_PAGE: Final = 4096
_BODY: Final = 32
_ROOM: Final = _PAGE - _BODY
_AT_KIND: Final = 6
_AT_CLASS: Final = 7
_AT_NEXT: Final = 16
_AT_COUNT: Final = 24
_BUCKET: Final = 3
#: Hash, offset and size of a record; sizes of its key and head; where a value is that is not in the bucket.
_SLOT: Final = struct.Struct("<QHH")
_SIZES: Final = struct.Struct("<BBH")
_POINTER: Final = struct.Struct("<IIIB")
_CELLS_AT: Final = _BODY + 8
_CELL_SIZES: Final = tuple((_PAGE - _CELLS_AT) // count for count in (63, 32, 21, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2))
#: Of the log: magic, version, page size, file id, salt, checksum; a frame; a change.
_HEADER: Final = struct.Struct("<8sIIQQI")
_FRAME: Final = struct.Struct("<IIQB")
_CHANGE: Final = struct.Struct("<BBHI")
_IMAGES, _CHECKPOINT = 2, 3
_HEAD, _DELETE = 2, 3
_SESSION: Final = struct.Struct("<QQQddI")
#: Of a log record's head: turn, size before packing. In format 2 the mark of an append follows.
_LOG: Final = struct.Struct("<QQ")
_U32: Final = struct.Struct("<I")


@dataclass(slots=True)
class OldSession:
    """A session of an old store. identifier: of its records."""

    new: NewSession
    records: int
    changed: float
    identifier: bytes


@dataclass(slots=True)
class OldStore:
    """The records of an old store, by key: head and value. faults: pages that could not be read."""

    records: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    _packer: Packer = field(default_factory=Packer)

    def list_sessions(self) -> list[OldSession]:
        """Return the sessions, parents before their forks. Raises CorruptError."""
        found = [self._parse_session(key[1:], *record) for key, record in self.records.items() if key[:1] == b"s"]
        by_key = {session.new.key: session for session in found}
        ordered: dict[str, OldSession] = {}
        for session in sorted(found, key=lambda each: (each.new.at, each.new.key)):
            line = []
            each: OldSession | None = session
            while each is not None and each.new.key not in ordered and each not in line:
                line.append(each)
                each = by_key.get(each.new.parent)
            ordered.update((session.new.key, session) for session in reversed(line))
        return list(ordered.values())

    def read_body(self, session: OldSession, number: int) -> bytes:
        """Return record `number` of a session as it was packed. Raises CorruptError."""
        record = self.records.get(b"l" + session.identifier + struct.pack(">Q", number))
        if record is None:
            raise CorruptError(f"record {number} of session {session.new.key!r} is missing")
        return record[1]

    def read_batch_mark(self, session: OldSession, number: int) -> bytes:
        """Return what a record keeps of the id of the append that it begins; b"" for none."""
        head, _ = self.records.get(b"l" + session.identifier + struct.pack(">Q", number), (b"", b""))
        return head[_LOG.size :]

    def unpack_event(self, body: bytes) -> Event:
        """Return the event of a record. Raises CorruptError."""
        (event,) = self._packer.unpack(body, self._read_text)
        return event

    def _read_text(self, address: bytes) -> bytes:
        record = self.records.get(b"b" + address)
        if record is None:
            raise CorruptError(f"the text {address.hex()} is missing")
        return record[1]

    def _parse_session(self, identifier: bytes, head: bytes, value: bytes) -> OldSession:
        try:
            records, _, _, begun, changed, _ = _SESSION.unpack(head)
            key, family, parent, relation = json.loads(value)
        except (struct.error, ValueError) as error:
            raise CorruptError(f"a session cannot be read: {error}") from error
        new = NewSession(key=key, family=family, parent=parent, relation=relation, at=begun)
        return OldSession(new, records, changed, identifier)


def read_old_store(pages: Path, log: Path) -> OldStore:
    """Return everything in an old store that can be read. Raises OSError."""
    store = OldStore()
    data = pages.read_bytes() if pages.exists() else b""
    images, changes = _read_log(log.read_bytes() if log.exists() else b"", store.faults)
    reader = _PageReader(data, images, store.faults)
    for number in range(1, max([len(data) // _PAGE, *(page + 1 for page in images)])):
        page = reader.read(number)
        if page and page[_AT_KIND] == _BUCKET:
            for key, head, value in reader.iterate_records(page, number):
                store.records[key] = (head, value)
    if not reader.read(0) and any(data):
        store.faults.append("page 0: its checksum is wrong")
    for op, key, head, value in changes:
        if op == _DELETE:
            store.records.pop(key, None)
        elif op == _HEAD:
            store.records[key] = (head, store.records.get(key, (b"", b""))[1])
        else:
            store.records[key] = (head, value)
    return store


class _PageReader:
    def __init__(self, data: bytes, images: dict[int, bytes], faults: list[str]) -> None:
        self._data = data
        self._images = images
        self._faults = faults

    def read(self, number: int) -> bytes:
        """Return a page, b"" if its checksum is wrong."""
        page = self._images.get(number) or self._data[number * _PAGE : (number + 1) * _PAGE]
        if len(page) == _PAGE and _U32.unpack_from(page)[0] == zlib.crc32(page[4:], number):
            return page
        if any(page) and number:
            self._faults.append(f"page {number}: its checksum is wrong")
        return b""

    def iterate_records(self, page: bytes, number: int) -> Iterator[tuple[bytes, bytes, bytes]]:
        for slot in range(struct.unpack_from("<H", page, _AT_COUNT)[0]):
            _, start, size = _SLOT.unpack_from(page, _BODY + slot * _SLOT.size)
            key_size, spilled, head_size = _SIZES.unpack_from(page, start)
            key_at = start + _SIZES.size
            head_at = key_at + key_size
            value_at = head_at + head_size
            value: bytes | None = page[value_at : start + size]
            if spilled:
                value = self._read_value(page[value_at : start + size])
            if value is None:
                self._faults.append(f"page {number}: the value of record {slot} is damaged")
            else:
                yield page[key_at:head_at], page[head_at:value_at], value

    def _read_value(self, pointer: bytes) -> bytes | None:
        """Return a value that is not in its bucket page; None if it cannot be read."""
        size, number, cell_page, cell = _POINTER.unpack(pointer)
        rest = size % _ROOM if cell_page else 0
        parts = []
        missing = size - rest
        while missing > 0:
            page = self.read(number)
            used = struct.unpack_from("<H", page, _AT_COUNT)[0] if page else 0
            if not 0 < used <= missing:
                return None
            parts.append(page[_BODY : _BODY + used])
            missing -= used
            number = _U32.unpack_from(page, _AT_NEXT)[0]
        if cell_page:
            page = self.read(cell_page)
            if not page or page[_AT_CLASS] >= len(_CELL_SIZES):
                return None
            at = _CELLS_AT + cell * _CELL_SIZES[page[_AT_CLASS]]
            parts.append(page[at : at + rest])
        return b"".join(parts)


def _read_log(data: bytes, faults: list[str]) -> tuple[dict[int, bytes], list[tuple[int, bytes, bytes, bytes]]]:
    """Return the page images of finished checkpoints, and the changes since the last one."""
    images: dict[int, bytes] = {}
    unfinished: dict[int, bytes] = {}
    changes: list[tuple[int, bytes, bytes, bytes]] = []
    if len(data) < _HEADER.size:
        return images, changes
    *_, salt, checksum = _HEADER.unpack_from(data)
    if checksum != zlib.crc32(data[: _HEADER.size - 4]):
        faults.append("log: its header is damaged")
        return images, changes
    at = _HEADER.size
    seed = salt & 0xFFFF_FFFF
    while at + _FRAME.size <= len(data):
        checksum, size, _, kind = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + size]
        if not kind or len(payload) != size:
            break
        if checksum != zlib.crc32(payload, zlib.crc32(data[at + 4 : at + _FRAME.size], seed)):
            break
        if kind == _IMAGES:
            for start in range(0, size, 4 + _PAGE):
                unfinished[_U32.unpack_from(payload, start)[0]] = payload[start + 4 : start + 4 + _PAGE]
        elif kind == _CHECKPOINT:
            images.update(unfinished)
            unfinished = {}
            changes = []
        else:
            changes += _decode_changes(payload)
        seed = checksum
        at += _FRAME.size + size
    return images, changes


def _decode_changes(payload: bytes) -> Iterator[tuple[int, bytes, bytes, bytes]]:
    at = 0
    while at < len(payload):
        op, key_size, head_size, value_size = _CHANGE.unpack_from(payload, at)
        key_at = at + _CHANGE.size
        head_at = key_at + key_size
        value_at = head_at + head_size
        at = value_at + value_size
        yield op, payload[key_at:head_at], payload[head_at:value_at], payload[value_at:at]
