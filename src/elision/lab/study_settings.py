"""What a study is to do: prices, the strategies that it compares, and what else is measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elision.errors import SpecError
from elision.lab.elongation import TurnAssumption, assume_turns, find_scaffolds
from elision.lab.replay_summarizer import ReplaySummarizer, has_summaries
from elision.lab.run_as_recorded import size_run, sizer
from elision.lab.run_loading import find_recorded_prices
from elision.strategies.placeholder import PUBLISHED_TEXT
from elision.strategies.schedules import CacheAwareSchedule, HindsightSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
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
    def recommended_label(self) -> str:
        """The label of the strategy that Elision recommends; "" if it is not compared."""
        recommended = parse_strategy(RECOMMENDED)
        return next((each.label for each in self.candidates if each.strategy == recommended), "")

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


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy under the name it has in the report."""

    label: str
    strategy: Strategy


AS_IN_THE_PAPERS = f'schedule=every-turn, gist=0, fold=false, placeholder="{PUBLISHED_TEXT}"'

#: What `elision replay` compares unless told otherwise.
DEFAULTS: tuple[tuple[str, str], ...] = (
    ("raw", "raw"),
    ("masking, every turn", "paper-masking"),
    ("summarization, every turn", "summarization(every=21, tail=10, schedule=every-turn, gist=0, fold=false)"),
    ("hybrid, every turn", f"hybrid(window=10, summarize_at=43, tail=10, {AS_IN_THE_PAPERS})"),
    ("masking", "masking(window=10, schedule=cache-aware, gist=50)"),
    ("summarization", "summarization(every=21, tail=10, schedule=cache-aware, gist=50)"),
    ("hybrid", "hybrid(window=10, summarize_at=43, tail=10, schedule=cache-aware, gist=50)"),
    ("hybrid, hindsight", "hybrid(window=10, summarize_at=43, tail=10, schedule=hindsight, gist=50)"),
)


#: The strategy that Elision recommends: the default of library, gateway and settings.
RECOMMENDED = "masking"


def default_candidates() -> tuple[Candidate, ...]:
    return tuple(Candidate(label, parse_strategy(spec)) for label, spec in DEFAULTS)


def parse_candidates(
    specs: Sequence[str], *, hindsight: bool = True, model_summaries: bool = False
) -> tuple[Candidate, ...]:
    """Strategies under the names that the user gave them; `DEFAULTS` if there are none. Raises SpecError;
    MissingExtra if one asks for hindsight and numpy is not installed.

    hindsight: False where no cheapest schedule is worked out: then none may be asked for, and the defaults have none.
    model_summaries: whether a model writes the summaries. How long they get is not known before they are written: then
    no strategy that makes summaries has a cheapest schedule.
    """
    found: dict[Strategy, str] = {}
    for spec in specs:
        strategy = parse_strategy(spec)
        found.setdefault(strategy, spec.strip())
        if strategy.budget is not None and not strategy.can_hide:
            raise SpecError(
                f"{spec}: {strategy.name} hides nothing, so a budget has no effect; use another strategy, "
                f"such as masking"
            )
        if not isinstance(strategy.schedule, HindsightSchedule):
            continue
        if model_summaries and has_summaries(strategy):
            raise SpecError(
                f"{spec}: its schedule is worked out before any summary is written, which does not go with --summarizer"
            )
        # Brings numpy, which is slow to import and only in the extra `report`.
        from elision.lab.hindsight import has_hindsight

        if not hindsight:
            raise SpecError(f"{spec}: its schedule is worked out in hindsight, which --no-hindsight leaves out")
        if not has_hindsight(strategy):
            raise SpecError(f"{spec}: a strategy that triggers on tokens has no hindsight schedule")
    chosen = tuple(Candidate(label, strategy) for strategy, label in found.items()) or default_candidates()
    return tuple(
        each
        for each in chosen
        if not isinstance(each.strategy.schedule, HindsightSchedule)
        or (hindsight and not (model_summaries and has_summaries(each.strategy)))
    )
