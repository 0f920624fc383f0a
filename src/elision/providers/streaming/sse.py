"""Server-sent events taken apart on their way by, without a byte lost or changed.

What a reader makes of the bytes is the WHATWG event-stream grammar (HTML, section 9.2.6): lines end with LF, CR or
CRLF, a blank line ends an event, a byte order mark in front is passed over, comments and unknown fields mean nothing.
The client gets the frames' own bytes: `raw` of all frames and then `take_rest()` are the bytes that were fed in,
however these were cut.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

#: Bytes of one event that are kept in memory while its end has not come.
MAX_FRAME_BYTES: Final = 32 * 1024 * 1024

#: The end of a line and the blank line behind it. The LF of a CRLF is no line of its own.
_FRAME_END: Final = re.compile(rb"(?:\n|\r(?!\n))(?:\r\n?|\n)")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
#: The frame that nearly every server sends: one name at most, one line of data. In two groups.
_USUAL_FRAME: Final = re.compile(rb"(?:event: ?([^\r\n]*)\n)?data: ?([^\r\n]*)\n\n")


class SseFrame(NamedTuple):
    """One event of a stream, or a comment between events. A tuple, since it is quick to make.

    raw:         its bytes, with the blank line that ends it (and blank lines before it).
    event:       its type; "" where it has none, which browsers call "message".
    data:        its data, lines joined by LF; b"" where it has none.
    is_readable: False for a frame, or a piece of one, that was too large to be held: its bytes pass unread.
    """

    raw: bytes
    event: str = ""
    data: bytes = b""
    is_readable: bool = True

    @classmethod
    def parse_frame(cls, raw: bytes) -> SseFrame:
        """Parse a frame's bytes, with or without the blank line that ends it."""
        if usual := _USUAL_FRAME.fullmatch(raw):
            named, told = usual.groups(b"")
            return cls(raw, named.decode("utf-8", "replace"), told)
        event = b""
        data = []
        for line in raw.removeprefix(_BYTE_ORDER_MARK).splitlines():
            name, _, value = line.partition(b":")
            if name == b"data":
                data.append(value.removeprefix(b" "))
            elif name == b"event":
                event = value.removeprefix(b" ")
        return cls(raw, event.decode("utf-8", "replace"), data[0] if len(data) == 1 else b"\n".join(data))


def format_event(data: bytes, event: str = "") -> bytes:
    """Return the bytes of one event; `event` is one line. Data of several lines becomes several fields."""
    named = f"event: {event}\n".encode() if event else b""
    return named + b"".join(b"data: %b\n" % line for line in data.split(b"\n")) + b"\n"


class FrameSplitter:
    """Splits a stream into frames.

    A frame is returned with the first byte that shows its end. Where that is a CR, an LF that comes later opens the
    next frame, as a blank line without meaning. limit: bytes of a frame; a larger one passes unread, piece by piece.
    """

    def __init__(self, limit: int = MAX_FRAME_BYTES) -> None:
        self._limit = limit
        self._held_bytes = bytearray()
        #: How many of the held bytes were given out: 0, or 1 behind a piece, whose last byte may be half an end.
        self._given_out = 0
        self._searched = 0

    def feed(self, chunk: bytes) -> list[SseFrame]:
        """Return the frames that this chunk completes, in order; also pieces of one that grew too large."""
        return [
            SseFrame.parse_frame(raw) if whole else SseFrame(raw, is_readable=False)
            for raw, whole in self.split_raw(chunk)
        ]

    def split_raw(self, chunk: bytes) -> list[tuple[bytes, bool]]:
        """Do the same without parsing, for callers that read few of them: (raw, readable)."""
        if not self._held_bytes and self._is_single_frame(chunk):
            return [(chunk, True)]
        self._held_bytes += chunk
        ends = [found.end() for found in _FRAME_END.finditer(self._held_bytes, self._searched)]
        frames = self._take_frames(ends) if ends else []
        if len(self._held_bytes) - self._given_out > self._limit:
            frames.append(self._take_oversized())
        self._searched = max(0, len(self._held_bytes) - 1)
        return frames

    def take_rest(self) -> bytes:
        """Return the bytes after the last frame, and hold nothing any more."""
        left = bytes(self._held_bytes[self._given_out :])
        self._held_bytes.clear()
        self._given_out = self._searched = 0
        return left

    def _is_single_frame(self, chunk: bytes) -> bool:
        """Return whether the chunk is exactly one frame, as most chunks are."""
        size = len(chunk)
        return 2 <= size <= self._limit and chunk.find(b"\n\n") == size - 2 and b"\r" not in chunk

    def _take_frames(self, ends: list[int]) -> list[tuple[bytes, bool]]:
        """Return the frames that end at these places."""
        text = bytes(self._held_bytes)
        frames = []
        start = self._given_out
        for end in ends:
            raw = text[start:end]
            frames.append((raw, not self._given_out and len(raw) <= self._limit))
            self._given_out = 0
            start = end
        del self._held_bytes[:start]
        return frames

    def _take_oversized(self) -> tuple[bytes, bool]:
        """Return what is held of a frame that is too large, and keep its last byte, to find the end."""
        raw = bytes(self._held_bytes[self._given_out :])
        del self._held_bytes[:-1]
        self._given_out = 1
        return raw, False
