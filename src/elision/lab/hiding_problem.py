"""What to hide and when, as numbers: a recorded run of which it is known what its agent used later.

Costs are linear in tokens: the cache reads any prefix, and each call has the rates of its cheapest price tier. So no
bill of the run is below what the same plan costs here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from elision.lab.cheapest_plan import RunFigures
from elision.lab.evidence import Evidence, Use
from elision.strategies.mask_candidates import MaskCandidate
from elision.trajectory.items import find_items
from elision.trajectory.plan import Key

Numbers: TypeAlias = NDArray[Any]

#: Output tokens of a call that recalls a result, and turns for which the recalled text stays in view.
RECALL_OUTPUT_TOKENS: Final = 60
RECALLED_TURNS: Final = 10


@dataclass(frozen=True, slots=True)
class PricedUse:
    """Call `call` uses something that only the results `seen` show: `usd` if all of them are hidden by then."""

    call: int
    seen: tuple[int, ...]
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HidingProblem:
    """One run. Index t of the arrays is call t, from 1 to `last`; index j is a result that may be hidden, by place.

    fixed_usd: cost of everything if nothing is hidden, answers included.
    keep_usd: by call, USD of a token that the view before had; rewrite_usd: what it costs more if a change comes before
    it. Both in a call with a cold cache: it reads nothing, and changes are free.
    since: first call at which j may be hidden. born: first call that shows it. size, saves: tokens, and those saved.
    gaps: by result and call, tokens between j and the next result in the view of the call before.
    uses: what is missed if it is hidden, by call.
    """

    last: int
    fixed_usd: float
    keep_usd: Numbers
    rewrite_usd: Numbers
    since: Numbers
    born: Numbers
    size: Numbers
    saves: Numbers
    gaps: Numbers
    uses: Mapping[int, tuple[PricedUse, ...]]

    @property
    def count(self) -> int:
        """How many results may be hidden."""
        return len(self.since)

    @property
    def small(self) -> Numbers:
        """Tokens of each placeholder."""
        return self.size - self.saves

    def find_missed_usd(self, call: int, hidden: Numbers) -> float:
        """Return what call `call` pays to recall: the most expensive of the facts that `hidden` results hide."""
        return max((use.usd for use in self.uses.get(call, ()) if hidden[list(use.seen)].all()), default=0.0)

    def find_call_usd(self, call: int, before: Numbers, hidden: Numbers) -> float:
        """Return what call `call` costs more than if nothing were hidden. before: what the call before it hid."""
        usd = -self.keep_usd[call] * self.saves[hidden].sum()
        fresh = hidden & ~before
        if fresh.any():
            first = int(np.argmax(fresh))
            shown = (self.born < call)[first:]
            lengths = np.where(hidden, self.small, self.size)[first:] + self.gaps[first:, call]
            usd += self.rewrite_usd[call] * lengths[shown].sum()
        return float(usd) + self.find_missed_usd(call, hidden)

    def bill_plan(self, hidden_from: Numbers) -> float:
        """Return the cost of a plan in USD. hidden_from: the call at which each result is hidden; 0 for never."""
        usd = self.fixed_usd
        before = np.zeros(self.count, dtype=bool)
        for call in range(1, self.last + 1):
            hidden = (hidden_from > 0) & (hidden_from <= call)
            usd += self.find_call_usd(call, before, hidden)
            before = hidden
        return usd


@dataclass(frozen=True, slots=True)
class LinearRates:
    """USD per token: of what is read from the cache, written to it, and of the answer."""

    read: float
    write: float
    output: float


def build_problem(run: RunFigures, found: list[MaskCandidate], known: Evidence) -> HidingProblem:
    """Return the problem of a run. found: what may be hidden, in the order of the view."""
    last = len(run.raw) - 1
    rates = find_linear_rates(run, found)
    grown = np.diff(run.raw, prepend=0)
    before = np.concatenate(([0], run.raw[:-1]))
    write = np.array([each.write for each in rates])
    read = np.array([each.read for each in rates])
    output = np.array([each.output for each in rates])
    # Where part of the cache did not outlive a pause, no rewrite costs more: what may be left of it is read.
    cold = run.lasting < before
    base = np.minimum(np.where(cold, np.maximum(run.base, run.lasting), run.base), run.raw)
    keep = np.where(cold, write, read)
    # What other runs keep warm is read whatever changes: a head, as a rule, and then nothing in a warm call.
    first = np.minimum(before, run.place.min(initial=np.iinfo(np.int64).max))
    warm = np.where(cold, base, np.clip(base - first, 0, None))
    fixed = keep * before + write * grown + output * run.answers - (write - read) * warm
    ends = run.place + run.size
    following = np.concatenate((run.place[1:], [np.iinfo(np.int64).max]))
    gaps = np.clip(np.minimum(following[:, None], before[None, :]) - ends[:, None], 0, None)
    smallest = run.raw - _add_up_savings(run, last)
    return HidingProblem(
        last=last,
        fixed_usd=float(fixed[1:].sum()),
        keep_usd=keep,
        rewrite_usd=np.where(cold, 0.0, write - read),
        since=run.since,
        born=run.turn + 1,
        size=run.size,
        saves=run.saves,
        gaps=gaps,
        uses=_price_uses(found, known, rates, smallest, run.size),
    )


def price_recall(rates: LinearRates, view_tokens: int, result_tokens: int) -> float:
    """Return what it costs to recall a result: one more call on a cached view, and the result until it is old."""
    call = rates.read * view_tokens + rates.output * RECALL_OUTPUT_TOKENS
    return call + result_tokens * (rates.write + rates.read * RECALLED_TURNS)


def find_linear_rates(run: RunFigures, found: list[MaskCandidate]) -> list[LinearRates]:
    """Return for each call the lowest rates that its view may have, whatever is hidden."""
    smallest = run.raw - _add_up_savings(run, len(run.raw) - 1)
    made = []
    for least, most, hour in zip(smallest, run.raw, run.hour, strict=True):
        starts = [start for start, _ in run.prices.tiers] + [1 << 60]
        tiers = [
            rates
            for place, (start, rates) in enumerate(run.prices.tiers)
            if start < max(1, most) and starts[place + 1] >= least
        ]
        is_cached = run.prices.cache.kind != "none"
        write = [
            (rates.write_price_1h if hour >= most else rates.write_price)
            if is_cached and rates.cache_read is not None and least >= run.prices.cache.minimum
            else min(rates.input, rates.write_price)
            for rates in tiers
        ]
        read = [min(rates.read_price, rates.input) if is_cached else rates.input for rates in tiers]
        lowest = min(write)
        made.append(
            LinearRates(
                read=min(*read, lowest) / 1e6, write=lowest / 1e6, output=min(rates.output for rates in tiers) / 1e6
            )
        )
    return made


def _add_up_savings(run: RunFigures, last: int) -> Numbers:
    """By call: tokens saved if everything that may be hidden by then is."""
    saved = np.zeros(last + 1, dtype=np.int64)
    seen = run.since <= last
    np.add.at(saved, run.since[seen], run.saves[seen])
    return saved.cumsum()


def _price_uses(
    found: list[MaskCandidate], known: Evidence, rates: list[LinearRates], smallest: Numbers, size: Numbers
) -> dict[int, tuple[PricedUse, ...]]:
    """Return by call the uses that hiding can lose: no placeholder names them, and no result that stays shows them."""
    places: dict[Key, int] = {candidate.key: place for place, candidate in enumerate(found)}
    kept_items = [frozenset(find_items(candidate.text)) for candidate in found]
    priced: dict[int, tuple[PricedUse, ...]] = {}
    for call, uses in known.uses.items():
        if call >= len(rates):
            continue
        own: dict[tuple[int, ...], float] = {}
        for use in uses:
            seen = _find_places(use, places, kept_items)
            if seen:
                own[seen] = price_recall(rates[call], int(smallest[call]), int(min(size[place] for place in seen)))
        if own:
            priced[call] = tuple(PricedUse(call, seen, usd) for seen, usd in own.items())
    return priced


def _find_places(use: Use, places: Mapping[Key, int], kept_items: list[frozenset[str]]) -> tuple[int, ...]:
    """Return the results that all have to be hidden for `use` to be missed; none if it cannot be."""
    seen = []
    for key in dict.fromkeys(use.seen):
        place = places.get(key)
        if place is None or use.item in kept_items[place]:
            return ()
        seen.append(place)
    return tuple(sorted(seen))
