"""Where cache breakpoints are put: what the bill is, and what it would be with the best places in hindsight.

Two yardsticks, of which a placement reaches neither in every call. *Everywhere*: each prefix that an earlier request
had is read, as if every block had a breakpoint. *Hindsight*: besides, nothing is written that no later request reads.

Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from benchmarks.recordings import load_recordings
from elision.engine import Log
from elision.lab.replay import replay_run
from elision.lab.run_as_recorded import add_recorded_head, sizer
from elision.lab.run_loading import find_named_prices
from elision.strategies.spec import parse_strategy
from elision.trajectory.cache import PromptCache
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory

#: Prices -> the API whose messages are counted. Anthropic has four breakpoints, OpenAI from 5.6 on three explicit ones.
PRICES: Final = {"claude-opus-5-5": "anthropic", "claude-fable-5-2": "anthropic", "gpt-5.6": "openai"}
STRATEGIES: Final = ("raw", "masking", "hybrid")
#: What the places must reach, as cost / hindsight.
MOST: Final = 1.02


@dataclass(frozen=True, slots=True)
class Sent:
    """One request. model: whose cache it reads. tokens: of its prompt. read: of these, with breakpoints everywhere."""

    model: str
    tokens: int
    read: int


@dataclass(frozen=True, slots=True)
class Costs:
    """A run, in USD with output: as its breakpoints are, with some everywhere, and with the best in hindsight."""

    placed: float
    everywhere: float
    hindsight: float


def main(*, small: bool = False) -> None:
    runs = load_recordings(small=small)
    print(f"{len(runs)} runs. Cost / everywhere, cost / hindsight: total, median, worst run.")
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for name in PRICES:
            for spec in STRATEGIES:
                found = list(pool.map(partial(cost_run, spec=spec, name=name), runs, chunksize=4))
                _print_row(f"{name}, {spec}", found)


def _print_row(name: str, found: Sequence[Costs]) -> None:
    cells = []
    for title in ("everywhere", "hindsight"):
        whole = sum(each.placed for each in found) / sum(getattr(each, title) for each in found)
        ratios = sorted(each.placed / getattr(each, title) for each in found)
        cells.append(f"{whole:.3f} {ratios[len(ratios) // 2]:.3f} {ratios[-1]:.3f}")
    verdict = "met" if whole <= MOST else "missed"
    print(f"  {name:28}" + "   ".join(cells) + f"   {verdict}", flush=True)


def cost_run(run: Trajectory, spec: str, name: str) -> Costs:
    """Return what `run` costs with each placement. The decisions are the same in all of them."""
    prices, counting = find_named_prices(name), sizer(PRICES[name], "o200k")
    run = add_recorded_head(run, counting)
    # Whatever an earlier request of the run began with is found, wherever its breakpoints were.
    cache = PromptCache(replace(prices.cache, kind="prefix", look_back=0), run.head.warm_tokens)
    sent: list[Sent] = []
    prompts_usd = 0.0

    def watch(log: Log) -> None:
        nonlocal prompts_usd
        newest = log.newest_call
        assert newest is not None
        read = cache.record_request(newest.view, newest.terms.now, newest.model, anew=newest.begins_anew)
        sent.append(Sent(newest.model, newest.view.tokens, read))
        prompts_usd += log.money.newest_prompt.usd

    placed = replay_run(run, parse_strategy(spec), prices, counting, watch=watch).usd
    everywhere = placed - prompts_usd + sum(prices.bill_call(each.tokens, each.read).usd for each in sent)
    return Costs(placed, everywhere, everywhere - sum(cost_unread(place, sent, prices) for place in range(len(sent))))


def cost_unread(place: int, sent: Sequence[Sent], prices: Prices) -> float:
    """Return what it costs that a request writes tokens which no later one reads, in USD."""
    own = sent[place]
    following = next((each.read for each in sent[place + 1 :] if each.model == own.model), 0)
    rates = prices.find_rates(own.tokens)
    unread = max(0, own.tokens - max(own.read, following))
    return unread * max(0.0, rates.write_price - rates.input) / 1e6
