"""The cache breakpoints that a request has, and how long the cache entries that it writes live."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from operator import attrgetter

from elision.engine.provider_reports import ProviderReports
from elision.engine.terms import CallTerms
from elision.trajectory.state import State
from elision.trajectory.view import View


def mark_view(view: View, terms: CallTerms, state: State, reports: ProviderReports) -> View:
    """Return the view with the breakpoints of its request, and how long their cache entries live."""
    has_ours = terms.breakpoints == "always" or (terms.breakpoints == "gaps" and state.is_edited)
    if terms.no_cache_marks and not has_ours:
        return replace(view, marks=())
    turn = reports.find_hour_turn(terms.hour_turn)
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
