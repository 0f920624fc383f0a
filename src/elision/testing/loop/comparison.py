"""Compare variants task by task: paired differences with bootstrap intervals, as a table and as a chart.

Where the interval allows no more than `MARGIN`, success is not inferior.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist, fmean
from typing import Final

import msgspec

from elision.errors import SettingError
from elision.lab.ratios import CONFIDENCE, Interval, bootstrap_mean, bootstrap_ratio
from elision.lab.report.svg import PADDING, PAPER, WIDTH, Axis, Drawing, Span, draw_spans, find_ends, measure_text
from elision.telemetry.context_report import format_signed
from elision.testing.loop.closed_loop import TaskOutcome

#: Points of solved tasks that a variant may be worse by and still count as not inferior.
MARGIN: Final = 0.05
RESAMPLES: Final = 4_000


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A variant beside the baseline, over the tasks that both did.

    solved:      share of tasks, and `solved_change` its difference from the baseline's with an interval.
    not_inferior: whether that interval lies above -MARGIN.
    calls, usd, recalls, rereads, wrong: means of a task. calls_ratio, usd_ratio: to the baseline, of the sums.
    usd_per_solved: USD of all tasks over the solved ones; None where none is.
    """

    variant: str
    prices: str
    tasks: int
    solved: float
    solved_change: float
    solved_interval: Interval
    not_inferior: bool
    calls: float
    calls_ratio: float
    calls_interval: Interval
    usd: float
    usd_ratio: float
    usd_interval: Interval
    usd_per_solved: float | None
    recalls: float
    rereads: float
    wrong: float


def compare_variants(outcomes: Iterable[TaskOutcome]) -> list[Comparison]:
    """Return a comparison with `raw` for each variant at each price list, in the order in which they come.

    Raises SettingError where `raw` did not do the tasks.
    """
    runs: dict[tuple[str, str], dict[tuple[str, int], TaskOutcome]] = {}
    for outcome in outcomes:
        runs.setdefault((outcome.prices, outcome.variant), {})[outcome.family, outcome.seed] = outcome
    found = []
    for (prices, variant), own in runs.items():
        base = runs.get((prices, "raw"), {})
        tasks = [task for task in own if task in base]
        if not tasks:
            raise SettingError(f"there is nothing to compare {variant!r} with: 'raw' did none of its tasks")
        found.append(_compare(prices, variant, [own[task] for task in tasks], [base[task] for task in tasks]))
    return found


def _compare(prices: str, variant: str, own: Sequence[TaskOutcome], base: Sequence[TaskOutcome]) -> Comparison:
    changes = [float(mine.solved) - float(other.solved) for mine, other in zip(own, base, strict=True)]
    interval = bootstrap_mean(changes, resamples=RESAMPLES)
    solved = sum(each.solved for each in own)
    calls, base_calls = [float(each.calls) for each in own], [float(each.calls) for each in base]
    usd, base_usd = [each.usd for each in own], [each.usd for each in base]
    return Comparison(
        variant=variant,
        prices=prices,
        tasks=len(own),
        solved=solved / len(own),
        solved_change=fmean(changes),
        solved_interval=interval,
        not_inferior=interval.low > -MARGIN,
        calls=fmean(calls),
        calls_ratio=sum(calls) / sum(base_calls),
        calls_interval=bootstrap_ratio(calls, base_calls, resamples=RESAMPLES),
        usd=fmean(usd),
        usd_ratio=sum(usd) / sum(base_usd),
        usd_interval=bootstrap_ratio(usd, base_usd, resamples=RESAMPLES),
        usd_per_solved=sum(usd) / solved if solved else None,
        recalls=fmean(each.recalls for each in own),
        rereads=fmean(each.rereads for each in own),
        wrong=fmean(each.wrong for each in own),
    )


def count_pairs(difference: float, discordant: float, *, power: float = 0.8) -> int:
    """Return how many pairs of runs show a difference in solved tasks.

    difference: of the shares, such as 0.05. discordant: share of pairs of which exactly one run solves its task.
    power: chance to find the difference, two-sided at 95 %.
    Source: Connor, R. J. (1987), Sample size for testing differences in proportions for the paired-sample design,
    Biometrics 43, 207; its normal approximation.
    Raises SettingError where the difference is 0 or larger than the discordant share allows.
    """
    if not 0 < difference <= discordant <= 1:
        raise SettingError(
            f"a difference of {difference} needs at least that share of discordant pairs, not {discordant}"
        )
    normal = NormalDist()
    sure, found = normal.inv_cdf((1 + CONFIDENCE) / 2), normal.inv_cdf(power)
    spread = sure * math.sqrt(discordant) + found * math.sqrt(discordant - difference**2)
    return math.ceil((spread / difference) ** 2)


def count_pairs_for_margin(margin: float, discordant: float, *, power: float = 0.8) -> int:
    """Return how many pairs show that a variant that is as good as the other is not worse by `margin` or more."""
    normal = NormalDist()
    total = normal.inv_cdf((1 + CONFIDENCE) / 2) + normal.inv_cdf(power)
    return math.ceil(discordant * (total / margin) ** 2)


def format_comparisons(comparisons: Sequence[Comparison]) -> str:
    """Return a table for each price list."""
    by_prices: dict[str, list[Comparison]] = {}
    for each in comparisons:
        by_prices.setdefault(each.prices, []).append(each)
    return "\n\n".join(_format_table(prices, rows) for prices, rows in by_prices.items())


def _format_table(prices: str, rows: Sequence[Comparison]) -> str:
    width = max(len(row.variant) for row in rows)
    lines = [
        f"{prices}, {rows[0].tasks} tasks, beside raw",
        f"{'strategy':{width}} {'solved':>6} {'change, points':>16} {'':9} {'calls':>6} {'x raw':>5} {'USD':>7} "
        f"{'x raw':>5} {'95 %':>11} {'$/solved':>8} {'recalls':>7} {'rereads':>7} {'wrong':>5}",
    ]
    for row in rows:
        low, high = 100 * row.solved_interval.low, 100 * row.solved_interval.high
        change = f"{format_signed(100 * row.solved_change)} ({format_signed(low)} … {format_signed(high)})"
        per_solved = "–" if row.usd_per_solved is None else f"{row.usd_per_solved:.3f}"
        lines.append(
            f"{row.variant:{width}} {100 * row.solved:4.0f} % {change:>20} {'not worse' if row.not_inferior else '':9} "
            f"{row.calls:6.1f} {row.calls_ratio:5.2f} {row.usd:7.3f} {row.usd_ratio:5.2f} "
            f"{row.usd_interval.low:5.2f}–{row.usd_interval.high:4.2f} {per_solved:>8} {row.recalls:7.1f} "
            f"{row.rereads:7.1f} {row.wrong:5.2f}"
        )
    return "\n".join(lines)


# -- the chart: cost beside raw, and solved tasks ---------------------------------------------------------------------


#: Pixels between both panels.
_GAP: Final = 36


def render_chart(comparisons: Sequence[Comparison]) -> str:
    """Return the chart as SVG: for each price list cost with its interval, and the change in solved tasks."""
    drawing = Drawing(WIDTH, PAPER)
    drawing.add_heading(
        "The closed loop: what a strategy costs and whether the agent still succeeds",
        [f"Against sending everything, in pairs, with 95 % intervals. Not worse: above −{100 * MARGIN:.0f} points."],
    )
    blue = PAPER.slots["blue"]
    names = max((measure_text(each.variant, 12) for each in comparisons), default=0.0) + 12
    middle = (names + WIDTH) / 2
    for prices in dict.fromkeys(each.prices for each in comparisons):
        own = [each for each in comparisons if each.prices == prices and each.variant != "raw"]
        drawing.add_text(0, drawing.bottom + 10, prices, font_weight="bold")
        top = drawing.bottom = drawing.bottom + 24
        costs = [
            Span(each.variant, each.usd_ratio, each.usd_interval.low, each.usd_interval.high, blue) for each in own
        ]
        _draw_panel(drawing, costs, "cost / raw", 1.0, (names, middle - _GAP / 2))
        drawing.bottom = top
        changes = [
            Span("", 100 * each.solved_change, 100 * each.solved_interval.low, 100 * each.solved_interval.high, blue)
            for each in own
        ]
        _draw_panel(drawing, changes, "solved tasks, change in points", 0.0, (middle + _GAP / 2, WIDTH))
        drawing.bottom += 12
    return drawing.render(padding=PADDING)


def _draw_panel(drawing: Drawing, spans: Sequence[Span], title: str, neutral: float, ends: tuple[float, float]) -> None:
    low, high = find_ends([neutral, *(end for span in spans for end in (span.low, span.high))])
    draw_spans(drawing, spans, Axis(title=title, low=low, high=high, write=_write_tick), neutral, ends)


def _write_tick(value: float, step: float) -> str:
    return f"{value:.{0 if step >= 1 else 1}f}".replace("-", "−")
