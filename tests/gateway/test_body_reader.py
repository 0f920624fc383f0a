"""Bodies are decompressed whole and in pieces, up to a limit."""

from __future__ import annotations

import collections
import contextlib
import gzip
import itertools
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import zstd
from elision.gateway.body_reader import BodyDecompressor, StreamDecompressor
from elision.gateway.json_bytes import UnreadableBody

LIMIT = 1_000_000


def decompress_body(raw: bytes, encoding: str, limit: int, step: int = 1 << 30) -> bytes:
    """Decompress a whole body, in steps of so many bytes."""
    decompressor = BodyDecompressor(raw, encoding, limit)
    while (body := decompressor.make_more(step)) is None:
        pass
    return body


def _bare(raw: bytes) -> bytes:
    writer = zlib.compressobj(wbits=-15)
    return writer.compress(raw) + writer.flush()


def _streamed(raw: bytes) -> bytes:
    writer = zstd.ZstdCompressor()
    return writer.compress(raw) + writer.flush()


WRITERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("X-GZIP", gzip.compress),
    "zlib": ("deflate", zlib.compress),
    "bare deflate": (" Deflate ", _bare),
    "zstd": ("zstd", zstd.compress),
    "zstd, size not said": ("zstd", _streamed),
}
kinds = pytest.mark.parametrize("kind", WRITERS)


@kinds
@given(raw=st.binary(max_size=5_000))
def test_what_was_compressed_comes_out(kind: str, raw: bytes) -> None:
    """Any bytes, in each coding, alone and one upon the other."""
    name, write = WRITERS[kind]
    assert decompress_body(write(raw), name, LIMIT) == raw
    assert decompress_body(zstd.compress(write(raw)), f"identity, {name},zstd", LIMIT) == raw


@kinds
@given(raw=st.binary(max_size=5_000), step=st.integers(1, 6_000))
def test_a_body_is_made_in_steps(kind: str, raw: bytes, step: int) -> None:
    """Whatever the size of a step, the same bytes come out, and all of them are counted."""
    name, write = WRITERS[kind]
    assert decompress_body(write(raw), name, LIMIT, step) == raw
    decompressor = BodyDecompressor(write(raw), name, LIMIT)
    assert (decompressor.make_more(step) is None) <= (decompressor.made_bytes >= step)
    while decompressor.make_more(step) is None:
        pass
    assert decompressor.made_bytes == len(raw)


@kinds
def test_a_step_makes_little_more_than_asked_for(kind: str) -> None:
    """What is made beyond a reservation is bounded: 4 MB, of one body at a time."""
    name, write = WRITERS[kind]
    decompressor = BodyDecompressor(write(bytes(20_000_000)), name, 64_000_000)
    assert decompressor.make_more(1_000) is None
    assert decompressor.made_bytes <= 1_000 + (4 << 20)


def test_a_plain_body_is_the_very_one() -> None:
    """Without a coding nothing is copied."""
    raw = b"x" * 10
    assert decompress_body(raw, "", LIMIT) is raw
    assert decompress_body(raw, " identity , ", 5) is raw


@pytest.mark.parametrize("kind", ["gzip", "zstd", "zstd, size not said"])
def test_parts_one_behind_the_other_are_one_body(kind: str) -> None:
    """As both formats say; not without end."""
    name, write = WRITERS[kind]
    assert decompress_body(write(b"one ") + write(b"") + write(b"two"), name, LIMIT) == b"one two"
    with pytest.raises(UnreadableBody, match="more than 64 compressed parts"):
        decompress_body(write(b"") * 100, name, LIMIT)


@kinds
def test_what_is_broken_is_unreadable(kind: str) -> None:
    """Cut short, with something behind it, or no such coding at all."""
    name, write = WRITERS[kind]
    raw = write(b"some text " * 5_000)
    for broken in (raw[:-1], raw[: len(raw) // 2], raw[:3], b"", raw + b"garbage", b"{}", bytes(50)):
        with pytest.raises(UnreadableBody):
            decompress_body(broken, name, LIMIT)


@kinds
def test_a_bomb_is_stopped(kind: str) -> None:
    """Small bytes that become huge ones are given up at the limit, in memory that follows the limit."""
    name, write = WRITERS[kind]
    bomb = write(bytes(60_000_000))
    tracemalloc.start()
    with pytest.raises(UnreadableBody, match="more than 1000000 bytes"):
        decompress_body(bomb, name, LIMIT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40_000_000


@kinds
def test_the_limit_itself_is_allowed(kind: str) -> None:
    """Exactly so many bytes come out; one more does not."""
    name, write = WRITERS[kind]
    assert len(decompress_body(write(b"x" * 1_000), name, 1_000)) == 1_000
    with pytest.raises(UnreadableBody, match="more than 1000 bytes"):
        decompress_body(write(b"x" * 1_001), name, 1_000)


def test_a_window_beyond_the_standard_is_refused() -> None:
    """A zstd body that would need more memory than content codings may (8 MB) is unreadable."""
    parameters = {zstd.CompressionParameter.window_log: 27}
    writer = zstd.ZstdCompressor(options=parameters)
    with pytest.raises(UnreadableBody, match="the body is no zstd"):
        decompress_body(writer.compress(b"x") + writer.flush(), "zstd", LIMIT)


@pytest.mark.parametrize("encoding", ["br", "compress", "gzip, br", "aes128gcm", "gzip," * 5])
def test_codings_nobody_here_reads(encoding: str) -> None:
    """What is not known, or stacked beyond reason, passes as it came."""
    with pytest.raises(UnreadableBody, match="content-encoding"):
        decompress_body(gzip.compress(b"{}"), encoding, LIMIT)


@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "zstd", "gzip, zstd"]))
def test_no_bytes_raise_anything_else(raw: bytes, encoding: str) -> None:
    """Whatever is said to be compressed is bytes or unreadable."""
    with contextlib.suppress(UnreadableBody):
        assert isinstance(decompress_body(raw, encoding, LIMIT), bytes)


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
