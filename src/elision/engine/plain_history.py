"""The prompts that an agent would send without us: what only a recall caused is in none of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from elision.providers.shared.json_reading import mapping_in, text_in
from elision.trajectory.recall_names import NESTED_TOOL_FIELDS, reads_handles
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Observation, Turn
from elision.trajectory.view import Segment, Track, View


class PlainHistory:
    """Follows the raw prompts of one log: work O(new segments), unless the client rewrote its history."""

    def __init__(self, sizer: Sizer) -> None:
        self._sizer = sizer
        self._raw = self._track = Track()
        #: Of how many segments of the raw track, in order, each segment of the plain one is the end.
        self._raw_ends: list[int] = []
        self._seen = 0
        #: Segments that hold a recall and more, without the recall: the same one each time, as the cache knows it.
        self._cut: dict[Segment, Segment] = {}

    def follow(self, raw: View, head: Head) -> View:
        """Return the newest raw prompt without what only recalls caused. head: of the client."""
        if raw.track is not self._raw:
            self._raw, self._track = raw.track, Track()
            self._raw_ends, self._seen = [], 0
        for place, segment in enumerate(raw.track.segments[self._seen : raw.length], start=self._seen + 1):
            kept = self._cut_recalls(segment, head)
            if kept is not None:
                self._track.append(kept)
                self._raw_ends.append(place)
        self._seen = raw.length
        marks = sorted({self._count_kept(mark) for mark in raw.marks} - {0})
        hour_length = self._count_kept(raw.hour_length)
        length = len(self._track.segments)
        return replace(raw, track=self._track, length=length, marks=tuple(marks), hour_length=hour_length)

    def _count_kept(self, length: int) -> int:
        """Return how many of the first `length` raw segments are kept."""
        return bisect_left(self._raw_ends, length + 1)

    def _cut_recalls(self, segment: Segment, head: Head) -> Segment | None:
        """Return the segment without recalls: itself if it has none, None if it is nothing else."""
        source = segment.source
        if isinstance(source, Observation):
            return None if reads_handles(source.tool) else segment
        if isinstance(source, Turn):
            if has_only_recalls(source):
                return None
            plain = _drop_recalls(source)
            if plain is source:
                return segment
            tokens = self._sizer.count_assistant(plain)
            return self._cut.setdefault(segment, replace(segment, source=plain, tokens=tokens))
        if segment.kind == "tools":
            tools = tuple(_drop_recall_tools(head.tools))
            if tools == head.tools:
                return segment
            tokens = self._sizer.count_tools(Head(tools=tools))
            return self._cut.setdefault(segment, replace(segment, tokens=tokens)) if tools else None
        return segment


def has_only_recalls(turn: Turn) -> bool:
    """Return whether a turn does nothing but recall: without us there would be no such turn."""
    return bool(turn.actions) and all(reads_handles(action.name) for action in turn.actions)


def count_plain_answer(turn: Turn, output: int, sizer: Sizer) -> int:
    """Return how many of the `output` tokens of a turn's answer there would be without its recalls."""
    plain = _drop_recalls(turn)
    if plain is turn:
        return output
    if not plain.actions:
        return 0
    return round(output * sizer.count_assistant(plain) / sizer.count_assistant(turn))


def _drop_recalls(turn: Turn) -> Turn:
    actions = tuple(action for action in turn.actions if not reads_handles(action.name))
    if len(actions) == len(turn.actions):
        return turn
    return replace(turn, actions=actions, observations=())


def _drop_recall_tools(tools: Sequence[Any]) -> Iterator[Any]:
    """Yield the tools but for those that recall. A tool of Gemini's declares several functions."""
    for tool in tools:
        # What is no definition is the client's own matter.
        definition = mapping_in(tool)
        if reads_handles(
            text_in(definition.get("name")) or text_in(mapping_in(definition.get("function")).get("name"))
        ):
            continue
        nested = {name: each for name in NESTED_TOOL_FIELDS if isinstance(each := definition.get(name), list | tuple)}
        plain = {name: list(_drop_recall_tools(each)) for name, each in nested.items()}
        if all(len(plain[name]) == len(each) for name, each in nested.items()):
            yield tool
        elif any(plain.values()):
            yield {**definition, **plain}
