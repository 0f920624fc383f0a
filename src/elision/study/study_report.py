"""The report of a study: what the sums of its rows say, as the lab's report shows it."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import accumulate
from math import ceil, floor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from elision.lab.ratios import divide_or_none
from elision.lab.report import wording
from elision.lab.report.figures import (
    NOTHING,
    format_change,
    format_change_range,
    format_count,
    format_plural,
    format_share,
    format_usd,
    is_sent,
    neutralize_text,
    shorten_strategies,
)
from elision.lab.results import (
    BILLED,
    GROWTH_TURNS,
    ON_TOP,
    RECORDED,
    Composition,
    ContextSize,
    Control,
    Row,
    SentSummary,
    Series,
    Study,
    StudySums,
    SummaryTable,
)
from elision.lab.run_loading import ModelUse, sum_up_prices
from elision.lab.study import list_labels
from elision.lab.study_settings import StudySettings
from elision.study.row_schema import BILL, COLUMNS, COMPOSITION, SAME, SENT, decode_row, is_choice
from elision.study.study_tables import (
    ALL_OR_NONE,
    GROUPS,
    LARGEST,
    NOT_ON_TOP,
    StudyTables,
    find_worst_runs,
    load_summary,
)

#: Groups that a table has at most.
LISTED_GROUPS: Final = 20
#: Runs below which an interval says nothing.
_FEWEST_RUNS: Final = 20


def build_study(tables: StudyTables, settings: StudySettings) -> Study:
    """Return what a report shows of the study: sums of all runs, and the worst runs one by one."""
    load_summary(tables, settings.on_top_labels)
    sent, formats = _sum_sent(tables)
    labels = list_labels(settings, sent)
    totals = _sum_totals(tables, labels)
    missing = len(tables.names) - len(tables.parts)
    uses = list_uses(tables) or [ModelUse("", None, 0, 0)]
    study = Study(
        prices=settings.prices or sum_up_prices(uses),
        counter=settings.tokens,
        strategies=labels,
        rows=(),
        controls=_sum_controls(tables),
        problems=tables.list_problems(),
        finished=not missing,
        hindsight=settings.hindsight,
        recommended=settings.recommended_label,
        turns=settings.assume_turns(formats),
        compositions=_sum_compositions(tables),
        sent=sent,
        look_back=any((settings.prices or use.find_prices()).cache.look_back for use in uses),
        sums=StudySums(
            runs=sent.runs,
            totals=totals,
            growth=_measure_growth(tables, labels, only_billed=bool(sent.billed_runs)),
            missing=f"{format_count(len(tables.parts))} of"
            f" {format_count(len(tables.names))} shards are finished; run the command again for the rest."
            if missing
            else "",
        ),
    )
    featured = wording.find_featured(study)
    label = featured.strategy if featured is not None else RECORDED
    return _add_worst_runs(tables, study, label) if totals else study


def _add_worst_runs(tables: StudyTables, study: Study, label: str) -> Study:
    found = find_worst_runs(tables, label)
    tops = {name: name.removesuffix(f", {ON_TOP}") for name in study.strategies if name.endswith(f", {ON_TOP}")}
    for row in [row for row in found if not row["cuts"]]:
        lacking = dict.fromkeys(NOT_ON_TOP)
        found += [row | lacking | {"strategy": top} for top, plain in tops.items() if row["strategy"] == plain]
    order = {name: place for place, name in enumerate(study.strategies)}
    found.sort(key=lambda row: (row["rank"], order[row["strategy"]]))
    series = {}
    if tables.plan.options.get("calls"):
        names = {row["run"]: (row["file"], row["trajectory"]) for row in found}
        for row in tables.ask(f"select * from calls where run in ({', '.join(map(str, names))})"):
            file, name = names[row["run"]]
            series[file, name, row["strategy"]] = Series(
                tokens=tuple(row["tokens"]), rewrites=tuple(row["rewrites"]), summaries=tuple(row["summaries"])
            )
    study = replace(study, rows=tuple(map(decode_row, found)), series=series)
    assert study.sums is not None
    summary = (
        _tabulate_spread(tables, study),
        *_tabulate_winners(tables, study),
        *_tabulate_groups(tables, study, label),
        _tabulate_worst(study, label),
    )
    return replace(study, sums=replace(study.sums, tables=summary))


def _sum_totals(tables: StudyTables, labels: Sequence[str]) -> tuple[Row, ...]:
    bills = [name for name, _, _ in COLUMNS if name.startswith("summary_") or name in (*BILL, "prompt_usd")]
    summed = [name for name in SAME if name not in ("late_usd", *LARGEST, *ALL_OR_NONE)]
    parts = [f"sum({name}) as {name}" for name in (*summed, *bills)]
    parts += [f"max({name}) as {name}" for name in LARGEST]
    parts += [f"case when sum(n_{name}) = sum(runs) then sum({name}) end as {name}" for name in ALL_OR_NONE]
    found = tables.ask(
        f"select strategy, sum(runs) as runs, sum(late_usd) / sum(runs) as late_usd, {', '.join(parts)}"
        " from sums group by 1"
    )
    rows = {row["strategy"]: decode_row(row) for row in found}
    return tuple(rows[label] for label in labels if label in rows)


def _sum_sent(tables: StudyTables) -> tuple[SentSummary, list[str]]:
    """Return how the runs were sent, and their formats."""
    sums = ", ".join(f"sum({name}) as {name}" for name in SENT)
    (row,) = tables.ask(
        f"select sum(runs) as runs, {sums}, list(distinct reader) as formats from sums where strategy = $label",
        label=RECORDED,
    )
    formats = sorted(row.pop("formats") or [])
    counts = {name: int(value or 0) for name, value in row.items()}
    at_own_prices = counts.pop("own_prices") == counts["runs"]
    return SentSummary(**counts, own_prices=at_own_prices), formats


def list_uses(tables: StudyTables) -> list[ModelUse]:
    """Return which models the runs were recorded with, by day."""
    found = tables.ask(
        "select model, day, sum(runs) as runs, sum(turns) as calls from sums where strategy = $label"
        " group by all order by all",
        label=RECORDED,
    )
    return [ModelUse(row["model"], _parse_day(row["day"]), row["runs"], row["calls"]) for row in found]


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def list_billed_models(tables: StudyTables) -> list[tuple[str, int, float | None]]:
    """Return the recorded models with their runs and bill, those of most runs first; None where a run states none."""
    found = tables.ask(
        "select model, coalesce(sum(runs) filter (strategy = $recorded), 0) as runs,"
        " coalesce(sum(runs) filter (strategy = $billed), 0) as billed, sum(prompt_usd) filter (strategy = $billed)"
        " as usd from sums where strategy in ($recorded, $billed) group by 1 order by 2 desc, 1",
        recorded=RECORDED,
        billed=BILLED,
    )
    return [(row["model"], row["runs"], row["usd"] if row["billed"] == row["runs"] else None) for row in found]


def _sum_controls(tables: StudyTables) -> tuple[Control, ...]:
    found = tables.ask(
        "select reader, sum(runs) as runs, sum(noise) / nullif(sum(n_noise), 0) as noise,"
        " sum(noise_filtered) / nullif(sum(n_noise_filtered), 0) as noise_filtered,"
        " sum(floor_found) / nullif(sum(floor_items), 0) as floor, min(floor_window) as floor_window"
        " from sums where strategy = $label group by 1 order by 1",
        label=RECORDED,
    )
    return tuple(Control(**row) for row in found)


def _sum_compositions(tables: StudyTables) -> tuple[Composition, ...]:
    sums = ", ".join(f"sum(tokens_{name}) as {name}" for name in COMPOSITION)
    found = tables.ask(
        f"select reader, sum(runs) as runs, {sums} from sums where strategy = $label group by 1 order by 1",
        label=RECORDED,
    )
    return tuple(Composition(**row) for row in found)


def _measure_growth(tables: StudyTables, labels: Sequence[str], *, only_billed: bool) -> tuple[ContextSize, ...]:
    """Return the context at each turn of `GROWTH_TURNS`. only_billed: the runs that have a row of their bill, too."""
    parts = [f"sum(context_{turn}) as sum_{turn}, sum(n_context_{turn}) as runs_{turn}" for turn in GROWTH_TURNS]
    condition = "where is_billed" if only_billed else ""
    rows = tables.ask(f"select strategy, {', '.join(parts)} from sums {condition} group by 1")
    found = {row["strategy"]: row for row in rows}
    sizes = []
    for turn in GROWTH_TURNS:
        if labels and all(label in found and found[label][f"runs_{turn}"] for label in labels):
            means = {label: round(found[label][f"sum_{turn}"] / found[label][f"runs_{turn}"]) for label in labels}
            runs = min(found[label][f"runs_{turn}"] for label in labels)
            sizes.append(ContextSize(turn=turn, runs=runs, tokens=means))
    return tuple(sizes)


def _tabulate_spread(tables: StudyTables, study: Study) -> SummaryTable:
    """Return the median and the spread of each strategy's cost, and how sure its total is."""
    found = tables.ask(
        "select strategy, sum(runs) as n, sum(usd) as u, sum(paid) as p, sum(usd_usd) as uu, sum(usd_paid) as up,"
        " sum(paid_paid) as pp, sum(cheaper) / sum(runs) as cheaper from sums group by 1"
    )
    sums = {row["strategy"]: row for row in found}
    bins: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in tables.ask("select strategy, permille, sum(runs) as runs from spread group by all order by permille"):
        bins[row["strategy"]].append((row["permille"], row["runs"]))
    names = shorten_strategies(study.strategies)
    rows = []
    for label in study.strategies:
        if is_sent(label) or label not in bins:
            continue
        low, median, high = (find_quantile(bins[label], share) / 1000 for share in (0.05, 0.5, 0.95))
        rows.append(
            (
                names[label],
                format_change(median),
                format_change_range(low, high),
                _format_interval(sums[label]),
                format_share(sums[label]["cheaper"]),
            )
        )
    return SummaryTable(
        title="Run by run: the change of the cost vs recorded",
        text="Of 20 runs, 18 are within the middle range. The interval is of the change of the total: with other"
        " runs of the same kind it would be in there 95 times of 100.",
        headings=("strategy", "median run", "90 % of runs", "total, 95 % interval", "runs that cost less"),
        rows=tuple(rows),
    )


def find_quantile(bins: Sequence[tuple[int, int]], share: float) -> float:
    """Return the quantile of values, interpolated between two. bins: each value with how often it is there, sorted."""
    ends = list(accumulate(count for _, count in bins))
    place = share * (ends[-1] - 1)
    low, high = (bins[bisect_right(ends, index)][0] for index in (floor(place), ceil(place)))
    return low + (high - low) * (place - floor(place))


def _format_interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a ratio of two sums, from their moments."""
    runs, ratio = row["n"], divide_or_none(row["u"], row["p"])
    if ratio is None or runs < _FEWEST_RUNS:
        return NOTHING
    squares = max(0.0, row["uu"] - 2 * ratio * row["up"] + ratio * ratio * row["pp"])
    error = (squares * runs / (runs - 1)) ** 0.5 / row["p"]
    return format_change_range(ratio - 1.96 * error, ratio + 1.96 * error)


def _tabulate_winners(tables: StudyTables, study: Study) -> Iterator[SummaryTable]:
    """Yield for how many runs each strategy costs least, what was sent included."""
    labels = [label for label in study.strategies if is_choice(label)]
    if len(labels) < 3:
        return
    found = tables.ask(
        "select strategy, sum(is_cheapest) as runs, sum(cheapest_usd) as usd from sums where is_cheapest > 0 group by 1"
    )
    found.sort(key=lambda row: (-row["runs"], labels.index(row["strategy"])))
    runs = sum(row["runs"] for row in found)
    names = shorten_strategies(study.strategies)
    total = format_usd(sum(row["usd"] for row in found))
    yield SummaryTable(
        title="Which strategy costs least, run by run",
        text=f"With the cheapest for each run, which is unknown beforehand: {total}.",
        headings=("strategy", "runs", "share", "cost of these"),
        rows=tuple(
            (
                names[row["strategy"]],
                format_count(row["runs"]),
                format_share(row["runs"] / runs),
                format_usd(row["usd"]),
            )
            for row in found
        ),
    )


def _tabulate_groups(tables: StudyTables, study: Study, label: str) -> Iterator[SummaryTable]:
    """Yield the cost of the strategy `label` by model, format, day and tag, where there is more than one of these."""
    name = shorten_strategies(study.strategies)[label]
    for column, title in GROUPS:
        own = tables.ask(
            f"select {column}, sum(runs) as runs, sum(paid) as paid, sum(usd) as usd, sum(evidence_found) as found,"
            " sum(evidence_items) as items from sums where strategy = $label group by 1",
            label=label,
        )
        if len(own) < 2:
            continue
        own.sort(key=lambda row: (-row["paid"], row[column]))
        shown, rest = list_groups(own, column)
        yield SummaryTable(
            title=f"{wording.capitalize_word(name)} by {title}",
            text=f"Runs by {title}, with their cost as recorded and under {name}.{rest}",
            headings=(title, "runs", "as recorded", "cost", "vs recorded", "facts still visible"),
            rows=tuple(
                (
                    neutralize_text(row[column] or NOTHING),
                    format_count(row["runs"]),
                    format_usd(row["paid"]),
                    format_usd(row["usd"]),
                    format_change(divide_or_none(row["usd"], row["paid"])),
                    format_share(divide_or_none(row["found"], row["items"])),
                )
                for row in shown
            ),
        )


def list_groups(found: Sequence[dict[str, Any]], column: str) -> tuple[list[dict[str, Any]], str]:
    """Return the groups that a table lists, of those that cost most first, and a sentence if it leaves some out.

    Days are listed in their order.
    """
    shown = list(found[:LISTED_GROUPS])
    if column == "day":
        shown.sort(key=lambda row: row["day"])
    if len(shown) == len(found):
        return shown, ""
    return shown, f" The {format_count(len(shown))} that cost most, of {format_count(len(found))}."


def _tabulate_worst(study: Study, label: str) -> SummaryTable:
    """Return the listed runs with links to where they were read from."""
    rows = study.of(label)
    name = shorten_strategies(study.strategies)[label]
    return SummaryTable(
        title=f"The {format_plural(len(rows), 'run')} that {name} suits least",
        text="The highest cost vs recorded first. The link leads to the recording.",
        headings=("run", "calls", "as recorded", "cost", "vs recorded", "turns missing a fact"),
        rows=tuple(
            (
                neutralize_text(f"{row.file} {row.trajectory}"),
                format_count(row.calls),
                format_usd(row.paid_usd),
                format_usd(row.usd),
                format_change(row.to_recorded),
                format_count(row.regret_turns),
            )
            for row in rows
        ),
        links=tuple(link_file(row.file) for row in rows),
    )


def link_file(file: str) -> str:
    """Return the address that a page links a recording with; "" for what is no address."""
    path = file.partition("!")[0]
    if re.match(r"[a-z0-9+]+://", path):
        scheme, _, rest = path.partition("://")
        return f"{scheme}://{quote(rest)}"
    return Path(path).as_uri() if os.path.isabs(path) else ""
