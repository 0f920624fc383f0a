"""The table and the charts of a study: its columns, cost by what is paid for, and cost against visible facts.

Columns are the same in the terminal and on the page.
"""

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
    group_rows,
    is_hindsight,
    is_raw,
    is_sent,
    is_unchanged,
)
from elision.lab.report.report import Bar, BarChart, Column, Table, TableRow, Words
from elision.lab.report.sent_wording import name_rows
from elision.lab.report.svg import (
    Axis,
    Drawing,
    assign_looks,
    draw_bottom_axis,
    measure_text,
    plot_shares,
    write_usd_tick,
)
from elision.lab.results import BILLED, RECORDED, Control, Row, Study
from elision.trajectory.prices import Prices


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


# -- cost by what is paid for -----------------------------------------------------------------------------------------


#: Who is paid, in the order of the stack, and the slot of its colour.
PAYEES = {
    "cache write": "pays-write",
    "input": "pays-input",
    "cache read": "pays-read",
    "output": "pays-output",
    "summarizer": "pays-summarizer",
}


def build_costs(study: Study) -> BarChart:
    """Return a bar per strategy, of what is paid for; a line at what was sent, a mark at the hindsight's cost."""
    names = name_rows(study)
    rows = [row for _, members in group_rows(study.totals) for row in members]
    paid_costs = {round(row.paid_usd, 9) for row in rows if row.strategy != BILLED}
    return BarChart(
        "cost",
        "stacked bars: the cost of each strategy, by what is paid for",
        [_build_bar(row, names[row.strategy], study) for row in rows],
        "cost, USD",
        line=paid_costs.pop() if len(paid_costs) == 1 else None,
        few=_choose_few(study, rows),
    )


def _build_bar(row: Row, name: str, study: Study) -> Bar:
    is_recommended = row.strategy == study.recommended
    label = f"{name} (recommended)" if is_recommended else name
    usd = format_usd(row.usd)
    change = NOTHING if is_baseline(row) else format_change(row.to_recorded)
    tip = [("strategy", label), ("cost", usd), ("vs recorded", change)]
    if study.hindsight:
        tip.append(("× hindsight", format_multiple(row.to_hindsight)))
    parts = split_by_payee(row, study.prices)
    return Bar(
        label,
        usd if change == NOTHING else f"{usd}  {change}",
        [(PAYEES[payee], payee, parts[payee]) for payee in PAYEES],
        mark=row.hindsight_usd,
        mood="better" if is_recommended and (row.to_recorded or 1) < 1 else "",
        tip=tip,
    )


def _choose_few(study: Study, rows: Sequence[Row]) -> list[int]:
    """Return the places of what was paid, of the strategy of the headline, of the same at every turn, the cheapest."""
    best = wording.find_featured(study)
    if best is None:
        return []
    chosen = [best, wording.find_every_turn_rival(study, best), wording.find_cheapest(study)]
    kept = {row.strategy for row in chosen if row is not None} | {RECORDED}
    if not any(row.strategy == RECORDED for row in rows):
        kept |= {row.strategy for row in rows if is_raw(row.strategy)}
    return [place for place, row in enumerate(rows) if row.strategy in kept]


def split_by_payee(row: Row, prices: Prices) -> dict[str, float]:
    """What of a row's USD went to whom.

    With price tiers the split is by the lowest tier's rates, scaled to what was billed.
    """
    rates = prices.tiers[0][1]
    bill = row.bill
    weights = {
        "cache write": bill.cache_write * rates.write_price,
        "input": bill.input * rates.input,
        "cache read": bill.cache_read * rates.read_price,
        "output": bill.output * rates.output,
    }
    whole = sum(weights.values())
    factor = bill.usd / whole if whole else 0.0
    return {payee: weight * factor for payee, weight in weights.items()} | {"summarizer": row.summarizer.usd}


def list_visible_facts(study: Study) -> list[Row]:
    """Return the strategies that can be run live and whose visible facts are known."""
    return [row for row in study.totals if row.evidence_recall is not None and not is_hindsight(row.strategy)]


def draw_visible_facts(study: Study, drawing: Drawing) -> None:
    """Draw cost against facts still visible, a labelled point for each of `list_visible_facts`, which has some."""
    names = name_rows(study)
    looks = assign_looks(study.strategies)
    rows = list_visible_facts(study)
    points = [(row.usd, row.evidence_recall or 0.0) for row in rows]
    plot = plot_shares(drawing, points, ("cost, USD", "facts still visible"), write_usd_tick, 300)
    places = [(row, *plot.place(point)) for row, point in zip(rows, points, strict=True)]
    for row, x, y in places:
        tip = [
            ("strategy", names[row.strategy]),
            ("cost", format_usd(row.usd)),
            ("facts still visible", format_share(row.evidence_recall)),
            ("turns missing a fact", format_count(row.regret_turns)),
        ]
        look = looks[row.strategy]
        drawing.add_mark(x, y, look.shape, drawing.ink.slots[look.slot], tip=tip)
    plot.add_labels([(x, y, names[row.strategy]) for row, x, y in places], [(x, y) for _, x, y in places])


# -- stacked bars: a line of text above each, so that neither name nor amount is ever cut -----------------------------


#: Pixels from bar to bar.
STEP = 44
_NAME, _BAR, _THICK = 11, 30, 14
#: Pixels between a bar, or its mark, and its amount.
_GAP = 8


def draw_bars(chart: BarChart, drawing: Drawing) -> None:
    """Draw a bar for each of `chart`, a dashed line at the size that all compare with, and the bars' own marks."""
    ink = drawing.ink
    used = {name for bar in chart.bars for _, name, size in bar.parts if size}
    parts = chart.bars[0].parts if chart.bars else ()
    drawing.add_key(("square", ink.slots[slot], name) for slot, name, _ in parts if name in used)
    line = chart.line or 0.0
    # Each bar leaves room for its amount, behind its mark where that is further right.
    ends = [(max(bar.size, bar.mark or 0.0, line), measure_text(bar.amount)) for bar in chart.bars]
    scale = min(((drawing.width - _GAP - 4 - room) / end for end, room in ends if end), default=1.0)
    top = drawing.bottom
    bottom = top + STEP * len(chart.bars)
    if line:
        x = line * scale
        drawing.add_line(x, top, x, bottom, ink.slots["grey"], stroke_width=1.5, stroke_dasharray="5 4", class_="paid")
    for place, bar in enumerate(chart.bars):
        y = top + STEP * place
        drawing.add_text(0, y + _NAME, bar.name, rim=True, class_="bar-name")
        _draw_bar(bar, y + _BAR, scale, line * scale, drawing)
    axis = Axis(title=chart.axis, low=0, high=drawing.width / scale, write=write_usd_tick)
    draw_bottom_axis(drawing, axis, (0, drawing.width), bottom + 4)


def _draw_bar(bar: Bar, y: float, scale: float, line: float, drawing: Drawing) -> None:
    """Draw the parts of a bar around height `y`, its mark, and its amount behind both; not across `line`."""
    ink = drawing.ink
    x = 0.0
    for slot, name, size in bar.parts:
        if not size:
            continue
        share = format_share(size / bar.size)
        tip = bar.tip and (
            bar.tip[0],
            ("paid for", name),
            ("of it", f"{format_usd(size)} ({share})"),
            *bar.tip[1:],
        )
        piece = {"x": x, "y": y - _THICK / 2, "width": size * scale, "height": _THICK}
        drawing.add("rect", {**piece, "class": "piece", "fill": ink.slots[slot]}, tip=tip)
        x += size * scale
    if bar.mark is not None:
        at = bar.mark * scale
        upright = {"x": at - 1.5, "y": y - _THICK / 2 - 4, "width": 3, "height": _THICK + 8}
        look = {"class": "hindsight", "fill": ink.text, "stroke": ink.ground}
        drawing.add("rect", {**upright, **look}, tip=bar.tip)
        x = max(x, at + 2)
    if x + _GAP - 4 < line < x + _GAP + measure_text(bar.amount) + 4:
        x = line
    drawing.add_text(x + _GAP, y, bar.amount, rim=True, class_="bar-amount")
