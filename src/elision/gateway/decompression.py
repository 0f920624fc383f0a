"""Decompress bodies, in pieces as they arrive or at once, up to a limit.

A body that cannot be decompressed here passes unchanged. `br` is one of them: no client is known that sends it, and
its reader has no limit on its output, so it does not suit untrusted bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from elision.gateway.json_decoding import UnreadableBody
from elision.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

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
