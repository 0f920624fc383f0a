"""A study: recorded runs x strategies, priced, measured, and summed up.

Runs are independent: they are spread over processes, reported as they finish, and what is finished when the user
interrupts stays in the report.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from elision.engine import Log
from elision.errors import BudgetError
from elision.lab.evidence import Evidence, EvidenceTally, collect_evidence, common_items, measure_noise
from elision.lab.ratios import divide_or_none
from elision.lab.replay import Replay, replay_run
from elision.lab.replay_summarizer import (
    SummarizerUse,
    has_summaries,
    make_report,
    measure_use,
)
from elision.lab.replay_workers import ProgressBoard, StudyProgress, WorkerPool
from elision.lab.results import (
    BILLED,
    ON_TOP,
    RECORDED,
    Composition,
    Control,
    Row,
    SentSummary,
    Series,
    Study,
    is_on_top,
    sum_compositions,
)
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.run_loading import Candidate, Loaded, StudySettings, list_model_uses, sum_up_prices
from elision.lab.sent_rows import SentRows, build_row, build_series, choose_sent_strategy, replay_as_sent
from elision.strategies.mask_candidates import PlaceholderTexts
from elision.strategies.schedules import CacheAwareSchedule, HindsightSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Problem, Trajectory, measure_head, measure_turn

if TYPE_CHECKING:
    from elision.lab.hindsight import CheapestPlan
    from elision.summarizers.model_summarizer import ModelSummarizer


def run_study(
    loaded: Loaded, settings: StudySettings, *, jobs: int = 1, progress: Callable[[StudyProgress], None] | None = None
) -> Study:
    """Replay every run under every candidate.

    jobs: processes. progress: called as the work goes on, within long runs too. Raises SpecError, MissingExtra and
    SettingError for a summarizer that cannot be asked, before anything is replayed.
    """
    asked_at = None
    if settings.summarizer is not None:
        asked_at = settings.summarizer.make_model_summarizer().prices
    read: Sequence[Trajectory] = loaded.runs
    runs = [add_recorded_head(run, settings.size_run(run)) for run in read]
    known = [collect_evidence(run) for run in runs]
    common = find_common_items(runs, known)
    done: dict[int, RunOutcome] = {}
    board = ProgressBoard(runs, len(settings.candidates), progress)
    finished = True
    try:
        board.report()
        for place, result in _replay_in_processes(runs, known, common, settings, jobs, board):
            done[place] = result
            board.finish(place)
    except KeyboardInterrupt:
        finished = False
    results = [done[place] for place in sorted(done)]
    uses = [use for result in results for use in result.uses]
    return replace(
        _sum_up_outcomes(results, runs, settings),
        controls=measure_controls(runs, known, common, settings if finished else None),
        problems=(*loaded.problems, *(problem for result in results for problem in result.problems)),
        finished=finished,
        summarizer=make_report(settings.summarizer, asked_at, uses) if settings.summarizer else None,
    )


def _sum_up_outcomes(results: Sequence[RunOutcome], runs: Sequence[Trajectory], settings: StudySettings) -> Study:
    """Return the study of `runs`, of which those with `results` are finished."""
    listed = [each for result in results for each in result.rows]
    sent = sum((result.sent for result in results), SentSummary())
    if not sent.condensed_runs:
        listed = [(row, series) for row, series in listed if not is_on_top(row.strategy)]
    return Study(
        prices=settings.prices or sum_up_prices(list_model_uses(runs)),
        counter=settings.tokens,
        strategies=list_labels(settings, sent),
        rows=tuple(row for row, _ in listed),
        series={(row.file, row.trajectory, row.strategy): series for row, series in listed},
        hindsight=settings.hindsight,
        recommended=settings.recommended_label,
        turns=settings.assume_turns(run.format for run in runs),
        compositions=sum_compositions(result.composition for result in results),
        sent=sent,
        look_back=any(settings.find_prices(run).cache.look_back for run in runs),
    )


def list_labels(settings: StudySettings, sent: SentSummary) -> tuple[str, ...]:
    """Return the labels of all rows: what happened, every candidate, and what they do on top of agents' condensing."""
    happened = (BILLED, RECORDED) if sent.billed_runs else (RECORDED,)
    tops = [f"{label}, {ON_TOP}" for label in settings.on_top_labels if sent.condensed_runs]
    return (*happened, *(candidate.label for candidate in settings.candidates), *tops)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run under every candidate.

    rows: of each its figures, and call by call. uses: what a model was asked for it, also where the run was left out.

    composition: what its tokens are; None where the run was left out. sent: how it was sent.
    """

    rows: Sequence[tuple[Row, Series]]
    problems: list[Problem]
    uses: Sequence[SummarizerUse] = ()
    composition: Composition | None = None
    sent: SentSummary = field(default_factory=SentSummary)


def _replay_in_processes(
    runs: Sequence[Trajectory],
    known: Sequence[Evidence],
    common: Sequence[frozenset[str]],
    settings: StudySettings,
    jobs: int,
    board: ProgressBoard,
) -> Iterator[tuple[int, RunOutcome]]:
    """Outcomes of each run with its place, as they finish."""
    if jobs <= 1 or len(runs) <= 1:
        for place, run in enumerate(runs):
            report = partial(board.update, place)
            yield place, replay_candidates(run, known[place], common[place], settings, report)
        return
    tasks = [(place, runs[place], known[place], common[place], settings) for place in _order_runs(runs, jobs)]
    with WorkerPool(jobs, board.shares) as pool:
        for done in pool.run(_replay_in_worker, tasks):
            if done is None:
                board.report()
            else:
                (place, *_), outcome = done
                yield place, outcome


def _order_runs(runs: Sequence[Trajectory], jobs: int) -> list[int]:
    """The longest runs on all workers but one, so that none is left alone at the end; the rest from the shortest on,
    so that an interruption finds many finished."""
    places = sorted(range(len(runs)), key=lambda place: len(runs[place].turns))
    return places[::-1][: jobs - 1] + places[: len(places) - (jobs - 1)]


def _replay_in_worker(
    shares: MutableSequence[float],
    place: int,
    run: Trajectory,
    known: Evidence,
    common: frozenset[str],
    settings: StudySettings,
) -> RunOutcome:
    """Replay a run. shares: where each run says how much of it is done."""
    return replay_candidates(run, known, common, settings, partial(shares.__setitem__, place))


def replay_candidates(
    run: Trajectory,
    known: Evidence,
    common: frozenset[str],
    settings: StudySettings,
    report: Callable[[float], None],
    as_sent: SentRows | None = None,
) -> RunOutcome:
    """`run` under every candidate. A run that does not fit one strategy's budget is left out of all: totals compare.

    report: called with the share of the work that is done, from 0 to 1. as_sent: the run as it was sent, if it is known
    already; no strategy is replayed on top of it then.
    """
    replays = _RunReplays(run, known, common, settings, as_sent)

    def report_candidate(number: int, share: float) -> None:
        report((number + share) / len(settings.candidates))

    for number, candidate in enumerate(settings.candidates):
        try:
            replays.add_candidate(candidate, partial(report_candidate, number))
        except BudgetError as error:
            left_out = _new_problem(run, f"left out, since it does not fit {candidate.label}: {error}")
            return RunOutcome([], [left_out], replays.uses)
    # Here, and not with the study: this process has counted the texts already.
    composition = measure_run(run, replays.counting)
    rows = [*replays.rows, *replays.tops]
    return RunOutcome(rows, replays.problems, replays.uses, composition, replays.as_sent.summary)


class _RunReplays:
    """The replays of one run, one candidate after the other, and what they share."""

    def __init__(
        self,
        run: Trajectory,
        known: Evidence,
        common: frozenset[str],
        settings: StudySettings,
        as_sent: SentRows | None,
    ) -> None:
        self._run = run
        self._known = known
        self._common = common
        self._settings = settings
        self._prices = settings.find_prices(run)
        self.counting = settings.size_run(run)
        self._turns = settings.assume_turns([run.format])
        self._labels_on_top = () if as_sent is not None else settings.on_top_labels
        # A replay that a caller brings may lack evidence.
        self._sent_strategy = choose_sent_strategy(run) if as_sent is None else None
        self.as_sent = as_sent or replay_as_sent(run, self._prices, self.counting, known, common)
        self._plans: dict[Strategy, CheapestPlan | None] = {}
        self._texts: PlaceholderTexts = {}
        self.rows = list(self.as_sent.rows)
        self.tops: list[tuple[Row, Series]] = []
        self.problems: list[Problem] = []
        self.uses: list[SummarizerUse] = []

    def add_candidate(self, candidate: Candidate, report: Callable[[float], None]) -> None:
        """Replay the run under `candidate`. Raises BudgetError where it does not fit.

        report: called with the share of this candidate's work that is done: half is its yardstick, half its replay.
        """
        strategy = candidate.strategy
        summarizer = None
        if self._settings.summarizer is not None and has_summaries(strategy):
            summarizer = self._settings.summarizer.make_model_summarizer()
        best = None
        if self._settings.hindsight and summarizer is None:
            best = self._find_hindsight(strategy, lambda share: report(share / 2))
        if isinstance(strategy.schedule, HindsightSchedule):
            if best is None:
                self.problems.append(_new_problem(self._run, f"{candidate.label}: {NO_HINDSIGHT}"))
                strategy = replace(strategy, schedule=CacheAwareSchedule())
            else:
                strategy = best.apply_to(strategy)
        if strategy == self._sent_strategy and not self.as_sent.sent.cuts:
            # What happened is what this strategy does.
            result = self.as_sent.replay
        else:
            turns = len(self._run.turns)
            result = self._replay(
                strategy, summarizer, watch=lambda session: report((1 + len(session.state.turns) / turns) / 2)
            )
        on_top = None
        if self.as_sent.sent.cuts and candidate.label in self._labels_on_top:
            on_top = self._replay(strategy, summarizer, is_cut=True)
            on_top.summarizer += self.as_sent.condensing
        if summarizer is not None:
            self.uses.append(measure_use(summarizer, result.failed_summaries))
        self._add_rows(candidate.label, result, on_top, best)

    def _replay(
        self,
        strategy: Strategy,
        summarizer: ModelSummarizer | None,
        *,
        watch: Callable[[Log], None] | None = None,
        is_cut: bool = False,
    ) -> Replay:
        return replay_run(
            *(self._run, strategy, self._prices, self.counting),
            known=self._known,
            tally=EvidenceTally(common=self._common),
            watch=watch,
            summarizer=summarizer,
            sent=self.as_sent.sent,
            is_cut=is_cut,
            texts=self._texts,
        )

    def _add_rows(self, label: str, result: Replay, on_top: Replay | None, best: CheapestPlan | None) -> None:
        row = build_row(self._run, label, result, self._turns.factors.get(label), self.as_sent.usd)
        if label in self._labels_on_top:
            added = row if on_top is None else build_row(self._run, label, on_top, None, self.as_sent.usd)
            added = replace(added, strategy=f"{label}, {ON_TOP}", hindsight_usd=None, extended_usd=None)
            self.tops.append((added, build_series(on_top or result)))
        if best is not None:
            row = replace(row, hindsight_usd=best.usd)
        self.rows.append((row, build_series(result)))

    def _find_hindsight(self, strategy: Strategy, report: Callable[[float], None]) -> CheapestPlan | None:
        """Return the cheapest schedule: the same for every schedule of a strategy, so it is worked out once."""
        # Brings numpy, which is slow to import, and which only the extra `report` has.
        from elision.lab.hindsight import find_cheapest_plan

        family = replace(strategy, schedule=CacheAwareSchedule())
        if family not in self._plans:
            self._plans[family] = find_cheapest_plan(
                self._run, family, self._prices, self.counting, report, self.as_sent.sent
            )
        return self._plans[family]


def measure_run(run: Trajectory, sizer: Sizer) -> Composition:
    """Return what the tokens of one run are."""
    found = sum((measure_turn(turn, sizer) for turn in run.turns), measure_head(run.head, sizer))
    return Composition(reader=run.format, **asdict(found))


def _new_problem(run: Trajectory, reason: str) -> Problem:
    return Problem(file=run.file, line=None, reason=f"{run.id}: {reason}")


NO_HINDSIGHT = "no hindsight here (a budget matters, models take turns, or over 500 turns); replayed as cache-aware"


# -- how far the measure of evidence can be trusted: noise and floor of each format -----------------------------------


def group_by_format(runs: Sequence[Trajectory]) -> dict[str, list[int]]:
    """Return the places of `runs` by their format."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        places[run.format].append(place)
    return places


def find_common_items(runs: Sequence[Trajectory], known: Sequence[Evidence]) -> list[frozenset[str]]:
    """Return, for each of `runs`, the items that are common property of its format."""
    result: list[frozenset[str]] = [frozenset()] * len(runs)
    for places in group_by_format(runs).values():
        for place, items in zip(places, common_items([known[place] for place in places]), strict=True):
            result[place] = items
    return result


def measure_controls(
    runs: Sequence[Trajectory],
    known: Sequence[Evidence],
    common: Sequence[frozenset[str]],
    settings: StudySettings | None,
) -> tuple[Control, ...]:
    """settings: what to replay the floor with; None after an interruption, when nothing more is replayed."""
    result = []
    for name, places in sorted(group_by_format(runs).items()):
        own = [known[place] for place in places]
        tallies = [replay_floor(runs[place], known[place], settings) for place in places] if settings else []
        floors = [tally for tally in tallies if tally is not None]
        windows = [window for place in places if (window := runs[place].recorded_window)]
        result.append(
            Control(
                reader=name,
                runs=len(places),
                noise=_mean_of(measure_noise(own, [frozenset()] * len(own))),
                noise_filtered=_mean_of(measure_noise(own, [common[place] for place in places])),
                floor=divide_or_none(sum(each.found for each in floors), sum(each.items for each in floors)),
                floor_window=min(windows) if floors else None,
            )
        )
    return tuple(result)


def replay_floor(run: Trajectory, known: Evidence, settings: StudySettings) -> EvidenceTally | None:
    """Return what plain masking hides at the window under which `run` was recorded; None if it saw everything."""
    if not run.recorded_window:
        return None
    plain = parse_strategy(f"paper-masking(window={run.recorded_window})")
    return replay_run(run, plain, settings.find_prices(run), settings.size_run(run), known=known).evidence


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return divide_or_none(sum(known), len(known))
