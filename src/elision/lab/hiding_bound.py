"""A lower bound on what hiding can cost, and what each result still costs from any call on (Lagrangian relaxation).

A change before a result makes every call write again what follows it: results have to be changed in an order, and share
what a rewrite costs. The bound lets each result choose alone, at prices for rewrites that it pays to the results before
it, and raises the prices until the choices agree as far as they can (subgradient ascent).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from elision.lab.hiding_problem import HidingProblem, Numbers

#: Steps of the ascent, and how many without a better bound halve its stride.
STEPS: Final = 300
PATIENCE: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingBound:
    """The bound, and the tables that it was read from.

    usd: no plan of the problem costs less.
    if_shown, if_hidden: by result and call, its least cost from that call on if it is shown, or hidden, before.
    shared: by call, the part of later costs that belongs to no result.
    """

    usd: float
    if_shown: Numbers
    if_hidden: Numbers
    shared: Numbers


@dataclass(slots=True)
class _Prices:
    """What the ascent changes. passed: by result and call, what it pays for a rewrite to the results before it.

    missed: for each use, the share of its cost that each of its results bears.
    """

    passed: Numbers
    missed: Numbers


class BoundSearch:
    """The ascent over one problem."""

    def __init__(self, problem: HidingProblem) -> None:
        self.problem = problem
        count, calls = problem.count, problem.last + 1
        numbers = np.arange(calls)
        #: Whether the view of the call before had the result, so that a call may write it again.
        self.stood = problem.born[:, None] < numbers
        #: Pairs of neighbours in one view, between which prices are passed on.
        self.linked = self.stood[1:] & (problem.rewrite_usd > 0) if count else np.zeros((0, calls), dtype=bool)
        self.may_hide = problem.since[:, None] <= numbers
        self.uses = [use for call in sorted(problem.uses) for use in problem.uses[call]]
        self.use_calls = np.array([use.call for use in self.uses], dtype=int)
        self.use_usd = np.array([use.usd for use in self.uses])
        self.use_sizes = np.array([len(use.seen) for use in self.uses], dtype=int)
        self.pairs = np.array(
            [(number, place) for number, use in enumerate(self.uses) for place in use.seen], dtype=int
        ).reshape(-1, 2)

    def solve(self, upper_usd: float, steps: int = STEPS) -> HidingBound:
        """Return the best bound found. upper_usd: what some plan costs."""
        problem = self.problem
        prices = _Prices(np.zeros((max(0, problem.count - 1), problem.last + 1)), self._share_misses())
        best = self._find_bound(prices)[0]
        if not problem.count:
            return best
        stride = 1.0
        waited = 0
        momentum = [np.zeros_like(prices.passed), np.zeros_like(prices.missed)]
        for _ in range(steps):
            bound, passed, missed = self._find_bound(prices)
            if bound.usd > best.usd + 1e-12:
                best = bound
                waited = 0
            else:
                waited += 1
                if waited >= PATIENCE:
                    stride /= 2
                    waited = 0
            gap = upper_usd - bound.usd
            if gap <= 1e-9 * max(1.0, upper_usd) or stride < 1e-4:
                break
            momentum = [0.7 * momentum[0] + passed, 0.7 * momentum[1] + missed]
            norm = float((momentum[0] ** 2).sum() + (momentum[1] ** 2).sum())
            if norm <= 0:
                break
            step = stride * max(gap, 1e-6 * upper_usd) / norm
            prices.passed = np.where(self.linked, np.maximum(0.0, prices.passed + step * momentum[0]), 0.0)
            prices.missed = self._limit_shares(prices.missed + step * momentum[1])
        return best

    def _share_misses(self) -> Numbers:
        """At first the uses of a call that one result alone shows share its cost."""
        alone = (self.use_sizes == 1).astype(float)
        return self._limit_shares(alone)

    def _limit_shares(self, shares: Numbers) -> Numbers:
        """A call pays one of its uses, the most expensive one: shares add up to 1 at most."""
        kept = np.maximum(0.0, shares)
        sums = np.zeros(self.problem.last + 1)
        np.add.at(sums, self.use_calls, kept)
        limited: Numbers = kept / np.maximum(1.0, sums[self.use_calls])
        return limited

    def _find_bound(self, prices: _Prices) -> tuple[HidingBound, Numbers, Numbers]:
        """Return the bound at these prices, and in which direction each price raises it."""
        problem = self.problem
        count, calls = problem.count, problem.last + 1
        own = problem.rewrite_usd * problem.gaps
        own[:-1] += prices.passed
        own[1:] -= prices.passed
        shown_again = own + problem.rewrite_usd * problem.size[:, None]
        hidden_again = own + problem.rewrite_usd * problem.small[:, None]
        kept = -problem.keep_usd * problem.saves[:, None]
        misses = np.zeros((count, calls))
        borne = prices.missed * self.use_usd
        if len(self.pairs):
            np.add.at(misses, (self.pairs[:, 1], self.use_calls[self.pairs[:, 0]]), borne[self.pairs[:, 0]])
        rewritable = self.stood & (problem.rewrite_usd > 0)
        while_shown = np.where(rewritable, np.minimum(0.0, shown_again), 0.0)
        while_hidden = np.where(rewritable, np.minimum(0.0, hidden_again), 0.0) + kept + misses
        hiding = np.where(self.may_hide, np.where(rewritable, hidden_again, 0.0) + kept + misses, np.inf)
        if_hidden = np.zeros((count, calls + 1))
        if_hidden[:, :-1] = while_hidden[:, ::-1].cumsum(axis=1)[:, ::-1]
        if_shown = np.zeros((count, calls + 1))
        hides = np.zeros((count, calls), dtype=bool)
        for call in range(calls - 1, 0, -1):
            stay = while_shown[:, call] + if_shown[:, call + 1]
            hide = hiding[:, call] + if_hidden[:, call + 1]
            hides[:, call] = hide < stay
            if_shown[:, call] = np.minimum(stay, hide)
        spared = np.zeros(calls + 1)
        np.add.at(spared, self.use_calls, -borne * (self.use_sizes - 1))
        shared = spared[::-1].cumsum()[::-1]
        usd = problem.fixed_usd + float(if_shown[:, 1].sum()) + float(shared[1]) if calls > 1 else problem.fixed_usd
        bound = HidingBound(usd=usd, if_shown=if_shown, if_hidden=if_hidden, shared=shared)
        # What the choices at these prices are: the direction of the ascent.
        hidden = np.logical_or.accumulate(hides, axis=1)
        begins = hidden & ~np.pad(hidden, ((0, 0), (1, 0)))[:, :-1]
        rewritten = rewritable & (begins | np.where(hidden, hidden_again < 0, shown_again < 0))
        passed = np.where(self.linked, rewritten[:-1].astype(float) - rewritten[1:], 0.0)
        seen = np.zeros(len(self.uses))
        if len(self.pairs):
            np.add.at(seen, self.pairs[:, 0], hidden[self.pairs[:, 1], self.use_calls[self.pairs[:, 0]]])
        missed = self.use_usd * (seen - self.use_sizes + 1)
        return bound, passed, missed
