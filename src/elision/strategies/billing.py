"""Both bills of a session by our count of tokens: what our views cost, and what sending everything would have."""

from __future__ import annotations

from elision.strategies.session_costs import CountedPrompt
from elision.trajectory.cache import AS_FORESEEN, CacheFinding, PromptCache
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.view import View


class SessionBill:
    """Bills, call by call, of prompts, answers and the summarizer; decisions go by them.

    warm: tokens of the head that other runs keep in the provider's cache.
    """

    def __init__(self, prices: Prices, warm: int = 0) -> None:
        self.prices = prices
        self.cache = PromptCache(prices.cache, warm)
        self.prompts = Bill()
        self.summaries = Bill()
        self.raw_prompts = Bill()
        self.answers = Bill()
        self.raw_answers = Bill()
        #: Of the newest call.
        self.newest_prompt = self.newest_raw_prompt = Bill()
        self._raw_cache = PromptCache(prices.cache, warm)
        #: The prompts of the newest call, ours and the raw one.
        self._newest = self._newest_raw = CountedPrompt(tokens=0, cached_tokens=0)

    @property
    def spent_usd(self) -> float:
        """Our bill so far, in USD."""
        return self.prompts.usd + self.summaries.usd + self.answers.usd

    @property
    def raw_spent_usd(self) -> float:
        """The bill of sending everything so far, with the cache breakpoints that our requests had, in USD."""
        return self.raw_prompts.usd + self.raw_answers.usd

    def count_raw_prompt(self, view: View, now: float | None, model: str) -> CountedPrompt:
        """Return the prompt of a call that sends everything now, without recording it."""
        return count_prompt(view, self._raw_cache.count_cached(view, now, model))

    def record_raw_prompt(
        self, view: View, now: float | None, model: str, finding: CacheFinding = AS_FORESEEN
    ) -> CountedPrompt:
        """Record a call that sends everything. finding: what is known of the cache at this call."""
        prompt = count_prompt(view, self._raw_cache.record_request(view, now, model, finding=finding))
        self._newest_raw = prompt
        self.newest_raw_prompt = prompt.bill_at(self.prices)
        self.raw_prompts += self.newest_raw_prompt
        return prompt

    def record_prompt(
        self, view: View, now: float | None, model: str, *, anew: bool = False, finding: CacheFinding = AS_FORESEEN
    ) -> CountedPrompt:
        """Record a call that sends `view`. anew: it begins like no earlier request. finding: as of a raw prompt."""
        prompt = count_prompt(view, self.cache.record_request(view, now, model, anew=anew, finding=finding))
        self._newest = prompt
        self.newest_prompt = prompt.bill_at(self.prices)
        self.prompts += self.newest_prompt
        return prompt

    def lengthen_lifetime(self, model: str) -> None:
        """Take note that the cache entries of the newest request live an hour, by the provider's report.

        What it wrote is billed again: it cost more.
        """
        self.cache.lengthen_lifetime(model)
        self._raw_cache.lengthen_lifetime(model)
        ours = self._newest.with_hour_writes().bill_at(self.prices)
        raw = self._newest_raw.with_hour_writes().bill_at(self.prices)
        self.prompts = self.prompts - self.newest_prompt + ours
        self.raw_prompts = self.raw_prompts - self.newest_raw_prompt + raw
        self.newest_prompt = ours
        self.newest_raw_prompt = raw

    def record_answer(self, tokens: int, prompt: int, raw_prompt: int) -> None:
        """Record an answer of `tokens` to our prompt and to the raw one; they may be in different price tiers."""
        usd = tokens * self.prices.find_rates(prompt).output / 1e6
        raw_usd = tokens * self.prices.find_rates(raw_prompt).output / 1e6
        self.answers += Bill(output=tokens, usd=usd)
        self.raw_answers += Bill(output=tokens, usd=raw_usd)

    def record_summary(self, bill: Bill) -> None:
        """Record a summarizer call."""
        self.summaries += bill


def count_prompt(view: View, cached: int) -> CountedPrompt:
    """Return the prompt of `view`. cached: tokens of it that are read from the cache."""
    return CountedPrompt(
        tokens=view.tokens, cached_tokens=cached, has_breakpoints=bool(view.marks), hour_tokens=view.hour_tokens
    )
