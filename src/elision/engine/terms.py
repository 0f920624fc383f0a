"""What holds in one call: what its client, its model and its caller allow, and the breakpoints of its request.

`ProviderReports` learns the rest from a session's reports: how tokens are counted, and how long cache entries live.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from operator import attrgetter
from typing import Final

import msgspec
from msgspec.structs import replace

from elision.trajectory.cache import AS_FORESEEN, CacheFinding
from elision.trajectory.events import Breakpoints, PassDecided, RequestSent
from elision.trajectory.price_lookup import find_tokenizer
from elision.trajectory.state import State
from elision.trajectory.tokens import OURS, Tokenizer, TokenScale
from elision.trajectory.usage import Usage
from elision.trajectory.view import View

#: Greater than the index of any turn.
ALL_TURNS: Final = sys.maxsize


class CallTerms(msgspec.Struct, frozen=True, kw_only=True):
    """The terms of one call. They are an argument of the pass, and no log keeps them but for what a replay needs.

    No field has a default: whoever makes terms says all of them. Prices and budget are none of them, since they follow
    from the strategy and the log.

    now:            seconds since the epoch, None if unknown. model: "" if unknown.
    hides_all:      whether to hide all that the strategy allows, whether it pays or not.
    summarizes_all: whether to replace all turns but the tail by a summary as well.
    is_strict:      whether a view that does not fit raises BudgetError. Else the smallest one is returned.
    may_summarize:  whether a summary could be sent. It cannot where the provider clears results itself and messages
                    stay as they were first sent.
    editable_from:  the first turn that may be edited, where the provider binds thinking to what precedes it; else 1.
    new_from:       the first turn whose results thinking is not bound to yet, so that they may be folded as they
                    arrive.
    may_fold:       whether what a fold refers to stays. It does not where the client has the provider clear or compact.
    recall_blocked: whether the recall tools must not enter the request.
    no_cache_marks: whether the client sets no cache breakpoints. breakpoints: when we set some then.
    hour_turn:      the newest turn for which the request asks that cache entries live an hour; 0 for the head alone,
                    None for nothing.
    finding:        what a recording says that the cache held. Bills follow it; no decision foresees it.
    """

    now: float | None
    model: str
    hides_all: bool
    summarizes_all: bool
    is_strict: bool
    may_summarize: bool
    editable_from: int
    new_from: int
    may_fold: bool
    recall_blocked: bool
    no_cache_marks: bool
    breakpoints: Breakpoints
    hour_turn: int | None
    finding: CacheFinding


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
        new_from=1,
        may_fold=True,
        recall_blocked=False,
        no_cache_marks=False,
        breakpoints="gaps",
        hour_turn=None,
        finding=AS_FORESEEN,
    )


def read_terms(sent: RequestSent, decided: PassDecided) -> CallTerms:
    """Return the terms of a call as far as its record has them. The rest is part of its decision, which is adopted."""
    return replace(
        make_plain_terms(sent.at, sent.model),
        may_summarize=not decided.bound,
        no_cache_marks=sent.unmarked,
        breakpoints=sent.ours,
        hour_turn=sent.hour_turn,
        recall_blocked=sent.blocked,
    )


def mark_view(view: View, terms: CallTerms, state: State, reports: ProviderReports) -> View:
    """Return the view with the breakpoints of its request, and how long their cache entries live."""
    has_ours = terms.breakpoints == "always" or (terms.breakpoints == "gaps" and state.is_edited)
    if terms.no_cache_marks and not has_ours:
        return replace(view, marks=())
    if terms.hour_turn is None and reports.hour_turn is None:
        return view
    turn = reports.find_hour_turn(terms.hour_turn)
    assert turn is not None
    if turn >= len(state.turns):
        return replace(view, hour_length=view.length)
    # Turns ascend along a track; head and summary, whose turn is 0, come first.
    length = bisect_right(view.track.segments, turn, hi=view.length, key=attrgetter("turn"))
    return replace(view, hour_length=length)


def writes_for_an_hour(terms: CallTerms, state: State, reports: ProviderReports) -> bool:
    """Return whether all that the next request writes to the cache lives an hour."""
    newest = reports.find_hour_turn(terms.hour_turn)
    return newest is not None and newest >= len(state.turns)


class ProviderReports:
    """A fold over the reports of one session.

    scale:     how many tokens the provider counts for ours.
    hour_turn: the newest turn whose cache entries live an hour; 0 for the head alone, None for nothing.
    odd_report: the first that was not used, None if there is none: tokens of the prompt by our count, and as reported.
    """

    def __init__(self) -> None:
        self.scale = TokenScale()
        self.hour_turn: int | None = None
        self.odd_report: tuple[int, int] | None = None
        #: The newest prompt that was reported, and the model of its request.
        self._newest: tuple[View, str] | None = None

    def expect_tokenizer(self, counted: Tokenizer, model: str) -> None:
        """Expect what is known of how `model` counts, where our count is of no model: the prices are no model's."""
        if model and counted == OURS:
            self.scale.expected_rate = find_tokenizer(model).tokens_per_counted

    def find_hour_turn(self, asked: int | None) -> int | None:
        """Return the newest turn whose cache entries live an hour. asked: the one that the client asks for."""
        turns = [turn for turn in (asked, self.hour_turn) if turn is not None]
        return max(turns, default=None)

    def add_prompt(self, view: View, model: str, tokens: int) -> bool:
        """Correct our count: the provider counted `tokens` for the prompt of `view`. Return whether that can be.

        What cannot is not used.
        """
        before, reported_model = self._newest or (None, "")
        extends = before is not None and reported_model == model and view.count_common(before) == before.length
        is_used = self.scale.add_report(view.tokens, tokens, extends=extends)
        if is_used:
            self._newest = view, model
        elif self.odd_report is None:
            self.odd_report = view.tokens, tokens
        return is_used

    def add_cache_writes(self, usage: Usage) -> bool:
        """Take note how long the cache entries of the newest request live; the requests to come write the same.

        Return whether all that was written lives an hour.
        """
        if not usage.cache_write:
            return False
        if usage.cache_write_1h and usage.cache_write == usage.cache_write_1h:
            self.hour_turn = ALL_TURNS
            return True
        # The end of the prompt lives five minutes. Where only its end was written, the head may live longer.
        if usage.cache_write_1h or self.hour_turn is not None:
            self.hour_turn = 0
        return False
