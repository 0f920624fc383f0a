"""Tokens that a model is left for reasoning before its answer, learned from how its answers end."""

from __future__ import annotations

import threading
from typing import Final

#: Tokens that a model is left that turns out to reason.
FIRST: Final = 8_000


class ReasoningBudget:
    """What one model is left, shared by all summaries that it writes. Safe to use from several threads.

    It doubles where an answer ended within its reasoning, never beyond a ceiling that each caller gives, and comes down
    again where answers need less. least: what it is left at first, and at least.
    """

    def __init__(self, tokens: int) -> None:
        self.least_tokens = self._tokens = tokens
        self._lock = threading.Lock()

    @property
    def tokens(self) -> int:
        return self._tokens

    def grow(self, used: int, most: int) -> None:
        """Leave more than `used` tokens, all of which an answer took, but no more than `most`.

        Answers that were under way together and ended alike count once.
        """
        with self._lock:
            self._tokens = max(self._tokens, min(most, max(FIRST, 2 * used)))

    def shrink(self, needed: int) -> None:
        """An answer came, and took `needed` tokens for reasoning: leave twice that, coming down by half at most."""
        with self._lock:
            self._tokens = max(self.least_tokens, min(self._tokens, max(2 * needed, self._tokens // 2)))

    def reset(self) -> None:
        """Leave what was left at first: more was of no use, or was refused."""
        with self._lock:
            self._tokens = self.least_tokens
