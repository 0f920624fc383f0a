"""What is folded in a view: what that relies on, how many tokens hiding it would add, and the lines that stand for it.

When a source is hidden, its lines are shown again where they were folded: the first observation after it that has them
is shown whole, and later ones refer to that one. So each line of a source is counted once as an estimate, and once for
each observation as the most that it can be.

A reference is the line that stands for repeated lines of a result, and says where the view has them.

    [same as lines 40–51 of t12.1 (read_file src/app.py)]     the first one to that result
    [same as lines 60–71 of t12.1]                            another one to it, in the same result
    [same as lines numbered 95–114 of t7.1 (grep -n "def ")]  where that result shows line numbers
    [same as t41.1 (bash pytest, the latest before this)]     all of that result, where such a call was made twice

The call is the only one like it before the result that refers to it, or the reference counts back from there. So
nothing that is shown needs a handle, and no later call makes a reference ambiguous. Lines are counted as that result is
shown, from its top: a result that refers to others itself shows one line for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter
from typing import Final

from elision.trajectory.plan import FoldedRun, Gutter, Key, make_handle

#: Most tokens by which a reference grows when lines of its source move, or when it names another source.
MOST_GROWTH: Final = 64


@dataclass(frozen=True, slots=True)
class Exposure:
    """Tokens that a pass adds to the view, since it hides sources: as an estimate, and at most."""

    estimated: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class _FoldCost:
    """The runs of a folded observation, and what it has more tokens if it is shown whole."""

    runs: tuple[FoldedRun, ...]
    whole_tokens: int
    lines: int

    @property
    def sources(self) -> set[Key]:
        return {run.source for run in self.runs}


class FoldLedger:
    """The folds of one session.

    leaving_tokens: what is added, as an estimate, if everything that may be masked is masked now.
    """

    def __init__(self) -> None:
        self.leaving_tokens = 0
        self._costs: dict[Key, _FoldCost] = {}
        self._dependents: dict[Key, set[Key]] = {}
        #: Dependents that would be shown whole again: neither masked with their source, nor in place of being whole.
        self._live: dict[Key, set[Key]] = {}
        self._leaving: set[Key] = set()
        self._mask_tokens: dict[Key, int] = {}
        #: What is part of `leaving_tokens`: by source, and by observation that would be masked with its source.
        self._source_tokens: dict[Key, int] = {}
        self._masked_tokens: dict[Key, int] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._costs

    def list_dependents(self, source: Key) -> set[Key]:
        """Return the observations with runs that `source` holds."""
        return self._dependents.get(source, set())

    # -- changes -------------------------------------------------------------------------------------------------

    def add_fold(self, key: Key, runs: tuple[FoldedRun, ...], whole_tokens: int) -> None:
        """Note that `key` is folded, in place of an earlier fold. whole_tokens: what it has more if it is whole."""
        before = self._costs.get(key)
        if before is not None:
            self._unlink(key, before)
        # An earlier fold keeps its place: keys ascend.
        cost = self._costs[key] = _FoldCost(runs, max(0, whole_tokens), max(1, sum(run.lines for run in runs)))
        for source in cost.sources:
            self._dependents.setdefault(source, set()).add(key)
        self._refresh(key)

    def remove_fold(self, key: Key) -> None:
        """Note that `key` is folded no longer; one that is not is no error."""
        cost = self._costs.pop(key, None)
        if cost is None:
            return
        self._mask_tokens.pop(key, None)
        self._unlink(key, cost)
        self._refresh_masked(key)

    def set_leaving(self, key: Key, *, leaves: bool) -> None:
        """Note whether a pass that masks everything pending masks `key`."""
        if leaves == (key in self._leaving):
            return
        if leaves:
            self._leaving.add(key)
        else:
            self._leaving.discard(key)
        if key in self._costs:
            self._refresh(key)
        if key in self._dependents:
            self._refresh_source(key)
            for dependent in self._dependents[key]:
                self._refresh_masked(dependent)

    def set_mask_tokens(self, key: Key, tokens: int | None) -> None:
        """Note that `key` is masked where a source of it is hidden, which adds `tokens`; None if it is shown whole."""
        if tokens is None:
            self._mask_tokens.pop(key, None)
        else:
            self._mask_tokens[key] = tokens
        if key in self._costs:
            self._refresh(key)

    def _unlink(self, key: Key, cost: _FoldCost) -> None:
        for source in cost.sources:
            for table in (self._dependents, self._live):
                table[source].discard(key) if source in table else None
                if source in table and not table[source]:
                    del table[source]
            self._refresh_source(source)

    def _refresh(self, key: Key) -> None:
        """Count anew what showing `key` whole, or masking it, would add."""
        is_live = key not in self._leaving and key not in self._mask_tokens
        for source in self._costs[key].sources:
            live = self._live.setdefault(source, set())
            if is_live:
                live.add(key)
            else:
                live.discard(key)
            self._refresh_source(source)
        self._refresh_masked(key)

    def _refresh_source(self, source: Key) -> None:
        self.leaving_tokens -= self._source_tokens.pop(source, 0)
        if source in self._leaving and self._live.get(source):
            self._source_tokens[source] = self._estimate_source(source, self._live[source])
            self.leaving_tokens += self._source_tokens[source]

    def _refresh_masked(self, key: Key) -> None:
        self.leaving_tokens -= self._masked_tokens.pop(key, 0)
        if key not in self._mask_tokens or key not in self._costs or key in self._leaving:
            return
        if not self._leaving.isdisjoint(self._costs[key].sources):
            self._masked_tokens[key] = self._mask_tokens[key]
            self.leaving_tokens += self._masked_tokens[key]

    # -- reading -------------------------------------------------------------------------------------------------

    def measure_exposure(self, after: int, *, covers: bool) -> Exposure:
        """Return what masking all that is pending after turn `after` adds; covers: and a summary of the turns before.

        Only folds after that turn are looked at: those before it rely on nothing after it.
        """
        estimated = most = 0
        live: dict[Key, set[Key]] = {}
        #: Folds that the pass masks, and those that it writes in other words.
        masked: set[Key] = set()
        changed: set[Key] = set()
        folded = list(takewhile(lambda key: key[0] > after, reversed(self._costs)))
        for key in reversed(folded):
            if key in self._leaving:
                continue
            cost = self._costs[key]
            gone = {each for each in cost.sources if self._is_gone(each, after, covers)}
            loses_source = bool(gone) or not masked.isdisjoint(cost.sources)
            if loses_source and key in self._mask_tokens:
                masked.add(key)
                most += self._mask_tokens[key]
                estimated += self._mask_tokens[key] if gone else 0
                continue
            for source in gone:
                live.setdefault(source, set()).add(key)
            if loses_source:
                changed.add(key)
                most += cost.whole_tokens
            elif not changed.isdisjoint(cost.sources):
                changed.add(key)
                most += min(cost.whole_tokens, MOST_GROWTH * len(cost.runs))
        estimated += sum(self._estimate_source(source, keys) for source, keys in live.items())
        return Exposure(min(estimated, most), most)

    def _is_gone(self, key: Key, after: int, covers: bool) -> bool:
        if key[0] <= after:
            return covers
        return key in self._leaving

    def _estimate_source(self, source: Key, dependents: Iterable[Key]) -> int:
        """Return the tokens of the lines of `source` that `dependents` refer to, each line once."""
        runs = []
        for key in dependents:
            runs += [(run.source_start, key, run.lines) for run in self._costs[key].runs if run.source == source]
        tokens = shown = 0
        for start, key, lines in sorted(runs, key=itemgetter(0, 1)):
            end = start + lines
            if end > shown:
                cost = self._costs[key]
                tokens += cost.whole_tokens * (end - max(start, shown)) // cost.lines
                shown = end
        return tokens


def name_turn(key: Key) -> str:
    """Name an observation where no handle may be named."""
    if key[1] == 1:
        return f"turn {key[0]}"
    return f"result {key[1]} of turn {key[0]}"


def describe_no_call(key: Key) -> str:
    """Say nothing of the call that gave observation `key`."""
    return ""


@dataclass(frozen=True, slots=True)
class SourceNames:
    """How references say which result they mean.

    name: by handle, or by turn. describe_call: the call that gave it, on one line; "" for nothing. It is told from
    every other call before the reference.
    """

    name: Callable[[Key], str] = make_handle
    describe_call: Callable[[Key], str] = describe_no_call


PLAIN_NAMES = SourceNames()


def write_references(runs: Iterable[FoldedRun], names: SourceNames) -> Iterator[str]:
    """Yield the line for each of `runs`, all of one observation."""
    named: set[Key] = set()
    for run in runs:
        yield write_reference(run, names, is_first=run.source not in named)
        named.add(run.source)


def write_reference(run: FoldedRun, names: SourceNames = PLAIN_NAMES, *, is_first: bool = True) -> str:
    """Return the line that stands for `run`: which lines of the source it repeats, and their numbers if others.

    Where the source shows numbers, they name its lines: a reader sees them, and has not to count.
    is_first: whether no line before it in the same result names the source, so that it says the call too.
    """
    ours, theirs = run.gutter, run.source_gutter
    text = f"same as {'' if run.is_whole else f'{_name_lines(run)} of '}{names.name(run.source)}"
    call = names.describe_call(run.source) if is_first else ""
    if call:
        text += f" ({call})"
    if ours is not None and (theirs is None or _format_range(ours) != _format_range(theirs)):
        is_numbered = theirs is not None and not run.from_top
        text += f", here {'' if is_numbered else 'numbered '}{_format_range(ours)}"
    return f"[{text}]"


def count_back(description: str, newer: int) -> str:
    """Return the description of a call which others before a result have, too; newer: how many of them followed it."""
    if not newer:
        return f"{description}, the latest before this"
    return f"{description}, {newer} before the latest"


def _name_lines(run: FoldedRun) -> str:
    if run.source_gutter is not None and not run.from_top:
        return f"lines numbered {_format_range(run.source_gutter)}"
    first = run.source_start if run.shown_start is None else run.shown_start
    lines = f"lines {first + 1}–{first + run.lines}"
    return f"{lines} from the top" if run.from_top else lines


def _format_range(gutter: Gutter) -> str:
    prefix = "" if gutter.prefix.lower() == "line " else gutter.prefix
    return f"{prefix}{gutter.first}–{gutter.last}"
