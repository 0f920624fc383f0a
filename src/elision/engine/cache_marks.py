"""The cache breakpoints that a request has, and how long the cache entries that it writes live."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from operator import attrgetter

from elision.engine.provider_reports import ProviderReports
from elision.engine.terms import CallTerms
from elision.trajectory.lifetimes import CacheLifetime
from elision.trajectory.state import State
from elision.trajectory.view import View


def mark_view(
    view: View, terms: CallTerms, state: State, reports: ProviderReports, lifetime: CacheLifetime | None = None
) -> View:
    """Return the view with the breakpoints of its request, and how long their cache entries live.

    lifetime: what was decided for it; None where the client decides.
    """
    if terms.no_cache_marks and not has_our_marks(terms, state):
        return replace(view, marks=())
    if lifetime is not None:
        return _keep_for_an_hour(view, lifetime.hour_turn, state)
    return _keep_longer(view, reports.find_hour_turn(terms.hour_turn), state)


def has_our_marks(terms: CallTerms, state: State) -> bool:
    """Return whether a request whose client sets no breakpoints has some of ours."""
    return terms.breakpoints == "always" or (terms.breakpoints == "gaps" and state.is_edited)


def choose_raw_lifetime(lifetime: CacheLifetime | None) -> CacheLifetime | None:
    """Return what holds for a call that sends everything: what a setting says, but nothing that the planner decides."""
    return None if lifetime is None or lifetime.planned else lifetime


def find_lasting_length(view: View) -> int:
    """Return the segments up to the last breakpoint whose cache entry lives an hour."""
    return max((mark for mark in view.marks if mark <= view.hour_length), default=0)


def _keep_for_an_hour(view: View, turn: int | None, state: State) -> View:
    """Return the view with the turns up to `turn` kept for an hour, as far as breakpoints divide it."""
    kept = _keep_longer(view, turn, state)
    return replace(kept, hour_length=find_lasting_length(kept))


def _keep_longer(view: View, turn: int | None, state: State) -> View:
    """Return the view with the turns up to `turn` kept for an hour; None for nothing."""
    if turn is None:
        return view
    if turn >= len(state.turns):
        return replace(view, hour_length=view.length)
    # Turns ascend along a track; head and summary, whose turn is 0, come first.
    length = bisect_right(view.track.segments, turn, hi=view.length, key=attrgetter("turn"))
    return replace(view, hour_length=length)


def writes_for_an_hour(terms: CallTerms, state: State, reports: ProviderReports) -> bool:
    """Return whether all that the next request writes to the cache lives an hour."""
    newest = reports.find_hour_turn(terms.hour_turn)
    return newest is not None and newest >= len(state.turns)
