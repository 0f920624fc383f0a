"""Compressed bytes made readable as they come, a bounded piece at a time: gzip, deflate, zstd."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import zstandard

#: What can be read, as `content-encoding` and `accept-encoding` name it.
ENCODINGS: Final = ("gzip", "deflate", "zstd")
#: Decompressed bytes after which an answer is not read further: more than any that a model writes.
MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
#: Parts of one body that are compressed one behind the other.
MAX_MEMBERS: Final = 64
#: Bytes that zlib hands out at once. zstd cannot be told: its input is cut so that 128 kB blocks of one repeated byte,
#: 4 bytes each, come to 16 MB at most.
_PIECE_BYTES: Final = 64 * 1024
_ZSTD_INPUT_BYTES: Final = 512
#: RFC 9659: what a sender of `content-encoding: zstd` may expect of a reader.
_ZSTD_WINDOW_BYTES: Final = 8 * 1024 * 1024


class StreamDecompressor:
    """One body, decompressed. Raises ValueError for an encoding that it does not know.

    most: decompressed bytes in all; beyond them `feed` raises ValueError, as it does for bytes that are not compressed
    so (zlib and zstd have errors of their own, which come out as ValueError).
    """

    def __init__(self, encoding: str, *, most: int = MAX_DECOMPRESSED_BYTES) -> None:
        name = encoding.strip().lower()
        if name not in _MAKE_READER:
            raise ValueError(f"content-encoding {name[:40]!r}: known are {', '.join(ENCODINGS)}")
        self._pieces = _MAKE_READER[name]()
        self._bytes_left = most

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """What `chunk` adds, in pieces."""
        try:
            for piece in self._pieces(chunk):
                self._bytes_left -= len(piece)
                if self._bytes_left < 0:
                    raise ValueError("the decompressed body is too large to be read")
                yield piece
        except (zlib.error, zstandard.ZstdError) as error:
            raise ValueError(f"no such compressed body: {error}") from error


def _make_plain_reader() -> Callable[[bytes], Iterator[bytes]]:
    return lambda chunk: iter((chunk,))


def _make_gzip_reader() -> Callable[[bytes], Iterator[bytes]]:
    return _make_zlib_reader(31)


def _make_deflate_reader() -> Callable[[bytes], Iterator[bytes]]:
    """With the zlib header that the standard asks for, or without, as some servers send it."""
    waiting = b""
    pieces: Callable[[bytes], Iterator[bytes]] | None = None

    def feed(chunk: bytes) -> Iterator[bytes]:
        nonlocal waiting, pieces
        waiting += chunk
        if pieces is None and len(waiting) >= 2:
            headed = waiting[0] & 0x0F == 8 and int.from_bytes(waiting[:2], "big") % 31 == 0
            pieces = _make_zlib_reader(15 if headed else -15)
        if pieces is not None:
            chunk = waiting
            waiting = b""
            yield from pieces(chunk)

    return feed


def _make_zlib_reader(bits: int) -> Callable[[bytes], Iterator[bytes]]:
    inflating = zlib.decompressobj(bits)

    members = 1

    def feed(chunk: bytes) -> Iterator[bytes]:
        nonlocal inflating, members
        while chunk:
            if inflating.eof:
                # A gzip file may have several members. Each copies what is left of the chunk.
                members += 1
                if members > MAX_MEMBERS:
                    raise ValueError(f"the compressed body has more than {MAX_MEMBERS} parts")
                inflating = zlib.decompressobj(bits)
            if piece := inflating.decompress(chunk, _PIECE_BYTES):
                yield piece
            chunk = inflating.unconsumed_tail or inflating.unused_data
        # A piece may fill up with the last byte of input.
        while not inflating.eof and (piece := inflating.decompress(b"", _PIECE_BYTES)):
            yield piece

    return feed


def _make_zstd_reader() -> Callable[[bytes], Iterator[bytes]]:
    inflating = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES).decompressobj(read_across_frames=True)

    def feed(chunk: bytes) -> Iterator[bytes]:
        for start in range(0, len(chunk), _ZSTD_INPUT_BYTES):
            if piece := inflating.decompress(chunk[start : start + _ZSTD_INPUT_BYTES]):
                yield piece

    return feed


_MAKE_READER: Final[Mapping[str, Callable[[], Callable[[bytes], Iterator[bytes]]]]] = {
    "": _make_plain_reader,
    "identity": _make_plain_reader,
    "gzip": _make_gzip_reader,
    "x-gzip": _make_gzip_reader,
    "deflate": _make_deflate_reader,
    "zstd": _make_zstd_reader,
}
