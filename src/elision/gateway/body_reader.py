"""Read bodies: in pieces as they arrive, decompressed, and up to a limit.

A request's body is read up to the size that is parsed, within its time and with the memory that it reserved.

A body that cannot be decompressed here passes unchanged. `br` is one of them: no client is known that sends it, and
its reader has no limit on its output, so it does not suit untrusted bytes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

from elision.gateway.json_bytes import UnreadableBody
from elision.gateway.limits import AdmissionLimits
from elision.manager.drivers import run_off_loop
from elision.manager.think_time import LARGE_BYTES, choose_executor
from elision.trajectory.foreign_text import join_pieces
from elision.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

#: ASGI's way to the client's next message.
Receive: TypeAlias = Callable[[], Awaitable[Any]]


class ClientDisconnected(Exception):  # noqa: N818 - reads as what it is at the call site
    """The client left before its request was complete."""


class RequestBodyReader:
    """Reads a request's body. `close` releases the memory that it reserved."""

    def __init__(self, receive: Receive, limits: AdmissionLimits, headers: Mapping[bytes, bytes]) -> None:
        self._receive = receive
        self._limits = limits
        self._reserved_bytes = min(limits.read_content_length(headers) or 0, limits.settings.max_read_bytes)
        self._held_bytes = 0
        self._size = 0
        self.is_complete = False

    async def read(self) -> bytes:
        """Return the body, up to the size that is parsed and has room; `is_complete` says whether that is all of it.

        Raises RequestRefused where it is too large, too slow or without room, ClientDisconnected where the client left.
        """
        settings = self._limits.settings
        if self._reserved_bytes:
            self._held_bytes = await self._limits.memory_gate.acquire(self._reserved_bytes)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(settings.body_seconds):
                while not self.is_complete and self._size <= settings.max_read_bytes:
                    parts.append(await self._read_chunk())
                    if self._size > self._held_bytes and not await self._reserve_room():
                        break
        except TimeoutError:
            raise self._limits.make_too_slow() from None
        # Beside the event loop only where it takes longer than a change of threads.
        if self._size < LARGE_BYTES:
            return join_pieces(parts)
        return await run_off_loop(partial(join_pieces, parts), choose_executor(self._size))

    async def _reserve_room(self) -> bool:
        """Reserve memory for what arrived; return whether there was some.

        A request that holds memory does not wait for more: all of them would wait for each other. It passes unread.
        """
        memory = self._limits.memory_gate
        more = self._size - self._held_bytes
        if self._held_bytes:
            taken = memory.try_acquire(more)
        else:
            taken = await memory.acquire(more)
        self._held_bytes += taken
        return taken > 0

    def reserve_decompressed(self, amount: int) -> bool:
        """Reserve memory for bytes that the body is decompressed to; release it where `amount` is negative.

        Return whether there was room.
        """
        if amount < 0:
            self._limits.memory_gate.release(-amount)
        elif not self._limits.try_acquire_decompressed(amount):
            return False
        self._held_bytes += amount
        return True

    async def iterate_rest(self) -> AsyncIterator[bytes]:
        """Yield the rest of the body chunk by chunk."""
        while not self.is_complete:
            try:
                async with asyncio.timeout(self._limits.settings.body_seconds):
                    chunk = await self._read_chunk()
            except TimeoutError:
                raise self._limits.make_too_slow() from None
            if chunk:
                yield chunk

    async def drain(self, seconds: float) -> None:
        """Read the rest of the body and drop it: a client that still sends would not read why it was refused."""
        try:
            async with asyncio.timeout(seconds):
                while not self.is_complete:
                    self.is_complete = _is_last_message(await self._receive())
        except (TimeoutError, ClientDisconnected):
            return

    def close(self) -> None:
        held = self._held_bytes
        self._held_bytes = 0
        if held:
            self._limits.memory_gate.release(held)

    async def _read_chunk(self) -> bytes:
        message = await self._receive()
        self.is_complete = _is_last_message(message)
        chunk: bytes = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._limits.settings.max_body_bytes:
            raise self._limits.make_too_large()
        return chunk


def _is_last_message(message: Mapping[str, Any]) -> bool:
    if message["type"] != "http.request":
        raise ClientDisconnected
    return not message.get("more_body", False)


# -- decompression ----------------------------------------------------------------------------------------------------

#: Encodings that can be read, as `content-encoding` and `accept-encoding` name them.
ENCODINGS: Final = ("gzip", "deflate", "zstd")
#: Decompressed bytes after which a response is not read further: more than any that a model writes.
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
#: Codings of one request: no client sends more.
MAX_CODINGS: Final = 4
#: Compressed members that may begin in one step of input. Each of them copies the rest of the step.
MAX_MEMBERS: Final = 64
#: Compressed bytes of a whole body that are read in one step.
_STEP_BYTES: Final = 16 * 1024
#: Bytes that are made in one step.
_PIECE_BYTES: Final = 64 * 1024
#: RFC 9659: the window that a sender of zstd may expect of a reader is 8 MB, 2^23 bytes.
_ZSTD_WINDOW_LOG: Final = 23
#: Window bits of zlib: with a gzip header, with a zlib header, without one.
_GZIP: Final = 31
_ZLIB: Final = 15
_BARE: Final = -15


class _Member(Protocol):
    """A compressed part of a body: the interface of `zlib.decompressobj`."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class StreamDecompressor:
    """Decompresses one body in pieces. Raises ValueError for an unknown encoding.

    most: decompressed bytes in all. Beyond them `feed` raises ValueError, as it does for bytes of another encoding.
    """

    def __init__(self, encoding: str, *, most: int = MAX_DECOMPRESSED_BYTES) -> None:
        self._encoding = encoding.strip().lower()
        self._is_plain = self._encoding in ("", "identity")
        if not self._is_plain and self._encoding not in _MAKE_MEMBER:
            raise ValueError(f"content-encoding {encoding[:40]!r}: known are {', '.join(ENCODINGS)}")
        self._most = most
        self._bytes_left = most
        self._member: _Member | None = None

    @property
    def is_complete(self) -> bool:
        """Whether the body may end here."""
        return self._is_plain or (self._member is not None and self._member.eof)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what `chunk` adds, in pieces."""
        try:
            for piece in (chunk,) if self._is_plain else self._read_members(chunk):
                self._bytes_left -= len(piece)
                if self._bytes_left < 0:
                    raise ValueError(f"the body is more than {self._most} bytes once it is decompressed")
                yield piece
        except (zlib.error, ZstdError) as error:
            raise ValueError(f"the body is no {self._encoding}: {error}") from error

    def _read_members(self, chunk: bytes) -> Iterator[bytes]:
        """Decompress `chunk`: gzip and zstd allow several members one after the other."""
        begun = 0
        while True:
            if self._member is None or self._member.eof:
                if not chunk:
                    return
                begun += 1
                if begun > MAX_MEMBERS:
                    raise ValueError(f"the body has more than {MAX_MEMBERS} compressed parts")
                if self._member is not None and self._encoding == "deflate":
                    raise ValueError("the deflated body ends in something else")
                self._member = _MAKE_MEMBER[self._encoding](chunk)
            piece = self._member.decompress(chunk, _PIECE_BYTES)
            chunk = self._member.unconsumed_tail or self._member.unused_data
            if piece:
                # It may be full at the last byte of input: the rest follows without input.
                yield piece
            elif not chunk:
                return


class BodyDecompressor:
    """Takes the content codings from a whole body (`Content-Encoding`, the first applied first), step by step.

    made_bytes: the bytes that it has made so far, of all codings. limit: decompressed bytes of one coding. Raises
    UnreadableBody for too many codings.
    """

    def __init__(self, raw: bytes, encoding: str, limit: int) -> None:
        names = [name.strip().lower() for name in encoding.split(",")]
        self._codings = [name for name in names if name not in ("", "identity")]
        if len(self._codings) > MAX_CODINGS:
            raise UnreadableBody(f"content-encoding: {len(self._codings)} codings are one upon the other")
        self._raw = raw
        self._limit = limit
        self.made_bytes = 0
        self._pieces = self._decompress()

    def make_more(self, size: int) -> bytes | None:
        """Make `size` bytes more, or a little more than that. Return the body if it is complete, else None.

        Raises UnreadableBody where bytes are broken or cut short, or more than the limit come out.
        """
        end = self.made_bytes + size
        for piece in self._pieces:
            self.made_bytes += len(piece)
            if self.made_bytes >= end:
                return None
        return self._raw

    def _decompress(self) -> Iterator[bytes]:
        for coding in reversed(self._codings):
            pieces: list[bytes] = []
            try:
                decompressor = StreamDecompressor(coding, most=self._limit)
                for start in range(0, len(self._raw), _STEP_BYTES):
                    for piece in decompressor.feed(self._raw[start : start + _STEP_BYTES]):
                        pieces.append(piece)
                        yield piece
            except ValueError as error:
                raise UnreadableBody(str(error)) from error
            if not decompressor.is_complete:
                raise UnreadableBody(f"the body is not a complete {coding}: it is cut short")
            self._raw = b"".join(pieces)


class _ZstdMember:
    """A frame of zstd. Input beyond `max_length` of output is kept inside, so the next call needs none."""

    unconsumed_tail = b""

    def __init__(self) -> None:
        self._inner = ZstdDecompressor(options={DecompressionParameter.window_log_max: _ZSTD_WINDOW_LOG})

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(data, max_length)


def _make_deflate_member(start: bytes) -> _Member:
    """Make a reader for the zlib header of the standard, or for none, as some write it.

    start: of the body. A body without a header never begins so: it would be a block that is not compressed, with a
    bit set that is not used.
    """
    has_header = start[0] & 0x0F == 8
    return zlib.decompressobj(_ZLIB if has_header else _BARE)


_MAKE_MEMBER: Final[Mapping[str, Callable[[bytes], _Member]]] = {
    "gzip": lambda start: zlib.decompressobj(_GZIP),
    "x-gzip": lambda start: zlib.decompressobj(_GZIP),
    "deflate": _make_deflate_member,
    "zstd": lambda start: _ZstdMember(),
}
