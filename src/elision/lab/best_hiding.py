"""The cheapest plan of what to hide and when, if all that comes is known: a search over sets of hidden results.

The search goes call by call and keeps the sets that may still lead to the cheapest plan. With a bound that prunes well
it is exact; where it would keep too many, it goes on with the most promising, and the bound says how far off it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from elision.lab.hiding_bound import BoundSearch, HidingBound
from elision.lab.hiding_problem import HidingProblem, Numbers

#: Sets that are kept at each call: of a first search, which finds a good plan, and of the second.
FIRST_WIDTH: Final = 4
WIDTH: Final = 64
#: Of the work, what the first search is.
FIRST_SHARE: Final = 0.2
#: Ways to decide on results that are used later, at one call and for one first change.
MOST_CHOICES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BestHiding:
    """usd: what the plan costs. bound_usd: no plan costs less. hidden_from: by result, the call; 0 for never."""

    usd: float
    bound_usd: float
    hidden_from: tuple[int, ...]

    @property
    def is_exact(self) -> bool:
        """Whether no plan is cheaper."""
        return self.usd <= self.bound_usd * (1 + 1e-9)


@dataclass(slots=True)
class _Partial:
    """A plan up to some call. usd: so far, without the problem's fixed part. promise: at least that at the end."""

    usd: float
    promise: float
    hidden_from: Numbers


def find_best_hiding(
    problem: HidingProblem, width: int = WIDTH, on_progress: Callable[[float], None] | None = None
) -> BestHiding:
    """Return the best plan found, and the bound on what any plan costs; they agree where the search was exact.

    on_progress: called with the share of the work that is done, from 0 to 1.
    """
    report = on_progress or _ignore_progress
    start = BoundSearch(problem)
    never = np.zeros(problem.count, dtype=int)
    rough = start.solve(problem.bill_plan(never), steps=40)
    plan, _ = _PlanSearch(problem, rough, problem.bill_plan(never), FIRST_WIDTH).search(
        never, lambda share: report(FIRST_SHARE * share)
    )
    bound = start.solve(problem.bill_plan(plan))
    found, is_exact = _PlanSearch(problem, bound, problem.bill_plan(plan), width).search(
        plan, lambda share: report(FIRST_SHARE + (1 - FIRST_SHARE) * share)
    )
    usd = problem.bill_plan(found)
    return BestHiding(
        usd=usd, bound_usd=usd if is_exact else min(usd, bound.usd), hidden_from=tuple(int(call) for call in found)
    )


def _ignore_progress(share: float) -> None:
    """Do nothing with how far a search is."""


class _PlanSearch:
    """One search. upper_usd: what the best plan known so far costs, as all plans without the problem's fixed part."""

    def __init__(self, problem: HidingProblem, bound: HidingBound, upper_usd: float, width: int) -> None:
        self.problem = problem
        self.bound = bound
        self.upper_usd = upper_usd - problem.fixed_usd
        self.width = width
        self.is_exact = True
        #: By result: the last call that uses something of it.
        self.last_use = np.zeros(problem.count, dtype=int)
        for call, uses in problem.uses.items():
            for use in uses:
                for place in use.seen:
                    self.last_use[place] = max(self.last_use[place], call)

    def search(self, known: Numbers, report: Callable[[float], None]) -> tuple[Numbers, bool]:
        """Return the best plan, `known` if none is better, and whether no plan is cheaper.

        report: called at each call with the share that is done.
        """
        kept = [_Partial(0.0, 0.0, np.zeros(self.problem.count, dtype=int))]
        for call in range(1, self.problem.last + 1):
            report(call / (self.problem.last + 1))
            made: dict[bytes, _Partial] = {}
            for partial in kept:
                for child in self._continue(partial, call):
                    key = (child.hidden_from > 0).tobytes()
                    if key not in made or child.usd < made[key].usd:
                        made[key] = child
            kept = sorted(made.values(), key=lambda each: each.promise)
            if len(kept) > self.width:
                self.is_exact = False
                kept = kept[: self.width]
        best = min(kept, key=lambda each: each.usd, default=None)
        if best is None or best.usd >= self.upper_usd:
            return known, self.is_exact
        return best.hidden_from, self.is_exact

    def _continue(self, partial: _Partial, call: int) -> Iterator[_Partial]:
        """Yield what may follow at `call`: nothing is changed, or some result is the first that is."""
        problem = self.problem
        before = partial.hidden_from > 0
        open_places = np.flatnonzero(~before & (problem.since <= call))
        free = problem.rewrite_usd[call] <= 0
        if not (free and len(open_places)):
            yield from self._judge(partial, call, before, before)
        if not len(open_places):
            return
        after = call + 1
        differs = self.bound.if_hidden[:, after] - self.bound.if_shown[:, after]
        gains = differs - (problem.rewrite_usd[call] + problem.keep_usd[call]) * problem.saves
        is_open = np.zeros(problem.count, dtype=bool)
        is_open[open_places] = True
        # What nothing uses any more is hidden wherever it is written again: that makes every later call cheaper.
        is_sure = is_open & (self.last_use < call)
        for first in [None] if free else list(open_places):
            place = 0 if first is None else int(first)
            behind = np.arange(problem.count) >= place
            sure = is_sure & behind
            if first is not None:
                sure[place] = True
            unsure = np.flatnonzero(is_open & behind & ~sure)
            yield from self._choose(partial, call, before, before | sure, unsure, gains[unsure])

    def _choose(
        self, partial: _Partial, call: int, before: Numbers, sure: Numbers, unsure: Numbers, gains: Numbers
    ) -> Iterator[_Partial]:
        """Yield each way to decide on the results `unsure` that may be part of a plan cheaper than the best known."""
        best = sure.copy()
        best[unsure[gains < 0]] = True
        slack = self.upper_usd - self._find_promise(partial, call, before, best, with_misses=False)
        if slack < 0:
            return
        order = np.argsort(np.abs(gains), kind="stable")
        turns = 0
        # Each step decides one more result otherwise than its own price suggests, as long as the bound allows it.
        stack: list[tuple[int, float, tuple[int, ...]]] = [(0, slack, ())]
        while stack:
            start, left, changed = stack.pop()
            turns += 1
            if turns > MOST_CHOICES:
                self.is_exact = False
                return
            hidden = best.copy()
            hidden[list(changed)] ^= True
            yield from self._judge(partial, call, before, hidden)
            for number in range(len(order) - 1, start - 1, -1):
                price = abs(float(gains[order[number]]))
                if price <= left:
                    stack.append((number + 1, left - price, (*changed, int(unsure[order[number]]))))

    def _judge(self, partial: _Partial, call: int, before: Numbers, hidden: Numbers) -> Iterator[_Partial]:
        """Yield the plan that continues with `hidden`, unless it cannot become the cheapest."""
        usd = partial.usd + self.problem.find_call_usd(call, before, hidden)
        promise = usd + self._find_rest_usd(call + 1, hidden)
        if promise > self.upper_usd + 1e-12:
            return
        yield _Partial(usd, promise, np.where(hidden & ~before, call, partial.hidden_from))

    def _find_promise(
        self, partial: _Partial, call: int, before: Numbers, hidden: Numbers, *, with_misses: bool
    ) -> float:
        usd = partial.usd + self.problem.find_call_usd(call, before, hidden)
        if not with_misses:
            usd -= self.problem.find_missed_usd(call, hidden)
        return usd + self._find_rest_usd(call + 1, hidden)

    def _find_rest_usd(self, call: int, hidden: Numbers) -> float:
        """Return the least cost of the calls from `call` on."""
        bound = self.bound
        each = np.where(hidden, bound.if_hidden[:, call], bound.if_shown[:, call])
        return float(each.sum() + bound.shared[call])
