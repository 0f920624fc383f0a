"""What a study replays: the runs, read from files once each, the prices of each, and the strategies that it compares.

All runs are priced by one list, or each by that of the model that was recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

from elision.errors import FormatError, PriceError, SpecError
from elision.formats.registry import read_runs
from elision.lab.elongation import TurnAssumption, assume_turns, find_scaffolds
from elision.lab.replay_summarizer import ReplaySummarizer, has_summaries
from elision.lab.run_as_recorded import size_run, sizer
from elision.strategies.placeholder import PUBLISHED_TEXT
from elision.strategies.schedules import CacheAwareSchedule, HindsightSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.price_lookup import find_flagship_prices, find_price_set, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Problem, Trajectory


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the paths held."""

    runs: tuple[Trajectory, ...]
    problems: tuple[Problem, ...]


def load_runs(paths: Sequence[Path]) -> Loaded:
    """Every run under `paths`, and everything that could not be read. A path that is no recording is a problem too,
    unless there is no run at all: then it is a FormatError."""
    for path in paths:
        if not path.exists():
            raise FormatError(f"{path}: there is no such file or folder; give a recorded run, or try `elision demo`")
    runs: list[Trajectory] = []
    problems: list[Problem] = []
    failures: list[tuple[Path, FormatError]] = []
    for path in dict.fromkeys(paths):
        try:
            for found in read_runs(path):
                if isinstance(found, Trajectory):
                    runs.append(found)
                else:
                    problems.append(found)
        except FormatError as error:
            failures.append((path, error))
    if failures and not runs:
        raise failures[0][1]
    for path, failure in failures:
        # Without the path, which a Problem names itself.
        problems.append(Problem(file=str(path), line=None, reason=str(failure).removeprefix(f"{path}: ")))
    return Loaded(number_duplicates(runs), tuple(problems))


def set_recorded_windows(loaded: Loaded, windows: Mapping[str, int]) -> Loaded:
    """`loaded` with the window under which runs of a format were recorded, where the files do not say it themselves.

    Raises SpecError for a format of which there is no run.
    """
    for reader in windows:
        if not any(run.format == reader for run in loaded.runs):
            formats = ", ".join(sorted({run.format for run in loaded.runs}))
            raise SpecError(f"--recorded-window {reader}: no run of that format was read; there are: {formats}")
    runs = tuple(
        replace(run, recorded_window=windows[run.format]) if run.format in windows else run for run in loaded.runs
    )
    return replace(loaded, runs=runs)


def number_duplicates(runs: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    """Return `runs` with ids that are unique within each file."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    result = []
    for run in runs:
        seen[run.file, run.id] += 1
        count = seen[run.file, run.id]
        result.append(run if count == 1 else replace(run, id=f"{run.id} ({count})"))
    return tuple(result)


# -- at which prices --------------------------------------------------------------------------------------------------


#: What a heading calls the prices of several recorded models.
SEVERAL: Final = "the recorded models"
#: Models that a heading or a sentence names.
NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class ModelUse:
    """Runs of one model that began on one day, and their calls together. day: None where no run says it."""

    model: str
    day: date | None
    runs: int
    calls: int

    def find_prices(self) -> Prices:
        """Return the prices of the model on the day; of the newest flagship where none is known."""
        try:
            return find_prices(self.model, on=self.day)
        except PriceError:
            return find_flagship_prices(self.model)


def find_named_prices(name: str) -> Prices:
    """Return the prices of a set or of a model. Raises PriceError."""
    try:
        return find_price_set(name)
    except PriceError:
        return find_prices(name)


def list_model_uses(runs: Iterable[Trajectory]) -> list[ModelUse]:
    """Return what models `runs` used, a run each."""
    return [ModelUse(run.model, find_day(run), 1, len(run.turns)) for run in runs]


def find_recorded_prices(run: Trajectory) -> Prices:
    """Return the prices of the recorded model on the day of the run; of the newest flagship where none is known."""
    return ModelUse(run.model, find_day(run), 1, 0).find_prices()


def describe_prices_of(uses: Sequence[ModelUse], prices: Prices | None) -> str:
    """Return as which model the runs are priced, where it is not their own. prices: that were asked for, if any."""
    name = (prices or sum_up_prices(uses)).name
    unpriced = describe_unpriced(uses) if prices is None else ""
    return f"{name} ({unpriced})" if unpriced else name


def list_recorded_models(runs: Sequence[Trajectory]) -> str:
    """Return the models of the recordings with their bills, which hold whatever prices the user asked for."""
    bills: dict[str, list[float | None]] = defaultdict(list)
    for run in runs:
        stated = [turn.usage.usd for turn in run.turns if turn.usage is not None and turn.usage.usd is not None]
        bills[run.model or "an unknown model"].append(sum(stated) if len(stated) == len(run.turns) else None)
    return describe_models(
        (model, len(usd), sum(filter(None, usd)) if all(usd) else None)
        for model, usd in sorted(bills.items(), key=lambda item: -len(item[1]))
    )


def describe_models(found: Iterable[tuple[str, int, float | None]]) -> str:
    """Return models with their runs and their bill in USD, where every run states one."""
    models = []
    for model, runs, usd in found:
        billed = "" if usd is None else f", billed ${usd:,.2f}"
        models.append(f"{model or 'an unknown model'} ({_count_runs(runs)}{billed})")
    more = f" and {len(models) - NAMED} more" if len(models) > NAMED else ""
    return f"{', '.join(models[:NAMED])}{more}"


def describe_unpriced(uses: Iterable[ModelUse]) -> str:
    """Return which runs are billed as a flagship, since the price of their own model is not known; "" for none."""
    found: dict[str, dict[str, int]] = {}
    for use in uses:
        try:
            find_prices(use.model, on=use.day)
        except PriceError:
            models = found.setdefault(find_flagship_prices(use.model).name, {})
            models[use.model] = models.get(use.model, 0) + use.runs
    described = []
    for flagship, models in found.items():
        names = [
            f"{_count_runs(runs)} of {model[:80]!r}" if model else f"{_count_runs(runs)} without a model's name"
            for model, runs in models.items()
        ]
        described.append(f"{', '.join(names)} as {flagship}, the newest flagship")
    return "; ".join(described)


def _count_runs(runs: int) -> str:
    return f"{runs:,} run{'s' if runs > 1 else ''}"


def find_day(run: Trajectory) -> date | None:
    """Return the UTC date of the first turn with a time; None without any."""
    first = next((turn.at for turn in run.turns if turn.at is not None), None)
    return None if first is None else datetime.fromtimestamp(first, UTC).date()


def sum_up_prices(uses: Sequence[ModelUse]) -> Prices:
    """Return a list for headings: that of all runs, or of the model with the most calls, under the names of all."""
    found: dict[str, Prices] = {}
    calls: dict[str, int] = {}
    for use in uses:
        prices = use.find_prices()
        found.setdefault(prices.name, prices)
        calls[prices.name] = calls.get(prices.name, 0) + use.calls
    names = sorted(found, key=lambda name: (-calls[name], name))
    first = found[names[0]]
    if len(names) == 1:
        return first
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    models = f"{', '.join(names[:NAMED])}{more}, each run at its own model's; the rates of {names[0]}"
    return replace(first, name=SEVERAL, source=f"{models}: {first.source}")


# -- under which strategies -------------------------------------------------------------------------------------------


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


def _check_hindsight(spec: str, strategy: Strategy, hindsight: bool, model_summaries: bool) -> None:
    """Raise SpecError where no cheapest schedule of `strategy` is worked out. The options are `parse_candidates`'."""
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
        if isinstance(strategy.schedule, HindsightSchedule):
            _check_hindsight(spec, strategy, hindsight, model_summaries)
    chosen = tuple(Candidate(label, strategy) for strategy, label in found.items()) or default_candidates()
    return tuple(
        each
        for each in chosen
        if not isinstance(each.strategy.schedule, HindsightSchedule)
        or (hindsight and not (model_summaries and has_summaries(each.strategy)))
    )
