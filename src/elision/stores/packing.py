"""Events as compressed bytes: what durable stores write.

The JSON form of an event, with every large text taken out of it: such a text is kept once under its SHA-256, however
often it was observed, by whichever session. Everything is compressed with zstd where that makes it smaller, and carries
a checksum: bytes that a disk changed are noticed when they are read, whatever store kept them.

By its id, a store recognizes an append that is repeated because its answer was lost. It keeps 20 bytes with the first
record of such an append, as long as that record: the id and the number of its records. A fork has the records that it
shares without these ids.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import threading
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import msgspec

from elision.errors import CorruptError, StoreError
from elision.stores.store_errors import reused_batch_error
from elision.trajectory.events import (
    RECORD_VERSION,
    Event,
    HeadSet,
    RecallExchanged,
    SessionOpened,
    TurnAdded,
    TurnAmended,
    decode_event,
    encode_event,
    find_parts,
    simplify_foreign,
)
from elision.trajectory.foreign_text import PIECE, encode_pieces, split_text
from elision.trajectory.turn import Text, Turn
from elision.zstd import CompressionParameter, ZstdCompressor, ZstdError, compress_frame, decompress_frame

#: Characters from which on a text is kept apart: all sessions of an agent have the same tools and system message.
LARGE: Final = 512
#: In a turn it takes more: there one text in ten is repeated, and a place of its own costs more than its bytes.
LARGE_IN_TURN: Final = 2_048
#: zstd's level: as small as level 3 within a hundredth, in four fifths of the time.
LEVEL: Final = 1
#: Bytes from which on compressing is tried: of 300 bytes it saves 80, and takes as long as 1,000.
_WORTH: Final = 256
#: Bytes of JSON from which on a row takes no further turn: who looks up a turn unpacks its whole row.
_ROW_BYTES: Final = 4096
#: Nothing that Elision stores is larger unpacked; more is no text of ours.
_LARGEST = 1 << 31
#: The first byte: zstd's frame with its own checksum follows, or a CRC-32 (4 bytes, little-endian) and the plain bytes.
_PLAIN = b"\x00"
_ZSTD = b"\x01"
_ENCODER: Final = msgspec.json.Encoder(enc_hook=simplify_foreign)
#: Tags have no order of their own.
_TURN_ENCODER: Final = msgspec.json.Encoder(enc_hook=simplify_foreign, order="deterministic")
#: In the JSON of a turn: content of a client's own form, whose keys keep their order.
_FOREIGN: Final = b'"opaque":'
_TAGS: Final = {TurnAdded: b"turn", TurnAmended: b"amended"}
#: Numbers that only Python's own JSON has. msgspec writes null for them.
_NO_NUMBER: Final = re.compile("NaN|Infinity")
#: Bytes of an append's id, and what is kept of it.
_ID_BYTES: Final = 16
_MARK: Final = struct.Struct(">16sI")
_THREADS: Final = threading.local()


class Blob(msgspec.Struct, frozen=True):
    """A large text: its SHA-256 (32 bytes), packed bytes, and size before packing in bytes."""

    address: bytes
    packed: bytes
    size: int


class PackedRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one append that follow each other, as one piece.

    turns: (record, turn, node) of each that adds or amends a turn; the first record is 0. size: bytes before packing.
    """

    records: int
    turns: tuple[tuple[int, int, str], ...]
    body: bytes
    blobs: tuple[Blob, ...]
    size: int


class Packer:
    """Packs and unpacks; for one thread at a time."""

    def __init__(self) -> None:
        self._compressor = ZstdCompressor(
            options={CompressionParameter.compression_level: LEVEL, CompressionParameter.checksum_flag: 1}
        )

    def pack(self, *events: Event) -> PackedRecords:
        """Return `events` as one piece. Raises TypeError if one of them cannot be written as JSON."""
        return self._pack_split(events, [split_event(event, address_text) for event in events])

    def pack_rows(self, events: Sequence[Event]) -> list[PackedRecords]:
        """Return `events` as pieces, each with as many turns as are small. Raises as `pack` does."""
        rows = []
        row: list[SplitEvent] = []
        size = start = 0
        for end, event in enumerate(events):
            if size >= _ROW_BYTES and isinstance(event, TurnAdded | TurnAmended):
                rows.append(self._pack_split(events[start:end], row))
                row = []
                size = 0
                start = end
            split = split_event(event, address_text)
            row.append(split)
            size += len(split.body)
        if row:
            rows.append(self._pack_split(events[start:], row))
        return rows

    def _pack_split(self, events: Sequence[Event], row: Sequence[SplitEvent]) -> PackedRecords:
        texts: dict[str, str] = {}
        for split in row:
            texts.update(split.texts)
        body = row[0].body if len(row) == 1 else b"[%b]" % b",".join([split.body for split in row])
        turns = [
            (number, event.turn.index, event.node)
            for number, event in enumerate(events)
            if isinstance(event, TurnAdded | TurnAmended)
        ]
        return PackedRecords(
            records=len(row),
            turns=tuple(turns),
            body=self.compress(body),
            blobs=tuple([Blob(bytes.fromhex(name), *self._pack_text(text)) for text, name in texts.items()]),
            size=sum([split.size for split in row]),
        )

    def unpack(self, body: bytes, fetch: Callable[[bytes], bytes], only: int | None = None) -> list[Event]:
        """Return the events that `pack` was given. only: just this one, from 0 on.

        fetch: packed bytes of a blob by its address. Raises CorruptError if the bytes are not what was written,
        StoreError for a record that a newer Elision wrote.
        """
        try:
            values = decode_json(self.decompress(body))
            if isinstance(values, dict):
                values = [values]
            if only is not None:
                values = [values[only]]
            for value in values:
                restore_texts(value, lambda address: self._fetch_text(address, fetch))
            return [decode_event(value) for value in values]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptError(f"a stored record cannot be read: {error}") from error

    def compress(self, data: bytes) -> bytes:
        """Return `data`, compressed if that makes it smaller, after a byte that says so, with a checksum."""
        if len(data) >= _WORTH:
            small = compress_frame(self._compressor, data)
            if len(small) < len(data):
                return _ZSTD + small
        return _PLAIN + zlib.crc32(data).to_bytes(4, "little") + data

    def _pack_text(self, text: str) -> tuple[bytes, int]:
        """Return `text` as `compress` returns its bytes, and their number; no call takes a large text whole."""
        pieces = list(encode_pieces(text))
        size = sum(map(len, pieces))
        if len(pieces) == 1:
            return self.compress(pieces[0]), size
        # Letters are never so random that this makes so many of them larger.
        self._compressor.set_pledged_input_size(size)
        return b"".join([_ZSTD, *map(self._compressor.compress, pieces), self._compressor.flush()]), size

    def decompress(self, packed: bytes) -> bytes:
        """Return what `compress` was given. Raises CorruptError."""
        if packed[:1] == _PLAIN:
            data = packed[5:]
            if zlib.crc32(data).to_bytes(4, "little") == packed[1:5]:
                return data
            raise CorruptError("stored bytes are not what was written: their checksum differs")
        try:
            if packed[:1] == _ZSTD:
                return decompress_frame(packed[1:], _LARGEST)
        except ZstdError as error:
            raise CorruptError(f"stored bytes cannot be unpacked: {error}") from error
        raise CorruptError("stored bytes begin with no mark that this version knows")

    def _fetch_text(self, address: str, fetch: Callable[[bytes], bytes]) -> bytes:
        """Return the text stored under `address`. Raises CorruptError if it is another one."""
        data = self.decompress(fetch(bytes.fromhex(address)))
        if make_address(data) != address:
            raise CorruptError(f"the text stored under {address} is another one")
        return data


def restore_texts(value: dict[str, Any], fetch: Callable[[str], bytes]) -> None:
    """Put the large texts back into the JSON of a record. fetch: a text by its address in the JSON."""
    for holder, name in find_parts(value):
        holder[name] = [_restore_part(part, fetch) for part in holder[name]]
    if "tools" in value:
        value["tools"] = [_restore_part(tool, fetch) for tool in value["tools"]]


def _restore_part(part: Mapping[str, Any], fetch: Callable[[str], bytes]) -> Mapping[str, Any]:
    """Return `part` with its text, if that was kept apart."""
    address = part.get("blob")
    if address is None:
        return part
    text = fetch(address).decode("utf-8", "surrogatepass")
    kind = part.get("of")
    if kind == "tool":
        tool: Mapping[str, Any] = json.loads(text)
        return tool
    rest = {name: value for name, value in part.items() if name not in ("blob", "of")}
    if kind == "data":
        return {**rest, "data": json.loads(text)}
    return {**rest, "text": text}


def get_packer() -> Packer:
    """Return this thread's packer."""
    packer: Packer | None = getattr(_THREADS, "packer", None)
    if packer is None:
        packer = _THREADS.packer = Packer()
    return packer


def extract_turn(event: Event) -> Turn:
    """Return the turn that `event` adds or amends. Raises CorruptError."""
    if not isinstance(event, TurnAdded | TurnAmended):
        raise CorruptError(f"a record that should contain a turn contains {type(event).__name__}")
    return event.turn


def measure_event(event: Event) -> int:
    """Return the bytes of `event` as JSON, the `size` of records in all stores."""
    return _measure_json(encode_event(event))


def hash_text(data: bytes) -> bytes:
    """Return the address of a text: its SHA-256, 32 bytes."""
    return hashlib.sha256(data).digest()


def is_text(packed: Any, address: bytes) -> bool:
    """Return whether `packed` is the text of that address, as `Packer.compress` packs it."""
    try:
        return hash_text(get_packer().decompress(packed)) == address
    except (CorruptError, TypeError):
        return False


def make_address(data: bytes) -> str:
    """Return the address of a text as JSON has it."""
    return hash_text(data).hex()


def address_text(text: str) -> str:
    """Return the address of a text that is not encoded yet, a piece at a time."""
    digest = hashlib.sha256()
    for data in encode_pieces(text):
        digest.update(data)
    return digest.hexdigest()


def decode_json(data: bytes) -> Any:
    """Return the value of a record's JSON. Raises ValueError, RecursionError."""
    try:
        return msgspec.json.decode(data)
    except ValueError:
        # Lone surrogates are in it, which only Python's own decoder reads.
        return json.loads(data)


def encode_json(value: object) -> bytes:
    """Return a record's JSON. Raises TypeError, ValueError for what is none."""
    try:
        return _ENCODER.encode(value)
    except (ValueError, TypeError):
        # A lone surrogate, or a key that is no text.
        return json.dumps(value, separators=(",", ":"), default=simplify_foreign).encode()


class SplitEvent(NamedTuple):
    """body: the JSON of an event with addresses in place of large texts. texts: those, each with its address.

    size: bytes of the JSON with the texts in it.
    """

    body: bytes
    texts: Mapping[str, str]
    size: int


def split_event(event: Event, name_text: Callable[[str], str]) -> SplitEvent:
    """Return `event` as JSON, with its large texts apart. Raises TypeError if it cannot be written.

    name_text: returns the address of a text; asked once for each.
    """
    if not _has_large_text(event) and (whole := _encode_plain(event)):
        return SplitEvent(whole, {}, len(whole))
    value = encode_event(event)
    size = _measure_json(value)
    large = LARGE_IN_TURN if isinstance(event, TurnAdded | TurnAmended) else LARGE
    texts: dict[str, str] = {}

    def keep(text: str) -> str:
        if text not in texts:
            texts[text] = name_text(text)
        return texts[text]

    for holder, name in find_parts(value):
        holder[name] = [_move_part_out(part, large, keep) for part in holder[name]]
    if "tools" in value:
        value["tools"] = [_move_tool_out(tool, keep) for tool in value["tools"]]
    return SplitEvent(encode_json(value), texts, size)


def _measure_json(value: dict[str, Any]) -> int:
    """Return the length of an event's JSON, as `encode_json` writes it, in bytes; no call encodes a large text."""
    texts: list[str] = []

    def leave_out(part: dict[str, Any]) -> dict[str, Any]:
        if len(part.get("text", "")) < PIECE:
            return part
        texts.append(part["text"])
        return {**part, "text": ""}

    contents = [(holder, name, holder[name]) for holder, name in find_parts(value)]
    for holder, name, content in contents:
        holder[name] = [leave_out(part) for part in content]
    try:
        pieces = chain.from_iterable(map(split_text, texts))
        return len(_ENCODER.encode(value)) + sum(len(_ENCODER.encode(piece)) - len('""') for piece in pieces)
    except (ValueError, TypeError):
        # A lone surrogate, which Python's own encoder writes in another way, or a key that is no text.
        pass
    finally:
        for holder, name, content in contents:
            holder[name] = content
    return len(encode_json(value))


def _has_large_text(event: Event) -> bool:
    """Return whether a text of a turn's content is kept apart. `event` has no content of a client's own form."""
    if not isinstance(event, TurnAdded | TurnAmended):
        return False
    contents = [event.turn.content]
    contents += [observation.content for observation in event.turn.observations]
    contents += [message.content for message in event.turn.interjections]
    for content in contents:
        for part in content:
            if isinstance(part, Text) and len(part.text) >= LARGE_IN_TURN:
                return True
    return False


def _encode_plain(event: Event) -> bytes:
    """Return the JSON of `event` without a look at its parts; b"" for one that needs a look."""
    if isinstance(event, HeadSet | SessionOpened | RecallExchanged):
        return b""
    try:
        if not isinstance(event, TurnAdded | TurnAmended):
            return b'%b,"v":%d}' % (_ENCODER.encode(event)[:-1], RECORD_VERSION)
        turn = _TURN_ENCODER.encode(event.turn)
        if _FOREIGN in turn:
            return b""
        node = b',"node":%b' % _ENCODER.encode(event.node) if event.node else b""
    except (ValueError, TypeError):
        # A lone surrogate, or what is no JSON.
        return b""
    return b'{"e":"%b"%b,%b,"v":%d}' % (_TAGS[type(event)], node, turn[1:-1], RECORD_VERSION)


def _move_part_out(part: dict[str, Any], large: int, keep: Callable[[str], str]) -> dict[str, Any]:
    """Return `part`, with the address of its text in its place if that has `large` characters."""
    if len(part.get("text", "")) >= large:
        return {"blob": keep(part["text"])}
    if part.get("data") is None:
        return part
    data = _dump_foreign(part["data"])
    if len(data) < large and not _NO_NUMBER.search(data):
        return part
    rest = {name: value for name, value in part.items() if name != "data"}
    return {**rest, "of": "data", "blob": keep(data)}


def _move_tool_out(tool: Mapping[str, Any], keep: Callable[[str], str]) -> Mapping[str, Any]:
    """Return `tool`, or its address if it is large: the sessions of an agent have the same ones.

    A small tool that has a field `blob` is kept apart too: it would pass for an address.
    """
    if not isinstance(tool, Mapping):
        # A client's request may hold anything; what is no tool is kept as it is.
        return tool
    data = _dump_foreign(tool)
    if len(data) < LARGE and "blob" not in tool and not _NO_NUMBER.search(data):
        return tool
    return {"of": "tool", "blob": keep(data)}


def _dump_foreign(value: object) -> str:
    """Return what a client sent, as JSON: numbers that msgspec does not know too."""
    return json.dumps(value, separators=(",", ":"))


# -- ids of appends ---------------------------------------------------------------------------------------------------


def make_batch_id() -> bytes:
    """Return a new id for one append."""
    return uuid.uuid4().bytes


def check_batch_id(batch: bytes) -> None:
    """Raise StoreError unless `batch` has 16 bytes, or none."""
    if len(batch) not in (0, _ID_BYTES):
        raise StoreError(f"a batch id has {_ID_BYTES} bytes, not {len(batch)}; uuid.uuid4().bytes is one")


def pack_batch_mark(batch: bytes, records: int) -> bytes:
    """Return what is kept with the first of `records` records; b"" where they have no id."""
    return _MARK.pack(batch, records) if batch else b""


def recognize_append(
    session: str, batch: bytes, mark: bytes | None, given: Sequence[Event], read: Callable[[], Sequence[Event]]
) -> bool:
    """Return whether the append `batch` wrote the record that is kept with `mark`.

    given: the events of this call. read: returns as many stored ones. Where `given` is empty the answer is False.
    Raises StoreError where `batch` wrote other records there.
    """
    if not given or not batch or not mark or mark[:_ID_BYTES] != batch:
        return False
    _, records = _MARK.unpack(mark)
    if records != len(given) or list(map(_normalize, read())) != list(map(_normalize, given)):
        raise reused_batch_error(session, batch)
    return True


def _normalize(event: Event) -> bytes:
    """Return the JSON that the event has once it was stored and read."""
    return encode_json(encode_event(decode_event(decode_json(encode_json(encode_event(event))))))
