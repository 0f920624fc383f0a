"""An answer that comes as a stream of events: let through as it comes, held from the first recall call on.

A frame goes out as the very bytes that came, unless it must say something else than it did: that happens only behind a
frame that was left out, or in a later round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from elision.gateway.recalling.json_values import dump_json, load_object
from elision.gateway.recalling.response_writer import RoundEnd, UsageSum
from elision.gateway.recalling.rounds import AnswerRound, Json
from elision.gateway.sse import FrameSplitter, SseFrame

#: A frame, and the JSON object it bears; None where it bears none.
HeldFrame = tuple[SseFrame, "Json | None"]


class StreamedResponse(ABC):
    """One streamed answer, over all its rounds; an API says what its events mean."""

    #: Says nothing to a client, and may stand between any two frames.
    keep_alive_bytes: ClassVar[bytes] = b": waiting\n\n"

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.usage = UsageSum()
        #: Whether what goes out is still what came in, frame by frame.
        self.is_unchanged = True
        #: Whether this is the second round or a later one.
        self.is_later_round = False
        self.is_holding = False
        self.has_ended = False
        #: Events are read as they come.
        self.held_bytes = 0
        #: The upstream answer's own id.
        self.response_id = ""
        self._has_failed = False
        self._is_complete = True
        self._splitter = FrameSplitter()
        self._held_frames: list[HeldFrame] = []
        self._ending_frames: list[HeldFrame] = []

    def begin_round(self, rounds: Sequence[AnswerRound]) -> None:
        self.is_later_round = bool(rounds)
        self.is_unchanged = not rounds
        self.is_holding = self.has_ended = self._has_failed = False
        self._splitter = FrameSplitter()
        self._held_frames = []
        self._ending_frames = []
        self._is_complete = True
        self.response_id = ""
        self.usage.begin_round()
        self.reset_round(rounds)

    def feed(self, chunk: bytes) -> bytes:
        return b"".join([self._take_frame(frame) for frame in self._splitter.feed(chunk)])

    def end_round(self) -> RoundEnd:
        out = self._flush_rest()
        if self._has_failed:
            return RoundEnd(output=out, has_failed=True)
        if not self.has_ended:
            passed = self._is_complete and not self._held_frames
            self._held_frames.clear()
            return RoundEnd(output=out, is_cut=True, nothing_held=passed)
        return RoundEnd(
            output=out,
            id=self.response_id,
            content=self.collect_content(),
            is_truncated=self.is_truncated(),
            has_failed=self.has_failed_ending(),
        )

    def release_held(self, rounds: Sequence[AnswerRound], another_follows: bool) -> bytes:
        held = self._held_frames
        self._held_frames = []
        self.is_holding = False
        return b"".join(
            [self._write_without_ending(*event) if another_follows else self._write_frame(*event) for event in held]
        )

    def write_ending(self, rounds: Sequence[AnswerRound]) -> bytes:
        out = b""
        for frame, event in self._ending_frames:
            if event is None:
                out += frame.raw
            else:
                out += self._write_frame(*replace_event(frame, self.mark_stopped(event)))
        return out

    def keep_alive(self) -> bytes:
        return self.keep_alive_bytes

    # -- one frame ----------------------------------------------------------------------------------------------------

    def _take_frame(self, frame: SseFrame) -> bytes:
        event = load_object(frame.data)
        if event is not None and self.is_error(event):
            self._held_frames.clear()
            self.is_holding = False
            self._has_failed = True
        if self._has_failed:
            return frame.raw
        if event is not None:
            self.read_event(event)
        elif self.is_end_frame(frame):
            self.has_ended = True
        if not self.is_holding:
            if self._held_frames:
                return self.release_held((), another_follows=False) + self._write_frame(frame, event)
            return self._write_frame(frame, event)
        if (frame.is_readable and not frame.data) or (event is not None and self.may_pass_held(event)):
            return frame.raw
        self._held_frames.append((frame, event))
        return b""

    def _write_frame(self, frame: SseFrame, event: Json | None) -> bytes:
        if event is None:
            return frame.raw
        sent = self.rewrite_event(event)
        if sent is None:
            self.is_unchanged = False
            return b""
        if sent is event or sent == event:
            return frame.raw
        return replace_data(frame, dump_json(sent))

    def _write_without_ending(self, frame: SseFrame, event: Json | None) -> bytes:
        """What of a held frame goes out when another round follows; the rest is the ending, kept for `write_ending`."""
        if event is None:
            if self.is_end_frame(frame):
                return self._keep_ending(frame)
            return frame.raw
        said, ending = self.split_event(event)
        if ending is not None:
            self._ending_frames.append((frame, event) if ending is event else replace_event(frame, ending))
        if said is None:
            return b""
        if said is event:
            return self._write_frame(frame, event)
        return self._write_frame(*replace_event(frame, said))

    def _keep_ending(self, frame: SseFrame) -> bytes:
        self._ending_frames.append((frame, None))
        return b""

    def _flush_rest(self) -> bytes:
        """A frame that nothing ended: some servers stop without the last blank line."""
        rest = self._splitter.take_rest()
        frame = SseFrame.parse_frame(rest)
        as_it_is = not (self.is_holding or self.is_later_round)
        if load_object(frame.data) is None and not self.is_end_frame(frame):
            # Half a frame is nothing to a client; it goes out so that a broken stream is the same broken stream.
            as_it_is = as_it_is and not any(name.encode() in rest for name in self.names)
            self._is_complete = as_it_is or not rest
            if as_it_is:
                return rest
            return b""
        whole = SseFrame(rest.rstrip(b"\r\n") + b"\n\n", frame.event, frame.data)
        out = self._take_frame(frame if as_it_is else whole)
        if as_it_is and self._held_frames:
            self._held_frames[-1] = (whole, self._held_frames[-1][1])
        return out

    # -- what an API says ---------------------------------------------------------------------------------------------

    @abstractmethod
    def reset_round(self, rounds: Sequence[AnswerRound]) -> None:
        """Another round begins, behind these."""

    @abstractmethod
    def read_event(self, event: Json) -> None:
        """Read an upstream event: gather its content, set `is_holding`, `has_ended`, `response_id`, add its usage."""

    @abstractmethod
    def rewrite_event(self, event: Json) -> Json | None:
        """The event as the client gets it, renumbered; None to leave it out. Called in the order of going out."""

    @abstractmethod
    def split_event(self, event: Json) -> tuple[Json | None, Json | None]:
        """An event, parted into what it says and what ends the answer; either may be None."""

    @abstractmethod
    def mark_stopped(self, event: Json) -> Json:
        """An ending, of an answer that ends of itself instead of with a call."""

    @abstractmethod
    def collect_content(self) -> object:
        """What was said in this round, as `Shape.round` takes it."""

    @abstractmethod
    def is_truncated(self) -> bool:
        """Whether the model was stopped in its midst."""

    def is_error(self, event: Json) -> bool:
        """Whether it is the provider's error."""
        return event.get("type") == "error"

    def has_failed_ending(self) -> bool:
        """Whether its ending says that the provider failed."""
        return False

    def may_pass_held(self, event: Json) -> bool:
        """Whether it goes out even while others are held."""
        return False

    def is_end_frame(self, frame: SseFrame) -> bool:
        """Whether a frame that bears no JSON object ends the answer."""
        return False


def replace_data(frame: SseFrame, data: bytes) -> bytes:
    """The frame's bytes with other data; its other lines and its kind of line end stay."""
    if b"\r\n" in frame.raw:
        end = b"\r\n"
    elif b"\n" in frame.raw:
        end = b"\n"
    else:
        end = b"\r"
    lines = [line for line in frame.raw.splitlines() if line and line.partition(b":")[0] != b"data"]
    return end.join([*lines, b"data: " + data, b"", b""])


def replace_event(frame: SseFrame, event: Json) -> tuple[SseFrame, Json]:
    """The frame with another event than it bore, and that event."""
    data = dump_json(event)
    return SseFrame(replace_data(frame, data), frame.event, data), event
