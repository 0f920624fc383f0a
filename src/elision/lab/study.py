"""A study: recorded runs x strategies, priced, measured, and summed up.

Runs are independent: they are spread over processes, reported as they finish, and what is finished when the user
interrupts stays in the report.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import active_children
from pathlib import Path

from elision.engine import Log
from elision.errors import BudgetError, FormatError, SpecError
from elision.formats.registry import read_runs
from elision.lab.cheapest_plan import CheapestPlan
from elision.lab.dialect import sizer
from elision.lab.elongation import TurnAssumption, TurnFactor, assume_turns, price_late_turn, price_turns
from elision.lab.evidence import Evidence, EvidenceTally, collect_evidence, common_items, measure_noise
from elision.lab.head_estimate import add_recorded_head
from elision.lab.hiding_yardstick import measure_hiding
from elision.lab.hindsight import find_cheapest_plan, has_hindsight
from elision.lab.lifetime_study import PINGS, LifetimeComparison, LifetimeCosts, add_costs, compare_lifetimes
from elision.lab.lifetime_trial import CLIENT_LIFETIMES, LifetimeTrial
from elision.lab.planned_hiding import BEST_HIDING, PlannedHiding, has_best_hiding, make_planned_hiding
from elision.lab.progress import ProgressBoard, StudyProgress
from elision.lab.ratios import divide_or_none
from elision.lab.recorded_sizer import size_run
from elision.lab.replay import Replay, replay_run
from elision.lab.replay_summarizer import (
    ReplaySummarizer,
    SummarizerReport,
    SummarizerUse,
    add_up_use,
    has_summaries,
    make_report,
    measure_use,
)
from elision.lab.results import NEVER_COLD, Control, Row, Series, Study
from elision.lab.run_prices import find_recorded_prices, leave_out_unpriced, sum_up_prices
from elision.lab.token_composition import Composition, measure_run, sum_compositions
from elision.strategies.placeholder import PUBLISHED_TEXT
from elision.strategies.schedules import CacheAwareSchedule, HindsightSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Problem, Trajectory

#: How often the progress of worker processes is looked at.
PROGRESS_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Candidate:
    """A strategy under the name it has in the report."""

    label: str
    strategy: Strategy


_AS_IN_THE_PAPERS = f'schedule=every-turn, gist=0, placeholder="{PUBLISHED_TEXT}"'

#: What `elision replay` compares unless told otherwise.
DEFAULTS: tuple[tuple[str, str], ...] = (
    ("raw", "raw"),
    ("masking, every turn", "paper-masking"),
    ("summarization, every turn", "summarization(every=21, tail=10, schedule=every-turn, gist=0)"),
    ("hybrid, every turn", f"hybrid(window=10, summarize_at=43, tail=10, {_AS_IN_THE_PAPERS})"),
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
    """Strategies under the names that the user gave them; `DEFAULTS` if there are none. Raises SpecError.

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
                f"{spec}: {strategy.name} hides nothing, so no budget holds; give it to another one, such as masking"
            )
        if not isinstance(strategy.schedule, HindsightSchedule):
            continue
        if not hindsight:
            raise SpecError(
                f"{spec}: its schedule is worked out in hindsight, which --no-hindsight and --lifetime leave out"
            )
        if model_summaries and has_summaries(strategy):
            raise SpecError(
                f"{spec}: its schedule is worked out before any summary is written, which does not go with --summarizer"
            )
        if not has_hindsight(strategy):
            raise SpecError(
                f"{spec}: a strategy that triggers on tokens, or summarizes twice, has no hindsight schedule"
            )
    chosen = tuple(Candidate(label, strategy) for strategy, label in found.items()) or default_candidates()
    return tuple(
        each
        for each in chosen
        if not isinstance(each.strategy.schedule, HindsightSchedule)
        or (hindsight and not (model_summaries and has_summaries(each.strategy)))
    )


def add_best_hiding(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return `candidates` and, for each that has one, its best hiding. Raises SpecError where none has one.

    Strategies that differ in their schedule alone have the same one.
    """
    found: dict[Strategy, str] = {}
    for each in candidates:
        if has_best_hiding(each.strategy):
            found.setdefault(replace(each.strategy, schedule=CacheAwareSchedule()), each.label)
    if not found:
        raise SpecError(
            "--best-hiding: no strategy has one; give one that chooses when to hide, and neither summarizes nor folds, "
            "such as masking"
        )
    best = (Candidate(f"{label}, {BEST_HIDING}", make_planned_hiding(strategy)) for strategy, label in found.items())
    return (*candidates, *best)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySettings:
    """What is asked of every run.

    prices: at which runs are billed; None for each at those of the model that was recorded.
    tokens: name of the counter. dialect: whose messages are sent. hindsight: whether the cheapest schedules are worked
    out, which takes a good part of the time; with a `lifetime` the best lifetimes in their place. elongation: how many
    turns to assume, as text: "" for the measured band, `measured`, `none` or factors. summarizer: the model that writes
    summaries; None for the digest. lifetime: how long cache entries live.
    """

    prices: Prices | None
    candidates: tuple[Candidate, ...]
    tokens: str = "o200k"
    dialect: str = "openai"
    hindsight: bool = True
    elongation: str = ""
    summarizer: ReplaySummarizer | None = None
    lifetime: LifetimeTrial = CLIENT_LIFETIMES

    def __post_init__(self) -> None:
        # A text that means nothing is refused here, before the work.
        _ = self.turns

    @property
    def sizer(self) -> Sizer:
        """Return how tokens are counted where no run is known, on our scale."""
        return sizer(self.dialect, self.tokens)

    def find_prices(self, run: Trajectory) -> Prices:
        """Return what `run` is billed at. Raises PriceError where that is its own model's and not known."""
        return find_recorded_prices(run) if self.prices is None else self.prices

    def size_run(self, run: Trajectory) -> Sizer:
        """Return how the messages of `run` are counted."""
        return size_run(run, self.find_prices(run), self.sizer)

    @property
    def yardstick_label(self) -> str:
        """The strategy whose best lifetimes are rows of their own: the recommended one, else the last; "" for none."""
        if self.lifetime == CLIENT_LIFETIMES or not self.hindsight:
            return ""
        recommended = parse_strategy(RECOMMENDED)
        labels = [each.label for each in self.candidates if each.strategy == recommended]
        return (labels or [each.label for each in self.candidates])[-1]

    def list_labels(self) -> tuple[str, ...]:
        """Return the labels of all rows."""
        labels = [candidate.label for candidate in self.candidates]
        if self.yardstick_label:
            labels += name_yardsticks(self.yardstick_label)
        return tuple(labels)

    @property
    def turns(self) -> TurnAssumption:
        """What is assumed of the number of turns. Raises SpecError."""
        return assume_turns(self.elongation, {each.label: each.strategy for each in self.candidates})


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
            raise FormatError(f"{path}: there is no such file or folder")
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
    return Loaded(_drop_duplicates(runs), tuple(problems))


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


def _drop_duplicates(runs: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    """`runs` with ids that are unique within each file."""
    seen: dict[tuple[str, str], int] = defaultdict(int)
    result = []
    for run in runs:
        seen[run.file, run.id] += 1
        count = seen[run.file, run.id]
        result.append(run if count == 1 else replace(run, id=f"{run.id} ({count})"))
    return tuple(result)


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
    turns = settings.turns
    read: Sequence[Trajectory] = loaded.runs
    unpriced: Sequence[Problem] = ()
    if settings.prices is None:
        read, unpriced = leave_out_unpriced(read)
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
    listed = [outcome for result in results for outcome in result.outcomes]
    recommended = parse_strategy(RECOMMENDED)
    return Study(
        prices=settings.prices or sum_up_prices(runs),
        counter=settings.tokens,
        strategies=settings.list_labels(),
        rows=tuple(outcome.row for outcome in listed),
        controls=_measure_controls(runs, known, common, settings if finished else None),
        problems=(*loaded.problems, *unpriced, *(problem for result in results for problem in result.problems)),
        series={(out.row.file, out.row.trajectory, out.row.strategy): out.series for out in listed},
        finished=finished,
        hindsight=settings.hindsight,
        recommended=next((each.label for each in settings.candidates if each.strategy == recommended), ""),
        turns=turns,
        compositions=sum_compositions(result.composition for result in results),
        summarizer=_report_summarizer(settings, asked_at, results),
        lifetimes=_add_up_lifetimes(results),
        lifetime=settings.lifetime,
    )


def _add_up_lifetimes(results: Sequence[RunOutcome]) -> dict[str, LifetimeCosts]:
    """Return what cache lifetimes cost by strategy, all runs together."""
    labels = dict.fromkeys(label for result in results for label in result.lifetimes)
    return {label: add_costs(each.lifetimes[label] for each in results if label in each.lifetimes) for label in labels}


def _report_summarizer(
    settings: StudySettings, prices: Prices | None, results: Sequence[RunOutcome]
) -> SummarizerReport | None:
    if settings.summarizer is None:
        return None
    use = add_up_use(result.use for result in results)
    return make_report(settings.summarizer, prices, use)


@dataclass(frozen=True, slots=True)
class CandidateOutcome:
    """One run under one candidate: its figures, and call by call."""

    row: Row
    series: Series


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """One run under every candidate. use: what a model was asked for it, also where the run was left out.

    composition: what its tokens are; None where the run was left out. lifetimes: what cache lifetimes cost, by
    strategy, where they were compared.
    """

    outcomes: list[CandidateOutcome]
    problems: list[Problem]
    use: SummarizerUse = field(default_factory=SummarizerUse)
    composition: Composition | None = None
    lifetimes: Mapping[str, LifetimeCosts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Step:
    """One candidate's part of a run's progress, in two halves of length `half` from `start` on."""

    report: Callable[[float], None]
    start: float
    half: float

    def report_half(self, share: float) -> None:
        """Report that `share` of the first half is done."""
        self.report(self.start + self.half * share)

    def watch_second_half(self, turns: int) -> Callable[[Log], None]:
        """Return what reports a replay's passes over `turns` turns as the second half."""
        return lambda session: self.report(self.start + self.half * (1 + len(session.state.turns) / turns))


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
    others = set(active_children())
    # Workers leave Ctrl-C to us: we end them and keep what they have delivered.
    with ProcessPoolExecutor(jobs, initializer=_set_up_worker, initargs=(board.shares,)) as pool:
        futures: dict[Future[RunOutcome], int] = {
            pool.submit(_replay_in_worker, place, runs[place], known[place], common[place], settings): place
            for place in _order_runs(runs, jobs)
        }
        waiting = set(futures)
        try:
            while waiting:
                ended, waiting = wait(waiting, PROGRESS_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    yield futures[future], future.result()
                board.report()
        except (KeyboardInterrupt, GeneratorExit):
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in set(active_children()) - others:
                worker.terminate()
            raise


def _order_runs(runs: Sequence[Trajectory], jobs: int) -> list[int]:
    """The longest runs on all workers but one, so that none is left alone at the end; the rest from the shortest on,
    so that an interruption finds many finished."""
    places = sorted(range(len(runs)), key=lambda place: len(runs[place].turns))
    return places[::-1][: jobs - 1] + places[: len(places) - (jobs - 1)]


#: In a worker: where each run says how much of it is done.
_shares: MutableSequence[float] = []


def _set_up_worker(shares: MutableSequence[float]) -> None:
    global _shares
    _shares = shares
    ignore_interrupts()


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one: it ends the workers and keeps what they have delivered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _replay_in_worker(
    place: int, run: Trajectory, known: Evidence, common: frozenset[str], settings: StudySettings
) -> RunOutcome:
    return replay_candidates(run, known, common, settings, partial(_shares.__setitem__, place))


def replay_candidates(
    run: Trajectory, known: Evidence, common: frozenset[str], settings: StudySettings, report: Callable[[float], None]
) -> RunOutcome:
    """`run` under every candidate. A run that does not fit one strategy's budget is left out of all: totals compare.

    report: called with the share of the work that is done, from 0 to 1.
    """
    prices, counting = settings.find_prices(run), settings.size_run(run)
    plans: dict[Strategy, CheapestPlan | None] = {}
    outcomes: list[CandidateOutcome] = []
    problems: list[Problem] = []
    lifetimes: dict[str, LifetimeCosts] = {}
    turns = settings.turns
    uses: list[SummarizerUse] = []
    for number, candidate in enumerate(settings.candidates):
        # Half of each candidate's share is its yardstick, half its replay.
        step = _Step(report, number / len(settings.candidates), 0.5 / len(settings.candidates))
        strategy = candidate.strategy
        best = None
        summarizer = None
        if settings.summarizer is not None and has_summaries(strategy):
            summarizer = settings.summarizer.make_model_summarizer()
        hiding = None
        if isinstance(strategy, PlannedHiding):
            if settings.hindsight:
                best = _find_hindsight(run, strategy.of, prices, counting, plans, _ignore_share)
            hiding = measure_hiding(run, strategy.of, prices, counting, known, step.report_half)
            if hiding is None:
                problems.append(_new_problem(run, f"{candidate.label}: {NO_BEST_HIDING}"))
            else:
                strategy = make_planned_hiding(strategy.of, hiding.plan)
        elif settings.hindsight and summarizer is None and settings.lifetime == CLIENT_LIFETIMES:
            best = _find_hindsight(run, strategy, prices, counting, plans, step.report_half)
        if isinstance(strategy.schedule, HindsightSchedule):
            if best is None:
                problems.append(_new_problem(run, f"{candidate.label}: {NO_HINDSIGHT}"))
            strategy = replace(strategy, schedule=best.schedule if best else CacheAwareSchedule())
        try:
            result = replay_run(
                run,
                strategy,
                prices,
                counting,
                known=known,
                tally=EvidenceTally(common=common),
                watch=step.watch_second_half(len(run.turns)),
                summarizer=summarizer,
                lifetime=settings.lifetime,
            )
            compared = None
            if settings.lifetime != CLIENT_LIFETIMES:
                pings = settings.lifetime.most_pings or PINGS
                compared = compare_lifetimes(run, strategy, prices, counting, known=known, common=common, pings=pings)
        except BudgetError as error:
            left_out = _new_problem(run, f"left out, since it does not fit {candidate.label}: {error}")
            return RunOutcome([], [left_out], add_up_use(uses))
        if summarizer is not None:
            uses.append(measure_use(summarizer, result.failed_summaries))
        row = _build_row(run, candidate.label, result, turns.factors.get(candidate.label))
        if best is not None:
            row = replace(row, hindsight_usd=best.usd)
        if hiding is not None:
            row = replace(row, hiding=replace(hiding, plan=()))
        outcome = CandidateOutcome(row, _build_series(result))
        if compared is None:
            outcomes.append(outcome)
        else:
            is_shown = candidate.label == settings.yardstick_label
            outcomes += _add_yardsticks(outcome, run, compared, summarizer is None, is_shown=is_shown)
            lifetimes[candidate.label] = compared.costs
    # Here, and not with the study: this process has counted the texts already.
    return RunOutcome(outcomes, problems, add_up_use(uses), measure_run(run, counting), lifetimes)


def _add_yardsticks(
    outcome: CandidateOutcome, run: Trajectory, compared: LifetimeComparison, is_digest: bool, *, is_shown: bool
) -> list[CandidateOutcome]:
    """Return the outcome of a strategy, with what the best lifetimes in hindsight cost, and those yardsticks.

    is_digest: whether the digest wrote its summaries, as those of the yardsticks. is_shown: whether they are rows.
    """
    best = compared.hindsight.usd if is_digest else None
    row = replace(outcome.row, hindsight_usd=best)
    found = [replace(outcome, row=row)]
    if not is_shown:
        return found
    for label, replay in zip(name_yardsticks(row.strategy), (compared.hindsight, compared.never_cold), strict=True):
        made = replace(_build_row(run, label, replay, None), raw_usd=row.raw_usd, hindsight_usd=best)
        found.append(CandidateOutcome(made, _build_series(replay)))
    return found


def name_yardsticks(label: str) -> tuple[str, str]:
    """Return the labels of the rows with a strategy's best lifetimes in hindsight, and without any expired entry."""
    return f"{label}, hindsight", f"{label}, {NEVER_COLD}"


def _new_problem(run: Trajectory, reason: str) -> Problem:
    return Problem(file=run.file, line=None, reason=f"{run.id}: {reason}")


def _find_hindsight(
    run: Trajectory,
    strategy: Strategy,
    prices: Prices,
    sizer: Sizer,
    plans: dict[Strategy, CheapestPlan | None],
    report: Callable[[float], None],
) -> CheapestPlan | None:
    """The cheapest schedule: the same for every schedule of a strategy, so it is worked out once."""
    family = replace(strategy, schedule=CacheAwareSchedule())
    if family not in plans:
        plans[family] = find_cheapest_plan(run, family, prices, sizer, report)
    return plans[family]


def _ignore_share(share: float) -> None:
    """Do nothing with a plan's progress: that of the strategy itself was worked out, and reported, before."""


NO_BEST_HIDING = "none here (a budget matters, or models take turns); replayed as hiding nothing"
NO_HINDSIGHT = "no hindsight here (a budget matters, models take turns, or over 500 turns); replayed as cache-aware"


def _build_row(run: Trajectory, label: str, result: Replay, turns: TurnFactor | None) -> Row:
    tally = result.evidence
    costs = [call.usd for call in result.calls]
    return Row(
        file=run.file,
        trajectory=run.id,
        reader=run.format,
        strategy=label,
        turns=len(run.turns),
        tool_turns=run.tool_turns,
        calls=len(result.calls),
        bill=result.bill + result.pings,
        summarizer=result.summarizer,
        raw_usd=result.raw.usd,
        late_usd=price_late_turn(costs),
        extended_usd=(price_turns(costs, turns.low), price_turns(costs, turns.high)) if turns else None,
        peak=result.peak,
        worst_ratio=max((call.ratio for call in result.calls), default=0.0),
        epochs=result.epochs,
        summaries=result.summaries,
        masked=result.masked,
        folded=result.folded,
        folded_tokens=result.folded_tokens,
        evidence_items=tally.items,
        evidence_found=tally.found,
        evidence_found_plain=tally.found_without_summary,
        evidence_items_filtered=tally.items_filtered,
        evidence_found_filtered=tally.found_filtered,
        regret_turns=tally.regret_turns,
        regret_turns_filtered=tally.regret_turns_filtered,
        own_items=tally.own_items,
        own_found=tally.own_found,
        own_missing_turns=tally.own_missing_turns,
        repeats=tally.repeats,
        repeats_hidden=tally.repeats_hidden,
    )


def _build_series(result: Replay) -> Series:
    numbered = list(enumerate(result.calls, start=1))
    return Series(
        tokens=tuple(call.tokens for call in result.calls),
        rewrites=tuple(
            number
            for (number, call), before in zip(numbered[1:], result.calls, strict=False)
            if call.epoch > before.epoch
        ),
        summaries=tuple(number for number, call in numbered if call.summary),
    )


def _group_by_format(runs: Sequence[Trajectory]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        places[run.format].append(place)
    return places


def find_common_items(runs: Sequence[Trajectory], known: Sequence[Evidence]) -> list[frozenset[str]]:
    """Return, for each of `runs`, the items that are common property of its format."""
    result: list[frozenset[str]] = [frozenset()] * len(runs)
    for places in _group_by_format(runs).values():
        for place, items in zip(places, common_items([known[place] for place in places]), strict=True):
            result[place] = items
    return result


def _measure_controls(
    runs: Sequence[Trajectory],
    known: Sequence[Evidence],
    common: Sequence[frozenset[str]],
    settings: StudySettings | None,
) -> tuple[Control, ...]:
    """settings: what to replay the floor with; None after an interruption, when nothing more is replayed."""
    result = []
    for name, places in sorted(_group_by_format(runs).items()):
        own = [known[place] for place in places]
        floor, window = None, None
        if settings:
            floor, window = _measure_floor([runs[place] for place in places], own, settings)
        result.append(
            Control(
                reader=name,
                runs=len(places),
                noise=_mean_of(measure_noise(own, [frozenset()] * len(own))),
                noise_filtered=_mean_of(measure_noise(own, [common[place] for place in places])),
                floor=floor,
                floor_window=window,
            )
        )
    return tuple(result)


def _measure_floor(
    runs: Sequence[Trajectory], known: Sequence[Evidence], settings: StudySettings
) -> tuple[float | None, int | None]:
    """Evidence recall of plain masking at the window under which runs were recorded: what it calls lost, was."""
    items = found = 0
    windows = set()
    for run, own in zip(runs, known, strict=True):
        if run.recorded_window:
            windows.add(run.recorded_window)
            plain = parse_strategy(f"paper-masking(window={run.recorded_window})")
            tally = replay_run(run, plain, settings.find_prices(run), settings.size_run(run), known=own).evidence
            items += tally.items
            found += tally.found
    return divide_or_none(found, items), min(windows, default=None)


def _mean_of(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return divide_or_none(sum(known), len(known))
