"""The columns of the tables, the same in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elision.lab.report import wording
from elision.lab.report.figures import (
    NOTHING,
    format_change,
    format_change_range,
    format_count,
    format_multiple,
    format_share,
    format_tokens,
    format_usd,
    is_raw,
    is_sent,
    is_unchanged,
)
from elision.lab.report.report import Column, Table, TableRow, Words
from elision.lab.results import RECORDED, Control, Row, Study


@dataclass(frozen=True, slots=True)
class StrategyColumn:
    """One column. title: may break at its newlines. keep: the higher, the longer it stays where room is short.

    judged: whether its colour says that it is good or bad news.
    """

    title: str
    keep: int
    cell: Callable[[Row], str]
    judged: bool = False

    @property
    def heading(self) -> str:
        """The title on one line."""
        return self.title.replace("\n", " ")

    def write(self, row: Row) -> Words:
        """Return the cell of `row`, with its colour."""
        text = self.cell(row)
        is_judged = self.judged and row.to_recorded not in (None, 1) and not is_sent(row.strategy)
        if not is_judged or row.to_recorded is None or is_baseline(row):
            return text
        return [(text, "better" if row.to_recorded < 1 else "worse")]


#: Headings of the cost against what was sent, and against sending everything, where that is something else.
VS_RECORDED = "vs recorded"
VS_RAW = "vs raw"
#: Heading of the column that is absent where no cheapest schedule was asked for.
HINDSIGHT = "× hindsight"
#: Of the one that is absent where no strategy folds.
FOLDED = "tokens folded"
#: And of the one that is absent where nothing is summarized: hiding results leaves the agent's own words.
OWN_WORDS = "own words visible"

COLUMNS = (
    StrategyColumn("cost", 100, lambda row: format_usd(row.usd)),
    StrategyColumn(
        VS_RECORDED.replace(" ", "\n"),
        95,
        lambda row: format_change(None if is_baseline(row) else row.to_recorded),
        judged=True,
    ),
    StrategyColumn(VS_RAW, 86, lambda row: format_change(None if is_raw(row.strategy) else row.to_raw)),
    StrategyColumn("break-even:\nextra turns", 87, lambda row: _format_break_even(row)),
    StrategyColumn("cache\nrewrites", 88, lambda row: format_count(row.cache_rewrites)),
    StrategyColumn("facts still\nvisible", 90, lambda row: format_share(row.evidence_recall)),
    StrategyColumn(HINDSIGHT.replace(" ", "\n"), 85, lambda row: format_multiple(row.to_hindsight)),
    StrategyColumn("peak\ncontext", 70, lambda row: format_tokens(row.peak)),
    StrategyColumn("turns missing\na fact", 60, lambda row: format_count(row.regret_turns)),
    StrategyColumn("own words\nvisible", 65, lambda row: format_share(row.own_recall)),
    StrategyColumn(FOLDED.replace(" ", "\n"), 55, lambda row: format_tokens(row.folded_tokens)),
    StrategyColumn("summaries", 50, lambda row: format_count(row.summaries)),
    StrategyColumn("summary\ncost", 40, lambda row: format_usd(row.summarizer.usd) if row.summaries else NOTHING),
    StrategyColumn("visible, not\nin summary", 35, lambda row: format_share(row.evidence_recall_plain)),
    StrategyColumn("visible,\nfiltered", 30, lambda row: format_share(row.evidence_recall_filtered)),
    StrategyColumn(
        "repeated\ncalls", 25, lambda row: f"{row.repeats_hidden}/{row.repeats}" if row.repeats else NOTHING
    ),
)


def is_baseline(row: Row) -> bool:
    """Whether `row` is what others are compared with: what was sent, or sending everything where that is the same."""
    is_same = row.to_recorded is None or is_unchanged(row.to_recorded)
    return row.strategy == RECORDED or (is_raw(row.strategy) and is_same)


def select_columns(study: Study) -> list[StrategyColumn]:
    """Return the columns that have something to show: without × hindsight where it was not asked for, without the
    tokens folded where no strategy folds, and without own words where none summarizes.

    The cost with the assumed number of turns follows the break-even, where any is assumed.
    """
    hidden = [] if study.hindsight else [HINDSIGHT]
    if all(row.is_as_sent for row in study.totals if row.raw_usd):
        hidden.append(VS_RAW)
    if not any(row.folded for row in study.totals):
        hidden.append(FOLDED)
    if not any(row.summaries for row in study.totals):
        hidden.append(OWN_WORDS)
    selected = [column for column in COLUMNS if column.heading not in hidden]
    if study.turns.factors:
        places = [column.heading for column in selected]
        if wording.BREAK_EVEN in places:
            selected.insert(places.index(wording.BREAK_EVEN) + 1, _build_turns_column(study))
    return selected


def _build_turns_column(study: Study) -> StrategyColumn:
    """Return the column of the cost with more or fewer turns: a range of changes by default, else an amount."""
    is_band = study.turns.mode == "band"

    def write_cost(row: Row) -> str:
        if row.extended_usd is None or not row.paid_usd:
            return NOTHING
        low, high = (usd / row.paid_usd for usd in row.extended_usd)
        if is_band:
            return format_change_range(low, high)
        return f"{format_usd(row.extended_usd[0])} ({format_change(low)})"

    if is_band:
        return StrategyColumn("vs recorded, turns\nas measured", 45, write_cost)
    words = "as measured" if study.turns.mode == "measured" else "as assumed"
    return StrategyColumn(f"cost, turns\n{words}", 94, write_cost)


def _format_break_even(row: Row) -> str:
    allowance = wording.describe_break_even(row)
    return allowance.replace(" extra turns", "") if allowance else NOTHING


def format_controls(controls: Sequence[Control]) -> Table:
    """Return the controls of each format: runs, noise, the same filtered, floor."""
    columns = [Column("format"), Column("runs", 1), Column("noise", 4), Column("filtered", 3), Column("floor", 2)]
    rows = []
    for each in controls:
        noise, filtered, floor = map(format_share, (each.noise, each.noise_filtered, each.floor))
        if each.floor is not None and each.floor_window is not None:
            floor += f" (window {each.floor_window})"
        rows.append(TableRow([each.reader, format_count(each.runs), noise, filtered, floor]))
    return Table(columns, rows)
