"""zstd, as Python 3.14's `compression.zstd` has it; before that its backport, which is the same code."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CompressionParameter = zstd.CompressionParameter
DecompressionParameter = zstd.DecompressionParameter
ZstdCompressor = zstd.ZstdCompressor
ZstdDecompressor = zstd.ZstdDecompressor
ZstdDict = zstd.ZstdDict
ZstdError = zstd.ZstdError
compress = zstd.compress

__all__ = [
    "CompressionParameter",
    "DecompressionParameter",
    "ZstdCompressor",
    "ZstdDecompressor",
    "ZstdDict",
    "ZstdError",
    "compress",
    "compress_frame",
    "decompress_frame",
]


def compress_frame(compressor: ZstdCompressor, data: bytes) -> bytes:
    """Return `data` as one frame that states its size. A compressor makes any number of them, one at a time."""
    compressor.set_pledged_input_size(len(data))
    return compressor.compress(data, ZstdCompressor.FLUSH_FRAME)


def decompress_frame(packed: bytes, limit: int, dictionary: ZstdDict | None = None) -> bytes:
    """Return what one frame holds. Raises ZstdError if it is broken, cut short or larger than `limit` bytes."""
    frame = ZstdDecompressor(dictionary)
    data = frame.decompress(packed, limit)
    if not frame.eof or frame.unused_data:
        raise ZstdError("it is not one whole frame")
    return data
