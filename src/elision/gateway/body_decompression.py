"""Compressed bodies of requests, decompressed up to a limit.

What cannot be decompressed here passes as it came. `br` is among it: no client is known that sends it, and what reads
it without a limit on its output is no reader for untrusted bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import zstandard

from elision.gateway.json_spans import UnreadableBody

#: Codings one upon the other, and compressed parts one behind the other: more is no client's work.
MAX_CODINGS: Final = 4
MAX_PARTS: Final = 64
#: A zstd body may need a window of at most 8 MB (RFC 9659).
_WINDOW: Final = 8 * 1024 * 1024
#: A block of zstd is at least 4 bytes and becomes at most 128 KB: no step makes more than 32 MB, whatever it is fed.
_STEP: Final = 1024
_GZIP: Final = 31
_ZLIB: Final = 15
_BARE: Final = -15


def decompress_body(raw: bytes, encoding: str, limit: int) -> bytes:
    """A body without its content codings (`Content-Encoding`, the first applied first); `raw` itself if it has none.

    Raises Unreadable where a coding is unknown, what it made is broken or cut short, or more than `limit` bytes come
    out.
    """
    codings = [name for each in encoding.split(",") if (name := each.strip().lower()) not in ("", "identity")]
    if len(codings) > MAX_CODINGS:
        raise UnreadableBody(f"content-encoding: {len(codings)} codings are one upon the other")
    for coding in reversed(codings):
        if coding not in _READERS:
            raise UnreadableBody(f"content-encoding {coding[:40]!r} is not known here")
        try:
            raw = _join_within_limit(_READERS[coding](raw, limit), limit)
        except (zlib.error, zstandard.ZstdError) as error:
            raise UnreadableBody(f"the body is no {coding}: {error}") from error
    return raw


def _join_within_limit(parts: Iterator[bytes], limit: int) -> bytes:
    """The parts in one, as long as they are no more than `limit` bytes."""
    kept = []
    size = 0
    for part in parts:
        size += len(part)
        if size > limit:
            raise UnreadableBody(f"the body is more than {limit} bytes once it is decompressed")
        kept.append(part)
    return b"".join(kept)


def _decompress_gzip(raw: bytes, limit: int) -> Iterator[bytes]:
    for _ in range(MAX_PARTS):
        part = zlib.decompressobj(_GZIP)
        yield part.decompress(raw, limit + 1)
        _require_end(part.eof, limit)
        raw = part.unused_data
        if not raw:
            return
    raise UnreadableBody(f"the body has more than {MAX_PARTS} compressed parts")


def _decompress_deflate(raw: bytes, limit: int) -> Iterator[bytes]:
    """With the frame of zlib, as the standard says, or without, as some write it."""
    part = zlib.decompressobj(_ZLIB)
    try:
        out = part.decompress(raw, limit + 1)
    except zlib.error:
        part = zlib.decompressobj(_BARE)
        out = part.decompress(raw, limit + 1)
    yield out
    _require_end(part.eof and not part.unused_data, limit)


def _decompress_zstd(raw: bytes, limit: int) -> Iterator[bytes]:
    reader = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    for _ in range(MAX_PARTS):
        part = reader.decompressobj()
        at = 0
        while at < len(raw) and not part.eof:
            yield part.decompress(raw[at : at + _STEP])
            at += _STEP
        _require_end(part.eof, limit)
        raw = part.unused_data + raw[at:]
        if not raw:
            return
    raise UnreadableBody(f"the body has more than {MAX_PARTS} compressed parts")


def _require_end(ended: bool, limit: int) -> None:
    if not ended:
        raise UnreadableBody(f"the compressed body is cut short, ends in something else or is more than {limit} bytes")


_READERS: Final[Mapping[str, Callable[[bytes, int], Iterator[bytes]]]] = {
    "gzip": _decompress_gzip,
    "x-gzip": _decompress_gzip,
    "deflate": _decompress_deflate,
    "zstd": _decompress_zstd,
}
