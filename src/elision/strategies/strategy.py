"""What every strategy is configured with, and how one begins a session. The configuration is the strategy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from elision.errors import SpecError
from elision.strategies.decision_context import Budget
from elision.strategies.placeholder import Placeholders, parse_template
from elision.strategies.policy import Policy, PolicyOptions
from elision.strategies.schedules import CacheAwareSchedule, Schedule
from elision.strategies.selectors import OlderThan, Rule, Selector
from elision.strategies.triggers import GrowthTrigger, SummaryTrigger, TurnRhythm
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
