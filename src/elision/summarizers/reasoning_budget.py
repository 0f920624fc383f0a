"""Tokens left to a model for reasoning before its answer, learned from how its answers end."""

from __future__ import annotations

import threading
from typing import Final

#: Tokens left to a model at first, once it turns out to reason.
FIRST: Final = 8_000


class ReasoningBudget:
    """Tokens left to one model, shared by all summaries that it writes. Several threads may use it.

    They double where an answer ended within its reasoning, up to a ceiling that each caller gives, and come down again
    where answers need less. tokens: the first amount, and the least.
    """

    def __init__(self, tokens: int) -> None:
        self.least_tokens = self._tokens = tokens
        self._lock = threading.Lock()

    @property
    def tokens(self) -> int:
        return self._tokens

    def grow(self, used: int, most: int) -> None:
        """Leave more than `used` tokens, all of which an answer took, but no more than `most`.

        Concurrent answers that ended alike count once.
        """
        with self._lock:
            self._tokens = max(self._tokens, min(most, max(FIRST, 2 * used)))

    def shrink(self, needed: int) -> None:
        """Leave twice the tokens that an answer `needed` for reasoning, but at least half of those left so far."""
        with self._lock:
            self._tokens = max(self.least_tokens, min(self._tokens, max(2 * needed, self._tokens // 2)))

    def reset(self) -> None:
        """Leave what was left at first: more was of no use, or was refused."""
        with self._lock:
            self._tokens = self.least_tokens
