"""An answer that comes as a stream of events: let through as it comes, held from the first recall call on.

A frame goes out as the very bytes that came, unless it must say something else than it did: that happens only behind a
frame that was left out, or in a later round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from elision.gateway.recalling.json_text import decoded, encoded
from elision.gateway.recalling.outcome import Json, Round
from elision.gateway.recalling.voice import Heard, Meter
from elision.gateway.sse import Frame, Splitter

#: A frame, and the JSON object it bears; None where it bears none.
Event = tuple[Frame, "Json | None"]


class Streamed(ABC):
    """One streamed answer, over all its rounds; an API says what its events mean."""

    #: Says nothing to a client, and may stand between any two frames.
    silence: ClassVar[bytes] = b": waiting\n\n"

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.meter = Meter()
        #: Whether what goes out is still what came in, frame by frame.
        self.as_it_came = True
        #: Whether this is the second round or a later one.
        self.later = False
        self.holding = False
        self.ended = False
        #: Events are read as they come.
        self.held = 0
        #: The upstream answer's own id.
        self.id = ""
        self._failed = False
        self._whole = True
        self._splitter = Splitter()
        self._held: list[Event] = []
        self._ending: list[Event] = []

    def begin(self, rounds: Sequence[Round]) -> None:
        self.later = bool(rounds)
        self.as_it_came = not rounds
        self.holding = self.ended = self._failed = False
        self._splitter = Splitter()
        self._held = []
        self._ending = []
        self._whole = True
        self.id = ""
        self.meter.begin()
        self.reset(rounds)

    def feed(self, chunk: bytes) -> bytes:
        return b"".join([self._taken(frame) for frame in self._splitter.feed(chunk)])

    def end(self) -> Heard:
        out = self._rest()
        if self._failed:
            return Heard(out=out, failed=True)
        if not self.ended:
            passed = self._whole and not self._held
            self._held.clear()
            return Heard(out=out, cut=True, passed=passed)
        return Heard(
            out=out, id=self.id, content=self.content(), truncated=self.truncated(), failed=self.failed_in_the_end()
        )

    def close(self, rounds: Sequence[Round], going_on: bool) -> bytes:
        held = self._held
        self._held = []
        self.holding = False
        return b"".join([self._parted(*event) if going_on else self._sent(*event) for event in held])

    def finish(self, rounds: Sequence[Round]) -> bytes:
        out = b""
        for frame, event in self._ending:
            if event is None:
                out += frame.raw
            else:
                out += self._sent(*bearing(frame, self.stopped(event)))
        return out

    def keep_alive(self) -> bytes:
        return self.silence

    # -- one frame ----------------------------------------------------------------------------------------------------

    def _taken(self, frame: Frame) -> bytes:
        event = decoded(frame.data)
        if event is not None and self.fails(event):
            self._held.clear()
            self.holding = False
            self._failed = True
        if self._failed:
            return frame.raw
        if event is not None:
            self.note(event)
        elif self.ends(frame):
            self.ended = True
        if not self.holding:
            if self._held:
                return self.close((), going_on=False) + self._sent(frame, event)
            return self._sent(frame, event)
        if (frame.readable and not frame.data) or (event is not None and self.passes(event)):
            return frame.raw
        self._held.append((frame, event))
        return b""

    def _sent(self, frame: Frame, event: Json | None) -> bytes:
        if event is None:
            return frame.raw
        sent = self.sent(event)
        if sent is None:
            self.as_it_came = False
            return b""
        if sent is event or sent == event:
            return frame.raw
        return with_data(frame, encoded(sent))

    def _parted(self, frame: Frame, event: Json | None) -> bytes:
        """What of a held frame goes out when another round follows; the rest is the ending, kept for `finish`."""
        if event is None:
            if self.ends(frame):
                return self._kept(frame)
            return frame.raw
        said, ending = self.parted(event)
        if ending is not None:
            self._ending.append((frame, event) if ending is event else bearing(frame, ending))
        if said is None:
            return b""
        if said is event:
            return self._sent(frame, event)
        return self._sent(*bearing(frame, said))

    def _kept(self, frame: Frame) -> bytes:
        self._ending.append((frame, None))
        return b""

    def _rest(self) -> bytes:
        """A frame that nothing ended: some servers stop without the last blank line."""
        rest = self._splitter.rest()
        frame = Frame.read(rest)
        as_it_is = not (self.holding or self.later)
        if decoded(frame.data) is None and not self.ends(frame):
            # Half a frame is nothing to a client; it goes out so that a broken stream is the same broken stream.
            as_it_is = as_it_is and not any(name.encode() in rest for name in self.names)
            self._whole = as_it_is or not rest
            if as_it_is:
                return rest
            return b""
        whole = Frame(rest.rstrip(b"\r\n") + b"\n\n", frame.event, frame.data)
        out = self._taken(frame if as_it_is else whole)
        if as_it_is and self._held:
            self._held[-1] = (whole, self._held[-1][1])
        return out

    # -- what an API says ---------------------------------------------------------------------------------------------

    @abstractmethod
    def reset(self, rounds: Sequence[Round]) -> None:
        """Another round begins, behind these."""

    @abstractmethod
    def note(self, event: Json) -> None:
        """Reads an event as it comes: gathers what is said, sets `holding`, `ended`, `id`, feeds the meter."""

    @abstractmethod
    def sent(self, event: Json) -> Json | None:
        """The event as the client gets it, renumbered; None to leave it out. Called in the order of going out."""

    @abstractmethod
    def parted(self, event: Json) -> tuple[Json | None, Json | None]:
        """An event, parted into what it says and what ends the answer; either may be None."""

    @abstractmethod
    def stopped(self, event: Json) -> Json:
        """An ending, of an answer that ends of itself instead of with a call."""

    @abstractmethod
    def content(self) -> object:
        """What was said in this round, as `Shape.round` takes it."""

    @abstractmethod
    def truncated(self) -> bool:
        """Whether the model was stopped in its midst."""

    def fails(self, event: Json) -> bool:
        """Whether it is the provider's error."""
        return event.get("type") == "error"

    def failed_in_the_end(self) -> bool:
        """Whether its ending says that the provider failed."""
        return False

    def passes(self, event: Json) -> bool:
        """Whether it goes out even while others are held."""
        return False

    def ends(self, frame: Frame) -> bool:
        """Whether a frame that bears no JSON object ends the answer."""
        return False


def with_data(frame: Frame, data: bytes) -> bytes:
    """The frame's bytes with other data; its other lines and its kind of line end stay."""
    if b"\r\n" in frame.raw:
        end = b"\r\n"
    elif b"\n" in frame.raw:
        end = b"\n"
    else:
        end = b"\r"
    lines = [line for line in frame.raw.splitlines() if line and line.partition(b":")[0] != b"data"]
    return end.join([*lines, b"data: " + data, b"", b""])


def bearing(frame: Frame, event: Json) -> tuple[Frame, Json]:
    """The frame with another event than it bore, and that event."""
    data = encoded(event)
    return Frame(with_data(frame, data), frame.event, data), event
