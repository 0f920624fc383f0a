"""Compressed bodies come out as they went in, or not at all."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import zstd
from elision.gateway.body_reader import BodyDecompressor
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
