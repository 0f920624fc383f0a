"""The state of a session: a fold over its events, and the view that follows from it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from elision.trajectory.events import Amended, Called, Decided, Event, HeadSet, Opened, TurnAdded
from elision.trajectory.plan import Key, Summary
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Message, Observation, Turn
from elision.trajectory.view import Segment, Track, View


class State:
    """Everything that was added and decided so far.

    `fold` changes it in place and costs what the event brings; a rewrite costs what stands behind it. Read its
    attributes freely, change it through `fold` alone.
    """

    def __init__(self, sizer: Sizer) -> None:
        self.sizer = sizer
        self.head = Head()
        self.turns: list[Turn] = []
        self.hidden: dict[Key, str] = {}
        self.summary: Summary | None = None
        self.calls = 0
        self.epoch = 1
        self.track = Track()
        self.raw = Track()
        self.raw_places: list[int] = []
        self.raw_last = 0
        self.head_length = 0
        #: The recall tools that we put into requests, from the pass on that says so.
        self.recall: tuple[Mapping[str, Any], ...] = ()
        self.offered = False
        self.offer = ""
        self.task_tokens = 0
        self.last: View | None = None
        self.places: dict[Key, int] = {}
        self.turn_places: dict[int, int] = {}
        # Segments of the last request: rewriting one of them begins an epoch. From the events, not from `last`: a
        # state rebuilt from a log has seen the calls, but was never asked for a view.
        self._sent = 0
        # Segments that the last view shared with the one before it.
        self._shared = 0
        # Whether this client takes back words that stood behind its newest turn.
        self._reworded = False

    @property
    def covered(self) -> int:
        """The newest turn that the live summary covers; 0 if there is none."""
        if self.summary:
            return self.summary.covers
        return 0

    def observation(self, key: Key) -> Observation:
        return self.turns[key[0] - 1].observations[key[1] - 1]

    def segment(self, key: Key) -> Segment:
        """The segment that stands for observation `key` now; KeyError if a summary covers it."""
        return self.track.segments[self.places[key]]

    def fold(self, event: Event) -> State:
        match event:
            case Opened() if not self.offer:
                # Once for all: a later one is about something else.
                self.offer = event.offer
                self.recall = event.tools
            case HeadSet():
                self._set_head(event.head)
            case TurnAdded():
                self._add(event.turn)
            case Amended():
                self._amend(event.turn)
            case Decided():
                self._decide(event)
            case Called():
                self.calls = event.call
                self._sent = len(self.track.segments)
                self.raw_last = len(self.raw.segments)
        return self

    def fold_all(self, events: Iterable[Event]) -> State:
        for event in events:
            self.fold(event)
        return self

    def view(self, frontier: int | None = None) -> View:
        """The view of the next call.

        frontier: segment count in front of what a later pass may rewrite; a cache breakpoint is put there.
        """
        self._shared = self._shared_segments()
        marks = {self.head_length, self._shared, len(self.track.segments)}
        if frontier is not None and frontier >= self.head_length:
            marks.add(frontier)
        self.last = View(
            call=len(self.turns) + 1,
            epoch=self.epoch,
            track=self.track,
            length=len(self.track.segments),
            marks=tuple(sorted(mark for mark in marks if mark))[-4:],
        )
        return self.last

    def _shared_segments(self) -> int:
        """Leading segments that the view before has too. A call that is made again shares what it shared the first
        time, so that its breakpoints stand where they stood."""
        last = self.last
        if self._reworded:
            return self._standing()
        if last is None or last.track is not self.track:
            return self._rewritten(last)
        if last.length < len(self.track.segments):
            return last.length
        return self._shared

    @property
    def sent(self) -> int:
        """Leading segments that stand as the last view had them; 0 if there was none."""
        if self.last is None:
            return 0
        # They differ where the head or the newest turn changed between two passes.
        if self.last.track is self.track:
            return self.last.length
        return self._rewritten(self.last)

    def raw_view(self) -> View:
        """What would be sent if nothing were ever hidden."""
        length = len(self.raw.segments)
        last = self.raw_last
        if self._reworded and self.turns:
            last = self.raw_places[-1] + 1 + len(self.turns[-1].observations)
        marks = tuple(sorted({mark for mark in (self.head_length - self.offered, last, length) if mark}))
        return View(call=len(self.turns) + 1, epoch=1, track=self.raw, length=length, marks=marks)

    def raw_start(self, turn: int) -> int:
        """Raw tokens in front of turn `turn`; of everything if it is not there yet."""
        if turn <= len(self.turns):
            return self.raw.start(self.raw_places[turn - 1])
        return self.raw.tokens

    def _standing(self) -> int:
        """Segments in front of the words behind the newest turn: what stays where a client takes such words back."""
        if not self.turns or len(self.turns) not in self.turn_places:
            return self.head_length
        return self.turn_places[len(self.turns)] + 1 + len(self.turns[-1].observations)

    def _rewritten(self, last: View | None) -> int:
        return View(call=0, epoch=0, track=self.track, length=len(self.track.segments)).common(last)

    def _set_head(self, head: Head) -> None:
        segments = list(self._head_segments(head))
        behind = self.head_length - self.offered
        length = len(segments)
        self.head = head
        self.head_length = length + self.offered
        self.task_tokens = sum(each.tokens for each in segments if _is_task(each))
        if not self.track.segments:
            for segment in segments:
                self._append(segment)
            return
        # A head that changed stands in front of everything: a new epoch, and the raw bill pays for it as well.
        raw = Track()
        for segment in [*segments, *self.raw.segments[behind:]]:
            raw.append(segment)
        self.raw = raw
        self.raw_last = 0
        self.raw_places = [place + length - behind for place in self.raw_places]
        if self.offered:
            ours = self._with_recall(segments)
        else:
            ours = segments
        self._rebuild(0, [*ours, *self.track.segments[behind + self.offered :]])

    def _offer(self) -> None:
        """The recall tools enter: behind the client's own, in front of all that is said, so that all of it is new."""
        segments = list(self._head_segments(self.head))
        self._rebuild(0, [*self._with_recall(segments), *self.track.segments[self.head_length :]])
        self.offered = True
        self.head_length += 1

    def _with_recall(self, segments: list[Segment]) -> list[Segment]:
        """The head's segments with the recall tools in their place."""
        text = json.dumps(list(self.recall), ensure_ascii=False, default=dict)
        place = sum(segment.kind in ("hidden", "tools") for segment in segments)
        return [*segments[:place], Segment(kind="recall", tokens=self.recall_tokens, text=text), *segments[place:]]

    @property
    def recall_tokens(self) -> int:
        """What the recall tools take up in every request that holds them."""
        return self.sizer.tools(Head(tools=self.recall))

    def _head_segments(self, head: Head) -> Iterator[Segment]:
        if head.hidden_tokens:
            yield Segment(kind="hidden", tokens=head.hidden_tokens)
        if head.tools:
            yield Segment(kind="tools", tokens=self.sizer.tools(head))
        for position, message in enumerate(head.messages, start=1):
            yield Segment(kind="head", tokens=self.sizer.message(message), index=position, source=message)

    def _add(self, turn: Turn) -> None:
        if turn.index != len(self.turns) + 1:
            raise ValueError(f"turn {turn.index} was added where turn {len(self.turns) + 1} belongs")
        self.turns.append(turn)
        self.turn_places[turn.index] = len(self.track.segments)
        self.raw_places.append(len(self.raw.segments))
        self._append(Segment(kind="assistant", tokens=self.sizer.assistant(turn), turn=turn.index, source=turn))
        for position, observation in enumerate(turn.observations, start=1):
            self.places[turn.index, position] = len(self.track.segments)
            tokens = self.sizer.observation(observation)
            self._append(
                Segment(kind="observation", tokens=tokens, turn=turn.index, index=position, source=observation)
            )
        self._add_words(turn)

    def _amend(self, turn: Turn) -> None:
        """The newest turn again: what stood for it goes, also where it was sent already."""
        if not self.turns or turn.index != self.turns[-1].index:
            raise ValueError(f"turn {turn.index} was amended, but only the newest may be ({len(self.turns)})")
        if self.turns[-1].reworded(turn):
            self._reword(turn)
            return
        place = self.turn_places[turn.index]
        raw = self.raw_places.pop()
        self.turns.pop()
        self.hidden = {key: text for key, text in self.hidden.items() if key[0] < turn.index}
        self.raw = self.raw.fork(raw)
        self.raw_last = min(self.raw_last, raw)
        self._rebuild(place, [])
        self.places = {key: at for key, at in self.places.items() if key[0] < turn.index}
        self._add(turn)

    def _reword(self, turn: Turn) -> None:
        """The newest turn with other words of the user behind it; what was hidden of it stays hidden."""
        behind = 1 + len(turn.observations)
        self.turns[-1], self._reworded = turn, True
        self.raw = self.raw.fork(self.raw_places[-1] + behind)
        self.raw_last = min(self.raw_last, len(self.raw.segments))
        place = self.turn_places[turn.index] + behind
        # The client's own doing is no rewrite of ours.
        self._sent = min(self._sent, place)
        self._rebuild(place, [])
        self._add_words(turn)

    def _add_words(self, turn: Turn) -> None:
        for position, message in enumerate(turn.interjections, start=1):
            tokens = self.sizer.message(message)
            self._append(Segment(kind="interjection", tokens=tokens, turn=turn.index, index=position, source=message))

    def _append(self, segment: Segment) -> None:
        self.track.append(segment)
        self.raw.append(segment)

    def _decide(self, event: Decided) -> None:
        if event.offers:
            self._offer()
        edits = {mask.key: ("placeholder", mask.text) for mask in event.masks}
        edits |= {clip.key: ("clipped", clip.text) for clip in event.clips}
        if not edits and event.summary is None:
            return
        self.hidden.update((key, text) for key, (_, text) in edits.items())
        first = min((self.places[key] for key in edits), default=len(self.track.segments))
        behind = first
        opening: list[Segment] = []
        if event.summary is not None:
            first, behind, opening = self._open_with(event.summary)
        rest = [self._edited(segment, edits) for segment in self.track.segments[behind:]]
        self._rebuild(first, opening + rest)

    def _edited(self, segment: Segment, edits: dict[Key, tuple[str, str]]) -> Segment:
        if segment.kind not in ("observation", "clipped"):
            return segment
        kind, text = edits.get((segment.turn, segment.index), ("", ""))
        if not kind:
            return segment
        return replace(segment, kind=kind, text=text, tokens=self.sizer.text(text))  # type: ignore[arg-type]

    def _open_with(self, summary: Summary) -> tuple[int, int, list[Segment]]:
        """Where a summary is put, where the uncovered turns begin, and the segments that it stands for."""
        self.summary = summary
        self.hidden = {key: text for key, text in self.hidden.items() if key[0] > summary.covers}
        opening = [Segment(kind="summary", tokens=self.sizer.text(summary.block), text=summary.block)]
        for index in summary.interjections:
            for position, message in enumerate(self.turns[index - 1].interjections, start=1):
                tokens = self.sizer.message(message)
                opening.append(Segment(kind="interjection", tokens=tokens, turn=index, index=position, source=message))
        return self.head_length, self.turn_places.get(summary.covers + 1, len(self.track.segments)), opening

    def _rebuild(self, first: int, segments: list[Segment]) -> None:
        if first < self._sent:
            self.epoch += 1
            self._sent = 0
        self.track = self.track.fork(first)
        for segment in segments:
            self.track.append(segment)
        self._index(first)

    def _index(self, first: int) -> None:
        """Look-up tables for the segments from `first` on; those of covered turns are dropped."""
        covered = self.covered
        self.places = {key: place for key, place in self.places.items() if key[0] > covered}
        self.turn_places = {turn: place for turn, place in self.turn_places.items() if turn > covered}
        for place in range(first, len(self.track.segments)):
            segment = self.track.segments[place]
            if segment.turn <= covered:
                continue
            if segment.kind in ("observation", "placeholder", "clipped"):
                self.places[segment.turn, segment.index] = place
            elif segment.kind == "assistant":
                self.turn_places[segment.turn] = place


def _is_task(segment: Segment) -> bool:
    return isinstance(segment.source, Message) and segment.source.role == "user"
