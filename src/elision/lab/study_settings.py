"""What a study is to do: prices, candidates, and what else is measured."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from elision.lab.candidates import Candidate
from elision.lab.dialect import sizer
from elision.lab.elongation import TurnAssumption, assume_turns, find_scaffolds
from elision.lab.recorded_sizer import size_run
from elision.lab.replay_summarizer import (
    ReplaySummarizer,
)
from elision.lab.run_prices import find_recorded_prices
from elision.strategies.schedules import CacheAwareSchedule
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """What is asked of every run.

    prices: at which runs are billed; None for each at those of the model that was recorded, or the newest
    flagship's where those are not known.
    tokens: name of the counter. dialect: whose messages are sent. hindsight: whether the cheapest schedules are worked
    out, which takes a good part of the time. elongation: how many turns to assume, as text: "" for the measured band,
    `measured`, `none` or factors. summarizer: the model that writes summaries; None for the digest.
    """

    prices: Prices | None
    candidates: tuple[Candidate, ...]
    tokens: str = "o200k"
    dialect: str = "openai"
    hindsight: bool = True
    elongation: str = ""
    summarizer: ReplaySummarizer | None = None

    def __post_init__(self) -> None:
        # A text that means nothing is refused here, before the work.
        self.assume_turns(())

    @property
    def sizer(self) -> Sizer:
        """Return how tokens are counted where no run is known, on our scale."""
        return sizer(self.dialect, self.tokens)

    def find_prices(self, run: Trajectory) -> Prices:
        """Return what `run` is billed at."""
        return find_recorded_prices(run) if self.prices is None else self.prices

    def size_run(self, run: Trajectory) -> Sizer:
        """Return how the messages of `run` are counted."""
        return size_run(run, self.find_prices(run), self.sizer)

    @property
    def on_top_labels(self) -> tuple[str, ...]:
        """The strategies that are also replayed on top of what recording agents condensed themselves.

        Not those that hide nothing or at every turn, nor yardsticks: nobody would run them there.
        """
        return tuple(
            each.label
            for each in self.candidates
            if isinstance(each.strategy.schedule, CacheAwareSchedule) and each.strategy.can_hide
        )

    def assume_turns(self, formats: Iterable[str]) -> TurnAssumption:
        """Return what is assumed of the number of turns of recordings in `formats`. Raises SpecError."""
        strategies = {each.label: each.strategy for each in self.candidates}
        return assume_turns(self.elongation, strategies, find_scaffolds(formats))
