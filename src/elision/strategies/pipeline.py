"""`pipeline(a, b, ...)`: strategies in sequence, one pass, one rewrite."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from elision.errors import SpecError
from elision.strategies.decision_context import DecisionContext
from elision.strategies.selectors import Selector
from elision.strategies.strategy import Strategy
from elision.strategies.triggers import CountSavedTokens, SummaryTrigger, Threshold
from elision.trajectory.state import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline(Strategy):
    """Hides what any of `parts` may hide. Schedule, placeholders, rules and budget are the pipeline's own.

    The first part whose summary is due has its way; the parts' own schedules are not looked at (one rewrite a pass).
    """

    name: ClassVar[str] = "pipeline"
    parts: tuple[Strategy, ...] = ()

    def check_options(self) -> None:
        Strategy.check_options(self)
        if not self.parts:
            raise SpecError("pipeline(): give one strategy or more: pipeline(supersede, masking(window=10))")
        for part in self.parts:
            for option in fields(Strategy):
                if getattr(part, option.name) != getattr(_DEFAULTS, option.name):
                    raise SpecError(
                        f"pipeline: {part.name} has {option.name} of its own; one pass has one, give it to the pipeline"
                    )

    def make_selectors(self) -> tuple[Selector, ...]:
        return tuple(selector for part in self.parts for selector in part.make_selectors())

    def make_trigger(self) -> SummaryTrigger | None:
        found = tuple(trigger for part in self.parts if (trigger := part.make_trigger()) is not None)
        if found:
            return _FirstTrigger(found)
        return None


#: What the shared options are unless somebody sets them.
_DEFAULTS = Strategy()


class _FirstTrigger:
    def __init__(self, triggers: tuple[SummaryTrigger, ...]) -> None:
        self.triggers = triggers

    def find_due_turn(self, state: State, context: DecisionContext, count_saved: CountSavedTokens) -> int:
        due = (trigger.find_due_turn(state, context, count_saved) for trigger in self.triggers)
        return next((covers for covers in due if covers), 0)

    def find_crossed_thresholds(
        self, state: State, context: DecisionContext, count_saved: CountSavedTokens
    ) -> tuple[Threshold, ...]:
        return tuple(
            threshold
            for trigger in self.triggers
            for threshold in trigger.find_crossed_thresholds(state, context, count_saved)
        )

    def find_last_outside_tail(self, state: State, call: int) -> int:
        return self.triggers[0].find_last_outside_tail(state, call)

    def count_calls_until(self, state: State, call: int) -> int | None:
        return min(
            (left for trigger in self.triggers if (left := trigger.count_calls_until(state, call)) is not None),
            default=None,
        )
