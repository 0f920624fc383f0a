"""The strategies, each a frozen configuration.

It names what may be hidden (a selector) and when old turns may become a summary (a trigger). Its schedule says when
hiding pays, and its policy remembers one session.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from elision.errors import SpecError
from elision.strategies.decision_context import Budget
from elision.strategies.placeholder import Placeholders, parse_template
from elision.strategies.policy import Policy, PolicyOptions
from elision.strategies.schedules import CacheAwareSchedule, Schedule
from elision.strategies.selectors import (
    AllButNewestResults,
    GrowthTrigger,
    OlderThan,
    Rule,
    Selector,
    SummaryTrigger,
    TurnRhythm,
    ViewSizeTrigger,
)
from elision.trajectory.prices import Prices


def check_whole_numbers(owner: str, least: int, **values: int | None) -> None:
    """Each of `values` is a whole number of at least `least`, or None. Raises SpecError naming the option."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SpecError(f"{owner}({name}={value}): give a whole number, {least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Options that all strategies share.

    schedule:           when hiding pays; see `elision.strategies.schedules`.
    gist:               budget of a placeholder's gist, in o200k tokens; 0 for none.
    placeholder:        a text in its place, or a template with fields such as {turn}; "" for an account of what
                        happened.
    handles:            whether placeholders name the handle by which they are recalled.
    rules:              refinements per tool, argument, tag and size; the first `after` that matches counts.
    budget:             the limit of the view, None for no limit of its own.
    fold:               whether lines of a new result that the view shows already are folded.
    summary_max_tokens: a summary's limit. keep_user_tokens: user messages of covered turns that stay word for word.
    """

    name: ClassVar[str] = ""
    #: Whether anything is ever hidden, by rules too.
    can_hide: ClassVar[bool] = True
    schedule: Schedule = field(default_factory=CacheAwareSchedule)
    gist: int = 50
    placeholder: str = ""
    handles: bool = True
    rules: tuple[Rule, ...] = ()
    budget: Budget | None = None
    fold: bool = False
    summary_max_tokens: int = 1_000
    keep_user_tokens: int = 20_000

    def __post_init__(self) -> None:
        self.check_options()

    def check_options(self) -> None:
        """Raise SpecError for a value that has no meaning."""
        check_whole_numbers(self.name, 0, gist=self.gist)
        check_whole_numbers(self.name, 0, keep_user_tokens=self.keep_user_tokens)
        check_whole_numbers(self.name, 50, summary_max_tokens=self.summary_max_tokens)
        if not isinstance(self.placeholder, str):
            raise SpecError(f"{self.name}(placeholder={self.placeholder}): give a text")
        parse_template(self.placeholder)
        for name in self.__dataclass_fields__:
            value: Any = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise SpecError(f"{self.name}({name}={value}): give a number")

    @property
    def placeholders(self) -> Placeholders:
        return Placeholders(gist=self.gist, text=self.placeholder, handles=self.handles)

    def limit_view(self, prices: Prices) -> int | None:
        """Tokens that a view may have; None for no limit. A model whose window is known limits every view."""
        if self.budget is None and prices.window is None:
            return None
        return (self.budget or Budget()).limit_view(prices)

    def make_selector(self) -> Selector | None:
        """A fresh selector for one session; None hides nothing."""
        return None

    def make_trigger(self) -> SummaryTrigger | None:
        """A fresh trigger for one session; None never summarizes."""
        return None

    @property
    def rhythm(self) -> TurnRhythm | None:
        """The numbers of turns by which it acts; None where it never acts, or something else makes summaries due."""
        selector, trigger = self.make_selector(), self.make_trigger()
        if isinstance(trigger, GrowthTrigger):
            window = selector.window if isinstance(selector, OlderThan) else trigger.tail
            counts_tokens = trigger.tokens is not None
            return TurnRhythm(window=window, turns=trigger.turns, tail=trigger.tail, counts_tokens=counts_tokens)
        if trigger is not None or selector is None:
            return None
        return TurnRhythm(window=selector.window if isinstance(selector, OlderThan) else 0)

    def start_policy(self, placeholders: Placeholders | None = None) -> Policy:
        """Begin a session. placeholders: its own; the strategy's if None."""
        options = self.make_policy_options()
        if placeholders is not None:
            options = replace(options, placeholders=placeholders)
        return Policy(options)

    def make_policy_options(self) -> PolicyOptions:
        """Return what a new session's policy takes from this strategy."""
        return PolicyOptions(
            placeholders=self.placeholders,
            selector=self.make_selector(),
            trigger=self.make_trigger(),
            rules=self.rules,
            schedule=self.schedule,
            can_hide=self.can_hide,
            budget=self.budget,
            fold=self.fold,
            summary_max_tokens=self.summary_max_tokens,
            keep_user_tokens=self.keep_user_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking(Strategy):
    """At call t observations of turns i < t - window may be placeholders; the newest `window` turns are verbatim."""

    name: ClassVar[str] = "masking"
    fold: bool = True
    window: int = 10

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, window=self.window)

    def make_selector(self) -> Selector:
        return OlderThan(self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarization(Strategy):
    """Once `every` + `tail` turns follow the last summary, or those outside the tail exceed `summarize_tokens`, all but
    the newest `tail` join it."""

    name: ClassVar[str] = "summarization"
    fold: bool = True
    every: int = 21
    tail: int = 10
    summarize_tokens: int | None = None

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, every=self.every, tail=self.tail, summarize_tokens=self.summarize_tokens)

    def make_trigger(self) -> SummaryTrigger:
        return GrowthTrigger(self.every + self.tail, self.tail, self.summarize_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(Strategy):
    """Masks as `masking` does; when `summarize_at` turns follow the summary, or those outside the tail exceed
    `summarize_tokens`, all but the newest `tail` become one summary, written from the unmasked turns."""

    name: ClassVar[str] = "hybrid"
    fold: bool = True
    window: int = 10
    summarize_at: int = 43
    tail: int = 10
    summarize_tokens: int | None = None

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, window=self.window, summarize_at=self.summarize_at, tail=self.tail)
        check_whole_numbers(self.name, 1, summarize_tokens=self.summarize_tokens)
        if self.summarize_at == 1:
            raise SpecError("hybrid(summarize_at=1): the newest turn stays out of a summary; give 2 turns or more")
        if self.summarize_at <= self.tail:
            raise SpecError(
                f"hybrid(summarize_at={self.summarize_at}, tail={self.tail}): summarize_at must exceed tail, "
                "or nothing would be covered"
            )

    def make_selector(self) -> Selector:
        return OlderThan(self.window)

    def make_trigger(self) -> SummaryTrigger:
        return GrowthTrigger(self.summarize_at, self.tail, self.summarize_tokens)


def limit_tail(summarize_at: int, tail: int) -> int:
    """Return `tail`; half of `summarize_at`, at least 1, where a summary due at that many turns would cover nothing."""
    if tail < summarize_at:
        return tail
    return max(1, summarize_at // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoTier(Strategy):
    """Masks all but the newest `keep_recent` tool results; summarizes when the view exceeds `hard` tokens, or exceeds
    `soft` and more than `after_steps` calls were made; not again before `summarize_min_turns` new turns."""

    name: ClassVar[str] = "two-tier"
    fold: bool = True
    keep_recent: int = 10
    soft: int = 32_000
    hard: int = 64_000
    after_steps: int = 50
    summarize_min_turns: int = 10

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, keep_recent=self.keep_recent, soft=self.soft, hard=self.hard)
        check_whole_numbers(self.name, 1, summarize_min_turns=self.summarize_min_turns)
        check_whole_numbers(self.name, 0, after_steps=self.after_steps)
        if self.soft > self.hard:
            raise SpecError(f"two-tier(soft={self.soft}, hard={self.hard}): soft must not exceed hard")

    def make_selector(self) -> Selector:
        return AllButNewestResults(self.keep_recent)

    def make_trigger(self) -> SummaryTrigger:
        return ViewSizeTrigger(self.keep_recent, self.soft, self.hard, self.after_steps, self.summarize_min_turns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw(Strategy):
    """Sends everything, always; rules may shorten what arrives."""

    name: ClassVar[str] = "raw"
    can_hide: ClassVar[bool] = False

    def limit_view(self, prices: Prices) -> int | None:
        """Return None: the unchanged history may have any size."""
        return None
