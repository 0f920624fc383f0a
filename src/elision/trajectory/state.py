"""The state of a session: a fold over its events, and the view that follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from elision.trajectory.events import (
    Deferral,
    Event,
    HeadSet,
    PassDecided,
    RequestSent,
    SessionOpened,
    TurnAdded,
    TurnAmended,
    TurnsDropped,
)
from elision.trajectory.plan import Edit, EditKind, Key, Summary
from elision.trajectory.run_roles import SaidRole
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Message, Observation, Turn
from elision.trajectory.view import (
    Segment,
    Track,
    View,
    edit_segment,
    insert_recall_tools,
    make_head_segments,
    make_summary_segments,
    make_turn_segments,
    make_word_segments,
)


class State:
    """Everything that was added and decided so far.

    `fold_event` changes it in place and costs what the event brings; a rewrite costs what follows it. Read its
    attributes freely, change it through `fold_event` alone.
    """

    def __init__(self, sizer: Sizer) -> None:
        self.sizer = sizer
        self.head = Head()
        self.turns: list[Turn] = []
        #: How observations of the view are shown that are not shown whole. Each source of a fold is.
        self.edits: dict[Key, Edit] = {}
        self.edit_counts: Counter[EditKind] = Counter()
        #: Tokens that folding takes off the view.
        self.folded_tokens = 0
        self._fold_savings: dict[Key, int] = {}
        #: How observations that thinking is bound to were first sent, where that was not whole.
        self.fixed: dict[Key, Edit] = {}
        self.summary: Summary | None = None
        #: The newest turn that the client no longer sends.
        self.dropped_turns = 0
        #: What the client sends in place of the turns that it dropped: the last segment of the head.
        self.stand_in: Segment | None = None
        self.calls = 0
        self.epoch = 1
        self.track = Track()
        self.raw_track = Track()
        self.raw_turn_places: list[int] = []
        self.raw_last_length = 0
        self.head_length = 0
        #: The recall tools that we put into requests, from the pass on that says so.
        self.recall_tools: tuple[Mapping[str, Any], ...] = ()
        self.has_recall_tools = False
        self.recall_offer = ""
        self.deferral = Deferral()
        #: Whether requests are sent unchanged, whatever is decided.
        self.shadow = False
        #: Of the agent, as its client said it first.
        self.role: SaidRole = ""
        self.task_tokens = 0
        self.last_view: View | None = None
        self.observation_places: dict[Key, int] = {}
        self.turn_places: dict[int, int] = {}
        # Segments of the last request: rewriting one of them begins an epoch. From the events, not from `last`: a
        # state rebuilt from a log has seen the calls, but made no view.
        self._sent_length = 0
        # Segments that the last view shared with the one before it.
        self._shared_length = 0
        # Whether this client removes words that followed its newest turn.
        self._takes_words_back = False

    @property
    def covered_turns(self) -> int:
        """The newest turn that the live summary covers, or that the client dropped; 0 if there is none."""
        if self.summary:
            return max(self.summary.covers, self.dropped_turns)
        return self.dropped_turns

    @property
    def _own_head_length(self) -> int:
        """Segments of the head without what stands for dropped turns."""
        return self.head_length - (self.stand_in is not None)

    @property
    def is_edited(self) -> bool:
        """Whether requests differ from the client's."""
        return bool(self.edits or self.covered_turns or self.has_recall_tools)

    def find_fold(self, key: Key) -> Edit | None:
        """Return how observation `key` is folded; None if it is not."""
        edit = self.edits.get(key)
        return edit if edit is not None and edit.kind == "fold" else None

    def find_hiding_text(self, key: Key) -> str | None:
        """Return what hides observation `key`: its placeholder, or what it was cut to; None if it is not hidden."""
        edit = self.edits.get(key)
        return edit.text if edit is not None and edit.kind != "fold" else None

    @property
    def hidden(self) -> dict[Key, str]:
        """What hides observations of the view; work O(edits)."""
        return {key: edit.text for key, edit in self.edits.items() if edit.kind != "fold"}

    @property
    def folded(self) -> dict[Key, Edit]:
        """The folds of the view; work O(edits)."""
        return {key: edit for key, edit in self.edits.items() if edit.kind == "fold"}

    def list_fixed_keys(self, turn: int) -> set[Key]:
        """Return the observations of `turn` that views hide, fold, or have as a source of folded lines."""
        edits = [edit for key, edit in self.edits.items() if key[0] == turn]
        sources = {run.source for edit in edits for run in edit.runs if run.source[0] == turn}
        return sources.union(edit.key for edit in edits)

    def list_fixed_folds(self) -> list[Edit]:
        """Return the folds that observations had as they were first sent, where thinking is bound to them."""
        return [edit for edit in self.fixed.values() if edit.kind == "fold"]

    def find_observation(self, key: Key) -> Observation:
        return self.turns[key[0] - 1].observations[key[1] - 1]

    def count_own_tokens(self, key: Key) -> int:
        """Return the tokens of observation `key` if nothing of it is folded."""
        return self.sizer.count_observation(self.find_observation(key))

    def find_segment(self, key: Key) -> Segment:
        """Return the segment that shows observation `key` now. Raises KeyError if a summary covers it."""
        return self.track.segments[self.observation_places[key]]

    def fold_event(self, event: Event) -> State:
        match event:
            case SessionOpened():
                self.shadow = event.shadow
                self.role = self.role or event.role
                if not self.recall_offer:
                    # Once for all: a later one is about something else.
                    self.recall_offer = event.offer
                    self.recall_tools = event.tools
                    self.deferral = event.deferral
            case HeadSet():
                self._set_head(event.head)
            case TurnAdded():
                self._add_turn(event.turn)
            case TurnAmended():
                self._amend_turn(event.turn)
            case TurnsDropped():
                self._drop_turns(event)
            case PassDecided():
                self._apply_decision(event)
            case RequestSent():
                self.calls = event.call
                self._sent_length = len(self.track.segments)
                self.raw_last_length = len(self.raw_track.segments)
        return self

    def fold_events(self, events: Iterable[Event]) -> State:
        for event in events:
            self.fold_event(event)
        return self

    def make_view(self, frontier: int | None = None) -> View:
        """Return the view of the next call.

        frontier: segments before those that a later pass may rewrite; a cache breakpoint is put there.
        """
        self._shared_length = self._count_shared_segments()
        marks = {self.head_length, self._shared_length, len(self.track.segments)}
        if frontier is not None and frontier >= self.head_length:
            marks.add(frontier)
        self.last_view = View(
            call=len(self.turns) + 1,
            epoch=self.epoch,
            track=self.track,
            length=len(self.track.segments),
            marks=tuple(sorted(mark for mark in marks if mark))[-4:],
        )
        return self.last_view

    def _count_shared_segments(self) -> int:
        """Return the number of leading segments that the last view has too.

        A call that is made again shares what it shared the first time, so that its breakpoints stay where they were.
        """
        last = self.last_view
        if self._takes_words_back:
            # What precedes the words after the newest turn stays if the client removes the words.
            if not self.turns or len(self.turns) not in self.turn_places:
                return self.head_length
            return self.turn_places[len(self.turns)] + 1 + len(self.turns[-1].observations)
        if last is None or last.track is not self.track:
            return self.unchanged_length
        if last.length < len(self.track.segments):
            return last.length
        return self._shared_length

    @property
    def unchanged_length(self) -> int:
        """Leading segments that are the same in the last view; 0 if there was none."""
        if self.last_view is None:
            return 0
        # They differ where the head or the newest turn changed between two passes.
        if self.last_view.track is self.track:
            return self.last_view.length
        return View(call=0, epoch=0, track=self.track, length=len(self.track.segments)).count_common(self.last_view)

    def make_raw_view(self) -> View:
        """Return the view that would be sent if nothing were ever hidden."""
        length = len(self.raw_track.segments)
        last = self.raw_last_length
        if self._takes_words_back and self.turns:
            last = self.raw_turn_places[-1] + 1 + len(self.turns[-1].observations)
        marks = tuple(sorted({mark for mark in (self.head_length - self.has_recall_tools, last, length) if mark}))
        return View(call=len(self.turns) + 1, epoch=1, track=self.raw_track, length=length, marks=marks)

    def count_raw_tokens_before(self, turn: int) -> int:
        """Return the raw tokens before turn `turn`; all raw tokens if there is no such turn yet."""
        if turn <= len(self.turns):
            return self.raw_track.count_tokens_before(self.raw_turn_places[turn - 1])
        return self.raw_track.tokens

    def _set_head(self, head: Head) -> None:
        segments = make_head_segments(head, self.sizer)
        behind = self._own_head_length - self.has_recall_tools
        length = len(segments)
        self.head = head
        self.head_length = length + self.has_recall_tools + (self.stand_in is not None)
        self.task_tokens = sum(
            each.tokens for each in segments if isinstance(each.source, Message) and each.source.role == "user"
        )
        if not self.track.segments:
            self._append_segments(segments)
            return
        # A changed head precedes everything: it begins an epoch, and the raw bill pays for it as well.
        raw = Track()
        for segment in [*segments, *self.raw_track.segments[behind:]]:
            raw.append(segment)
        self.raw_track = raw
        self.raw_last_length = 0
        self.raw_turn_places = [place + length - behind for place in self.raw_turn_places]
        ours = segments
        if self.has_recall_tools:
            ours = insert_recall_tools(segments, self.recall_tools, self.sizer)
        self._rebuild_track(0, [*ours, *self.track.segments[behind + self.has_recall_tools :]])

    @property
    def recall_tokens(self) -> int:
        """What the recall tools take up in every request that holds them."""
        return self.sizer.count_tools(Head(tools=self.recall_tools))

    def _add_turn(self, turn: Turn) -> None:
        if turn.index != len(self.turns) + 1:
            raise ValueError(f"turn {turn.index} was added where turn {len(self.turns) + 1} belongs")
        self.turns.append(turn)
        place = len(self.track.segments)
        self.turn_places[turn.index] = place
        for position in range(1, len(turn.observations) + 1):
            self.observation_places[turn.index, position] = place + position
        self.raw_turn_places.append(len(self.raw_track.segments))
        self._append_segments(make_turn_segments(turn, self.sizer))

    def _amend_turn(self, turn: Turn) -> None:
        """Replace the newest turn: its old segments go, even if they were sent already."""
        if not self.turns or turn.index != self.turns[-1].index:
            raise ValueError(f"turn {turn.index} was amended, but only the newest may be ({len(self.turns)})")
        if self.turns[-1].has_only_new_user_words(turn):
            self._replace_user_words(turn)
            return
        place = self.turn_places[turn.index]
        raw = self.raw_turn_places.pop()
        dropped = self.turns.pop()
        self._drop_edits([key for key in self.edits if key[0] >= turn.index])
        self.fixed = {key: edit for key, edit in self.fixed.items() if key[0] < turn.index}
        self.raw_track = self.raw_track.fork(raw)
        self.raw_last_length = min(self.raw_last_length, raw)
        self._rebuild_track(place, [])
        for position in range(1, len(dropped.observations) + 1):
            self.observation_places.pop((turn.index, position), None)
        self._add_turn(turn)

    def _replace_user_words(self, turn: Turn) -> None:
        """Replace the user's words after the newest turn; what was hidden of the turn stays hidden."""
        behind = 1 + len(turn.observations)
        self.turns[-1], self._takes_words_back = turn, True
        self.raw_track = self.raw_track.fork(self.raw_turn_places[-1] + behind)
        self.raw_last_length = min(self.raw_last_length, len(self.raw_track.segments))
        place = self.turn_places[turn.index] + behind
        # The client's own doing is no rewrite of ours.
        self._sent_length = min(self._sent_length, place)
        self._rebuild_track(place, [])
        self._append_segments(make_word_segments(turn, self.sizer))

    def _append_segments(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self.track.append(segment)
            self.raw_track.append(segment)

    def _apply_decision(self, event: PassDecided) -> None:
        if event.offers:
            # After the client's own: before all messages, which are new to the cache then.
            head = insert_recall_tools(make_head_segments(self.head, self.sizer), self.recall_tools, self.sizer)
            self._rebuild_track(0, [*head, *self.track.segments[self._own_head_length :]])
            self.has_recall_tools = True
            self.head_length += 1
        if event.bound and not self.shadow:
            self._fix_new_results(event)
        if not event.edits and event.summary is None:
            return
        edits = self._set_edits(event.edits)
        first = min((self.observation_places[key] for key in edits), default=len(self.track.segments))
        behind = first
        opening: list[Segment] = []
        if event.summary is not None:
            self.summary = event.summary
            self._drop_edits([key for key in self.edits if key[0] <= event.summary.covers])
            first = self.head_length
            behind = self.turn_places.get(event.summary.covers + 1, len(self.track.segments))
            self._drop_covered_places(event.summary.covers)
            opening = make_summary_segments(event.summary, self.turns, self.sizer, after=self.dropped_turns)
        rest = [edit_segment(segment, edits, self.sizer) for segment in self.track.segments[behind:]]
        self._rebuild_track(first, opening + rest)
        self._count_fold_savings(event.edits)

    def _drop_turns(self, event: TurnsDropped) -> None:
        """Leave turns 1 ... `event.through` out of all later views. A summary that covers some of them stays."""
        self._drop_edits([key for key in self.edits if key[0] <= event.through])
        edits = self._set_edits(event.edits)
        self.fixed = {key: edit for key, edit in self.fixed.items() if key[0] > event.through}
        self.dropped_turns = event.through
        kept = self.turn_places.get(self.covered_turns + 1, len(self.track.segments))
        # Of what is between head and turns the summary stays.
        between = self.track.segments[self.head_length : kept]
        opening = [each for each in between if each.kind == "summary" or each.turn > event.through]
        rest = [edit_segment(segment, edits, self.sizer) for segment in self.track.segments[kept:]]
        self._drop_covered_places(self.covered_turns)
        first = self._own_head_length
        if event.words is not None:
            tokens = self.sizer.count_message(event.words)
            self.stand_in = Segment(kind="head", tokens=tokens, source=event.words)
        head = [] if self.stand_in is None else [self.stand_in]
        self.head_length = first + len(head)
        self._rebuild_track(first, head + opening + rest)
        self._drop_raw_turns(event.through)
        self._count_fold_savings(event.edits)

    def _drop_raw_turns(self, through: int) -> None:
        """Leave the same turns out of what would be sent if nothing were hidden: the client does not send them."""
        head = self.head_length - self.has_recall_tools
        kept = self.raw_turn_places[through] if through < len(self.turns) else len(self.raw_track.segments)
        raw = self.raw_track.fork(self._own_head_length - self.has_recall_tools)
        stand_in = [] if self.stand_in is None else [self.stand_in]
        for segment in (*stand_in, *self.raw_track.segments[kept:]):
            raw.append(segment)
        self.raw_track = raw
        self.raw_last_length = head
        for place in range(through, len(self.raw_turn_places)):
            self.raw_turn_places[place] -= kept - head
        for place in range(min(through, len(self.raw_turn_places)) - 1, -1, -1):
            if self.raw_turn_places[place] == head:
                break
            self.raw_turn_places[place] = head

    def _set_edits(self, edits: Iterable[Edit]) -> dict[Key, Edit]:
        """Show observations as `edits` say. Return these by key."""
        found = {edit.key: edit for edit in edits}
        self._drop_edits([key for key, edit in found.items() if edit.kind == "whole"])
        for key, edit in found.items():
            if edit.kind != "whole":
                before = self.edits.get(key)
                if before is not None:
                    self.edit_counts[before.kind] -= 1
                if edit.kind != "fold":
                    self.folded_tokens -= self._fold_savings.pop(key, 0)
                self.edits[key] = edit
                self.edit_counts[edit.kind] += 1
        return found

    def _drop_edits(self, keys: Iterable[Key]) -> None:
        """Forget how observations were shown."""
        for key in keys:
            edit = self.edits.pop(key, None)
            if edit is not None:
                self.edit_counts[edit.kind] -= 1
                self.folded_tokens -= self._fold_savings.pop(key, 0)

    def _count_fold_savings(self, edits: Iterable[Edit]) -> None:
        """Count what the folds among `edits`, which the view shows, take off it."""
        for edit in edits:
            if edit.kind == "fold":
                saved = self.count_own_tokens(edit.key) - self.find_segment(edit.key).tokens
                self.folded_tokens += saved - self._fold_savings.get(edit.key, 0)
                self._fold_savings[edit.key] = saved

    def _fix_new_results(self, event: PassDecided) -> None:
        """Take note of how the request of `event` shows the results that no thinking follows yet.

        These are what no request held before it, or the newest turn's where the call is made again.
        """
        # Call n was the first to hold the results of turn n - 1.
        first_turn = min(max(1, self.calls), len(self.turns))
        for edit in event.edits:
            if edit.key[0] < first_turn:
                continue
            if edit.kind == "whole":
                self.fixed.pop(edit.key, None)
            elif edit.kind != "mask":
                self.fixed[edit.key] = edit

    def _drop_covered_places(self, covers: int) -> None:
        self.observation_places = {key: place for key, place in self.observation_places.items() if key[0] > covers}
        self.turn_places = {turn: place for turn, place in self.turn_places.items() if turn > covers}

    def _rebuild_track(self, first: int, segments: list[Segment]) -> None:
        """Put `segments` in place of all from `first` on."""
        last = self.last_view
        if first < self._sent_length:
            self.epoch += 1
            self._sent_length = 0
            self.track = self.track.fork(first)
        elif last is not None and last.track is self.track and first < last.length:
            self.track = self.track.fork(first)
        else:
            # No view shows what is dropped. A copy would make each fold at birth cost the whole history.
            self.track.cut(first)
        for segment in segments:
            self.track.append(segment)
        # The places of the segments from `first` on.
        covered = self.covered_turns
        for place in range(first, len(self.track.segments)):
            segment = self.track.segments[place]
            if segment.turn <= covered:
                continue
            if segment.kind in ("observation", "folded", "placeholder", "clipped"):
                self.observation_places[segment.turn, segment.index] = place
            elif segment.kind == "assistant":
                self.turn_places[segment.turn] = place
