"""Decompress bodies: requests at once and up to a limit, responses in pieces as they arrive.

A body that cannot be decompressed here passes unchanged. `br` is one of them: no client is known that sends it, and
its reader has no limit on its output, so it does not suit untrusted bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import zstandard

from elision.gateway.json_spans import UnreadableBody

#: Encodings that can be read, as `content-encoding` and `accept-encoding` name them.
ENCODINGS: Final = ("gzip", "deflate", "zstd")
#: Decompressed bytes after which a response is not read further: more than any that a model writes.
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
#: Codings of one request, and compressed members of one body: no client sends more.
MAX_CODINGS: Final = 4
MAX_MEMBERS: Final = 64
#: RFC 9659: the window that a sender of zstd may expect of a reader.
_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024
#: A block of zstd has at least 4 bytes and becomes at most 128 KB, and its decompressor takes no limit on its output.
#: So its input is cut: one step makes at most 32 MB of a request, and 16 MB of a response.
_ZSTD_REQUEST_BYTES: Final = 1024
_ZSTD_RESPONSE_BYTES: Final = 512
#: Bytes of a response that zlib makes in one step.
_PIECE_BYTES: Final = 64 * 1024
#: Window bits of zlib: with a gzip header, with a zlib header, without one.
_GZIP: Final = 31
_ZLIB: Final = 15
_BARE: Final = -15


# -- requests ---------------------------------------------------------------------------------------------------------


def decompress_body(raw: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its content codings (`Content-Encoding`, the first applied first); `raw` if it has none.

    Raises UnreadableBody where a coding is unknown, its bytes are broken or cut short, or more than `limit` bytes come
    out.
    """
    names = [name.strip().lower() for name in encoding.split(",")]
    codings = [name for name in names if name not in ("", "identity")]
    if len(codings) > MAX_CODINGS:
        raise UnreadableBody(f"content-encoding: {len(codings)} codings are one upon the other")
    for coding in reversed(codings):
        if coding not in _DECOMPRESSORS:
            raise UnreadableBody(f"content-encoding {coding[:40]!r} is not known here")
        try:
            raw = _join_within_limit(_DECOMPRESSORS[coding](raw, limit), limit)
        except (zlib.error, zstandard.ZstdError) as error:
            raise UnreadableBody(f"the body is no {coding}: {error}") from error
    return raw


def _join_within_limit(parts: Iterator[bytes], limit: int) -> bytes:
    kept = []
    size = 0
    for part in parts:
        size += len(part)
        if size > limit:
            raise UnreadableBody(f"the body is more than {limit} bytes once it is decompressed")
        kept.append(part)
    return b"".join(kept)


def _decompress_gzip(raw: bytes, limit: int) -> Iterator[bytes]:
    for _ in range(MAX_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        yield member.decompress(raw, limit + 1)
        _require_end(member.eof, limit)
        raw = member.unused_data
        if not raw:
            return
    raise UnreadableBody(f"the body has more than {MAX_MEMBERS} compressed parts")


def _decompress_deflate(raw: bytes, limit: int) -> Iterator[bytes]:
    """Decompress with the header of zlib, as the standard says, or without, as some clients write it."""
    member = zlib.decompressobj(_ZLIB)
    try:
        out = member.decompress(raw, limit + 1)
    except zlib.error:
        member = zlib.decompressobj(_BARE)
        out = member.decompress(raw, limit + 1)
    yield out
    _require_end(member.eof and not member.unused_data, limit)


def _decompress_zstd(raw: bytes, limit: int) -> Iterator[bytes]:
    reader = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    for _ in range(MAX_MEMBERS):
        member = reader.decompressobj()
        at = 0
        while at < len(raw) and not member.eof:
            yield member.decompress(raw[at : at + _ZSTD_REQUEST_BYTES])
            at += _ZSTD_REQUEST_BYTES
        _require_end(member.eof, limit)
        raw = member.unused_data + raw[at:]
        if not raw:
            return
    raise UnreadableBody(f"the body has more than {MAX_MEMBERS} compressed parts")


def _require_end(has_ended: bool, limit: int) -> None:
    if not has_ended:
        raise UnreadableBody(f"the compressed body is cut short, ends in something else or is more than {limit} bytes")


_DECOMPRESSORS: Final[Mapping[str, Callable[[bytes, int], Iterator[bytes]]]] = {
    "gzip": _decompress_gzip,
    "x-gzip": _decompress_gzip,
    "deflate": _decompress_deflate,
    "zstd": _decompress_zstd,
}


# -- responses --------------------------------------------------------------------------------------------------------


class StreamDecompressor:
    """Decompresses one body in pieces. Raises ValueError for an unknown encoding.

    most: decompressed bytes in all. Beyond them `feed` raises ValueError, as it does for bytes of another encoding.
    """

    def __init__(self, encoding: str, *, most: int = MAX_DECOMPRESSED_BYTES) -> None:
        name = encoding.strip().lower()
        if name not in _MAKE_READER:
            raise ValueError(f"content-encoding {name[:40]!r}: known are {', '.join(ENCODINGS)}")
        self._read_pieces = _MAKE_READER[name]()
        self._bytes_left = most

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield what `chunk` adds, in pieces."""
        try:
            for piece in self._read_pieces(chunk):
                self._bytes_left -= len(piece)
                if self._bytes_left < 0:
                    raise ValueError("the decompressed body is too large to be read")
                yield piece
        except (zlib.error, zstandard.ZstdError) as error:
            raise ValueError(f"no such compressed body: {error}") from error


_Reader = Callable[[bytes], Iterator[bytes]]


def _make_plain_reader() -> _Reader:
    return lambda chunk: iter((chunk,))


def _make_gzip_reader() -> _Reader:
    return _make_zlib_reader(_GZIP)


def _make_deflate_reader() -> _Reader:
    """Make a reader for bodies with the zlib header of the standard, or without, as some servers send it."""
    waiting = b""
    read_pieces: _Reader | None = None

    def feed(chunk: bytes) -> Iterator[bytes]:
        nonlocal waiting, read_pieces
        waiting += chunk
        if read_pieces is None and len(waiting) >= 2:
            has_header = waiting[0] & 0x0F == 8 and int.from_bytes(waiting[:2], "big") % 31 == 0
            read_pieces = _make_zlib_reader(_ZLIB if has_header else _BARE)
        if read_pieces is not None:
            chunk = waiting
            waiting = b""
            yield from read_pieces(chunk)

    return feed


def _make_zlib_reader(bits: int) -> _Reader:
    member = zlib.decompressobj(bits)
    members = 1

    def feed(chunk: bytes) -> Iterator[bytes]:
        nonlocal member, members
        while chunk:
            if member.eof:
                # A gzip file may have several members. Each one copies the rest of the chunk.
                members += 1
                if members > MAX_MEMBERS:
                    raise ValueError(f"the compressed body has more than {MAX_MEMBERS} parts")
                member = zlib.decompressobj(bits)
            piece = member.decompress(chunk, _PIECE_BYTES)
            if piece:
                yield piece
            chunk = member.unconsumed_tail or member.unused_data
        # A piece may be full at the last byte of input: the rest follows without input.
        while not member.eof:
            piece = member.decompress(b"", _PIECE_BYTES)
            if not piece:
                return
            yield piece

    return feed


def _make_zstd_reader() -> _Reader:
    member = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj(read_across_frames=True)

    def feed(chunk: bytes) -> Iterator[bytes]:
        for start in range(0, len(chunk), _ZSTD_RESPONSE_BYTES):
            piece = member.decompress(chunk[start : start + _ZSTD_RESPONSE_BYTES])
            if piece:
                yield piece

    return feed


_MAKE_READER: Final[Mapping[str, Callable[[], _Reader]]] = {
    "": _make_plain_reader,
    "identity": _make_plain_reader,
    "gzip": _make_gzip_reader,
    "x-gzip": _make_gzip_reader,
    "deflate": _make_deflate_reader,
    "zstd": _make_zstd_reader,
}
