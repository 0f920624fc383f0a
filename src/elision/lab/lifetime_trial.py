"""How long cache entries live in a replay, and the pings that would be sent in its pauses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from elision.strategies.pauses import PING_MARGIN
from elision.trajectory.cache import HOUR_SECONDS
from elision.trajectory.events import CachePinged
from elision.trajectory.lifetimes import LifetimeChoice

if TYPE_CHECKING:
    from elision.engine import Log


@dataclass(frozen=True, slots=True)
class LifetimeTrial:
    """Who decides how long cache entries live. most_pings: that may keep them alive in one pause."""

    choice: LifetimeChoice = "client"
    most_pings: int = 0


CLIENT_LIFETIMES: Final = LifetimeTrial()


def send_pings(session: Log, until: float | None) -> None:
    """Record the pings of the pause after the newest call. until: when the next call starts; None if there is none."""
    newest = session.newest_call
    if newest is None or newest.lifetime is None or newest.terms.now is None:
        return
    life = HOUR_SECONDS if newest.view.hour_length == newest.view.length else session.prices.cache.ttl
    at = newest.terms.now
    turns = session.state.turns
    calls_tools = bool(turns and turns[-1].actions)
    for _ in range(newest.lifetime.pings if calls_tools else newest.lifetime.pings_after_words):
        at += life - PING_MARGIN
        if until is not None and at >= until:
            return
        session.record_event(CachePinged(call=newest.decided.call, at=at))
