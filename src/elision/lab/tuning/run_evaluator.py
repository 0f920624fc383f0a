"""Runs under strategies, each pair once: by the replay that `elision replay` makes, in this process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import active_children
from types import TracebackType
from typing import Final

from elision.lab.candidates import Candidate
from elision.lab.evidence import Evidence, collect_evidence
from elision.lab.evidence_controls import find_common_items
from elision.lab.head_estimate import add_recorded_head
from elision.lab.results import Row, total
from elision.lab.sent_rows import SentRows, replay_as_sent
from elision.lab.study import hold_interrupts, ignore_interrupts, replay_candidates
from elision.lab.study_settings import StudySettings
from elision.lab.tuning.evaluations import Evaluation, Evaluations
from elision.strategies.spec import describe_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.trajectory import Trajectory

#: How often finished work of other processes is looked for.
LOOK_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class PreparedRuns:
    """Runs with what their replays need to know of them."""

    runs: tuple[Trajectory, ...]
    known: tuple[Evidence, ...]
    common: tuple[frozenset[str], ...]
    sent: tuple[SentRows, ...]

    def replay(self, place: int, strategy: Strategy, settings: StudySettings) -> Evaluation:
        """Replay the run at `place` under `strategy`, as `elision replay` does."""
        candidate = Candidate(describe_strategy(strategy), strategy)
        result = replay_candidates(
            self.runs[place],
            self.known[place],
            self.common[place],
            replace(settings, candidates=(candidate,)),
            lambda share: None,  # Progress within a run is too fine to show here.
            self.sent[place],
        )
        for outcome in result.outcomes:
            if outcome.row.strategy == candidate.label:
                return Evaluation(row=outcome.row)
        return Evaluation(row=None, problem="; ".join(problem.reason for problem in result.problems))


def prepare_runs(runs: Sequence[Trajectory], settings: StudySettings) -> PreparedRuns:
    """Return `runs` with their evidence, as a replay prepares them."""
    with_heads = tuple(add_recorded_head(run, settings.size_run(run)) for run in runs)
    known = tuple(collect_evidence(run) for run in with_heads)
    common = tuple(find_common_items(with_heads, known))
    sent = tuple(
        replay_as_sent(run, settings.find_prices(run), settings.size_run(run), evidence, shared)
        for run, evidence, shared in zip(with_heads, known, common, strict=True)
    )
    return PreparedRuns(with_heads, known, common, sent)


class RunEvaluator:
    """Replays what is not known yet. It holds processes: use it in a `with` statement.

    jobs: processes. watch: called after each replay.
    """

    def __init__(
        self,
        prepared: PreparedRuns,
        settings: StudySettings,
        evaluations: Evaluations,
        *,
        jobs: int = 1,
        watch: Callable[[], None] | None = None,
    ) -> None:
        self.prepared = prepared
        self.settings = settings
        self.evaluations = evaluations
        self._watch = watch
        self._others = set(active_children())
        self._pool = None
        if jobs > 1:
            self._pool = ProcessPoolExecutor(jobs, initializer=_set_up_process, initargs=(prepared, settings))

    def __enter__(self) -> RunEvaluator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        if error is not None:
            for worker in set(active_children()) - self._others:
                worker.terminate()

    def evaluate(self, strategies: Sequence[Strategy], places: Sequence[int]) -> None:
        """Replay the runs at `places` under each of `strategies`, where that is not known yet."""
        missing = [
            (place, strategy)
            for strategy in dict.fromkeys(strategies)
            for place in places
            if self.evaluations.find(place, strategy) is None
        ]
        for place, strategy, evaluation in self._replay(missing):
            self.evaluations.add(place, strategy, evaluation)
            if self._watch is not None:
                self._watch()

    def sum_runs(self, strategy: Strategy, places: Iterable[int]) -> Row | None:
        """Return the sum of the runs at `places` under `strategy`; None if it is not known, or does not fit one."""
        rows = []
        for place in places:
            evaluation = self.evaluations.find(place, strategy)
            if evaluation is None or evaluation.row is None:
                return None
            rows.append(evaluation.row)
        return replace(total(rows), strategy=describe_strategy(strategy)) if rows else None

    def sum_sent_runs(self, label: str, places: Iterable[int]) -> Row | None:
        """Return the sum of what happened in those of the runs at `places` that say; None where none does."""
        rows = [row for place in places for row, _ in self.prepared.sent[place].rows if row.strategy == label]
        return total(rows) if rows else None

    def _replay(self, missing: Sequence[tuple[int, Strategy]]) -> Iterator[tuple[int, Strategy, Evaluation]]:
        """Yield the evaluations of `missing` as they are made."""
        if self._pool is None:
            for place, strategy in missing:
                yield place, strategy, self.prepared.replay(place, strategy, self.settings)
            return
        # The longest runs first, so that none is left alone at the end.
        order = sorted(missing, key=lambda pair: -len(self.prepared.runs[pair[0]].turns))
        with hold_interrupts():
            futures: dict[Future[Evaluation], tuple[int, Strategy]] = {
                self._pool.submit(_replay_in_process, place, strategy): (place, strategy) for place, strategy in order
            }
        waiting = set(futures)
        while waiting:
            # A limited wait, so that Ctrl-C is noticed at once.
            ended, waiting = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
            for future in ended:
                place, strategy = futures[future]
                yield place, strategy, future.result()


#: In a process of the pool: the runs, and what is asked of each.
_work: tuple[PreparedRuns, StudySettings] | None = None


def _set_up_process(prepared: PreparedRuns, settings: StudySettings) -> None:
    global _work
    _work = prepared, settings
    ignore_interrupts()


def _replay_in_process(place: int, strategy: Strategy) -> Evaluation:
    assert _work is not None
    prepared, settings = _work
    return prepared.replay(place, strategy, settings)
