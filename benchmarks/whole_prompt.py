"""What the whole bill becomes by default: the targets by price ratio and length of runs, and the causes that are left.

Each run is replayed as its agent sent it and under `masking`, with the same counts and cache. The causes are those of
`elision audit`: it is told the requests of both replays, at the prices of the flagship. Rewrites of the cache by
Elision are a changed prefix there. Habits overlap the causes and each other.

Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Final

from benchmarks.recordings import load_recordings
from elision.audit.cause_table import CAUSES
from elision.audit.run_partition import partition_requests
from elision.engine import Log
from elision.engine.money import count_output_tokens
from elision.lab.recorded_requests import RecordedRequest
from elision.lab.replay import replay_run
from elision.lab.run_as_recorded import add_recorded_head, calls, size_run, sizer
from elision.lab.run_loading import RECOMMENDED, find_named_prices
from elision.lab.sent_rows import replay_as_sent
from elision.strategies.spec import parse_strategy
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage
from elision.trajectory.view import View

#: Cache reads x input -> a price list with that ratio. The causes are told at the second.
PRICES: Final = {"0.1": "anthropic", "0.05": "claude-opus-5-5", "0.025": "claude-fable-5-2"}
FLAGSHIP: Final = "0.05"
#: Calls from which on a run is long.
LONG: Final = 40
#: Targets at 0.05 x: the median and the total of long runs, the worst of them, the median of short runs.
MOST_MEDIAN, MOST_TOTAL, MOST_WORST, MOST_SHORT = 0.88, 0.82, 1.02, 0.94
#: Turns after which the agent's own words are old.
OLD_TURNS: Final = 10
#: What overlaps the causes: habits of the agent, by their names in an audit, and its own old words.
OVERLAPPING: Final = {
    "reads-apart": "reads that could have been one step",
    "whole-files": "files written again",
    "large-results": "results, beyond 4,000 tokens",
    "old-words": f"the agent's own words after {OLD_TURNS} turns",
}


@dataclass(slots=True)
class Sent:
    """One run, or several, as it was sent or would be: USD in all, by cause, and of what overlaps the causes."""

    usd: float = 0.0
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run at one price list: as recorded, and under the default."""

    calls: int
    recorded: Sent
    default: Sent

    @property
    def ratio(self) -> float:
        return self.default.usd / self.recorded.usd


def main(*, small: bool = False) -> None:
    runs = [run for run in load_recordings(small=small) if run.turns]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(replay_ratios, runs))
    print(f"The default / as recorded, {len(runs)} runs")
    print(f"  {'reads':8} {'calls':12} {'runs':>4} {'share of the bill':>17} {'median':>7} {'total':>6} {'worst':>6}")
    for ratio in PRICES:
        print_ratio(ratio, [found[ratio] for found in outcomes])
    flagship = [found[FLAGSHIP] for found in outcomes]
    print_targets(flagship)
    print_causes(flagship)


def replay_ratios(run: Trajectory) -> dict[str, Outcome]:
    """Return what `run` costs at each price ratio; with the causes at that of the flagship."""
    return {
        ratio: replay_both(run, find_named_prices(name), has_causes=ratio == FLAGSHIP) for ratio, name in PRICES.items()
    }


def replay_both(run: Trajectory, prices: Prices, *, has_causes: bool) -> Outcome:
    """Replay `run` as recorded and under the default."""
    plain = sizer("openai", "o200k")
    run = add_recorded_head(run, size_run(run, prices, plain))
    counting = size_run(run, prices, plain)
    sent: list[tuple[View, Bill]] = []
    as_sent = replay_as_sent(run, prices, counting, watch=partial(keep_call, sent))
    recorded, default = Sent(as_sent.usd), Sent()
    ours: list[tuple[View, Bill]] = []
    strategy = parse_strategy(RECOMMENDED)
    default.usd = replay_run(run, strategy, prices, counting, sent=as_sent.sent, watch=partial(keep_call, ours)).usd
    if has_causes:
        recorded.parts = list_parts(run, build_requests(run, sent, counting, as_sent.sent.cuts), prices, counting)
        default.parts = list_parts(run, build_requests(run, ours, counting), prices, counting)
    return Outcome(len(run.turns), recorded, default)


def keep_call(kept: list[tuple[View, Bill]], session: Log) -> None:
    newest = session.newest_call
    assert newest is not None
    kept.append((newest.view, session.money.newest_prompt))


def build_requests(
    run: Trajectory, sent: Iterable[tuple[View, Bill]], counting: Sizer, cuts: Container[int] = ()
) -> list[RecordedRequest]:
    """Return the requests of a replay as an audit reads them. cuts: calls before which the agent condensed."""
    return [
        RecordedRequest(
            call=turn.index,
            now=now,
            model=model or run.model,
            usage=Usage(
                input=bill.input,
                cache_read=bill.cache_read,
                cache_write=bill.cache_write,
                cache_write_1h=bill.cache_write_1h,
                output=count_output_tokens(turn, counting),
            ),
            counted=view,
            billed=view,
            restart="recorded" if turn.index in cuts else "",
        )
        for turn, (now, model), (view, bill) in zip(run.turns, calls(run), sent, strict=True)
    ]


def list_parts(
    run: Trajectory, requests: Sequence[RecordedRequest], prices: Prices, counting: Sizer
) -> dict[str, float]:
    """Return what of the bill of `requests` each cause is, and what overlaps the causes, in USD."""
    found: defaultdict[str, float] = defaultdict(float)
    for call in partition_requests(run, requests, counting, price=lambda model, day: prices)[1]:
        for part, total in (*call.causes.items(), *call.habits.items()):
            found[part] += total.usd
    for request in requests:
        read_price = prices.find_rates(request.usage.prompt).read_price
        old = sum(
            segment.tokens
            for segment in request.counted.segments
            if segment.kind == "assistant" and segment.turn < request.call - OLD_TURNS
        )
        found["old-words"] += old * read_price / 1e6
    return dict(found)


def print_ratio(ratio: str, outcomes: Sequence[Outcome]) -> None:
    bill = add_up(each.recorded for each in outcomes).usd
    for title, chosen in (
        (f"{LONG} or more", list_long(outcomes)),
        (f"under {LONG}", list_short(outcomes)),
        ("all", list(outcomes)),
    ):
        if not chosen:
            continue
        share = add_up(each.recorded for each in chosen).usd / bill
        middle, worst = median(each.ratio for each in chosen), max(each.ratio for each in chosen)
        cells = f"{len(chosen):4} {share:17.1%} {middle:7.3f} {measure_total(chosen):6.3f} {worst:6.3f}"
        print(f"  {ratio + ' x':8} {title:12} {cells}")


def print_targets(outcomes: Sequence[Outcome]) -> None:
    """Print which targets are met at the prices of the flagship."""
    print(f"Targets at reads of {FLAGSHIP} x")
    if long := list_long(outcomes):
        print_target(f"median of {LONG} calls or more", median(each.ratio for each in long), MOST_MEDIAN)
        print_target(f"total of {LONG} calls or more", measure_total(long), MOST_TOTAL)
        print_target(f"worst of {LONG} calls or more", max(each.ratio for each in long), MOST_WORST)
    if short := list_short(outcomes):
        print_target(f"median under {LONG} calls", median(each.ratio for each in short), MOST_SHORT)
        print_target(f"worst under {LONG} calls", max(each.ratio for each in short), MOST_WORST)


def print_target(title: str, figure: float, most: float) -> None:
    print(f"  {title:26} {figure:6.3f}  target {most:.2f}: {'met' if round(figure, 3) <= most else 'missed'}")


def print_causes(outcomes: Sequence[Outcome]) -> None:
    """Print each cause before and after, in per cent of what the agents' requests cost."""
    recorded = add_up(each.recorded for each in outcomes)
    default = add_up(each.default for each in outcomes)
    print(f"Causes in % of the recorded bill at reads of {FLAGSHIP} x   as recorded, by default")
    for cause in sorted(CAUSES, key=lambda cause: -recorded.parts.get(cause, 0.0)):
        if cause in recorded.parts or cause in default.parts:
            print_part(CAUSES[cause].title, cause, recorded, default)
    for each in (recorded, default):
        each.parts["all"] = sum(each.parts.get(cause, 0.0) for cause in CAUSES)
    print_part("all", "all", recorded, default)
    print("Overlapping these")
    for part, title in OVERLAPPING.items():
        print_part(title, part, recorded, default)


def print_part(title: str, part: str, recorded: Sent, default: Sent) -> None:
    before, after = (100 * each.parts.get(part, 0.0) / recorded.usd for each in (recorded, default))
    print(f"  {title:42} {before:6.1f} {after:6.1f}")


def list_long(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.calls >= LONG]


def list_short(outcomes: Iterable[Outcome]) -> list[Outcome]:
    return [each for each in outcomes if each.calls < LONG]


def measure_total(outcomes: Sequence[Outcome]) -> float:
    """Return what the default costs over all of `outcomes` / as recorded."""
    return add_up(each.default for each in outcomes).usd / add_up(each.recorded for each in outcomes).usd


def add_up(parts: Iterable[Sent]) -> Sent:
    total = Sent()
    for each in parts:
        total.usd += each.usd
        for part, usd in each.parts.items():
            total.parts[part] = total.parts.get(part, 0.0) + usd
    return total
