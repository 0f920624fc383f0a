"""Both bills of a session: what our views cost, and what sending everything would have."""

from __future__ import annotations

from lacuna.trajectory.cache import PromptCache
from lacuna.trajectory.prices import Bill, Prices
from lacuna.trajectory.view import View


class Books:
    """Bills, call by call, of prompts, answers and the summarizer.

    warm: tokens of the head that other runs keep in the provider's cache.
    """

    def __init__(self, prices: Prices, warm: int = 0) -> None:
        self.prices = prices
        self.cache = PromptCache(prices.cache, warm)
        self.bill = Bill()
        self.summarizer = Bill()
        self.raw = Bill()
        self.answers = Bill()
        self.raw_answers = Bill()
        self._raw_cache = PromptCache(prices.cache, warm)

    @property
    def spent(self) -> float:
        """Our bill so far, in USD."""
        return self.bill.usd + self.summarizer.usd + self.answers.usd

    @property
    def raw_spent(self) -> float:
        """The bill of sending everything so far, in USD."""
        return self.raw.usd + self.raw_answers.usd

    def send_raw(self, view: View, now: float | None, model: str) -> Bill:
        """Book a call that sends everything."""
        bill = self._prompt(view, self._raw_cache.send(view, now, model))
        self.raw += bill
        return bill

    def peek_raw(self, view: View, now: float | None, model: str) -> float:
        """What a call that sends everything would cost now, in USD; books nothing."""
        return self._prompt(view, self._raw_cache.lookup(view, now, model)).usd

    def send(self, view: View, now: float | None, model: str, *, anew: bool = False) -> Bill:
        """Book a call that sends `view`. anew: it begins as no request before it did."""
        bill = self._prompt(view, self.cache.send(view, now, model, anew=anew))
        self.bill += bill
        return bill

    def _prompt(self, view: View, cached: int) -> Bill:
        """The bill of a prompt, of which so many tokens are cached."""
        if self.prices.passes_by(marked=bool(view.marks)):
            return self.prices.plain(view.tokens)
        return self.prices.bill(view.tokens, cached)

    def answer(self, tokens: int, prompt: int, raw_prompt: int) -> None:
        """Book an answer of `tokens` to our prompt and to the raw one; they may stand in different price tiers."""
        ours, raw = (
            Bill(output=tokens, usd=tokens * self.prices.rates(size).output / 1e6) for size in (prompt, raw_prompt)
        )
        self.answers += ours
        self.raw_answers += raw

    def summarize(self, bill: Bill) -> None:
        """Book a summarizer call."""
        self.summarizer += bill
