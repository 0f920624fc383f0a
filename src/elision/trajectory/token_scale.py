"""How many tokens the provider counts for what we count: one scale for every figure of a session.

Our count is on the scale of the session's prices already (`Tokenizer`), as far as their model is known. A client may
keep part of its prompt to itself (tools that `prepare` is not shown), and no table is exact. So two things are learned
from reported prompts: how long the newest one was, and how fast prompts grow. Until then the scale is as expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Tokens by our count that prompts must have grown by before their growth says how the provider counts.
GROWN_TOKENS: Final = 500
#: Billed tokens per counted token, at least and at most: beyond that a report is odd.
LEAST_RATE = 0.5
MOST_RATE = 4.0
#: Billed tokens of a whole prompt per counted token, at least and at most: beyond that a proxy reports something else.
LEAST_SHARE: Final = 0.25
MOST_SHARE: Final = 4.0
#: Tokens that a client may send without showing them to `prepare`: system prompt and tools, of several MCP servers too.
UNSEEN_TOKENS: Final = 50_000


@dataclass(slots=True)
class TokenScale:
    """A fold over reported prompts; work per report and per question is constant.

    counted, billed: the newest reported prompt, in tokens by our count and by the provider's; 0 before the first.
    expected_rate: the rate until prompts have grown by enough.
    """

    expected_rate: float = 1.0
    counted_tokens: int = 0
    billed_tokens: int = 0
    _grown_counted: int = 0
    _grown_billed: int = 0

    def add_report(self, counted: int, billed: int, *, extends: bool) -> bool:
        """The provider counted a prompt. extends: whether it begins with the whole prompt that was reported before.

        Return whether the report is used: no tokenizer is so far from ours, and a prompt that seems to be nearly
        nothing would cost nothing, whatever is in it.
        """
        if not is_credible(counted, billed):
            return False
        if extends and self.counted_tokens and counted > self.counted_tokens:
            self._grown_counted += counted - self.counted_tokens
            self._grown_billed += billed - self.billed_tokens
        self.counted_tokens = counted
        self.billed_tokens = billed
        return True

    @property
    def correction(self) -> int:
        """Tokens that the newest reported prompt had beyond our count of it."""
        return self.billed_tokens - self.counted_tokens

    @property
    def rate(self) -> float:
        """Return billed tokens per counted token of what is added to a prompt or left out of it."""
        # Before prompts have grown by enough, their growth says little.
        if self._grown_counted < GROWN_TOKENS:
            return self.expected_rate
        return min(max(self._grown_billed / self._grown_counted, LEAST_RATE), MOST_RATE)

    def convert_part(self, tokens: int) -> int:
        """Return how many tokens the provider would count for a part of a prompt that has `tokens` by our count."""
        return round(tokens * self.rate)

    def convert_to_billed(self, tokens: int) -> int:
        """Return how many tokens the provider would count for a prompt of `tokens` by our count."""
        shorter = self.counted_tokens - tokens
        along_growth = round(self.billed_tokens - self.rate * shorter)
        if shorter <= 0:
            return along_growth
        in_proportion = round(tokens * self.billed_tokens / self.counted_tokens)
        if self._grown_counted >= GROWN_TOKENS:
            return max(along_growth, in_proportion)
        return in_proportion

    def convert_to_counted(self, tokens: int) -> int:
        """Return the largest prompt by our count for which the provider counts at most about `tokens`."""
        if tokens >= self.billed_tokens or not self.counted_tokens:
            return self.counted_tokens + int((tokens - self.billed_tokens) / self.rate)
        along_growth = self.counted_tokens - int((self.billed_tokens - tokens) / self.rate)
        in_proportion = tokens * self.counted_tokens // self.billed_tokens
        if self._grown_counted >= GROWN_TOKENS:
            return min(along_growth, in_proportion)
        return in_proportion


def is_credible(counted: int, billed: int) -> bool:
    """Return whether a provider may have billed `billed` tokens for a prompt of `counted` by our count."""
    if counted - billed >= GROWN_TOKENS and billed < LEAST_SHARE * counted:
        return False
    return billed <= MOST_SHARE * counted + UNSEEN_TOKENS
