"""Make the segments of a view: of a head, a turn, the user's words, a summary, and of what is hidden."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from elision.trajectory.plan import Edit, EditKind, Key, Summary
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Observation, Turn
from elision.trajectory.view import Segment, SegmentKind

#: What a segment is that shows an edit.
_KINDS: Final[Mapping[EditKind, SegmentKind]] = {"mask": "placeholder", "clip": "clipped", "fold": "folded"}


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


def make_summary_segments(summary: Summary, turns: Sequence[Turn], sizer: Sizer, *, after: int = 0) -> list[Segment]:
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
