"""What holds in one call: what its client, its model and its caller allow."""

from __future__ import annotations

from dataclasses import dataclass, replace

from elision.trajectory.events import Breakpoints, RequestSent
from elision.trajectory.lifetimes import LifetimeChoice


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTerms:
    """The terms of one call. They are an argument of the pass, and no log keeps them but for what a replay needs.

    No field has a default: whoever makes terms says all of them. Prices and budget are none of them, since they follow
    from the strategy and the log.

    now:            seconds since the epoch, None if unknown. model: "" if unknown.
    hides_all:      whether to hide all that the strategy allows, whether it pays or not.
    summarizes_all: whether to replace all turns but the tail by a summary as well.
    is_strict:      whether a view that does not fit raises BudgetError. Else the smallest one is returned.
    may_summarize:  whether a summary could be sent. It cannot where the provider clears results itself and messages
                    stay whole.
    editable_from:  the first turn that may be edited, where the provider binds thinking to what precedes it; else 1.
    recall_blocked: whether the recall tools must not enter the request.
    no_cache_marks: whether the client sets no cache breakpoints. breakpoints: when we set some then.
    hour_turn:      the newest turn for which the client asks that cache entries live an hour; 0 for the head alone,
                    None for nothing.
    lifetime:       who decides how long cache entries live. most_pings: that may keep them alive in one pause.
    """

    now: float | None
    model: str
    hides_all: bool
    summarizes_all: bool
    is_strict: bool
    may_summarize: bool
    editable_from: int
    recall_blocked: bool
    no_cache_marks: bool
    breakpoints: Breakpoints
    hour_turn: int | None
    lifetime: LifetimeChoice
    most_pings: int


def make_plain_terms(now: float | None = None, model: str = "") -> CallTerms:
    """Return the terms of a call that nothing restricts, as in the replay of a recording."""
    return CallTerms(
        now=now,
        model=model,
        hides_all=False,
        summarizes_all=False,
        is_strict=True,
        may_summarize=True,
        editable_from=1,
        recall_blocked=False,
        no_cache_marks=False,
        breakpoints="gaps",
        hour_turn=None,
        lifetime="client",
        most_pings=0,
    )


def read_terms(sent: RequestSent) -> CallTerms:
    """Return the terms of a call as far as its record has them. The rest is part of its decision, which is adopted."""
    plain = make_plain_terms(sent.at, sent.model)
    return replace(
        plain,
        no_cache_marks=sent.unmarked,
        breakpoints=sent.ours,
        hour_turn=sent.hour_turn,
        recall_blocked=sent.blocked,
    )
