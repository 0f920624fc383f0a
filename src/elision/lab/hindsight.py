"""The cheapest schedule of a run that is already known (design 4): which strategies have one, and the run in numbers.

A yardstick, not a bound: plans that mask only part of what is eligible can be a little cheaper, and the plan folds
nothing. Where a cache finds
entries only at some places (`look_back`), what a call reads depends on all rewrites before it, which no state of the
search holds: the plan is found as if any prefix were read, and billed by the rule. No plan can cost less than it was
found to, and the bill is at most 0.3 % above that (the four sample runs, masking, gpt-5.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from elision.engine import Log, LogSetup, count_output_tokens, decide, make_plain_terms, run_pass
from elision.engine.provider_reports import ALL_TURNS
from elision.errors import MissingExtra, SummaryError
from elision.lab.cheapest_plan import CheapestPlan, PlanSearch, RunFigures
from elision.lab.replay import replay_run
from elision.lab.run_as_recorded import calls
from elision.lab.sent_run import UNKNOWN_SENT, SentRun
from elision.strategies.schedules import FixedSchedule
from elision.strategies.strategy import Strategy
from elision.strategies.summary_cost import limit_user_words
from elision.trajectory.cache import HOUR_SECONDS, CacheFinding, outlives_pause
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import CacheRules, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.view import View

try:
    import numpy as np
except ImportError as error:
    raise MissingExtra("hindsight", "report") from error

#: Longer runs are not worked out where summaries are: the program is cubic.
LONGEST = 500
#: Tokens that no view has.
_NO_LIMIT: Final = 1 << 60


def find_cheapest_plan(
    trajectory: Trajectory,
    strategy: Strategy,
    prices: Prices,
    sizer: Sizer,
    on_progress: Callable[[float], None] | None = None,
    sent: SentRun = UNKNOWN_SENT,
) -> CheapestPlan | None:
    """Return the cheapest plan for `strategy` on this run; None where there is none to compute.

    That is: a strategy whose path matters (a budget, a trigger that counts tokens, two-tier), summaries in a run of
    more than 500 turns, or several models in one run.
    on_progress: called with the share of the search that is done, from 0 to 1. sent: how the run was sent; what its
    cache held then is billed here too, as a replay bills it.
    """
    # What is folded, and so what masking saves, depends on what was hidden before.
    strategy = replace(strategy, fold=False)
    rhythm = strategy.rhythm
    if rhythm is None or rhythm.counts_tokens or (rhythm.turns and len(trajectory.turns) > LONGEST):
        return None
    if len({turn.model for turn in trajectory.turns}) > 1:
        # Models that take turns have a cache each; what a rewrite costs then depends on more than the last one.
        return None
    run = _observe_run(trajectory, replace(strategy, budget=None), replace(prices, window=None), sizer, sent)
    usable = strategy.limit_view(prices)
    if usable is not None and int(run.raw.max(initial=0)) > usable:
        return None
    found = PlanSearch(run, rhythm).solve(on_progress)
    if not prices.cache.look_back:
        return found
    billed = replay_run(trajectory, found.apply_to(strategy), prices, sizer, sent=sent)
    return replace(found, usd=billed.usd)


def has_hindsight(strategy: Strategy) -> bool:
    """Whether a cheapest schedule can be worked out for `strategy` at all."""
    rhythm = strategy.rhythm
    return rhythm is not None and not rhythm.counts_tokens


def _refuse_summary(request: SummaryRequest) -> str:
    raise SummaryError("the observed run never summarizes")


class _CacheFigures:
    """What a run that hides nothing finds in the cache and leaves there, call by call, as in `RunFigures`."""

    def __init__(self, rules: CacheRules) -> None:
        self.rules = rules
        self.hour = [0]
        self.found = [0]
        self.lasting = [0]
        self.most = [0]
        self._before: float | None = None
        self._sent = 0
        #: Leading tokens that were written for an hour, by the newest call that did so.
        self._kept = 0

    def add_call(
        self, view: View, now: float | None, found: int, finding: CacheFinding, *, is_for_an_hour: bool
    ) -> None:
        """Add a call at `now` that sends `view` and reads `found` tokens. finding: what a recording says of the cache.
        is_for_an_hour: what all of its entries live, by the provider's report."""
        self.found.append(found)
        if finding.outlived or outlives_pause(self._before, now, self.rules.ttl):
            self.lasting.append(self._sent)
        elif outlives_pause(self._before, now, HOUR_SECONDS):
            # A plan that rewrites what was kept for five minutes may have it kept for an hour.
            self.lasting.append(max(found, self._kept))
        else:
            self.lasting.append(found)
        self.most.append(_NO_LIMIT if finding.most is None else finding.most)
        self.hour.append(view.tokens if is_for_an_hour else view.hour_tokens)
        if self.hour[-1] == view.tokens:
            self._kept = view.tokens
        self._before = now
        self._sent = view.tokens


def _observe_run(trajectory: Trajectory, strategy: Strategy, prices: Prices, sizer: Sizer, sent: SentRun) -> RunFigures:
    """Let the strategy see the run without ever acting. Return the run in numbers."""
    session = Log.fold((), LogSetup(replace(strategy, schedule=FixedSchedule()), prices, sizer))
    session.set_head(trajectory.head)
    state = session.state
    policy = session.policy
    raw = [0]
    warm = [0]
    cache = _CacheFigures(prices.cache)
    for turn, (now, model) in zip(trajectory.turns, calls(trajectory), strict=True):
        raw.append(state.raw_track.tokens)
        finding = sent.find_cache(turn.index, is_cut=False)
        warm.append(max(session.money.cache.warm_tokens, finding.warm))
        terms = msgspec.structs.replace(make_plain_terms(now, model), finding=finding)
        run_pass(decide(session, terms), _refuse_summary)
        newest = session.newest_call
        assert newest is not None
        session.add_turn(turn)
        reported = session.reports.hour_turn == ALL_TURNS
        read = session.money.newest_raw_prompt.cache_read
        cache.add_call(newest.raw_view, now, read, finding, is_for_an_hour=reported)
    found = [policy.candidates.pending[key] for key in sorted(policy.candidates.pending)]
    turns = range(1, len(state.turns) + 2)
    limits = strategy.keep_user_tokens, strategy.summary_max_tokens
    places = [state.raw_track.count_tokens_before(state.observation_places[item.key]) for item in found]
    return RunFigures(
        prices=prices,
        limit=strategy.summary_max_tokens,
        head=state.raw_track.count_tokens_before(state.head_length),
        task=state.task_tokens,
        raw=np.array(raw),
        answers=np.array([0] + [count_output_tokens(turn, session.sizer) for turn in trajectory.turns]),
        hour=np.array(cache.hour),
        found=np.array(cache.found),
        lasting=np.array(cache.lasting),
        warm=np.array(warm),
        most=np.array(cache.most),
        start=np.array([0] + [state.count_raw_tokens_before(turn) for turn in turns]),
        said=np.array([limit_user_words(said, *limits) for said in policy.user_tokens]),
        quoted=np.array([policy.count_quoted_tokens(turn) for turn in range(len(turns))])
        if policy.candidates.protected
        else np.zeros(len(turns), int),
        since=np.array([item.since_call for item in found], dtype=int),
        turn=np.array([item.key[0] for item in found], dtype=int),
        saves=np.array([item.saved_tokens for item in found], dtype=int),
        size=np.array([state.find_segment(item.key).tokens for item in found], dtype=int),
        place=np.array(places, dtype=int),
    )
