"""Compressed answers are read as they come, a bounded piece at a time."""

from __future__ import annotations

import collections
import gzip
import itertools
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import zstd
from elision.gateway.body_reader import StreamDecompressor


def _raw_deflate(data: bytes) -> bytes:
    packing = zlib.compressobj(wbits=-15)
    return packing.compress(data) + packing.flush()


def _zstd(data: bytes) -> bytes:
    return zstd.compress(data)


PACKED = {
    "": bytes,
    "identity": bytes,
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "raw deflate": _raw_deflate,
    "zstd": _zstd,
}


def _inflated(name: str, packed: bytes, cuts: list[int] = [], most: int = 1 << 20) -> bytes:  # noqa: B006
    inflater = StreamDecompressor(name.removeprefix("raw "), most=most)
    places = [0, *sorted(cut % (len(packed) + 1) for cut in cuts), len(packed)]
    return b"".join(piece for one, other in itertools.pairwise(places) for piece in inflater.feed(packed[one:other]))


@given(st.sampled_from(sorted(PACKED)), st.binary(max_size=2_000), st.lists(st.integers(0, 5_000), max_size=8))
def test_what_was_packed_comes_out(name: str, data: bytes, cuts: list[int]) -> None:
    """Every encoding, however it is cut on the way."""
    assert _inflated(name, PACKED[name](data), cuts) == data


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_several_members_are_one_body(name: str) -> None:
    """A body may be made of several compressed parts, as servers that flush make them."""
    assert _inflated(name, PACKED[name](b"one ") + PACKED[name](b"two"), [3, 30]) == b"one two"


@pytest.mark.parametrize("name", ["gzip", "deflate", "raw deflate", "zstd"])
def test_what_is_flushed_comes_out_at_once(name: str) -> None:
    """An event of a compressed stream is read when it arrives, not when the stream ends."""
    if name == "zstd":
        compressor = zstd.ZstdCompressor()
        packed = compressor.compress(b"data: x\n\n", zstd.ZstdCompressor.FLUSH_BLOCK)
    else:
        packing = zlib.compressobj(wbits={"gzip": 31, "deflate": 15}.get(name, -15))
        packed = packing.compress(b"data: x\n\n") + packing.flush(zlib.Z_SYNC_FLUSH)
    assert _inflated(name, packed) == b"data: x\n\n"


@pytest.mark.parametrize("name", ["gzip", "deflate", "raw deflate", "zstd"])
def test_a_bomb_is_not_kept_in_memory(name: str) -> None:
    """A body that swells a thousandfold stops at the limit, and memory stays far below what it would be."""
    packed = PACKED[name](bytes(60 << 20))
    inflater = StreamDecompressor(name.removeprefix("raw "), most=9 << 20)
    tracemalloc.start()
    with pytest.raises(ValueError, match="more than 9437184 bytes"):
        collections.deque(inflater.feed(packed), maxlen=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd"])
def test_what_is_not_compressed_so_is_an_error(name: str) -> None:
    """Bytes that say one thing and are another raise one kind of error."""
    with pytest.raises(ValueError, match="the body is no "):
        _inflated(name, b"\x78\x9cnot compressed at all, whatever the header says")


def test_an_unknown_encoding_names_the_known_ones() -> None:
    """Nobody has to guess what can be read."""
    with pytest.raises(ValueError, match="gzip, deflate, zstd"):
        StreamDecompressor("br")


def test_parts_have_a_limit() -> None:
    """A body of thousands of empty parts is not read to its end: each of them would copy the rest."""
    with pytest.raises(ValueError, match="more than 64 compressed parts"):
        list(StreamDecompressor("gzip").feed(gzip.compress(b"") * 5_000))
