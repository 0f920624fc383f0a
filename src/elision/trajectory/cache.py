"""A provider's prompt cache, simulated: what a request would read from it.

Entries are prefixes of earlier requests of the same model. With `prefix` rules the whole of a request is an entry, and
any beginning of it is read, unless they have a `look_back` (OpenAI from 5.6 on): then entries end where requests end or
set breakpoints, and a request finds one that ends at a breakpoint of its own, or few messages before its end. With
`breakpoints` only the places that it marked are (Anthropic), and a mark looks back 20 blocks for one. An entry lives
`ttl` seconds, or an hour where its breakpoint says so, from the start of the request that last used it. No breakpoint
lengthens the life of what was written before: an entry lives an hour if all that it holds was written for one. The
provider's pages leave open what happens there, so the dearer reading is taken. Sources: `docs/concepts/schedules.md`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from elision.trajectory.prices import CacheRules
from elision.trajectory.turn import Turn
from elision.trajectory.view import View

#: Blocks that a cache breakpoint looks back for an entry (Anthropic, prompt caching guide).
LOOK_BACK = 20
#: Seconds that an entry of an hour lives.
HOUR_SECONDS = 3600.0


def outlives_pause(used: float | None, now: float | None, life: float) -> bool:
    """Return whether an entry that was last used at `used` and lives `life` seconds is there at `now`.

    A pause is only seen between two known times.
    """
    return now is None or used is None or now - used <= life


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFinding:
    """What a recording says that the cache held at one call, where the rules alone foresee something else.

    most: tokens that were found at most; None for no limit. warm: tokens at the front that other runs had left there.
    has_answer: whether the answer to the call before was cached too. outlived: whether entries lived longer than they
    are said to.
    """

    most: int | None = None
    warm: int = 0
    has_answer: bool = False
    outlived: bool = False


#: Where nothing else is known.
AS_FORESEEN = CacheFinding()


@dataclass(slots=True)
class _ModelCache:
    """What one model's cache holds of this conversation: its last view, and entries by segment count -> last use.

    places: the entries' segment counts, ascending, so that a look-back finds its stretch at once.
    hours: those of them that live an hour.
    """

    view: View
    entries: dict[int, float | None] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)
    hours: set[int] = field(default_factory=set)
    used_at: float | None = None

    def copy(self) -> _ModelCache:
        return _ModelCache(self.view, dict(self.entries), list(self.places), set(self.hours), self.used_at)

    def add_entry(self, place: int, now: float | None, *, hour: bool) -> None:
        if place not in self.entries:
            insort(self.places, place)
        if hour:
            self.hours.add(place)
        else:
            self.hours.discard(place)
        self.entries[place] = now

    def drop_after(self, common: int) -> None:
        """Drop what follows the first `common` segments."""
        for place in self.places[bisect_right(self.places, common) :]:
            del self.entries[place]
        del self.places[bisect_right(self.places, common) :]

    def list_places_near(self, anchor: int) -> list[int]:
        """Return the entries that a breakpoint after `anchor` segments may look at."""
        return self.places[bisect_left(self.places, anchor - LOOK_BACK) : bisect_right(self.places, anchor)]


def _count_blocks(view: View, start: int, stop: int) -> int:
    """Content blocks of the segments from `start` up to `stop`, as Anthropic counts them."""
    blocks = 0
    for segment in view.track.segments[start:stop]:
        if isinstance(segment.source, Turn):
            calls = sum(not action.implicit for action in segment.source.actions)
            blocks += max(1, len(segment.source.content) + calls)
        elif segment.kind != "hidden":
            blocks += 1
    return blocks


class PromptCache:
    """One conversation's share of a provider's cache.

    rules: the provider's. warm_tokens: tokens at the front that other runs keep warm (design 9, Heads).
    """

    def __init__(self, rules: CacheRules, warm: int = 0) -> None:
        self.rules = rules
        self.warm_tokens = warm
        self._caches: dict[str, _ModelCache] = {}
        self._newest: View | None = None

    def copy(self) -> PromptCache:
        """Return a cache that holds the same, and from here on has requests of its own."""
        copied = PromptCache(self.rules, self.warm_tokens)
        copied._caches = {model: memory.copy() for model, memory in self._caches.items()}
        copied._newest = self._newest
        return copied

    def _is_alive(self, memory: _ModelCache, place: int, now: float | None) -> bool:
        """Whether there is an entry at `place`, by its own lifetime."""
        if place not in memory.entries:
            return False
        if self.rules.kind == "prefix":
            # What a request does not reach is dropped, so that all entries were used with the newest.
            return outlives_pause(memory.used_at, now, self.rules.ttl)
        return outlives_pause(memory.entries[place], now, HOUR_SECONDS if place in memory.hours else self.rules.ttl)

    def is_cold(self, now: float | None, model: str = "") -> bool:
        """Whether a request at `now` (seconds; None if unknown) would find nothing of this conversation."""
        memory = self._caches.get(model)
        if memory is None or self.rules.kind == "none":
            return True
        if not memory.places:
            # Nothing was marked: what the request before left is as good as there.
            return not outlives_pause(memory.used_at, now, self.rules.ttl)
        return not any(self._is_alive(memory, place, now) for place in reversed(memory.places))

    def is_warm_for_others(self, now: float | None, model: str) -> bool:
        """Whether any model but `model` would still find something of this conversation."""
        return any(not self.is_cold(now, other) for other in self._caches if other != model)

    def count_readable(self, common: int, view: View, now: float | None, model: str = "") -> int:
        """Tokens read from cache by a request whose first `common` segments are those of the last view sent.

        common: segments. view: any view that holds these segments, for their sizes and marks.
        """
        memory = self._caches.get(model)
        if memory is None:
            return self._count_reached(0, view)
        if memory.view is not self._newest:
            # Another model had a request since then, which may share less with this model's last view.
            common = min(common, view.count_common(memory.view))
        return self._count_reached(self._find_reach(memory, common, view, now), view)

    def _count_reached(self, reach: int, view: View) -> int:
        """Return the tokens that a request of `view` reads where its longest entry has `reach` segments."""
        warm = self.rules.count_usable(min(self.warm_tokens, view.tokens))
        return max(warm, self.rules.count_usable(view.track.count_tokens_before(reach)))

    def _find_reach(self, memory: _ModelCache, common: int, view: View, now: float | None) -> int:
        """Return the longest entry that a request of `view` finds. common: segments that are those of the last view."""
        if self.rules.kind == "prefix":
            if not outlives_pause(memory.used_at, now, self.rules.ttl):
                return 0
            if self.rules.look_back:
                return self._find_searched_place(memory, common, view)
            return min(common, memory.view.length)
        reach = 0
        for anchor in (common, *(mark for mark in reversed(view.marks) if mark < common)):
            if anchor <= reach:
                # An earlier one finds nothing that is longer.
                break
            for place in reversed(memory.list_places_near(anchor)):
                if self._is_alive(memory, place, now) and _count_blocks(view, place, anchor) <= LOOK_BACK:
                    reach = max(reach, place)
                    break
        return reach

    def _find_searched_place(self, memory: _ModelCache, common: int, view: View) -> int:
        """Return the longest entry among the places where a request of `view` looks for one; 0 for none."""
        count = bisect_right(memory.places, common)
        newest = memory.places[count - 1] if count else 0
        if view.count_endings(newest, self.rules.look_back) <= self.rules.look_back:
            return newest
        # Where breakpoints are set at all, one is at the end of what a rewrite leaves.
        marks = (common, *view.marks) if view.marks else ()
        ends = (view.find_message_end(mark) for mark in marks if mark <= common)
        return max((end for end in ends if end in memory.entries), default=0)

    def count_cached(self, view: View, now: float | None, model: str = "") -> int:
        """Tokens that a request of `view` would read from cache; changes nothing."""
        memory = self._caches.get(model)
        return self.count_readable(view.count_common(memory.view) if memory else 0, view, now, model)

    def record_request(
        self,
        view: View,
        now: float | None,
        model: str = "",
        *,
        anew: bool = False,
        finding: CacheFinding = AS_FORESEEN,
    ) -> int:
        """A request of `view`: tokens it reads from cache; what it leaves there is remembered.

        anew: it begins like no earlier request, not even one of other runs. finding: what is known of this call.
        """
        if self.rules.kind == "none":
            return 0
        memory = self._caches.get(model)
        common = view.count_common(memory.view) if memory else 0
        reach = cached = 0
        if not anew:
            read = 0
            if memory is not None:
                reach = read = self._find_reach(memory, common, view, now)
                if finding.outlived:
                    read = self._find_reach(memory, common, view, None)
            cached = self._count_reached(read, view)
            if finding.has_answer and memory is not None and common == memory.view.length < view.length:
                cached = max(cached, self.rules.count_usable(view.track.count_tokens_before(common + 1)))
            cached = max(cached, self.rules.count_usable(min(finding.warm, view.tokens)))
            if finding.most is not None:
                cached = min(cached, finding.most)
        self._leave_entries(memory, view, now, model, common, reach)
        return cached

    def _leave_entries(
        self, memory: _ModelCache | None, view: View, now: float | None, model: str, common: int, reach: int
    ) -> None:
        """Remember what a request of `view` leaves, of which the first `reach` segments were found.

        common: segments that are those of the last view of `memory`, the cache of `model`.
        """
        if memory is None or (self.rules.kind == "prefix" and not self.rules.look_back):
            memory = self._caches[model] = _ModelCache(view)
        elif self.rules.kind == "prefix":
            memory.drop_after(reach)
        elif common < memory.view.length:
            memory.drop_after(common)
        # What is written after an entry of five minutes lives no longer than that one.
        may_last = not reach or reach in memory.hours
        for mark in self._list_entries(view):
            kept = mark in memory.hours and self._is_alive(memory, mark, now)
            memory.add_entry(mark, now, hour=kept or (may_last and mark <= view.hour_length))
        memory.view = view
        memory.used_at = now
        self._newest = view

    def _list_entries(self, view: View) -> Iterable[int]:
        """Return where the entries end that a request of `view` leaves."""
        if self.rules.kind == "breakpoints":
            return view.marks
        if self.rules.look_back:
            return {view.find_message_end(mark) for mark in (*view.marks, view.length)}
        return (view.length,)

    def lengthen_lifetime(self, model: str = "") -> None:
        """The provider reported that what the newest request wrote lives an hour."""
        memory = self._caches.get(model)
        if memory is not None and self.rules.kind == "breakpoints":
            memory.hours.update(mark for mark in memory.view.marks if mark in memory.entries)
