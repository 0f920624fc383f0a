"""Totals over a session's log."""

from __future__ import annotations

import pytest

from lacuna.manager.ledger import Ledger
from lacuna.trajectory.events import Called, Event, Recalled
from lacuna.trajectory.price_sets import named


@pytest.mark.parametrize(("by", "costs"), [("tool", True), ("user", False)])
def test_only_the_agent_pays_for_what_it_reads(by: str, costs: bool) -> None:
    """What a tool call read again is in the prompt and on the bill; what the caller read for himself is in neither."""
    ledger = Ledger(named("anthropic"))
    events: list[Event] = [
        Recalled(call=1, key=(1, 1), tokens=5_000, by=by),
        Called(call=2, at=None, model="", tokens=900),
    ]
    ledger.read(events)
    assert ledger.recalls == 1
    assert (ledger.recall_usd > 0) is costs
