"""A study of the closed loop: every strategy does the same tasks as `raw`, with an agent that reads only the prompt.

docs/concepts/closed-loop.md says what the tasks and the agent are like. Runs with a real model are kept in a file as
they are paid for, resumed from it, and stopped at a budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from elision.agent.model import Model
from elision.errors import ElisionError, SettingError
from elision.lab.run_loading import find_named_prices
from elision.testing.loop.closed_loop import FAMILIES, EndpointError, TaskOutcome, Variant, run_task
from elision.testing.loop.comparison import Comparison, compare_variants
from elision.testing.loop.task_plan import Knobs
from elision.trajectory.prices import Prices

VARIANTS: Final = (
    "masking",
    "masking(fold=false)",
    "hybrid",
    "hybrid(fold=false)",
    "hybrid + summary_facts=0.5",
    "two-tier",
    "paper-masking",
    "paper-hybrid",
)
#: The flagship, the cheapest cache, no cache: reads at 0.05, 0.025 and 1 x the input price.
PRICES: Final = ("claude-opus-5-5", "claude-fable-5-2", "uncached")
SEEDS: Final = 30


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One task that is to be done."""

    family: str
    seed: int
    variant: Variant
    prices: str
    knobs: Knobs


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """What a benchmark found, as it is published."""

    knobs: Knobs
    first_seed: int
    seeds: int
    comparisons: Sequence[Comparison]
    families: dict[str, Sequence[Comparison]]
    outcomes: Sequence[TaskOutcome]


class LoopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a study of the closed loop is to do. seeds: tasks of each family. prices: sets or models."""

    variants: Sequence[Variant]
    prices: Sequence[str] = PRICES
    families: Sequence[str] = tuple(FAMILIES)
    seeds: int = SEEDS
    first_seed: int = 0
    knobs: Knobs = Knobs()


class LiveModel(msgspec.Struct, frozen=True, kw_only=True):
    """A real model in the agent's place, and the file that keeps its runs within a budget."""

    model: Model
    file: RunFile


def run_loop_study(
    settings: LoopSettings, *, processes: int = 1, live: LiveModel | None = None, report: Callable[[str], None] = print
) -> Results:
    """Do every task under `raw` and every variant. report: receives a line for each task of a real model."""
    variants = dict.fromkeys(("raw", *map(str, settings.variants)))
    jobs = [
        Job(family=family, seed=seed, variant=Variant.parse(variant), prices=prices, knobs=settings.knobs)
        for prices, family, seed, variant in product(
            settings.prices,
            settings.families,
            range(settings.first_seed, settings.first_seed + settings.seeds),
            variants,
        )
    ]
    outcomes = _ask_model(live, settings, jobs, report) if live else list(do_jobs(jobs, processes))
    return Results(
        knobs=settings.knobs,
        first_seed=settings.first_seed,
        seeds=settings.seeds,
        comparisons=compare_variants(outcomes),
        families={
            family: compare_variants(each for each in outcomes if each.family == family)
            for family in dict.fromkeys(each.family for each in outcomes)
        },
        outcomes=outcomes,
    )


def _ask_model(
    live: LiveModel, settings: LoopSettings, jobs: Sequence[Job], report: Callable[[str], None]
) -> Sequence[TaskOutcome]:
    """Run the tasks with a real model as far as the budget goes, and return all outcomes of their file."""
    file, prices = live.file, find_named_prices(settings.prices[0])
    # One task under every variant before the next task, so that what is done can be compared at any time.
    tasks = [(job.family, job.seed, job.variant) for job in sorted(jobs, key=lambda job: (job.seed, job.family))]
    try:
        for outcome in run_live_tasks(live.model, tasks, prices, settings.knobs, file):
            report(f"{outcome.family} {outcome.seed} {outcome.variant}: {outcome.ending}, ${outcome.usd:.3f}")
    except (BudgetSpentError, EndpointError) as error:
        report(f"stopped: {error}; the same command continues from {file.path}")
    report(f"${file.spent:.2f} of ${file.budget:.2f} spent")
    asked = {(family, seed, str(variant)) for family, seed, variant in tasks}
    found = [each for each in file.outcomes if (each.family, each.seed, each.variant) in asked]
    has_raw = {(each.family, each.seed) for each in found if each.variant == "raw"}
    return [each for each in found if (each.family, each.seed) in has_raw]


def do_jobs(jobs: Sequence[Job], processes: int) -> Iterator[TaskOutcome]:
    """Yield the outcomes of `jobs` in their order."""
    if processes == 1:
        yield from map(do_job, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(do_job, jobs, chunksize=max(1, min(16, len(jobs) // (4 * processes))))


def do_job(job: Job) -> TaskOutcome:
    return run_task(job.family, job.seed, job.variant, find_named_prices(job.prices), job.knobs)


def parse_knobs(pairs: Iterable[str]) -> Knobs:
    """Return knobs from texts such as `rot=0.1`. Raises SettingError, which names the knob."""
    values: dict[str, Any] = dict(pair.partition("=")[::2] for pair in pairs)
    try:
        return msgspec.convert(values, Knobs, strict=False)
    except ValueError as error:
        raise SettingError(f"--knob: {error}") from error


# -- runs with a real model -------------------------------------------------------------------------------------------


class BudgetSpentError(ElisionError):
    """The next call might cost more than what is left."""


class _Terms(msgspec.Struct, frozen=True, kw_only=True, tag="terms", tag_field="row"):
    """The first row: what all runs of a file have in common."""

    model: str
    knobs: Knobs


class _Call(msgspec.Struct, frozen=True, kw_only=True, tag="call", tag_field="row"):
    usd: float


class _Outcome(msgspec.Struct, frozen=True, kw_only=True, tag="outcome", tag_field="row"):
    outcome: TaskOutcome


class RunFile:
    """JSON lines: each call with its cost, and each run that ended. No prompt, answer or key is in it.

    budget: USD that all calls of the file may cost, those of earlier commands included.
    Raises SettingError for a file of another model or other knobs, and for one that is damaged before its last line.
    """

    def __init__(self, path: Path, model: str, knobs: Knobs, budget: float) -> None:
        self.path = path
        self.budget = budget
        self.spent = 0.0
        self.outcomes: list[TaskOutcome] = []
        terms = _Terms(model=model, knobs=knobs)
        rows = self._load_rows()
        if not rows:
            self._append(terms)
        elif rows[0] != terms:
            raise SettingError(f"{path} has runs of another model or with other knobs; name another file")
        for row in rows[1:]:
            if isinstance(row, _Call):
                self.spent += row.usd
            elif isinstance(row, _Outcome):
                self.outcomes.append(row.outcome)

    def check_next(self, usd: float) -> None:
        """Raises BudgetSpentError where a call of `usd` would exceed the budget."""
        if self.spent + usd > self.budget:
            raise BudgetSpentError(
                f"${self.spent:.2f} of ${self.budget:.2f} are spent, and the next call may cost ${usd:.2f}"
            )

    def add_call(self, usd: float) -> None:
        self.spent += usd
        self._append(_Call(usd=usd))

    def add_outcome(self, outcome: TaskOutcome) -> None:
        self.outcomes.append(outcome)
        self._append(_Outcome(outcome=outcome))

    def is_done(self, family: str, seed: int, variant: Variant) -> bool:
        name = str(variant)
        return any((each.family, each.seed, each.variant) == (family, seed, name) for each in self.outcomes)

    def _load_rows(self) -> list[_Terms | _Call | _Outcome]:
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if whole != data:
            # Somebody was ended while writing the last line.
            self.path.write_bytes(whole)
        rows = []
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                rows.append(msgspec.json.decode(line, type=_Terms | _Call | _Outcome))
            except msgspec.DecodeError as error:
                raise SettingError(f"{self.path}, line {number}: {error}; name another file") from error
        return rows

    def _append(self, row: _Terms | _Call | _Outcome) -> None:
        with self.path.open("ab") as file:
            file.write(msgspec.json.encode(row) + b"\n")


def run_live_tasks(
    model: Model, tasks: Sequence[tuple[str, int, Variant]], prices: Prices, knobs: Knobs, file: RunFile
) -> Iterator[TaskOutcome]:
    """Run what `file` does not have yet, and yield each outcome when it is in the file.

    tasks: family, seed and variant of each. Raises BudgetSpentError, and EndpointError where the model cannot be asked;
    the run that it happens in is done again by the next command.
    """
    for family, seed, variant in tasks:
        if file.is_done(family, seed, variant):
            continue
        outcome = run_task(family, seed, variant, prices, knobs, model=model, payer=file)
        file.add_outcome(outcome)
        yield outcome
