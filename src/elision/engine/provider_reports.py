"""What the provider's reports say about a session: how it counts tokens, and how long its cache entries live."""

from __future__ import annotations

import sys
from typing import Final

from elision.trajectory.price_lookup import find_tokenizer
from elision.trajectory.tokens import OURS, Tokenizer, TokenScale
from elision.trajectory.usage import Usage
from elision.trajectory.view import View

#: Greater than the index of any turn.
ALL_TURNS: Final = sys.maxsize


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
