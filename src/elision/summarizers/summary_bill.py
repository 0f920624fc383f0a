"""The bill of one summary: all calls that it took, the failed ones too."""

from __future__ import annotations

import json
from collections.abc import Callable

from elision.providers.llm.answers import EndpointAnswer
from elision.summarizers.model_endpoint import EndpointRequest
from elision.summarizers.summary_result import SummaryResult
from elision.trajectory.prices import Prices
from elision.trajectory.usage import Usage

#: Characters of an answer that are counted where its server reports no usage; a longer one is no summary anyway.
_COUNTED = 200_000


class SummaryBill:
    """Sums usage and cost. calls: requests sent, also those without an answer, whose cost is unknown and left out."""

    def __init__(self, prices: Prices | None) -> None:
        self.prices = prices
        self.calls = 0
        self._input = self._cached = self._output = 0
        self._usd: float | None = 0.0

    def add_answer(self, answer: EndpointAnswer, request: EndpointRequest, count: Callable[[str], int]) -> None:
        """Add an answer. Where its server reports no usage it is counted, as if nothing had been read from cache."""
        usage = answer.usage or Usage(input=_count_prompt_tokens(request, count), output=count(answer.text[:_COUNTED]))
        self._input += usage.prompt
        self._cached += usage.cache_read
        self._output += usage.output
        usd = usage.usd
        if not usd:
            usd = None if self.prices is None else self.prices.cost_usage(usage)
        if usd is None or self._usd is None:
            self._usd = None
        else:
            self._usd += usd

    def make_result(self) -> SummaryResult:
        """Return a result without a text: what was used so far."""
        return SummaryResult(
            text="",
            input=self._input,
            cached=self._cached,
            output=self._output,
            usd=self._usd if self._input else None,
            attempts=self.calls,
        )


def _count_prompt_tokens(request: EndpointRequest, count: Callable[[str], int]) -> int:
    tokens = count(request.text)
    live = request.live
    if live:
        prefix = (live.system, list(live.tools), list(live.messages))
        tokens += count(json.dumps(prefix, ensure_ascii=False, default=str))
    return tokens
