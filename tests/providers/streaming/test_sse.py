"""Server-sent events are taken apart without a byte lost or changed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.providers.streaming.sse import FrameSplitter, SseFrame, format_event
from tests.work import assert_linear

_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
_LINES = st.sampled_from(
    [
        b"",
        b"",
        b"data: x",
        b"data:y",
        b"data",
        b"event: e",
        b": note",
        b"id: 7",
        b"retry: 1",
        b"odd",
        b"data: \xc3\xa4\xff",
    ]
)
_STREAMS = st.builds(
    lambda mark, lines, rest: mark + b"".join(line + end for line, end in lines) + rest,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(st.tuples(_LINES, _ENDS), max_size=30),
    st.binary(max_size=5),
)


def _chunks(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[one:other] for one, other in itertools.pairwise(places)]


def _split(chunks: list[bytes], limit: int = 1_000) -> tuple[list[SseFrame], bytes]:
    splitter = FrameSplitter(limit)
    frames = [frame for chunk in chunks for frame in splitter.feed(chunk)]
    return frames, splitter.take_rest()


def _events(frames: list[SseFrame]) -> list[tuple[str, bytes]]:
    """What a reader would be told."""
    return [(frame.event, frame.data) for frame in frames if frame.data]


def _reference(stream: bytes) -> list[tuple[str, bytes]]:
    """The grammar's own words, line by line, over the whole stream."""
    events: list[tuple[str, bytes]] = []
    event, data = b"", b""
    text = stream.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data[:-1]:
                events.append((event.decode("utf-8", "replace"), data[:-1]))
            event, data = b"", b""
            continue
        name, _, value = line.partition(b":")
        value = value[1:] if value[:1] == b" " else value
        if name == b"data":
            data += value + b"\n"
        elif name == b"event":
            event = value
    return events


@given(_STREAMS, st.lists(st.integers(0, 10_000), max_size=8), st.sampled_from([1, 7, 1_000]))
def test_no_byte_is_lost(stream: bytes, cuts: list[int], limit: int) -> None:
    """The frames and the rest are the stream, however it is cut and however small the limit."""
    frames, rest = _split(_chunks(stream, cuts), limit)
    assert b"".join(frame.raw for frame in frames) + rest == stream


@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=8))
def test_no_byte_of_anything_is_lost(stream: bytes, cuts: list[int]) -> None:
    """Bytes that are no event stream pass as well."""
    frames, rest = _split(_chunks(stream, cuts), limit=20)
    assert b"".join(frame.raw for frame in frames) + rest == stream


@given(_STREAMS, st.lists(st.integers(0, 10_000), max_size=8))
def test_events_are_the_grammars(stream: bytes, cuts: list[int]) -> None:
    """What is read is what the grammar says, however the stream is cut."""
    assert _events(_split(_chunks(stream, cuts))[0]) == _reference(stream)


@given(_STREAMS)
def test_one_byte_at_a_time(stream: bytes) -> None:
    """A stream that trickles in is read as one that comes at once."""
    frames, rest = _split([bytes([byte]) for byte in stream])
    assert b"".join(frame.raw for frame in frames) + rest == stream
    assert _events(frames) == _reference(stream)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_frame_is_given_out_as_it_ends(end: bytes) -> None:
    """Nothing more need come before an event that is over is passed on."""
    splitter = FrameSplitter()
    assert splitter.feed(b"event: ping" + end + b"data: {}" + end) == []
    (frame,) = splitter.feed(end)
    assert (frame.event, frame.data) == ("ping", b"{}")


def test_data_of_several_lines() -> None:
    """Data lines are joined by a line feed; one space behind the colon is not part of them."""
    (frame,) = FrameSplitter().feed(b"data: a\ndata:  b\ndata\n\n")
    assert frame.data == b"a\n b\n"


def test_comment_is_a_frame_without_data() -> None:
    """A comment that keeps the line open passes as a frame of its own."""
    frames = FrameSplitter().feed(b": OPENROUTER PROCESSING\n\ndata: x\n\n")
    assert [(frame.raw, frame.data) for frame in frames] == [
        (b": OPENROUTER PROCESSING\n\n", b""),
        (b"data: x\n\n", b"x"),
    ]


def test_last_event_without_its_end_can_be_read() -> None:
    """A stream that ends without a blank line leaves a rest, which can be read as a frame."""
    splitter = FrameSplitter()
    assert splitter.feed(b"data: [DONE]") == []
    assert SseFrame.parse_frame(splitter.take_rest()).data == b"[DONE]"
    assert splitter.take_rest() == b""


def test_frame_over_the_limit_is_passed_on_unread() -> None:
    """A frame too large to keep goes out in pieces, none of them read, and the one behind it is read again."""
    splitter = FrameSplitter(limit=12)
    pieces = [frame for _ in range(5) for frame in splitter.feed(b"data: 0123456789")]
    frames = splitter.feed(b"\n\ndata: next\n\n")
    assert len(pieces) == 5
    assert not any(frame.is_readable or frame.data for frame in pieces)
    assert frames == [SseFrame(b"\n\n", is_readable=False), SseFrame(b"data: next\n\n", data=b"next")]


def test_frame_over_the_limit_in_one_chunk_is_unread_too() -> None:
    """How a stream was cut does not decide whether a frame is read."""
    (frame,) = FrameSplitter(limit=10).feed(b"data: 0123456789\n\n")
    assert not frame.is_readable


def test_end_of_a_frame_over_the_limit_may_be_cut() -> None:
    """The line end that a piece ends with counts for the blank line that follows."""
    splitter = FrameSplitter(limit=12)
    frames = splitter.feed(b"data: 0123456789\n") + splitter.feed(b"\n") + splitter.feed(b"data: x\n\n")
    assert [frame.is_readable for frame in frames] == [False, False, True]
    assert frames[-1].data == b"x"


def test_ten_megabytes_in_small_chunks_take_linear_time() -> None:
    """One event of 10 MB in chunks of 4 kB costs about what sixteen of 640 kB cost."""

    def split(size: int) -> None:
        splitter, chunk = FrameSplitter(), b"x" * 4_096
        for _ in range(size // len(chunk) + 1):
            assert splitter.feed(chunk) == []
        (frame,) = splitter.feed(b"\n\n")
        assert len(frame.raw) >= size

    assert_linear(split, 640_000)


@given(st.text(max_size=30), st.sampled_from(["", "error", "message_stop"]))
def test_what_is_written_is_read(text: str, event: str) -> None:
    """An event that we write is the event that a reader reads."""
    data = text.replace("\r", "").encode()
    frames, rest = _split([format_event(data, event)])
    assert [(frame.event, frame.data) for frame in frames] == [(event, data)]
    assert rest == b""
