"""Events as compressed bytes: what durable stores write.

The JSON form of an event, with every large text taken out of it: such a text is kept once under its SHA-256, however
often it was observed, by whichever session. Everything is compressed with zstd where that makes it smaller, and carries
a checksum: bytes that a disk changed are noticed when they are read, whatever store kept them.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
import zstandard

from elision.errors import CorruptError
from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.event_json import decode_event, encode_event, find_parts, simplify_foreign
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.turn import Turn

#: Characters from which on a text is kept apart.
LARGE = 512
#: zstd's level: 3.2-4.4 times smaller at 300 MB/s and more.
LEVEL = 3
#: Bytes from which on compressing is tried.
_WORTH = 128
#: Nothing that Elision stores is larger unpacked; more is no text of ours.
_LARGEST = 1 << 31
#: The first byte: zstd's frame with its own checksum follows, or a CRC-32 (4 bytes, little-endian) and the plain bytes.
_PLAIN = b"\x00"
_ZSTD = b"\x01"
#: As long as the address of any text.
_NO_ADDRESS = "0" * 64
_ENCODER: Final = msgspec.json.Encoder(enc_hook=simplify_foreign)
#: Numbers that only Python's own JSON has. msgspec writes null for them.
_NO_NUMBER: Final = re.compile("NaN|Infinity")


class Blob(msgspec.Struct, frozen=True):
    """A large text: its SHA-256 (32 bytes), packed bytes, and size before packing in bytes."""

    address: bytes
    packed: bytes
    size: int


class PackedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a log.

    kind: the event's name. turn: index of the turn it adds, 0 for none. node: of that turn. size: bytes before packing,
    blobs included.
    """

    kind: str
    turn: int
    node: str
    body: bytes
    blobs: tuple[Blob, ...]
    size: int


class Packer:
    """Packs and unpacks; for one thread at a time."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, write_checksum=True)
        self._decompressor = zstandard.ZstdDecompressor()

    def pack(self, event: Event) -> PackedEvent:
        """Return `event` as a record."""
        value, texts = split_texts(event, lambda data: hash_text(data).hex())
        body = encode_json(value)
        blobs = tuple(Blob(bytes.fromhex(address), self.compress(data), len(data)) for data, address in texts.items())
        turn = 0
        node = ""
        if isinstance(event, TurnAdded | TurnAmended):
            turn = event.turn.index
            node = event.node
        size = len(body) + sum(blob.size for blob in blobs)
        return PackedEvent(kind=value["e"], turn=turn, node=node, body=self.compress(body), blobs=blobs, size=size)

    def unpack(self, body: bytes, fetch: Callable[[bytes], bytes]) -> Event:
        """Return the event that `pack` was given.

        fetch: packed bytes of a blob by its address. Raises CorruptError if the bytes are not what was written,
        StoreError for a record that a newer Elision wrote.
        """
        try:
            value = decode_json(self.decompress(body))
            restore_texts(value, lambda address: self._fetch_text(address, fetch))
            return decode_event(value)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptError(f"a stored record cannot be read: {error}") from error

    def compress(self, data: bytes) -> bytes:
        """Return `data`, compressed if that makes it smaller, after a byte that says so, with a checksum."""
        if len(data) >= _WORTH:
            small = self._compressor.compress(data)
            if len(small) < len(data):
                return _ZSTD + small
        return _PLAIN + zlib.crc32(data).to_bytes(4, "little") + data

    def decompress(self, packed: bytes) -> bytes:
        """Return what `compress` was given. Raises CorruptError."""
        if packed[:1] == _PLAIN:
            return _verify_checksum(packed[5:], packed[1:5])
        try:
            if packed[:1] == _ZSTD:
                return self._decompressor.decompress(packed[1:], max_output_size=_LARGEST)
        except zstandard.ZstdError as error:
            raise CorruptError(f"stored bytes cannot be unpacked: {error}") from error
        raise CorruptError("stored bytes begin with no mark that this version knows")

    def _fetch_text(self, address: str, fetch: Callable[[bytes], bytes]) -> bytes:
        """Return the text stored under `address`. Raises CorruptError if it is another one."""
        data = self.decompress(fetch(bytes.fromhex(address)))
        if hash_text(data).hex() != address:
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


_THREADS: Final = threading.local()


def get_packer() -> Packer:
    """Return this thread's packer."""
    packer: Packer | None = getattr(_THREADS, "packer", None)
    if packer is None:
        packer = _THREADS.packer = Packer()
    return packer


def extract_turn(event: Event) -> Turn:
    """Return the turn that `event` adds or amends. Raises CorruptError."""
    if not isinstance(event, TurnAdded | TurnAmended):
        raise CorruptError(f"a record that should hold a turn holds {type(event).__name__}")
    return event.turn


def measure_event(event: Event) -> int:
    """Return the `size` that `Packer.pack` gives `event`, in bytes, without hashing or compressing anything."""
    value, texts = split_texts(event, lambda data: _NO_ADDRESS)
    return len(encode_json(value)) + sum(map(len, texts))


def hash_text(data: bytes) -> bytes:
    """Return the address of a text: its SHA-256, 32 bytes."""
    return hashlib.sha256(data).digest()


def list_texts(event: Event) -> Iterator[tuple[int, str, str]]:
    """Yield what can be searched in `event`: (position, tool, text); position 0 is what the assistant wrote."""
    if not isinstance(event, TurnAdded | TurnAmended):
        return
    words = join_assistant_text(event.turn)
    if words:
        yield 0, "", words
    for position, observation in enumerate(event.turn.observations, start=1):
        yield position, observation.tool, observation.text


def _verify_checksum(data: bytes, crc: bytes) -> bytes:
    if zlib.crc32(data).to_bytes(4, "little") != crc:
        raise CorruptError("stored bytes are not what was written: their checksum differs")
    return data


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


def split_texts(event: Event, make_address: Callable[[bytes], str]) -> tuple[dict[str, Any], dict[bytes, str]]:
    """Return the JSON of `event` with addresses in place of large texts, and those texts, each with its address."""
    value = encode_event(event)
    texts: dict[bytes, str] = {}

    def keep(text: str) -> str:
        data = text.encode("utf-8", "surrogatepass")
        if data not in texts:
            texts[data] = make_address(data)
        return texts[data]

    for holder, name in find_parts(value):
        holder[name] = [_move_part_out(part, keep) for part in holder[name]]
    if "tools" in value:
        value["tools"] = [_move_tool_out(tool, keep) for tool in value["tools"]]
    return value, texts


def _move_part_out(part: dict[str, Any], keep: Callable[[str], str]) -> dict[str, Any]:
    """Return `part`, with the address of its text in its place if that is large."""
    if len(part.get("text", "")) >= LARGE:
        return {"blob": keep(part["text"])}
    if part.get("data") is None:
        return part
    data = _dump_foreign(part["data"])
    if len(data) < LARGE and not _NO_NUMBER.search(data):
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
