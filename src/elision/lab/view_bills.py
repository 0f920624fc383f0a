"""What a run had cost by a call: as it would be sent under a strategy, as it was sent, as it was billed, and whole.

The figures are those of `elision replay`, up to that call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

from elision.lab.replay import Replay, replay_run
from elision.lab.results import BILLED, RECORDED, SentSummary
from elision.lab.sent_rows import replay_as_sent
from elision.lab.views import resolve_schedule
from elision.strategies.strategy import Strategy
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage_cost import cost_reported_usage

#: The rows beside those of what happened.
VIEW: Final = "this view"
EVERYTHING: Final = "everything"


@dataclass(frozen=True, slots=True)
class BillAt:
    """One row at one call. tokens: of its prompt. cached: of these, read from the cache. usd: of all calls up to it."""

    tokens: int
    cached: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBills:
    """The rows of one run, call by call.

    rows: by name, those that are known. sending: how the run was sent. prices: at which. condensed_before: the calls
    before which its agent condensed its own history.
    """

    rows: dict[str, Sequence[BillAt]]
    sending: SentSummary
    prices: Prices
    condensed_before: tuple[int, ...] = ()

    def list_rows(self, call: int) -> Iterator[tuple[str, BillAt]]:
        """Yield the rows at `call`."""
        for name, bills in self.rows.items():
            yield name, bills[call - 1]

    def find_cost(self, name: str) -> float | None:
        """Return what the whole run cost by a row, in USD; None where that is not known."""
        return self.rows[name][-1].usd if name in self.rows else None

    def is_never_sent(self, call: int) -> bool:
        """Return whether sending everything up to `call` is a hypothesis."""
        return any(before <= call for before in self.condensed_before)

    def encode(self, call: int) -> dict[str, Any]:
        """Return the rows at `call` as JSON, those that are not known as null."""
        found: dict[str, Any] = dict.fromkeys((VIEW, RECORDED, BILLED, EVERYTHING))
        for name, each in self.list_rows(call):
            found[name] = {"tokens": each.tokens, "cache_read": each.cached, "usd_so_far": each.usd}
        keys = {name.replace(" ", "_"): row for name, row in found.items()}
        return {**keys, "everything_never_sent": self.is_never_sent(call)}


def bill_views(run: Trajectory, strategy: Strategy, prices: Prices, sizer: Sizer) -> ViewBills:
    """Replay `run` under `strategy`, as it was sent and whole. Raises SpecError for a schedule that cannot be known."""
    as_sent = replay_as_sent(run, prices, sizer)
    ours = replay_run(run, resolve_schedule(strategy, run, prices, sizer), prices, sizer, sent=as_sent.sent)
    rows: dict[str, Sequence[BillAt]] = {VIEW: _list_bills(ours)}
    condensing = {
        each.before: cost_reported_usage(each.usage, prices) for each in run.compactions if each.usage is not None
    }
    rows[RECORDED] = _list_bills(as_sent.replay, condensing)
    if any(row.strategy == BILLED for row, _ in as_sent.rows) and as_sent.sent.billed is not None:
        usd = 0.0
        billed = []
        for call in as_sent.sent.billed.calls:
            usd += (call.billed.usd or 0.0) + condensing.get(call.index, 0.0)
            billed.append(BillAt(call.billed.prompt, call.billed.cache_read, usd))
        rows[BILLED] = billed
    rows[EVERYTHING] = [BillAt(call.raw_tokens, call.raw_cached, call.raw_usd) for call in ours.calls]
    return ViewBills(
        rows=rows, sending=as_sent.summary, prices=prices, condensed_before=tuple(sorted(as_sent.sent.cuts))
    )


def _list_bills(replayed: Replay, condensing: dict[int, float] | None = None) -> list[BillAt]:
    """Return the calls of a replay. condensing: what the agent's own summaries cost before each call, in USD."""
    extra = condensing or {}
    costs = (call.usd + extra.get(number, 0.0) for number, call in enumerate(replayed.calls, start=1))
    return [BillAt(call.tokens, call.cached, usd) for call, usd in zip(replayed.calls, accumulate(costs), strict=True)]
