"""A strategy that hides what a plan says, at the calls that it says: the best hiding of a recorded run, replayed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from elision.lab.hindsight import has_summaries_in_hindsight
from elision.strategies.masking import Masking
from elision.strategies.raw import Raw
from elision.strategies.schedules import EveryTurnSchedule, HindsightSchedule
from elision.strategies.selectors import Selector, list_keys
from elision.strategies.strategy import Strategy
from elision.trajectory.plan import Key
from elision.trajectory.turn import Turn


class _PlannedResults:
    """The results that a plan hides, each due at the call that it says."""

    by_age = True

    def __init__(self, calls: Mapping[Key, int]) -> None:
        self.calls = calls

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        for key in list_keys(turn):
            if key in self.calls:
                yield self.calls[key], key


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedHiding(Strategy):
    """What `of` may hide, hidden as `plan` says: by result, from which call on. Without a plan nothing is hidden."""

    name: ClassVar[str] = "planned-hiding"
    of: Strategy = field(default_factory=Masking)
    plan: tuple[tuple[Key, int], ...] = ()

    def make_selectors(self) -> tuple[Selector, ...]:
        return (_PlannedResults(dict(self.plan)),)


def make_planned_hiding(of: Strategy, plan: tuple[tuple[Key, int], ...] = ()) -> PlannedHiding:
    """Return the strategy that hides what `of` may hide as `plan` says, with the same placeholders."""
    return PlannedHiding(
        of=of,
        plan=plan,
        schedule=EveryTurnSchedule(),
        gist=of.gist,
        gist_reads=of.gist_reads,
        placeholder=of.placeholder,
        handles=of.handles,
    )


def has_best_hiding(strategy: Strategy) -> bool:
    """Whether the best hiding says something of `strategy`: it chooses when to hide what, and never summarizes."""
    chooses = not isinstance(strategy.schedule, EveryTurnSchedule | HindsightSchedule)
    return chooses and not isinstance(strategy, Raw) and not has_summaries_in_hindsight(strategy)
