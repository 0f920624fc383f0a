"""The lines below a view that say what the run had cost by then: so, as it was sent, as it was billed."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from elision.lab.ratios import divide_or_none
from elision.lab.report.figures import format_change, format_plural, format_share, format_usd
from elision.lab.report.sent_wording import describe_sent, label_sent_rows
from elision.lab.results import BILLED, RECORDED
from elision.lab.view_bills import EVERYTHING, ViewBills


def list_bill_facts(bills: ViewBills, call: int) -> Iterator[tuple[str, Text]]:
    """Yield a line for each row at `call`: its name, and its figures against what was sent."""
    names = label_sent_rows(bills.sending)
    rows = dict(bills.list_rows(call))
    sent = rows[RECORDED].usd
    for name, row in rows.items():
        line = Text.assemble((f"{format_usd(row.usd)} so far", "bold"))
        # A bill at its own model's prices compares with no other one.
        if name != RECORDED and (name != BILLED or bills.sending.own_prices):
            line.append(f" ({format_change(divide_or_none(row.usd, sent))} vs recorded)")
        share = format_share(divide_or_none(row.cached, row.tokens))
        line.append(f" · {format_plural(row.tokens, 'token')} at this call, {share} read")
        never = " (never sent)" if name == EVERYTHING and bills.is_never_sent(call) else ""
        yield f"{names.get(name, name)}{never}", line


def describe_view_bills(bills: ViewBills) -> Iterator[str]:
    """Yield how the rows came about, and what the recording lacks."""
    yield from describe_sent(bills.sending, bills.find_cost(BILLED), bills.find_cost(RECORDED), bills.prices.name)
