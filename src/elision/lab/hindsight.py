"""The cheapest schedule of a run that is already known (design 4), as a dynamic program over its calls.

A plan is a set of acts; each masks everything that is eligible then, and may summarize as well if the strategy then
allows it. A state is (call of the last summary, call of the last masking). A call's cost depends on the state alone, so
states are taken in the order of their last masking, all those with the same one together, as rows of matrices over the
later calls: O(T^2) additions where only masking is possible, O(T^3) with summaries, in O(T) steps.
Price tiers, entries of five minutes and of an hour, minimum prefixes and step sizes are those of the bill. Summaries
count `summary_max_tokens`.

A yardstick, not a bound: plans that mask only part of what is eligible can be a little cheaper, and the plan folds
nothing. Where a cache finds entries only at some places (`look_back`), what a call reads depends on all rewrites before
it, which no state holds: the plan is found as if any prefix were read, and billed by the rule. No plan can cost less
than it was found to, and the bill is at most 0.3 % above that (the four sample runs, masking, gpt-5.6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from elision.engine import Log, LogSetup, count_output_tokens, decide, make_plain_terms, run_pass
from elision.engine.terms import ALL_TURNS
from elision.errors import MissingExtra, SummaryError
from elision.lab.replay import UNKNOWN_SENT, SentRun, replay_run
from elision.lab.run_as_recorded import calls
from elision.strategies.schedules import BLOCK_TOKENS, INSTRUCTION_TOKENS, FixedSchedule, limit_user_words
from elision.strategies.selectors import TurnRhythm
from elision.strategies.strategy import Strategy
from elision.trajectory.cache import HOUR_SECONDS, CacheFinding, outlives_pause
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.view import View

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("hindsight", "report") from error

Numbers: TypeAlias = NDArray[Any]

#: Longer runs are not worked out where summaries are: the program is cubic.
LONGEST = 500
#: Tokens that no view has: a place behind all of them, or no limit.
_NO_LIMIT: Final = 1 << 60


@dataclass(frozen=True, slots=True)
class CheapestPlan:
    """The cheapest plan: calls at which to mask and to summarize, and its whole cost, answers included, in USD."""

    usd: float
    masks: frozenset[int]
    summaries: frozenset[int]

    @property
    def schedule(self) -> FixedSchedule:
        return FixedSchedule(mask_calls=self.masks, summary_calls=self.summaries)

    def apply_to(self, strategy: Strategy) -> Strategy:
        """Return `strategy` as the plan has it: acting at these calls, and without folding, which no plan knows."""
        return replace(strategy, schedule=self.schedule, fold=False)


def has_hindsight(strategy: Strategy) -> bool:
    """Whether a cheapest schedule can be worked out for `strategy` at all."""
    rhythm = strategy.rhythm
    return rhythm is not None and not rhythm.counts_tokens


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """A run in numbers. Index t of the arrays is call t (0 is before the first).

    limit, head, task: tokens of a summary, of the head, and of the user's words in it.
    raw: tokens of everything at call t. answers: output tokens of call t. hour: leading tokens whose cache entries live
    an hour.
    found: tokens that call t reads from the cache if nothing was ever hidden. lasting: leading tokens that may have
    outlived the pause before call t, the most under any plan. warm: leading tokens that other runs
    keep warm. most: what call t reads at most, by its recording.
    start: raw tokens in front of turn i. said, quoted: tokens of interjections and protected results up to turn i.
    since, turn, saves, size, place: of what may be hidden, in the order of the view; place in raw tokens.
    """

    prices: Prices
    limit: int
    head: int
    task: int
    raw: Numbers
    answers: Numbers
    hour: Numbers
    found: Numbers
    lasting: Numbers
    warm: Numbers
    most: Numbers
    start: Numbers
    said: Numbers
    quoted: Numbers
    since: Numbers
    turn: Numbers
    saves: Numbers
    size: Numbers
    place: Numbers


@dataclass(frozen=True, slots=True)
class _Holding:
    """The states (a row each) whose last masking was at call `masking`, at each later call, if nothing is done there.

    before: cost of all calls before it, USD. tokens, cached: of its view, and what of it is read from the cache.
    """

    masking: int
    rows: Numbers
    before: Numbers
    tokens: Numbers
    cached: Numbers


class PlanSearch:
    """Every state of one run, the cheapest way to reach it, and the cheapest way to the run's end."""

    def __init__(self, run: RunFigures, rhythm: TurnRhythm) -> None:
        self.run = run
        self.rhythm = rhythm
        self.last = len(run.raw) - 1
        calls = np.arange(self.last + 1)
        #: By call: the last turn that a summary made there covers, and by how many tokens the view then exceeds raw.
        self.covers = np.maximum(calls - 1 - rhythm.tail, 0)
        block = BLOCK_TOKENS + run.limit + run.said[self.covers] + run.quoted[self.covers]
        self.shifts = np.where(calls > 0, block - (run.start[self.covers + 1] - run.head), 0)
        # Row s: the newest summary is that of call s; row 0: there is none.
        height = self.last + 1 if rhythm.turns else 1
        #: Of what may be hidden: the last row in which no summary covers it.
        self.live = np.minimum(np.searchsorted(self.covers, run.turn, side="left"), height) - 1
        #: By row: how many of what may be hidden its summary covers.
        self.covered = np.searchsorted(run.turn, self.covers[:height], side="right")
        self.saved = self._add_up_savings(height)
        #: By row and call: the cheapest cost of all calls before, that one included, with the last masking there.
        self.cost = np.full((height, self.last + 1), np.inf)
        self.cost[0, 0] = 0.0
        #: How each was reached: the masking before; of a summary its row and masking before.
        self.mask_from = np.zeros((height, self.last + 1), dtype=np.int32)
        self.summary_from = np.zeros((2, self.last + 1), dtype=np.int32)
        if rhythm.turns:
            self._bill_summaries()

    def solve(self, on_progress: Callable[[float], None] | None = None) -> CheapestPlan:
        """Return the cheapest plan. on_progress: called with the share of the work that is done, from 0 to 1."""
        best = np.inf
        end = (0, 0)
        for masking in range(self.last + 1):
            rows = np.flatnonzero(np.isfinite(self.cost[: masking + 1, masking]))
            if not len(rows):
                continue
            total, row = self._extend(masking, rows)
            if total < best:
                best = total
                end = (row, masking)
            if on_progress is not None:
                on_progress(self._share_done(masking + 1))
        return self._trace_back(best, end)

    def _share_done(self, maskings: int) -> float:
        """The share of the work that is done after so many of the steps: their matrices' sizes differ."""
        part = maskings / (self.last + 1)
        if self.rhythm.turns:
            return part * part * (3 - 2 * part)
        return part * (2 - part)

    def _trace_back(self, usd: float, end: tuple[int, int]) -> CheapestPlan:
        """Return the plan that ends in the state `end`, found by going back to the first call."""
        masks: set[int] = set()
        summaries: set[int] = set()
        row, masking = end
        while masking:
            if masking == row:
                summaries.add(row)
                row, masking = (int(part) for part in self.summary_from[:, row])
            else:
                masks.add(masking)
                masking = int(self.mask_from[row, masking])
        return CheapestPlan(usd, frozenset(masks), frozenset(summaries))

    def _add_up_savings(self, height: int) -> Numbers:
        """By row and call: tokens saved if everything eligible by then is masked."""
        grid = np.zeros((height, self.last + 1), dtype=np.int64)
        seen = self.run.since <= self.last
        np.add.at(grid, (self.live[seen], self.run.since[seen]), self.run.saves[seen])
        above: Numbers = grid[::-1].cumsum(axis=0)[::-1]
        return above.cumsum(axis=1)

    def _bill_summaries(self) -> None:
        """Work out what of a summary's cost does not depend on the masking before it."""
        run = self.run
        calls = np.arange(self.last + 1)
        #: By call: tokens of the view right after a summary, and what that call costs.
        self.summed = run.raw + self.shifts - np.diagonal(self.saved)
        head = self._count_reads(calls, np.full(len(calls), run.head), self.summed)
        self.summed_usd = self._bill(calls, self.summed, head)
        # By row and call: the cost of a summary that is written from the covered turns alone.
        known = np.where(calls > 0, run.limit, run.task)[:, None]
        turns = run.start[self.covers + 1]
        prompt = INSTRUCTION_TOKENS + known + turns - turns[:, None]
        self.written_fresh = self._bill_summarizer(prompt, np.zeros_like(prompt))

    def _extend(self, masking: int, rows: Numbers) -> tuple[float, int]:
        """Go on from the states `rows` whose last masking was at `masking`: hold, mask again, or summarize.

        Return the cheapest cost of holding to the run's end, and its row.
        """
        run = self.run
        calls = np.arange(masking + 1, self.last + 1)
        lead = (self.shifts[rows] - self.saved[rows, masking])[:, None]
        tokens = run.raw[masking + 1 :] + lead
        if masking:
            cached = self._count_reads(calls, run.raw[masking : self.last] + lead, tokens)
        else:
            # Nothing was hidden yet: the cache is that of the run.
            cached = run.found[calls][None, :]
        held = np.zeros((len(rows), len(calls) + 1))
        np.cumsum(self._bill(calls, tokens, cached), axis=1, out=held[:, 1:])
        held += self.cost[rows, masking][:, None]
        state = _Holding(masking, rows, held[:, :-1], tokens, cached)
        if len(calls):
            self._mask(state, calls)
        if self.rhythm.turns:
            self._summarize(state)
        row = int(np.argmin(held[:, -1]))
        return float(held[row, -1]), int(rows[row])

    def _mask(self, state: _Holding, calls: Numbers) -> None:
        """Enter the cost of masking everything eligible at each of `calls`."""
        run = self.run
        rows = state.rows
        first = self._find_first_change(state.masking, rows)
        shift = self.shifts[rows][:, None]
        tokens = run.raw[calls] + shift - self.saved[rows, state.masking + 1 :]
        cached = self._count_reads(calls, np.minimum(first, run.raw[calls - 1] + shift), tokens)
        cost = state.before + self._bill(calls, tokens, cached)
        known = self.cost[rows, state.masking + 1 :]
        better = (cost < known) & (first < _NO_LIMIT)
        self.cost[rows, state.masking + 1 :] = np.where(better, cost, known)
        row, call = np.nonzero(better)
        self.mask_from[rows[row], calls[call]] = state.masking

    def _find_first_change(self, masking: int, rows: Numbers) -> Numbers:
        """By row and later call: tokens in front of what a masking changes first, `masking` having been the last."""
        run = self.run
        done = np.concatenate(([0], np.cumsum(np.where(run.since <= masking, run.saves, 0))))
        fresh = (run.since > masking) & (run.since <= self.last)
        grid = np.full((min(masking + 1, len(self.cost)), self.last - masking), _NO_LIMIT)
        at = np.minimum(self.live[fresh], len(grid) - 1), run.since[fresh] - masking - 1
        np.minimum.at(grid, at, (run.place - done[:-1])[fresh])
        np.minimum.accumulate(grid[::-1], axis=0, out=grid[::-1])
        np.minimum.accumulate(grid, axis=1, out=grid)
        first = grid[rows]
        # What a summary covers is in front of nothing any more.
        moved: Numbers = first + (self.shifts[rows] + done[self.covered[rows]])[:, None]
        return np.where(first < _NO_LIMIT, moved, _NO_LIMIT)

    def _summarize(self, state: _Holding) -> None:
        """Enter the cost of the next summary at each later call that allows one."""
        run = self.run
        covers = self.covers
        rows = state.rows[covers[state.rows] + self.rhythm.wait <= self.last]
        if not len(rows):
            return
        # Rows ascend, and so do the calls from which on each may summarize.
        begin = max(state.masking + 1, int(covers[rows[0]]) + self.rhythm.wait)
        calls = np.arange(begin, self.last + 1)
        skip = begin - state.masking - 1
        part = np.s_[: len(rows), skip:]
        raw_view = run.raw[calls] + self.shifts[rows][:, None] - self.saved[rows, begin:]
        allowed = (calls >= covers[rows][:, None] + self.rhythm.wait) & (self.summed[calls] < raw_view)
        hidden = np.concatenate(([0], np.cumsum(np.where(run.since <= state.masking, run.size, 0))))
        again = hidden[self.covered[calls]] - hidden[self.covered[rows]][:, None]
        extended = self._bill_summarizer(INSTRUCTION_TOKENS + state.tokens[part] + again, state.cached[part])
        written = np.minimum(self.written_fresh[rows, begin:], extended)
        cost = np.where(allowed, state.before[part] + self.summed_usd[calls] + written, np.inf)
        row = np.argmin(cost, axis=0)
        cheapest = cost[row, np.arange(len(calls))]
        better = cheapest < self.cost[calls, calls]
        at = calls[better]
        self.cost[at, at] = cheapest[better]
        self.summary_from[:, at] = rows[row[better]], np.full(len(at), state.masking)

    def _count_reads(self, calls: Numbers, prefix: Numbers, tokens: Numbers) -> Numbers:
        """Tokens that `calls` of `tokens` read from the cache, the first `prefix` of their views being as they were."""
        run = self.run
        rules = run.prices.cache
        if rules.kind == "none":
            return np.zeros_like(prefix)
        prefix = np.maximum(np.minimum(prefix, run.lasting[calls]), run.warm[calls])
        prefix = np.minimum(prefix, tokens)
        stepped = prefix
        if rules.step > 1:
            stepped = rules.minimum + (prefix - rules.minimum) // rules.step * rules.step
        reads: Numbers = np.minimum(np.where(prefix < rules.minimum, 0, stepped), run.most[calls])
        return reads

    def _bill(self, calls: Numbers, tokens: Numbers, cached: Numbers) -> Numbers:
        """Cost of `calls`, answers included: prompts of `tokens`, `cached` of them read from cache; USD."""
        return _bill(self.run.prices, tokens, cached, self.run.answers[calls], self.run.hour[calls])

    def _bill_summarizer(self, prompt: Numbers, cached: Numbers) -> Numbers:
        """Cost of summarizer calls with prompts of `prompt` tokens; USD."""
        return _bill(self.run.prices, prompt, cached, self.run.limit)


def _bill(prices: Prices, tokens: Numbers, cached: Numbers, output: Numbers | int, hour: Numbers | int = 0) -> Numbers:
    """`Prices.bill_call` over arrays; USD."""
    result = _bill_tier(prices, prices.tiers[0][1], tokens, cached, output, hour)
    for start, rates in prices.tiers[1:]:
        result = np.where(tokens > start, _bill_tier(prices, rates, tokens, cached, output, hour), result)
    return result


def _bill_tier(
    prices: Prices, rates: Rates, tokens: Numbers, cached: Numbers, output: Numbers | int, hour: Numbers | int
) -> Numbers:
    answers = output * (rates.output / 1e6)
    if rates.cache_read is None or prices.cache.kind == "none":
        plain: Numbers = tokens * rates.input / 1e6 + answers
        return plain
    is_written = tokens >= prices.cache.minimum
    fresh = np.where(is_written, rates.write_price, rates.input)
    kept = np.where(is_written, np.clip(np.minimum(hour, tokens) - cached, 0, None), 0)
    premium = kept * (rates.write_price_1h - rates.write_price)
    prompts: Numbers = (cached * rates.cache_read + (tokens - cached) * fresh + premium) / 1e6 + answers
    return prompts


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
