"""What a strategy costs with the recalls it causes, against the cheapest way to hide that knows what is used later.

A fact that is missed is priced as one recall: one more call, and the recalled result until it is old again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from elision.engine import Log
from elision.lab.best_hiding import WIDTH, find_best_hiding
from elision.lab.evidence import Evidence
from elision.lab.hiding_problem import HidingProblem, build_problem
from elision.lab.hindsight import has_summaries_in_hindsight, observe_run
from elision.lab.ratios import divide_or_none
from elision.lab.replay import replay_run
from elision.strategies.strategy import Strategy
from elision.trajectory.plan import Key
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory

#: Above so many results times calls the plan is found by a narrow search, and the gap to the bound is wider.
LARGE = 20_000
NARROW_WIDTH = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingYardstick:
    """One run, or the sum of several, in USD.

    usd: the strategy's bill. recall_usd: what it would pay to recall the facts it hid. best_usd: the best plan that was
    found, recalls included; bound_usd: no plan costs less. They agree where the search was exact.
    exact_runs: of how many runs that is known. plan: by result, the call from which on the best plan hides it; empty in
    a sum.
    """

    usd: float
    recall_usd: float
    best_usd: float
    bound_usd: float
    exact_runs: int = 0
    plan: tuple[tuple[Key, int], ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether no plan is cheaper than the best one found."""
        return self.best_usd <= self.bound_usd * (1 + 1e-9)

    @property
    def to_bound(self) -> float | None:
        """The strategy's bill with its recalls as a multiple of the bound."""
        return divide_or_none(self.usd + self.recall_usd, self.bound_usd)

    def __add__(self, other: HidingYardstick) -> HidingYardstick:
        return HidingYardstick(
            usd=self.usd + other.usd,
            recall_usd=self.recall_usd + other.recall_usd,
            best_usd=self.best_usd + other.best_usd,
            bound_usd=self.bound_usd + other.bound_usd,
            exact_runs=self.exact_runs + other.exact_runs,
        )

    def json(self) -> dict[str, Any]:
        """Return the figures as JSON."""
        return {
            "usd_strategy": self.usd,
            "usd_recalls": self.recall_usd,
            "usd_best": self.best_usd,
            "usd_bound": self.bound_usd,
            "exact_runs": self.exact_runs,
        }


def measure_hiding(
    trajectory: Trajectory,
    strategy: Strategy,
    prices: Prices,
    sizer: Sizer,
    known: Evidence,
    on_progress: Callable[[float], None] | None = None,
) -> HidingYardstick | None:
    """Return the yardstick of `strategy` on a run; None where it summarizes, a budget matters, or models take turns.

    The plans that it is compared with hide the same placeholders, each from the same call on: any of them, at any call.
    on_progress: called with the share of the search that is done, from 0 to 1.
    """
    if has_summaries_in_hindsight(strategy) or len({turn.model for turn in trajectory.turns}) > 1:
        return None
    figures, found = observe_run(trajectory, replace(strategy, budget=None), replace(prices, window=None), sizer)
    usable = strategy.limit_view(prices)
    if usable is not None and int(figures.raw.max(initial=0)) > usable:
        return None
    problem = build_problem(figures, found, known)
    watch = _MissWatch(problem, [candidate.key for candidate in found])
    replayed = replay_run(trajectory, strategy, prices, sizer, watch=watch.look)
    width = WIDTH if problem.count * problem.last <= LARGE else NARROW_WIDTH
    best = find_best_hiding(problem, width, on_progress)
    planned = zip((candidate.key for candidate in found), best.hidden_from, strict=True)
    return HidingYardstick(
        usd=replayed.usd,
        recall_usd=watch.recall_usd,
        best_usd=best.usd,
        bound_usd=best.bound_usd,
        exact_runs=int(best.is_exact),
        plan=tuple((key, call) for key, call in planned if call),
    )


class _MissWatch:
    """What the passes of a replay hide of what their calls use."""

    def __init__(self, problem: HidingProblem, keys: list[Key]) -> None:
        self.problem = problem
        self.keys = keys
        self.recall_usd = 0.0

    def look(self, session: Log) -> None:
        """Price the facts that the newest call uses and its view has not."""
        call = len(session.state.turns) + 1
        if call in self.problem.uses:
            hidden = np.array([key in session.state.hidden for key in self.keys])
            self.recall_usd += self.problem.find_missed_usd(call, hidden)
