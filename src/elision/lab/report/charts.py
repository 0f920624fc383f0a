"""The charts of a study: cost by what is paid for, and cost against visible facts. The page draws contexts itself."""

from __future__ import annotations

from collections.abc import Sequence

from elision.lab.report import figures, wording
from elision.lab.report.columns import is_baseline
from elision.lab.report.names import group_rows, is_hindsight, is_raw
from elision.lab.report.palette import assign_looks
from elision.lab.report.report import Bar, BarChart
from elision.lab.report.sent_wording import name_rows
from elision.lab.report.svg import (
    Axis,
    Drawing,
    Plot,
    Tip,
    find_ends,
    write_share_tick,
    write_usd_tick,
)
from elision.lab.results import BILLED, RECORDED, Row, Study
from elision.trajectory.prices import Prices

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
    parts = split_by_payee(row, study.prices)
    return Bar(
        label,
        _write_amounts(row),
        [(PAYEES[payee], payee, parts[payee]) for payee in PAYEES],
        mark=row.hindsight_usd,
        mood="better" if is_recommended and (row.to_recorded or 1) < 1 else "",
        tip=_list_amounts(row, label, has_hindsight=study.hindsight),
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


def _write_amounts(row: Row) -> str:
    change = "" if is_baseline(row) or row.to_recorded is None else f"  {figures.format_change(row.to_recorded)}"
    return figures.format_usd(row.usd) + change


def _list_amounts(row: Row, name: str, *, has_hindsight: bool) -> Tip:
    change = figures.NOTHING if is_baseline(row) else figures.format_change(row.to_recorded)
    found = [("strategy", name), ("cost", figures.format_usd(row.usd)), ("vs recorded", change)]
    return [*found, ("× hindsight", figures.format_multiple(row.to_hindsight))] if has_hindsight else found


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
    found = [(row, row.usd, row.evidence_recall or 0.0) for row in rows]
    left, right = find_ends(usd for _, usd, _ in found)
    low, high = find_ends(recall for _, _, recall in found)
    plot = Plot(
        drawing,
        Axis(title="cost, USD", low=left, high=right, write=write_usd_tick),
        Axis(title="facts still visible", low=low, high=high, write=write_share_tick, most=1.0),
        300,
    )
    places = [(row, *plot.place((usd, recall))) for row, usd, recall in found]
    for row, x, y in places:
        tip = [
            ("strategy", names[row.strategy]),
            ("cost", figures.format_usd(row.usd)),
            ("facts still visible", figures.format_share(row.evidence_recall)),
            ("turns missing a fact", figures.format_count(row.regret_turns)),
        ]
        look = looks[row.strategy]
        drawing.add_mark(x, y, look.shape, drawing.ink.slots[look.slot], tip=tip)
    plot.add_labels([(x, y, names[row.strategy]) for row, x, y in places], [(x, y) for _, x, y in places])
