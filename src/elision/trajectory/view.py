"""What is sent at one call: an ordered run of segments, each a message or one of its atoms; and how segments are made.

A view grows by appending until something earlier is rewritten; then a new track begins, which shares the segments
before the rewrite with the old one. So a view costs what is new, and the common prefix of two views is found by looking
at object identity.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from elision.trajectory.plan import Edit, EditKind, Key, Summary
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Message, Observation, Turn

SegmentKind: TypeAlias = Literal[
    "hidden",
    "head",
    "tools",
    "recall",
    "summary",
    "interjection",
    "assistant",
    "observation",
    "folded",
    "placeholder",
    "clipped",
]


#: What a segment is that shows an edit.
_KINDS: Final[Mapping[EditKind, SegmentKind]] = {"mask": "placeholder", "clip": "clipped", "fold": "folded"}


class Segment(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The smallest thing that is rewritten as a whole: a message, or one result of several.

    kind:   hidden is the unrecorded part of a head: counted, never rendered. recall: the recall tools, where we put
            them in.
    tokens: as billed, frame included.
    turn:   the turn it belongs to, 0 for head and summary.
    index:  1-based position among the turn's observations or interjections, 0 otherwise.
    source: what it was made from.
    text:   the exact text of a fold, placeholder, clip or summary block; "" where the source speaks for itself.
    """

    kind: SegmentKind
    tokens: int
    turn: int = 0
    index: int = 0
    source: Turn | Message | Observation | None = None
    text: str = ""


class Track:
    """The segments of one epoch, append-only, with the tokens up to and including each."""

    __slots__ = ("ends", "segments")

    def __init__(self, segments: list[Segment] | None = None, ends: list[int] | None = None) -> None:
        self.segments: list[Segment] = segments if segments is not None else []
        self.ends: list[int] = ends if ends is not None else []

    def append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.ends.append(self.tokens + segment.tokens)

    @property
    def tokens(self) -> int:
        if self.ends:
            return self.ends[-1]
        return 0

    def count_tokens_before(self, place: int) -> int:
        """Return the tokens before segment `place`."""
        if place:
            return self.ends[place - 1]
        return 0

    def cut(self, place: int) -> None:
        """Drop the segments from `place` on. No view of the track may show them."""
        del self.segments[place:], self.ends[place:]

    def fork(self, place: int) -> Track:
        """A new track that shares the segments before `place`."""
        return Track(self.segments[:place], self.ends[:place])


class View(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The context of call `call`.

    epoch: 1, 2, ...; marks: segment counts after which there is a cache breakpoint, ascending, at most 4.
    hour_length: leading segments whose cache entries live an hour, by the breakpoints that cover them.
    """

    call: int
    epoch: int
    track: Track
    length: int
    marks: tuple[int, ...] = ()
    hour_length: int = 0

    @property
    def segments(self) -> list[Segment]:
        return self.track.segments[: self.length]

    @property
    def tokens(self) -> int:
        return self.track.count_tokens_before(self.length)

    @property
    def hour_tokens(self) -> int:
        """Leading tokens whose cache entries live an hour."""
        return self.track.count_tokens_before(min(self.hour_length, self.length))

    def count_common(self, other: View | None) -> int:
        """How many leading segments both views share."""
        if other is None:
            return 0
        shortest = min(self.length, other.length)
        if self.track is other.track:
            return shortest
        pairs = zip(self.track.segments[:shortest], other.track.segments, strict=False)
        # Only at a rewrite are two tracks compared, so this scan is paid once an epoch.
        return next((place for place, (ours, theirs) in enumerate(pairs) if ours is not theirs), shortest)

    def find_message_end(self, place: int) -> int:
        """Return how many of the first `place` segments end with the newest message that the model answers.

        That is the client's: results, the user's words, a summary. The head always ends with such a message.
        """
        segments = self.track.segments
        while place and segments[place - 1].turn:
            is_answered = place == self.length or segments[place].kind == "assistant"
            if is_answered and segments[place - 1].kind != "assistant":
                break
            place -= 1
        return place

    def count_endings(self, place: int, most: int) -> int:
        """Return how many of the client's messages end after the first `place` segments, up to `most` + 1.

        Results of one turn are one message.
        """
        segments = self.track.segments
        found = 0
        for at in range(self.length, place, -1):
            if segments[at - 1].kind == "assistant":
                continue
            is_last = at == self.length or segments[at].kind in ("assistant", "interjection", "head")
            found += is_last
            if found > most:
                break
        return found

    def find_place(self, tokens: int) -> int:
        """How many whole segments fit into the first `tokens` tokens."""
        return bisect_right(self.track.ends, tokens, 0, self.length)


def make_head_segments(head: Head, sizer: Sizer) -> list[Segment]:
    """Return the segments of the client's head, without the recall tools."""
    segments = []
    if head.hidden_tokens:
        segments.append(Segment(kind="hidden", tokens=head.hidden_tokens))
    if head.tools:
        segments.append(Segment(kind="tools", tokens=sizer.count_tools(head)))
    for position, message in enumerate(head.messages, start=1):
        segments.append(Segment(kind="head", tokens=sizer.count_message(message), index=position, source=message))
    return segments


def insert_recall_tools(segments: list[Segment], tools: Sequence[Mapping[str, Any]], sizer: Sizer) -> list[Segment]:
    """Return the segments of a head with those of the recall tools after the client's own."""
    text = json.dumps(list(tools), ensure_ascii=False, default=dict)
    tokens = sizer.count_tools(Head(tools=tuple(tools)))
    place = sum(segment.kind in ("hidden", "tools") for segment in segments)
    return [*segments[:place], Segment(kind="recall", tokens=tokens, text=text), *segments[place:]]


def make_turn_segments(turn: Turn, sizer: Sizer) -> Iterator[Segment]:
    """Yield the segments of a turn: the assistant's message, the observations, the user's words."""
    yield Segment(kind="assistant", tokens=sizer.count_assistant(turn), turn=turn.index, source=turn)
    for position, observation in enumerate(turn.observations, start=1):
        tokens = sizer.count_observation(observation)
        yield Segment(kind="observation", tokens=tokens, turn=turn.index, index=position, source=observation)
    if turn.interjections:
        yield from make_word_segments(turn, sizer)


def make_word_segments(turn: Turn, sizer: Sizer) -> Iterator[Segment]:
    """Yield the segments of the user's words after a turn."""
    for position, message in enumerate(turn.interjections, start=1):
        tokens = sizer.count_message(message)
        yield Segment(kind="interjection", tokens=tokens, turn=turn.index, index=position, source=message)


def make_summary_segments(summary: Summary, turns: Sequence[Turn], sizer: Sizer, *, after: int) -> list[Segment]:
    """Return the segments that replace the turns that `summary` covers: its block, and the user's words that stay.

    after: the newest turn that the client no longer sends; its words and those before are left out.
    """
    segments = [Segment(kind="summary", tokens=sizer.count_text(summary.block), text=summary.block)]
    for index in summary.interjections:
        if index > after:
            segments.extend(make_word_segments(turns[index - 1], sizer))
    return segments


def edit_segment(segment: Segment, edits: Mapping[Key, Edit], sizer: Sizer) -> Segment:
    """Return the segment as it is shown after `edits`."""
    key = (segment.turn, segment.index)
    if segment.kind not in ("observation", "folded", "clipped") or key not in edits:
        return segment
    edit = edits[key]
    if edit.kind != "whole":
        return replace(segment, kind=_KINDS[edit.kind], text=edit.text, tokens=sizer.count_text(edit.text))
    assert isinstance(segment.source, Observation)
    return replace(segment, kind="observation", text="", tokens=sizer.count_observation(segment.source))
