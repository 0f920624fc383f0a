"""A model that really writes the summaries of a replay, with answers kept on disk: a second replay asks nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from elision.errors import SpecError
from elision.strategies.strategy import Strategy
from elision.summarizers.endpoints import AnswerCache, AnswerCounts, CachedEndpoint, strip_credentials
from elision.summarizers.factory import ACCESS_VARIABLES, make_summarizer
from elision.summarizers.model_summarizer import ModelSummarizer, SummaryRetryPolicy
from elision.summarizers.prompt import BUILT_IN, SummaryPrompt
from elision.trajectory.prices import Prices
from elision.trajectory.redact import DEFAULT, Redaction

#: Seconds that one summary may take, as live.
SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySummarizer:
    """The model that writes the summaries of a study: a value, so that each process makes its own summarizer of it.

    spec, base_url, prompt, temperature, redaction: as for `make_summarizer`. cache: folder of the answers.
    environment: variables with keys and addresses. prices: at which its tokens are billed; None for the model's own.
    seconds: that one summary may take.
    """

    spec: str
    cache: Path
    base_url: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    prices: Prices | None = None
    prompt: SummaryPrompt = field(default=BUILT_IN, repr=False)
    temperature: float | None = 0
    seconds: float = SECONDS
    redaction: Redaction = field(default=DEFAULT, repr=False)

    def make_model_summarizer(self) -> ModelSummarizer:
        """Return a summarizer that knows nothing of other runs, so that each run asks the same however they are spread.

        Raises SpecError, MissingExtra, SettingError.
        """
        policy = SummaryRetryPolicy()
        policy = replace(policy, seconds=self.seconds, call_seconds=min(policy.call_seconds, self.seconds))
        made = make_summarizer(
            self.spec,
            base_url=self.base_url,
            environment=self.environment,
            redaction=self.redaction,
            retry_policy=policy,
            prices=self.prices,
            prompt=self.prompt,
            temperature=self.temperature,
            cache=AnswerCache(self.cache),
        )
        if not isinstance(made, ModelSummarizer):
            raise SpecError(f"{self.spec} asks no model; replays use it unless a summarizer is named")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizerUse:
    """What the summarizers of a study did.

    asked: requests sent to the model. cached: requests answered from disk. unsaved: answers that could not be kept.
    failed: summaries that were not taken, by cause; they were billed as far as they were answered.
    """

    asked: int = 0
    cached: int = 0
    unsaved: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummarizerReport:
    """A study's summarizer.

    spec, base_url: as given, without user and password. cache: the folder of its answers.
    prices: name of those at which its tokens are billed; "" for those of the runs, where its own are not known.
    """

    spec: str
    base_url: str
    cache: str
    prices: str
    use: SummarizerUse

    def json(self) -> dict[str, Any]:
        """Return the key "summarizer" of a study."""
        return {
            "spec": self.spec,
            "base_url": self.base_url or None,
            "prices": self.prices or None,
            "cache": self.cache,
            "asked": self.use.asked,
            "cached": self.use.cached,
            "unsaved": self.use.unsaved,
            "failed": dict(sorted(self.use.failed.items())),
        }


def select_access(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environment` that a summarizer looks at."""
    return {name: environment[name] for name in ACCESS_VARIABLES if name in environment}


def has_summaries(strategy: Strategy) -> bool:
    """Return whether `strategy` makes summaries."""
    return strategy.make_trigger() is not None


def measure_use(summarizer: ModelSummarizer, failed: Mapping[str, int]) -> SummarizerUse:
    """Return what `summarizer` did in one replay. failed: its summaries that were not taken, by cause."""
    endpoint = summarizer.endpoint
    counts = endpoint.counts if isinstance(endpoint, CachedEndpoint) else AnswerCounts()
    return SummarizerUse(asked=counts.asked, cached=counts.cached, unsaved=counts.unsaved, failed=failed)


def make_report(chosen: ReplaySummarizer, prices: Prices | None, uses: Sequence[SummarizerUse]) -> SummarizerReport:
    """Return what a report says of the summarizer.

    prices: at which its tokens were billed, None for the runs' own. uses: of each replay.
    """
    return SummarizerReport(
        spec=chosen.spec,
        base_url=strip_credentials(chosen.base_url) if chosen.base_url else "",
        cache=str(chosen.cache),
        prices=prices.name if prices else "",
        use=SummarizerUse(
            asked=sum(use.asked for use in uses),
            cached=sum(use.cached for use in uses),
            unsaved=sum(use.unsaved for use in uses),
            failed=sum((Counter(use.failed) for use in uses), Counter()),
        ),
    )
