"""Records of the log: an event of a session, or the beginning or end of a session; and how they are read.

A record has a header of numbers, so that the directory can be made without unpacking anything, then the keys of the
large texts that it contains, the places of the tool results that it masks, and its payload: sizes of its texts, the
texts, and the event as JSON, compressed together. A text that another record contains is named by that record's place.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from elision.errors import CorruptError
from elision.stores.linear_hash.directory import MAX_NUMBER, KeyMaker, check_number
from elision.stores.linear_hash.log import File
from elision.stores.packing import decode_json, restore_texts, split_event
from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended, check_version, decode_event
from elision.zstd import CompressionParameter, ZstdCompressor, ZstdDict, ZstdError, compress_frame, decompress_frame

BEGIN, EVENT, DELETE = 1, 2, 3
#: Checksum of the rest, size of the record, session, number in its log, turn, size before packing, kind, flags, texts,
#: masks, when it was written.
_HEADER: Final = struct.Struct("<IIIIIIBBHHd")
HEADER: Final = _HEADER.size
_MASK: Final = struct.Struct("<IH")
_U32: Final = struct.Struct("<I")
_NO_TEXTS: Final = bytes(4)
_KEY: Final = 8
_MARK: Final = 20
_HAS_NODE: Final = 1
_IS_PLAIN: Final = 2
_HAS_MARK: Final = 4
#: In the sizes of texts: this one is in another record.
_ELSEWHERE: Final = 1 << 63
#: Bits of a place that name a text or a mask of a record.
_PART_BITS: Final = 16
#: Texts and masks of a record that a place can name.
MOST_PARTS: Final = 1 << 15
#: The last result of a turn that a mask can name.
_MOST_POSITION: Final = 0xFFFF
_LARGEST: Final = 1 << 31
#: zstd's level: with the dictionary below, 1 makes smaller records than 3 without it, in less time.
_LEVEL: Final = 1
#: What most events have in common: the compressor knows it from the beginning. It is a part of the format.
DICTIONARY: Final = (
    b'{"e":"head","messages":[{"role":"system","content":[{"text":"","pinned":true}],"hidden_tokens":'
    b'{"e":"opened","strategy":"","dialect":"anthropic","handles":true,"tools":[{"of":"tool","blob":"'
    b'{"e":"recalled","call":3,"key":[1,1],"tokens":50,"by":"user"}{"e":"called","call":2,"at":17,"model":"","tokens":}'
    b'{"e":"answered","call":2,"usage":{"input":36,"cache_read":10304,"cache_write":0,"output":70,"usd":0.0003}}'
    b'{"e":"decided","call":2,"reason":"due","masks":[{"key":[1,1],"text":"[t1.1"},{"key":[2,1],"text":"[bash '
    b'"}],"actions":[{"id":"toolu_","name":"bash","arguments":"{\\"command\\": \\"cd /testbed && grep -n \\"}"}],'
    b'"observations":[{"action_id":"toolu_","tool":"bash","role":"tool","error":false,"content":[{"text":"'
    b'"}]}],"reasoning":"","model":"","usage":{"input":1,"cache_read":0,"cache_write":0,"output":1},"at":17'
    b'"content":[{"blob":"0000000000000000000000000000000000000000000000000000000000000000"}],"actions":[{"id":"call_'
    b'{"e":"turn","node":"","turn":1,"content":[{"text":"'
)
#: Bytes that are read at once where the size of a record is not known.
_GUESS: Final = 4096


class RecordHeader(NamedTuple):
    """A record's numbers. place: its offset in the log. node: key of its turn's history, b"" for none.

    mark: of the append that it begins (`batch_ids`), b"" for none. texts: keys of the large texts
    that it contains, in order. masks: (turn, position) of what it masks.
    """

    place: int
    size: int
    session: int
    number: int
    turn: int
    raw_bytes: int
    kind: int
    at: float
    node: bytes
    mark: bytes
    texts: tuple[bytes, ...]
    masks: tuple[tuple[int, int], ...]
    payload: int
    is_plain: bool


@dataclass(slots=True)
class DraftRecord:
    """An event before it has a place.

    texts: its large texts. mark: of the append that it begins, b"" for none. raw_bytes: of its JSON with the texts.
    """

    value: bytes
    texts: Sequence[bytes]
    turn: int = 0
    node: bytes = b""
    masks: tuple[tuple[int, int], ...] = ()
    mark: bytes = b""
    raw_bytes: int = 0


def draft_event(event: Event, keys: KeyMaker, family: str) -> DraftRecord:
    """Return `event` of a session of `family` as JSON, with its large texts apart.

    Raises TypeError if it cannot be written as JSON, StoreError if a number in it is larger than the format allows.
    """
    texts: list[bytes] = []

    def number_text(text: str) -> str:
        texts.append(text.encode("utf-8", "surrogatepass"))
        return f"{len(texts) - 1:064d}"

    split = split_event(event, number_text)
    draft = DraftRecord(split.body, texts, raw_bytes=check_number(split.size, "an event of this many bytes:"))
    if isinstance(event, TurnAdded | TurnAmended):
        draft.turn = check_number(event.turn.index, "turn")
        if event.node:
            draft.node = keys.make_node_key(family, event.node)
    elif isinstance(event, PassDecided):
        keys_of_masks = (mask.key for mask in event.masks)
        named = [key for key in keys_of_masks if 0 <= key[0] <= MAX_NUMBER and 0 <= key[1] <= _MOST_POSITION]
        draft.masks = tuple(named[:MOST_PARTS])
    return draft


class RecordPacker:
    """Packs and unpacks records; for one thread at a time."""

    def __init__(self) -> None:
        self._known = ZstdDict(DICTIONARY, is_raw=True)
        # A record has a checksum of its own.
        options: dict[int, int] = {
            CompressionParameter.compression_level: _LEVEL,
            CompressionParameter.checksum_flag: 0,
            CompressionParameter.dict_id_flag: 0,
        }
        self._compressor = ZstdCompressor(options=options, zstd_dict=self._known.as_digested_dict)

    def pack_event(
        self,
        draft: DraftRecord,
        session: int,
        number: int,
        at: float,
        find_text: Callable[[bytes], tuple[bytes, int | None]],
        place: int,
    ) -> tuple[RecordHeader, bytes]:
        """Return a record for `place`, and its header.

        find_text: key of a text, and the place of the record that contains it, if any does.
        """
        if not draft.texts:
            return self._pack(EVENT, session, number, at, _NO_TEXTS + draft.value, place, draft, ())
        keys: list[bytes] = []
        sizes = []
        parts = []
        for text in draft.texts:
            key, known = find_text(text)
            if known is not None:
                sizes.append(_ELSEWHERE | known)
            else:
                sizes.append(len(text))
                parts.append(text)
                if len(keys) < MOST_PARTS:
                    keys.append(key)
        payload = b"".join((struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes), *parts, draft.value))
        return self._pack(EVENT, session, number, at, payload, place, draft, tuple(keys))

    def pack_session(
        self, kind: int, session: int, at: float, facts: Sequence[Any], place: int
    ) -> tuple[RecordHeader, bytes]:
        """Return a record that begins or deletes a session, and its header."""
        payload = json.dumps(facts, separators=(",", ":")).encode()
        return self._pack(kind, session, 0, at, payload, place, DraftRecord(b"", ()), ())

    def _pack(
        self,
        kind: int,
        session: int,
        number: int,
        at: float,
        payload: bytes,
        place: int,
        draft: DraftRecord,
        texts: tuple[bytes, ...],
    ) -> tuple[RecordHeader, bytes]:
        """Return a record and its header. texts: keys of the large texts that the payload contains."""
        packed = compress_frame(self._compressor, payload)
        is_plain = len(packed) >= len(payload)
        if is_plain:
            packed = payload
        flags = 0
        if draft.node:
            flags |= _HAS_NODE
        if is_plain:
            flags |= _IS_PLAIN
        if draft.mark:
            flags |= _HAS_MARK
        masks = draft.masks
        fields = b"".join((draft.node, draft.mark, *texts, *[_MASK.pack(*mask) for mask in masks]))
        start = HEADER + len(fields)
        size = start + len(packed)
        turn = draft.turn
        raw = draft.raw_bytes
        head = _HEADER.pack(0, size, session, number, turn, raw, kind, flags, len(texts), len(masks), at)
        rest = b"".join((head[4:], fields, packed))
        header = RecordHeader(
            place, size, session, number, turn, raw, kind, at, draft.node, draft.mark, texts, masks, start, is_plain
        )
        return header, _U32.pack(zlib.crc32(rest)) + rest

    def unpack_facts(self, header: RecordHeader, data: bytes) -> list[Any]:
        """Return what `pack_session` was given. Raises CorruptError."""
        try:
            facts: list[Any] = json.loads(self._unpack_payload(header, data))
        except ValueError as error:
            raise CorruptError(f"the names of a session cannot be read: {error}") from error
        return facts

    def unpack_draft(self, header: RecordHeader, data: bytes, read_text: Callable[[int], bytes]) -> DraftRecord:
        """Return the draft that `pack_event` was given. read_text: a large text by its place. Raises CorruptError."""
        value, texts = self._split_payload(header, data)
        whole = [read_text(text) if isinstance(text, int) else text for text in texts]
        return DraftRecord(value, whole, header.turn, header.node, header.masks, header.mark, header.raw_bytes)

    def unpack_value(self, header: RecordHeader, data: bytes, read_text: Callable[[int], bytes]) -> dict[str, Any]:
        """Return the event of a record as JSON, with its texts.

        Raises CorruptError, StoreError for a record that a newer Elision wrote.
        """
        body, texts = self._split_payload(header, data)
        try:
            value: dict[str, Any] = decode_json(body)
            check_version(value)
            if texts:

                def fetch(address: str) -> bytes:
                    text = texts[int(address)]
                    return read_text(text) if isinstance(text, int) else text

                restore_texts(value, fetch)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptError(f"a stored record cannot be read: {error}") from error
        return value

    def unpack_text(self, header: RecordHeader, data: bytes, part: int) -> bytes:
        """Return one large text that the record contains. Raises CorruptError."""
        own = [text for text in self._split_payload(header, data)[1] if isinstance(text, bytes)]
        if part >= len(own):
            raise CorruptError(f"a record at {header.place} contains {len(own)} texts; number {part} is looked for")
        return own[part]

    def _split_payload(self, header: RecordHeader, data: bytes) -> tuple[bytes, list[bytes | int]]:
        """Return the JSON of a record, and its texts or their places."""
        payload = self._unpack_payload(header, data)
        try:
            (count,) = struct.unpack_from("<I", payload)
            sizes = struct.unpack_from(f"<{count}Q", payload, 4)
        except struct.error as error:
            raise CorruptError(f"a stored record cannot be read: {error}") from error
        at = 4 + 8 * count
        texts: list[bytes | int] = []
        for size in sizes:
            if size & _ELSEWHERE:
                texts.append(size ^ _ELSEWHERE)
            else:
                texts.append(payload[at : at + size])
                at += size
        return payload[at:], texts

    def _unpack_payload(self, header: RecordHeader, data: bytes) -> bytes:
        packed = data[header.payload : header.size]
        if header.is_plain:
            return packed
        try:
            return decompress_frame(packed, _LARGEST, self._known)
        except ZstdError as error:
            raise CorruptError(f"stored bytes cannot be unpacked: {error}") from error


def parse_record(data: bytes | memoryview, start: int, place: int) -> RecordHeader | None:
    """Return the header of the record at `start` of `data`, whose offset in the log is `place`.

    None if the bytes are not those that were written.
    """
    if len(data) - start < HEADER:
        return None
    checksum, size, session, number, turn, raw, kind, flags, texts, masks, at = _HEADER.unpack_from(data, start)
    if size < HEADER or start + size > len(data):
        return None
    if checksum != zlib.crc32(memoryview(data)[start + 4 : start + size]):
        return None
    offset = start + HEADER
    node = b""
    if flags & _HAS_NODE:
        node = bytes(data[offset : offset + _KEY])
        offset += _KEY
    mark = b""
    if flags & _HAS_MARK:
        mark = bytes(data[offset : offset + _MARK])
        offset += _MARK
    keys: tuple[bytes, ...] = ()
    if texts:
        keys = tuple(bytes(data[offset + _KEY * each : offset + _KEY * each + _KEY]) for each in range(texts))
        offset += _KEY * texts
    hidden: tuple[tuple[int, int], ...] = ()
    if masks:
        hidden = tuple(_MASK.unpack_from(data, offset + _MASK.size * each) for each in range(masks))
        offset += _MASK.size * masks
    return RecordHeader(
        place,
        size,
        session,
        number,
        turn,
        raw,
        kind,
        at,
        node,
        mark,
        keys,
        hidden,
        offset - start,
        bool(flags & _IS_PLAIN),
    )


def read_size(head: bytes | bytearray, start: int = 0) -> int:
    """Return the size that the beginning of a record states, 0 if too little of it is there."""
    if len(head) - start < HEADER:
        return 0
    return int(_HEADER.unpack_from(head, start)[1])


def iterate_records(data: bytes, place: int) -> Iterator[RecordHeader]:
    """Yield the records of a frame, whose first is at `place`; those that are damaged are left out."""
    at = 0
    while at < len(data):
        found = parse_record(data, at, place + at)
        if found is not None:
            yield found
            at += found.size
            continue
        size = read_size(data, at)
        if size < HEADER:
            return
        at += size


def pack_place(offset: int, part: int = 0) -> int:
    """Return the place of a record, or of one of its texts or masks, as a value of the directory."""
    return offset << _PART_BITS | part


def unpack_place(place: int) -> tuple[int, int]:
    """Return offset and part."""
    return place >> _PART_BITS, place & ((1 << _PART_BITS) - 1)


class LogView:
    """The records of a log's file, and of a frame that is not written yet. For one thread at a time."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.packer = RecordPacker()
        #: Where the first record of `pending` will be.
        self.pending_start = 0
        self.pending = bytearray()
        self.values_read = 0

    def read_record(self, offset: int) -> tuple[RecordHeader, bytes]:
        """Return a record. Raises CorruptError if it is not as it was written."""
        self.values_read += 1
        if self.pending and offset >= self.pending_start:
            start = offset - self.pending_start
            data = bytes(self.pending[start : start + read_size(self.pending, start)])
        else:
            data = self.file.read_at(offset, _GUESS)
            missing = read_size(data) - len(data)
            if 0 < missing <= self.file.size() - offset - len(data):
                data += self.file.read_at(offset + len(data), missing)
        found = parse_record(data, 0, offset)
        if found is None:
            raise CorruptError(f"the record at byte {offset} of the log is damaged")
        return found, data

    def read_event(self, offset: int) -> Event:
        """Return the event of a record. Raises CorruptError."""
        return self.unpack_event(*self.read_record(offset))

    def unpack_event(self, header: RecordHeader, data: bytes) -> Event:
        """Return the event of a record that was read. Raises CorruptError."""
        try:
            return decode_event(self.packer.unpack_value(header, data, self.read_text))
        except ValueError as error:
            raise CorruptError(f"the record at byte {header.place} cannot be read: {error}") from error

    def read_value(self, offset: int) -> dict[str, Any]:
        """Return the event of a record as JSON, with its texts. Raises CorruptError."""
        return self.packer.unpack_value(*self.read_record(offset), self.read_text)

    def read_text(self, place: int) -> bytes:
        """Return the large text at `place`. Raises CorruptError."""
        offset, part = unpack_place(place)
        return self.packer.unpack_text(*self.read_record(offset), part)
