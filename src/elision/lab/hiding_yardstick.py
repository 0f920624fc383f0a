"""What a strategy costs with the recalls it causes, against the cheapest way to hide that knows what is used later.

A fact that is missed is priced as one recall: one more call, and the recalled result until it is old again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from elision.engine import Log
from elision.lab.best_hiding import WIDTH, find_best_hiding
from elision.lab.evidence import Evidence
from elision.lab.hiding_problem import HidingProblem, build_problem
from elision.lab.hindsight import has_summaries_in_hindsight, observe_run
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
    """One run, in USD.

    usd: the strategy's bill. recall_usd: what it would pay to recall the facts it hid. best_usd: the best plan that was
    found, recalls included; bound_usd: no plan costs less. They agree where the search was exact.
    """

    usd: float
    recall_usd: float
    best_usd: float
    bound_usd: float

    @property
    def is_exact(self) -> bool:
        """Whether no plan is cheaper than the best one found."""
        return self.best_usd <= self.bound_usd * (1 + 1e-9)


def measure_hiding(
    trajectory: Trajectory, strategy: Strategy, prices: Prices, sizer: Sizer, known: Evidence
) -> HidingYardstick | None:
    """Return the yardstick of `strategy` on a run; None where it summarizes, or where several models took turns.

    The plans that it is compared with hide the same placeholders, each from the same call on: any of them, at any call.
    """
    if has_summaries_in_hindsight(strategy) or len({turn.model for turn in trajectory.turns}) > 1:
        return None
    figures, found = observe_run(trajectory, replace(strategy, budget=None), replace(prices, window=None), sizer)
    problem = build_problem(figures, found, known)
    watch = _MissWatch(problem, [candidate.key for candidate in found])
    replayed = replay_run(trajectory, strategy, prices, sizer, watch=watch.look)
    width = WIDTH if problem.count * problem.last <= LARGE else NARROW_WIDTH
    best = find_best_hiding(problem, width)
    return HidingYardstick(usd=replayed.usd, recall_usd=watch.recall_usd, best_usd=best.usd, bound_usd=best.bound_usd)


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
