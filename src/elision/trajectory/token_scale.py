"""How many tokens the provider counts for what we count: one scale for every figure of a session.

Providers count 1.0 to 2.6 times our tokens, by model family, and a client may keep part of its prompt to itself (tools
that `prepare` is not shown). So two things are learned from reported prompts: how long the newest one was, and how fast
prompts grow. Until a prompt was reported, the scale is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Tokens by our count that prompts must have grown by before their growth says how the provider counts.
GROWN: Final = 500
#: Billed tokens per counted token, at least and at most: beyond that a report is odd.
LEAST = 0.5
MOST = 4.0


@dataclass(slots=True)
class TokenScale:
    """A fold over reported prompts; work per report and per question is constant.

    counted, billed: the newest reported prompt, in tokens by our count and by the provider's; 0 before the first.
    """

    counted: int = 0
    billed: int = 0
    _grown_counted: int = 0
    _grown_billed: int = 0

    def learn(self, counted: int, billed: int, *, extends: bool) -> None:
        """The provider counted a prompt. extends: whether it begins with the whole prompt that was reported before."""
        if extends and self.counted and counted > self.counted:
            self._grown_counted += counted - self.counted
            self._grown_billed += billed - self.billed
        self.counted = counted
        self.billed = billed

    @property
    def correction(self) -> int:
        """Tokens that the newest reported prompt had beyond our count of it."""
        return self.billed - self.counted

    @property
    def rate(self) -> float:
        """Return billed tokens per counted token of what is added to a prompt or left out of it; 1 if unknown."""
        if not self._is_grown:
            return 1.0
        return min(max(self._grown_billed / self._grown_counted, LEAST), MOST)

    @property
    def _is_grown(self) -> bool:
        """Whether prompts grew by enough to say how the provider counts."""
        return self._grown_counted >= GROWN

    def to_billed(self, tokens: int) -> int:
        """Return how many tokens the provider would count for a prompt of `tokens` by our count."""
        shorter = self.counted - tokens
        along_growth = round(self.billed - self.rate * shorter)
        if shorter <= 0:
            return along_growth
        in_proportion = round(tokens * self.billed / self.counted)
        if self._is_grown:
            return max(along_growth, in_proportion)
        return in_proportion

    def to_counted(self, tokens: int) -> int:
        """Return the largest prompt by our count for which the provider counts at most about `tokens`."""
        if tokens >= self.billed or not self.counted:
            return self.counted + int((tokens - self.billed) / self.rate)
        along_growth = self.counted - int((self.billed - tokens) / self.rate)
        in_proportion = tokens * self.counted // self.billed
        if self._is_grown:
            return min(along_growth, in_proportion)
        return in_proportion
