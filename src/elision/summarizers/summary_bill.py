"""The bill of one summary: all calls that it took, the failed ones too."""

from __future__ import annotations

import json
from collections.abc import Callable

from elision.summarizers.model_endpoint import EndpointAnswer, EndpointRequest
from elision.summarizers.summary_result import SummaryResult
from elision.trajectory.prices import Prices
from elision.trajectory.usage import Usage

#: Characters of an answer that are counted where its server does not; what is longer is no summary anyway.
_COUNTED = 200_000


class SummaryBill:
    """Adds up. calls: requests sent, also those that were never answered; those cost nothing that we know of."""

    def __init__(self, prices: Prices | None) -> None:
        self.prices = prices
        self.calls = 0
        self._input = self._cached = self._output = 0
        self._usd: float | None = 0.0

    def add_answer(self, answer: EndpointAnswer, question: EndpointRequest, count: Callable[[str], int]) -> None:
        """An answer came. Where its server reports no usage it is counted, as if nothing had been read from cache."""
        usage = answer.usage or Usage(input=_count_prompt_tokens(question, count), output=count(answer.text[:_COUNTED]))
        self._input += usage.prompt
        self._cached += usage.cache_read
        self._output += usage.output
        usd = usage.usd or price_usage(self.prices, usage)
        if usd is None or self._usd is None:
            self._usd = None
        else:
            self._usd = self._usd + usd

    def make_result(self) -> SummaryResult:
        """What was used so far, without a text."""
        return SummaryResult(
            text="",
            input=self._input,
            cached=self._cached,
            output=self._output,
            usd=self._usd if self._input else None,
            attempts=self.calls,
        )


def price_usage(prices: Prices | None, usage: Usage) -> float | None:
    """USD of a call by what its provider reported; None where no price is known."""
    if prices is None:
        return None
    return prices.usage_usd(usage)


def _count_prompt_tokens(question: EndpointRequest, count: Callable[[str], int]) -> int:
    live = question.live
    if live:
        before = (live.system, list(live.tools), list(live.messages))
    else:
        before = None
    return count(question.text) + (count(json.dumps(before, ensure_ascii=False, default=str)) if before else 0)
