"""The report of cost against solve rate: strategies, their differences, and what was not joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from elision.lab.outcomes import OutcomeStudy, PairedDifference, StrategyOutcome
from elision.lab.ratios import Interval, bootstrap_mean
from elision.lab.report.figures import (
    NOTHING,
    format_count,
    format_plural,
    format_share,
    format_turns,
    format_usd,
    neutralize_text,
    shorten_strategies,
)
from elision.lab.report.report import (
    Bar,
    BarChart,
    Chart,
    Column,
    Provenance,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
)
from elision.lab.report.sent_wording import describe_mixture, describe_uncertain_cuts, list_marks
from elision.lab.report.svg import Drawing, assign_looks, plot_shares, write_usd_tick
from elision.lab.results import RECORDED, SentSummary
from elision.telemetry.context_report import MINUS

#: Names that a line lists.
_NAMED: Final = 5
#: Pixels of the plot.
_HEIGHT: Final = 380
COLUMNS: Final = (
    Column("runs", 7),
    Column("solved", 9),
    Column("solve rate", 8),
    Column("95 % interval", 5),
    Column("as billed", 10),
    Column("as recorded", 7),
    Column("cost a solution", 6),
    Column("summaries", 1),
    Column("mean turns", 4),
)
DIFFERENCES: Final = (
    Column("cost a run", 10),
    Column("95 % interval", 7),
    Column("share", 9),
    Column("solve rate", 8),
    Column("95 % interval ", 6),
    Column("solved anew", 3),
    Column("lost", 2),
    Column("turns", 4),
)


def build_outcomes_report(study: OutcomeStudy, made_by: Provenance | None = None) -> Report:
    """Return the report of `study`. made_by: what it says of its making."""
    count = format_plural(len(study.strategies), "strategy", "strategies")
    instances = format_plural(max(len(row.joined) for row in study.strategies), "instance")
    return Report(
        command="lab outcomes",
        headline=write_headline(study),
        scope=[Sentence(f"{count}, at most {instances} each.")],
        sections=list(_build_sections(study)),
        data=study.to_json(),
        made_by=made_by,
    )


def _build_sections(study: OutcomeStudy) -> Iterator[Section]:
    names = name_strategies(study)
    if any(row.mean_usd is not None for row in study.strategies):
        what = "points: mean cost and share of instances solved of each strategy"
        text = (
            "Further up solves more, further left is cheaper. Lines are 95 % intervals: Wilson's for the share, a"
            " bootstrap over instances for the cost."
        )
        draw = partial(_draw_points, study.shared or study.strategies)
        yield Section("Cost against solve rate", [Chart("outcomes", what, draw)], text, only="page")
        yield Section("Mean cost of a run, and instances solved", _list_bars(study, names), only="terminal")
    yield Section("", [_build_table(COLUMNS, [(names[row.strategy], format_cells(row)) for row in study.strategies])])
    if study.differences and not study.is_same_set:
        count = format_plural(len(study.shared[0].joined), "instance")
        shared = [(names[row.strategy], format_cells(row)) for row in study.shared]
        yield Section(f"The same on the {count} that all strategies have", [_build_table(COLUMNS, shared)])
    if study.differences:
        pairs = [(names[each.strategy], format_difference(each)) for each in study.differences]
        first = study.differences[0]
        basis = ", cost as recorded" if any(each.basis == RECORDED for each in study.differences) else ""
        instances = format_plural(first.instances, "instance")
        title = f"Differences from {neutralize_text(first.baseline)}, on the same {instances}{basis}"
        yield Section(title, [_build_table(DIFFERENCES, pairs)])
    yield Section("Notes", list(map(Sentence, list_notes(study))))


def _list_bars(study: OutcomeStudy, names: Mapping[str, str]) -> list[BarChart]:
    """Return bars of the strategies whose cost is known, for a terminal; [] where there is one only."""
    bars = [
        Bar(
            names[row.strategy],
            f"{format_usd(row.mean_usd)}, {format_share(row.rate)} solved",
            [("", "", row.mean_usd)],
        )
        for row in study.shared or study.strategies
        if row.mean_usd is not None
    ]
    chart = BarChart("costs", "bars: the mean cost of a run with each strategy", bars, "USD")
    return [chart] if len(bars) > 1 else []


def _build_table(columns: Sequence[Column], rows: Sequence[tuple[str, Sequence[str]]]) -> Table:
    """Return a table of the columns that have something to say."""
    kept = [place for place in range(len(columns)) if any(cells[place] not in (NOTHING, "0 %") for _, cells in rows)]
    return Table(
        [Column("strategy"), *(columns[place] for place in kept)],
        [TableRow([name, *(cells[place] for place in kept)]) for name, cells in rows],
    )


def name_strategies(study: OutcomeStudy) -> dict[str, str]:
    """Return a short name for each strategy, with what its recordings lack."""
    names = shorten_strategies([row.strategy for row in study.strategies])
    marks = {row.strategy: list_marks(row.sending) for row in study.strategies}
    return {label: f"{name} ({', '.join(marks[label])})" if marks[label] else name for label, name in names.items()}


def write_headline(study: OutcomeStudy) -> str:
    """Return the best and the cheapest strategy in a sentence or two; of different instances nothing is compared."""
    if len(study.strategies) > 1 and not study.shared:
        count = format_count(len(study.strategies))
        return f"{count} strategies without a common instance: their figures do not compare."
    rows = study.shared or study.strategies
    most = max(row.rate for row in rows)
    best = next(row for row in rows if row.rate == most)
    priced = [row for row in rows if row.mean_usd is not None]
    if not priced:
        return f"{neutralize_text(best.strategy)} solves most: {_describe_solved(best)}. {_describe_unbilled(rows)}"
    cheapest = min(priced, key=lambda row: row.mean_usd or 0.0)
    name = neutralize_text(cheapest.strategy)
    if cheapest.rate == most:
        ending = ", the least, and none solves more" if len(rows) > 1 else ""
        return f"{name} costs {format_usd(cheapest.mean_usd)} a run{ending}: {_describe_solved(cheapest)}."
    return (
        f"{neutralize_text(best.strategy)} solves most: {_describe_solved(best)}, at {format_usd(best.mean_usd)} "
        f"a run. {name} costs least: {format_usd(cheapest.mean_usd)} a run, {_describe_solved(cheapest)}."
    )


def _describe_unbilled(rows: Sequence[StrategyOutcome]) -> str:
    """Return which strategy costs least by what was sent, where no bill is known."""
    counted = [row for row in rows if row.mean_recorded_usd is not None]
    if not counted:
        return "No cost is known."
    least = min(counted, key=lambda row: row.mean_recorded_usd or 0.0)
    return (
        f"No bill is known; as recorded {neutralize_text(least.strategy)} costs least, "
        f"{format_usd(least.mean_recorded_usd)} a run."
    )


def _describe_solved(row: StrategyOutcome) -> str:
    return f"{format_count(row.solved)} of {format_count(len(row.joined))} ({format_share(row.rate)})"


def format_cells(row: StrategyOutcome) -> list[str]:
    """Return the cells of a strategy, in the order of `COLUMNS`."""
    interval = row.rate_interval
    return [
        format_count(len(row.joined)),
        format_count(row.solved),
        _format_percent(row.rate),
        f"{_format_percent(interval.low)} to {_format_percent(interval.high)}",
        format_usd(row.mean_usd) + ("*" if 0 < len(row.costs) < len(row.joined) else ""),
        format_usd(row.mean_recorded_usd),
        format_usd(row.usd_per_solved),
        format_share(row.summary_share),
        format_turns(row.mean_turns),
    ]


def format_difference(each: PairedDifference) -> list[str]:
    """Return the cells of a difference, in the order of `DIFFERENCES`."""
    return [
        _format_signed(each.usd, format_usd),
        _format_range(each.usd_interval, lambda usd: _format_signed(usd, format_usd)),
        _format_signed(each.usd_share, _format_percent),
        _format_points(each.rate),
        _format_range(each.rate_interval, _format_points),
        format_count(each.gained),
        format_count(each.lost),
        _format_signed(each.turns, format_turns),
    ]


def list_notes(study: OutcomeStudy) -> Iterator[str]:
    """Yield what a reader has to know: what has no partner, whose cost is not known, how runs ended."""
    yield from _list_cost_notes(study)
    yield from _list_sent_notes(study)
    for row in study.strategies:
        if row.endings:
            words = ", ".join(f"{neutralize_text(word)} {format_count(count)}" for word, count in row.endings.items())
            yield f"How runs of {neutralize_text(row.strategy)} ended: {words}."
    if study.no_outcome:
        named = _list_names([f"{run.strategy}: {run.name or run.instance}" for run in study.no_outcome])
        yield f"{format_plural(len(study.no_outcome), 'run')} without an outcome, left out: {named}."
    if study.no_run:
        named = _list_names(
            [f"{each.strategy}: {each.instance}" if each.strategy else each.instance for each in study.no_run]
        )
        yield f"{format_plural(len(study.no_run), 'outcome')} without a run, left out: {named}."
    if study.problems:
        yield f"{format_plural(len(study.problems), 'problem')}, first: {neutralize_text(study.problems[0])}"


def _list_cost_notes(study: OutcomeStudy) -> Iterator[str]:
    runs = [run for row in study.strategies for run in row.joined]
    unknown = [run for run in runs if run.usd is None]
    if unknown:
        yield (
            f"* {format_plural(len(unknown), 'run')} without a known cost, not in the mean: "
            f"{_list_names([f'{run.strategy}: {run.instance}' for run in unknown])}; --model prices the recorded usage."
        )
    silent = sum(run.silent_calls for run in runs)
    if silent:
        yield f"Calls without a reported usage, which count as free: {format_count(silent)}."
    played = [run for run in runs if run.played]
    if played:
        yield f"{format_plural(len(played), 'run')} played by a recording: they were not billed."


def _list_sent_notes(study: OutcomeStudy) -> Iterator[str]:
    """Yield what recordings lack, and where a strategy's runs are not what its name says."""
    sent = sum((row.sending for row in study.strategies), SentSummary())
    if not sent.runs:
        return
    yield (
        "As billed: the stated cost, or the reported usage at list prices. As recorded: what was sent, simulated as"
        " replays are."
    )
    if study.priced_as:
        name = neutralize_text(study.priced_as)
        yield f"Here both are at the prices of {name}, so as billed is the reported usage, and not a real bill."
    if sent.silent_runs:
        runs = format_plural(sent.silent_runs, "run")
        yield f"{runs} without usage: as billed is what they state as a whole, as recorded our count of what was sent."
    for row in study.strategies:
        if row.sending.condensed_runs:
            runs = f"{format_count(row.sending.condensed_runs)} of {format_plural(row.sending.runs, 'run')}"
            yield (
                f"The agents of {runs} of {neutralize_text(row.strategy)} condensed their own history: its figures are"
                " of what was sent, and sending everything never happened there."
            )
    yield from describe_uncertain_cuts(sent)
    yield from describe_mixture(sent)


def _list_names(names: Sequence[str]) -> str:
    more = f" and {format_count(len(names) - _NAMED)} more" if len(names) > _NAMED else ""
    return neutralize_text(", ".join(names[:_NAMED])) + more


def _format_percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def _format_signed(value: float | None, format_amount: Callable[[float], str]) -> str:
    if value is None:
        return NOTHING
    return f"{MINUS if value < 0 else '+'}{format_amount(abs(value))}"


def _format_points(share: float) -> str:
    """Return a difference of shares in percentage points."""
    return _format_signed(share, lambda size: f"{size * 100:.1f} pp")


def _format_range(interval: Interval | None, format_end: Callable[[float], str]) -> str:
    if interval is None:
        return NOTHING
    return f"{format_end(interval.low)} to {format_end(interval.high)}"


def _draw_points(rows: Sequence[StrategyOutcome], drawing: Drawing) -> None:
    """Draw a point with its intervals for each strategy whose cost is known; a key names them: they may be close."""
    ink = drawing.ink
    names = shorten_strategies([row.strategy for row in rows])
    looks = assign_looks([row.strategy for row in rows])
    known = [(row, row.mean_usd, bootstrap_mean(row.costs)) for row in rows if row.mean_usd is not None]
    drawing.add_key(
        (looks[row.strategy].shape, ink.slots[looks[row.strategy].slot], names[row.strategy]) for row, _, _ in known
    )
    corners = [
        (usd, share)
        for row, _, cost in known
        for usd, share in ((cost.low, row.rate_interval.low), (cost.high, row.rate_interval.high))
    ]
    titles = "mean cost of a run as billed, USD", "instances solved"
    plot = plot_shares(drawing, corners, titles, write_usd_tick, _HEIGHT)
    for row, usd, cost in known:
        x, y = plot.place((usd, row.rate))
        colour = ink.slots[looks[row.strategy].slot]
        share = row.rate_interval
        for ends in (
            (x, plot.place_y(share.low), x, plot.place_y(share.high)),
            (plot.place_x(cost.low), y, plot.place_x(cost.high), y),
        ):
            drawing.add_line(*ends, colour, stroke_width=1.6, opacity=0.55, class_="interval")
    for row, usd, _ in known:
        look = looks[row.strategy]
        drawing.add_mark(*plot.place((usd, row.rate)), look.shape, ink.slots[look.slot], radius=6)
