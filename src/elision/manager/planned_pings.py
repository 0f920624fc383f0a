"""The requests that may keep a session's cache entries alive in the pause after its newest call."""

from __future__ import annotations

from dataclasses import dataclass

from elision.manager.branch import SessionBranch
from elision.trajectory.cache import HOUR_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPings:
    """What the planner allows after a call. call, branch: of that call. pings: at most.

    life_seconds: of the entries that they keep alive.
    """

    call: int
    branch: SessionBranch
    pings: int
    life_seconds: float


def find_planned_pings(branch: SessionBranch, *, calls_tools: bool) -> PlannedPings | None:
    """Return what is planned for the pause after the newest call; None for nothing.

    calls_tools: whether its answer has tool calls.
    """
    log = branch.log
    newest = log.newest_call
    if newest is None or newest.lifetime is None:
        return None
    pings = newest.lifetime.pings if calls_tools else newest.lifetime.pings_after_words
    if not pings:
        return None
    is_hour = newest.view.hour_length >= newest.view.length
    life = HOUR_SECONDS if is_hour else log.prices.cache.ttl
    return PlannedPings(call=newest.decided.call, branch=branch, pings=pings, life_seconds=life)
