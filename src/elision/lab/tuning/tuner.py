"""A tuning from start to end: split the runs, search on one part, judge what was found on the other.

No figure of the judge part enters the choice of the recommended point.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

from elision.errors import FormatError, MissingExtra, SpecError
from elision.lab.replay_workers import WorkerPool
from elision.lab.results import BILLED, RECORDED, Row, SentSummary
from elision.lab.run_loading import Loaded, StudySettings, list_model_uses, sum_up_prices
from elision.lab.study import group_by_format
from elision.lab.tuning import JUDGE_SHARE, MIN_EVIDENCE, TRIALS
from elision.lab.tuning.evaluations import (
    Evaluations,
    PreparedRuns,
    RunEvaluator,
    open_evaluations,
    prepare_runs,
)
from elision.lab.tuning.search_space import (
    FAMILIES,
    NUMBERS,
    SearchSpace,
    ToolUse,
    add_rule_sets,
    choose_tool_rules,
    describe_default,
    find_rule_of_thumb,
    list_references,
    measure_tools,
)
from elision.lab.tuning.tuning_result import (
    OBJECTIVES,
    Objective,
    SentTotal,
    TunedPoint,
    Tuning,
    choose_point,
    find_frontier,
)
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Problem, Trajectory

#: Where a sampled search begins: the defaults, and windows to both sides.
FIRST: Final = (
    "masking",
    "hybrid",
    "summarization",
    "masking(window=5)",
    "masking(window=20)",
    "hybrid(window=5)",
    "hybrid(window=20)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneSettings:
    """What is asked of a tuning.

    prices: of all runs; None for those of the model of each. tokens: name of the counter. dialect: whose messages are
    sent. trials: most points of the space to evaluate.
    judge_share: of the runs, kept to judge. min_evidence: of the default's visible facts, the share that the
    recommended point keeps at least.
    """

    prices: Prices | None = None
    space: SearchSpace = field(default_factory=SearchSpace)
    tokens: str = "o200k"
    dialect: str = "openai"
    trials: int = TRIALS
    seed: int = 0
    judge_share: float = JUDGE_SHARE
    objective: Objective = "cost"
    min_evidence: float = MIN_EVIDENCE

    @property
    def study_settings(self) -> StudySettings:
        """What a replay needs to know."""
        return StudySettings(
            prices=self.prices,
            candidates=(),
            tokens=self.tokens,
            dialect=self.dialect,
            hindsight=False,
            elongation="none",
        )


@dataclass(frozen=True, slots=True)
class TuneProgress:
    """finished, every: replays of one run under one strategy; `every` is what the search takes at most."""

    finished: int
    every: int


def check_tune_settings(settings: TuneSettings) -> None:
    """Raise SpecError for an objective or a share that has no meaning."""
    if settings.objective not in OBJECTIVES:
        raise SpecError(f"--objective {settings.objective}: there are: {', '.join(OBJECTIVES)}")
    if not 0 <= settings.min_evidence <= 1:
        raise SpecError(f"--min-evidence {settings.min_evidence:g}: give a share from 0 to 1, such as 0.98")


def tune_runs(
    loaded: Loaded,
    settings: TuneSettings,
    *,
    version: str = "",
    jobs: int = 1,
    study: Path | None = None,
    progress: Callable[[TuneProgress], None] | None = None,
) -> Tuning:
    """Find the settings that suit the runs of `loaded`.

    version: of Elision; evaluations of another one are not reused. study: file that keeps each evaluation as it is
    made; a later call continues from it. progress: called after each replay. After Ctrl-C the result is what is
    finished. Raises SpecError and FormatError for runs that cannot be tuned on, MissingExtra without Optuna.
    """
    check_tune_settings(settings)
    runs = loaded.runs
    fit, judge = split_runs(runs, settings.judge_share, settings.seed)
    _check_lengths([runs[place] for place in fit], settings.space)
    if len(settings.space.list_strategies()) > settings.trials:
        load_optuna()  # Before the work: a missing extra must not cost its results.
    evaluations = open_evaluations(runs, settings.study_settings, version, study)
    prepared = prepare_runs(runs, settings.study_settings)
    uses = measure_tools([prepared.runs[place] for place in fit], settings.study_settings)
    space = add_rule_sets(settings.space, choose_tool_rules(uses, len(fit)))
    work = _TuningWork(settings, space, prepared, evaluations, fit, judge, progress)
    finished = work.search(jobs)
    return work.build_result(loaded.problems, uses, str(study or ""), finished)


def _check_lengths(runs: Sequence[Trajectory], space: SearchSpace) -> None:
    """Raise FormatError where no run is long enough for anything to be hidden."""
    longest = max(len(run.turns) for run in runs)
    if longest <= space.smallest_window + 1:
        raise FormatError(
            f"the runs are too short to tune on: the longest has {longest} calls, and the smallest window searched "
            f"keeps {space.smallest_window} of them; give longer recordings, or --space window=1,2"
        )


class _TuningWork:
    """One tuning at work. fit, judge: places of the runs. proposed: points of the search, in the order found."""

    def __init__(
        self,
        settings: TuneSettings,
        space: SearchSpace,
        prepared: PreparedRuns,
        evaluations: Evaluations,
        fit: list[int],
        judge: list[int],
        progress: Callable[[TuneProgress], None] | None,
    ) -> None:
        self.settings = settings
        self.space = space
        self.prepared = prepared
        self.evaluations = evaluations
        self.fit = fit
        self.judge = judge
        self.references = list_references()
        self.default = parse_strategy(describe_default())
        self.possible = space.list_strategies()
        self.possible_set = frozenset(self.possible)
        self.is_exhaustive = len(self.possible) <= settings.trials
        self.proposed: dict[Strategy, None] = {}
        self.problems: list[Problem] = []
        self._progress = progress
        self._replays = 0

    def search(self, jobs: int) -> bool:
        """Evaluate the references, the points of the search, and the best of them on the judge part. Return whether
        nothing interrupted it."""
        settings = self.settings.study_settings
        jobs = min(jobs, len(self.prepared.runs) * 8)
        pool = WorkerPool(jobs, self.prepared, settings) if jobs > 1 else None
        evaluator = RunEvaluator(self.prepared, settings, self.evaluations, self._report_progress, pool)
        self.evaluator = evaluator
        try:
            with pool or nullcontext():
                evaluator.evaluate([self.default], [*self.fit, *self.judge])
                self._leave_out_unfit_runs()
                evaluator.evaluate(list(self.references), self.fit)
                self._search_points()
                best = [parse_strategy(point.text) for point in self._list_points() if point.on_frontier]
                evaluator.evaluate([*self.references, *best, self._choose()], self.judge)
        except KeyboardInterrupt:
            return False
        return True

    def _search_points(self) -> None:
        """Evaluate all points, in batches, or those that a sampler proposes."""
        if self.is_exhaustive:
            for start in range(0, len(self.possible), BATCH):
                self._evaluate_points(self.possible[start : start + BATCH])
            return
        search_by_sampling(
            self.space,
            self._evaluate_points,
            trials=self.settings.trials,
            seed=self.settings.seed,
            first=[parse_strategy(text) for text in FIRST],
        )

    def _evaluate_points(self, strategies: Sequence[Strategy]) -> list[Row | None]:
        self.proposed |= dict.fromkeys(strategies)
        self.evaluator.evaluate(strategies, self.fit)
        return [self.evaluator.sum_runs(strategy, self.fit) for strategy in strategies]

    def _list_searched(self) -> list[Strategy]:
        """Return the proposed points that are replayed on the whole fit part: after an interruption some are not."""
        return [
            strategy
            for strategy in self.proposed
            if all(self.evaluations.find(place, strategy) is not None for place in self.fit)
        ]

    def _leave_out_unfit_runs(self) -> None:
        """Leave out the runs that do not even fit the default's budget, as a replay does."""
        for part in (self.fit, self.judge):
            for place in list(part):
                evaluation = self.evaluations.find(place, self.default)
                if evaluation is not None and evaluation.row is None:
                    part.remove(place)
                    run = self.prepared.runs[place]
                    self.problems.append(Problem(file=run.file, line=None, reason=evaluation.problem))
        if not self.fit:
            raise FormatError(f"no run is left to fit: {self.problems[0]}")

    def _report_progress(self) -> None:
        self._replays += 1
        if self._progress is not None:
            points = min(self.settings.trials, len(self.possible)) + len(self.references)
            every = points * len(self.fit) + 2 * len(self.references) * len(self.judge)
            self._progress(TuneProgress(self._replays, max(every - self.evaluations.reused, self._replays)))

    def _list_points(self) -> list[TunedPoint]:
        """Return what is evaluated on the whole fit part: references first, the others by their cost."""
        points = []
        for strategy in dict.fromkeys([*self.references, *self._list_searched()]):
            fit = self.evaluator.sum_runs(strategy, self.fit)
            if fit is not None:
                judge = self.evaluator.sum_runs(strategy, self.judge)
                names = self.references.get(strategy, ())
                points.append(TunedPoint(text=describe_strategy(strategy), fit=fit, judge=judge, names=names))
        eligible = [point for point in points if self._is_eligible(point)]
        best = dict(
            zip((point.text for point in eligible), find_frontier([each.fit for each in eligible]), strict=True)
        )
        marked = [replace(point, on_frontier=best.get(point.text, False)) for point in points]
        named = [point for point in marked if point.names]
        others = [point for point in marked if not point.names]
        return [*named, *sorted(others, key=lambda point: (point.fit.usd, point.text))]

    def _is_eligible(self, point: TunedPoint) -> bool:
        """Return whether `point` may be recommended: what the user left out of the space may not, but for the
        default."""
        strategy = parse_strategy(point.text)
        return strategy in self.possible_set or strategy == self.default

    def _choose(self) -> Strategy:
        points = self._list_points()
        default = next(point for point in points if "default" in point.names)
        eligible = [point for point in points if self._is_eligible(point)]
        chosen = choose_point(eligible, default, self.settings.objective, self.settings.min_evidence)
        return parse_strategy(chosen.text)

    def build_result(self, problems: Sequence[Problem], uses: Sequence[ToolUse], study: str, finished: bool) -> Tuning:
        """Return the tuning. Raises KeyboardInterrupt where not even the default is evaluated."""
        points = self._list_points()
        if not any("default" in point.names for point in points):
            raise KeyboardInterrupt
        settings = self.settings
        searched = self._list_searched()
        return Tuning(
            prices=settings.prices or sum_up_prices(list_model_uses(self.prepared.runs)),
            counter=settings.tokens,
            dialect=settings.dialect,
            objective=settings.objective,
            min_evidence=settings.min_evidence,
            seed=settings.seed,
            judge_share=settings.judge_share,
            method="exhaustive" if self.is_exhaustive else "optuna",
            space=self.space,
            tools=tuple(uses),
            size=len(self.possible),
            searched=len(searched),
            unfit=sum(self.evaluator.sum_runs(strategy, self.fit) is None for strategy in searched),
            points=tuple(points),
            recommended=describe_strategy(self._choose()),
            default=describe_default(),
            fit_runs=self._name_runs(self.fit),
            judge_runs=self._name_runs(self.judge),
            rule_of_thumb=find_rule_of_thumb([self.prepared.runs[place] for place in self.fit]),
            problems=(*problems, *self.problems),
            study=study,
            reused=self.evaluations.reused,
            added=self.evaluations.added,
            gone=self.evaluations.gone,
            finished=finished,
            sent=tuple(
                SentTotal(label, row, self.evaluator.sum_sent_runs(label, self.judge))
                for label in (BILLED, RECORDED)
                if (row := self.evaluator.sum_sent_runs(label, self.fit)) is not None
            ),
            sending=sum((self.prepared.sent[place].summary for place in (*self.fit, *self.judge)), SentSummary()),
        )

    def _name_runs(self, places: Sequence[int]) -> tuple[tuple[str, str], ...]:
        return tuple((self.prepared.runs[place].file, self.prepared.runs[place].id) for place in places)


def split_runs(runs: Sequence[Trajectory], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the places of the runs to fit, and of those to judge: about `share` of them, from 0 to below 1.

    The order of the runs does not matter, nor where their files are kept. Raises SpecError where a part would be empty.
    """
    if not 0 <= share < 1:
        raise SpecError(f"--judge-share {share:g}: give a share from 0 to below 1, such as 0.3")
    if share == 0:
        return list(range(len(runs))), []
    if len(runs) < 2:
        raise SpecError(
            "one run is not enough to tune: what fits it cannot be judged on another; give two recordings or more, "
            "or --judge-share 0 to fit without judging"
        )
    order = _shuffle_by_format(runs, seed)
    # Every k-th run of this order, so that each format gives its share.
    chosen = [
        place for number, place in enumerate(order) if _count_chosen(number + 1, share) > _count_chosen(number, share)
    ]
    judge = chosen[: len(runs) - 1] or [order[0]]
    return [place for place in range(len(runs)) if place not in judge], sorted(judge)


def _count_chosen(number: int, share: float) -> int:
    """Return how many of the first `number` runs are to judge: rounded, so that small formats are not all left out."""
    return int(number * share + 0.5)


def _shuffle_by_format(runs: Sequence[Trajectory], seed: int) -> list[int]:
    """Return the places of `runs`, format by format, shuffled within each."""
    places = group_by_format(runs)
    generator = random.Random(seed)
    order: list[int] = []
    names = sorted(places)
    # Of formats with one run each, too, the seed decides which are judged.
    generator.shuffle(names)
    for name in names:
        # By file name: the folder that the user names may be another one tomorrow.
        within = sorted(places[name], key=lambda place: (runs[place].file.rpartition("/")[2], runs[place].id, place))
        generator.shuffle(within)
        order += within
    return order


# -- which points are evaluated: all of them, or those that a sampler of Optuna proposes ------------------------------


#: Replays strategies on the fit part; their sums, None for one that does not fit.
Evaluate: TypeAlias = Callable[[Sequence[Strategy]], list[Row | None]]

#: Points that are proposed before any of them is learnt.
BATCH: Final = 8
#: Points that are chosen at random before the sampler uses what it learnt.
RANDOM_POINTS: Final = 16
#: A sampler that proposes known points this many times as often as it may is at its end.
MOST_ASKED: Final = 4


def search_by_sampling(
    space: SearchSpace, evaluate: Evaluate, *, trials: int, seed: int, first: Sequence[Strategy]
) -> None:
    """Evaluate `trials` points that a multi-objective sampler proposes: cost, facts visible, turns missing something.

    first: points to begin with. It ends earlier where the sampler proposes known points only. Raises MissingExtra.
    """
    optuna = load_optuna()
    study = optuna.create_study(
        directions=["minimize", "maximize", "minimize"],
        sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=RANDOM_POINTS),
    )
    for family, choice in space.iterate_choices():
        if space.make_strategy(family, choice) in first:
            study.enqueue_trial({"family": family} | {f"{family}.{name}": place for name, place in choice.items()})
    seen: set[Strategy] = set()
    for _ in range(0, MOST_ASKED * trials, BATCH):
        batch = [_propose_point(study, space) for _ in range(BATCH)]
        proposed = dict.fromkeys(strategy for _, strategy in batch if strategy is not None)
        for strategy in proposed:
            if len(seen) < trials:
                seen.add(strategy)
        asked = [strategy for strategy in proposed if strategy in seen]
        _report_points(study, batch, dict(zip(asked, evaluate(asked), strict=True)))
        if len(seen) >= trials:
            return


def _report_points(
    study: Any, batch: Sequence[tuple[Any, Strategy | None]], rows: Mapping[Strategy, Row | None]
) -> None:
    """Report what was found at the points of `batch` to the sampler; one without a row has failed."""
    for trial, strategy in batch:
        row = None if strategy is None else rows.get(strategy)
        if row is None:
            study.tell(trial, state=load_optuna().trial.TrialState.FAIL)
        else:
            study.tell(trial, [row.usd, row.evidence_recall or 0.0, row.missing_turns])


def load_optuna() -> Any:
    """Return the module optuna, quiet. Raises MissingExtra without it."""
    try:
        import optuna
    except ImportError:
        raise MissingExtra("a search of a space larger than --trials", "tune") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _propose_point(study: Any, space: SearchSpace) -> tuple[Any, Strategy | None]:
    """Return a trial and its strategy; None for values that exclude each other."""
    trial = study.ask()
    family = trial.suggest_categorical("family", list(space.values["family"]))
    choice = {}
    for name, count in space.list_options(family):
        # A family's option is a parameter of its own: a good window of masking says little about hybrid's.
        if name in NUMBERS:
            choice[name] = trial.suggest_int(f"{family}.{name}", 0, count - 1)
        else:
            choice[name] = trial.suggest_categorical(f"{family}.{name}", list(range(count)))
    assert set(choice) == set(FAMILIES[family])
    return trial, space.make_strategy(family, choice)
