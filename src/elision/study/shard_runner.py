"""Shards on many processes: of this machine, or of a Ray cluster. What is finished stays finished, whoever is killed.

The units of a shard are read run by run, and its rows become files that appear when they are whole. Each local worker
is a pool of one process, so a process that dies takes only its own shard along, and it is known whose fault it was.
Work is handed out as workers get free: memory does not grow with the manifest.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from elision.errors import MissingExtra, OutputError, SpecError, describe_error
from elision.lab.evidence import collect_evidence
from elision.lab.replay_workers import ignore_interrupts
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.run_loading import StudySettings
from elision.lab.study import replay_candidates, replay_floor
from elision.study.manifest import RunFacts, Shard, clean_text, read_unit
from elision.study.row_schema import CALLS, PROBLEMS, ROWS, RunMeasures, build_run_rows
from elision.study.run_sample import FormatSample, Samples, decode_sample
from elision.study.study_folder import SAMPLE_FILE, StudyFolder
from elision.trajectory.trajectory import Problem, Trajectory

#: The folder whose part says that a shard is finished, and that of what could not be read.
ROWS_FOLDER: Final = "rows"
PROBLEMS_FOLDER: Final = "problems"
#: Kind of the problem of a whole shard that failed.
FAILED: Final = "shard"
#: Rows that are held before they are written: an archive of any length is one shard.
_HELD_ROWS: Final = 2_000

#: Table -> its new rows.
Rows: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]


class ShardWork(Protocol):
    """What is done with each run of a shard; pickled with the tasks.

    schemas: of its tables, `rows` among them. place: of a run among all, in the order of reading.
    """

    @property
    def schemas(self) -> Mapping[str, pa.Schema]: ...
    def measure_run(
        self, run: Trajectory, facts: RunFacts, samples: Samples, place: int
    ) -> tuple[Rows, Sequence[Problem]]: ...


@dataclass(frozen=True, slots=True)
class ReplayWork:
    """Every run under every strategy. calls: whether each is kept call by call as well."""

    settings: StudySettings
    calls: bool = False

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {ROWS_FOLDER: ROWS, "calls": CALLS} if self.calls else {ROWS_FOLDER: ROWS}

    def measure_run(
        self, run: Trajectory, facts: RunFacts, samples: Samples, place: int
    ) -> tuple[Rows, Sequence[Problem]]:
        """Replay `run`, and return its rows."""
        run = add_recorded_head(run, self.settings.size_run(run))
        known = collect_evidence(run)
        sample = samples.get(run.format) or FormatSample()
        common = sample.find_common_items(run, known)
        outcome = replay_candidates(run, known, common, self.settings, lambda share: None)
        measures = RunMeasures(
            facts=facts,
            noise=sample.measure_noise(run, known, frozenset()),
            noise_filtered=sample.measure_noise(run, known, common),
            floor=replay_floor(run, known, self.settings),
        )
        rows, calls = build_run_rows(run, outcome, measures, self.settings)
        return ({ROWS_FOLDER: rows, "calls": calls} if self.calls else {ROWS_FOLDER: rows}), outcome.problems


@dataclass(frozen=True, slots=True)
class ShardResult:
    """What became of one shard. seconds: of a processor."""

    number: int
    runs: int = 0
    problems: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ShardTask:
    """What makes a shard's files in the study at `folder`. plan: the digest of the settings."""

    folder: str
    plan: str
    work: ShardWork

    def __call__(self, shard: Shard) -> ShardResult:
        """Do the work of a shard, unless it is done. Raises OutputError where the study cannot be written."""
        folder = StudyFolder(self.folder)
        part = shard.name_part(self.plan)
        if folder.exists(f"{ROWS_FOLDER}/{part}"):
            return ShardResult(shard.number)
        before = time.process_time()
        # One shard uses one processor.
        pa.set_cpu_count(1)
        samples = _load_samples(self.folder, self.plan)
        problems: list[Problem] = []
        runs = 0
        tables = {name: _TableWriter(schema, self.plan) for name, schema in self.work.schemas.items()}
        for unit in shard.units:
            for found in read_unit(unit):
                if isinstance(found, Problem):
                    problems.append(found)
                    continue
                rows, own_problems = self._measure_run(*found, samples, (shard.number << 32) + runs)
                problems += own_problems
                runs += 1
                for name, own in rows.items():
                    tables[name].add(own)
        listed = [encode_problem(shard.number, problem) for problem in problems]
        write_problems(folder, part, listed, self.plan)
        # The rows last: where they are, the shard is finished.
        for name in sorted(tables, key=lambda name: name == ROWS_FOLDER):
            folder.write(f"{name}/{part}", tables[name].finish())
        return ShardResult(shard.number, runs, len(problems), time.process_time() - before)

    def _measure_run(
        self, run: Trajectory, facts: RunFacts, samples: Samples, place: int
    ) -> tuple[Rows, Sequence[Problem]]:
        try:
            return self.work.measure_run(run, facts, samples, place)
        except (MemoryError, OSError):
            raise
        except Exception as error:  # noqa: BLE001 - a bug costs one run of a million, not the study
            innermost = traceback.extract_tb(error.__traceback__)[-1]
            line = f"{Path(innermost.filename).name}:{innermost.lineno}"
            reason = f"{run.id}: a bug in Elision ({type(error).__name__}: {error}; {line}); left out; please report it"
            return {}, [Problem(file=run.file, line=None, reason=reason, kind="bug")]


class _TableWriter:
    """A table that grows by rows, in memory as compressed Parquet."""

    def __init__(self, schema: pa.Schema, plan: str) -> None:
        self._buffer = io.BytesIO()
        self._writer = pq.ParquetWriter(self._buffer, schema.with_metadata({"elision.plan": plan}), compression="zstd")
        self._held: list[Mapping[str, Any]] = []

    def add(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._held += rows
        if len(self._held) >= _HELD_ROWS:
            self._flush()

    def finish(self) -> bytes:
        """Return the whole table. Nothing can be added after that."""
        self._flush()
        self._writer.close()
        return self._buffer.getvalue()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._held, self._writer.schema))
        self._held.clear()


@lru_cache(maxsize=2)
def _load_samples(folder: str, plan: str) -> Samples:
    return decode_sample(StudyFolder(folder).read(SAMPLE_FILE))


def encode_problem(shard: int, problem: Problem) -> dict[str, Any]:
    """Return a problem as a row."""
    return {
        "shard": shard,
        "file": clean_text(problem.file),
        "line": problem.line,
        "reason": clean_text(problem.reason),
        "kind": problem.kind,
    }


def write_problems(folder: StudyFolder, part: str, rows: Sequence[Mapping[str, Any]], plan: str) -> None:
    """Replace the problems of a shard; those of an attempt that failed go."""
    name = f"{PROBLEMS_FOLDER}/{part}"
    if not rows:
        folder.remove(name)
        return
    table = _TableWriter(PROBLEMS, plan)
    table.add(rows)
    folder.write(name, table.finish())


#: Attempts at a shard before it is left out.
ATTEMPTS: Final = 3
#: How often Ray tries a task again whose worker or node was lost, before that counts as one attempt.
RAY_RETRIES: Final = 3
#: Seconds after which progress is looked at although no shard was finished.
_TICK_SECONDS: Final = 0.5
#: A worker's looks for garbage are rare, since a run leaves little in cycles. A look at everything takes some 36 ms,
#: and a run of 22 calls 50; nearly all that is looked at are modules, which stay.
_GC_THRESHOLDS: Final = (10_000, 10, 50)

#: A shard with its result, or with the reason why there is none; None now and then while all are at work.
_Event: TypeAlias = tuple[Shard, ShardResult | None, str] | None
#: Takes what is to do, which may grow while it runs, and yields what becomes of it.
Engine: TypeAlias = Callable[[deque[Shard], ShardTask], Iterator[_Event]]


@dataclass(slots=True)
class RunnerProgress:
    """Of the shards of this run. every: to do when it began. failed: left out after three attempts, with the reason."""

    every: int
    done: int = 0
    runs: int = 0
    problems: int = 0
    seconds: float = 0.0
    failed: dict[int, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    @property
    def runs_per_second(self) -> float:
        return self.runs / max(time.monotonic() - self.began, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Return how long the rest takes at the rate so far; None before the first shard."""
        if not self.done:
            return None
        return (time.monotonic() - self.began) / self.done * (self.every - self.done - len(self.failed))


def find_missing_shards(folder: StudyFolder, shards: Sequence[Shard], plan: str) -> list[Shard]:
    """Return the shards that are not finished."""
    done = folder.list_names(ROWS_FOLDER)
    return [shard for shard in shards if shard.name_part(plan) not in done]


def run_shards(
    shards: Sequence[Shard], task: ShardTask, engine: Engine, report: Callable[[RunnerProgress], None]
) -> RunnerProgress:
    """Do the work of `shards`; a shard that fails three times becomes a problem of the study.

    report: called as the work goes on. Raises OutputError where the study cannot be written: what is finished stays.
    """
    progress = RunnerProgress(len(shards))
    attempts: Counter[int] = Counter()
    queue = deque(shards)
    report(progress)
    for event in engine(queue, task):
        if event is not None:
            shard, result, reason = event
            if result is not None:
                progress.done += 1
                progress.runs += result.runs
                progress.problems += result.problems
                progress.seconds += result.seconds
            else:
                attempts[shard.number] += 1
                if attempts[shard.number] < ATTEMPTS:
                    queue.append(shard)
                else:
                    progress.failed[shard.number] = reason
                    text = f"shard {shard.number} of {len(shard.units)} files failed {ATTEMPTS} times: {reason};"
                    problem = Problem(file=shard.units[0].url, line=None, reason=f"{text} run the command again")
                    row = {**encode_problem(shard.number, problem), "kind": FAILED}
                    write_problems(StudyFolder(task.folder), shard.name_part(task.plan), [row], task.plan)
        report(progress)
    return progress


def make_engine(workers: str, cores: int) -> Engine:
    """Return what `--workers` names: a number of processes, `ray`, or a Ray cluster's address. Raises SpecError."""
    if workers == "ray" or workers.startswith("ray://"):
        _load_ray()
        address = workers if workers.startswith("ray://") else None
        return lambda queue, task: run_on_ray(queue, task, address)
    if workers and not (workers.isdecimal() and int(workers) >= 1):
        raise SpecError(f"--workers {workers}: give a number of processes, ray, or ray://HOST:PORT")
    count = int(workers or cores)
    return lambda queue, task: run_locally(queue, task, count)


def run_locally(queue: deque[Shard], task: ShardTask, workers: int) -> Iterator[_Event]:
    """Do the work in processes of this machine."""
    context = get_context("spawn")
    others = set(active_children())
    running: dict[Future[ShardResult], tuple[ProcessPoolExecutor, Shard]] = {}
    idle: list[ProcessPoolExecutor] = []
    try:
        while queue or running:
            while queue and len(running) < workers:
                pool = idle.pop() if idle else ProcessPoolExecutor(1, context, initializer=_set_up_worker)
                shard = queue.popleft()
                running[pool.submit(task, shard)] = pool, shard
            ended, _ = wait(running, _TICK_SECONDS, FIRST_COMPLETED)
            for future in ended:
                pool, shard = running.pop(future)
                try:
                    result, reason = _await_shard(future)
                    idle.append(pool)
                except BrokenProcessPool:
                    pool.shutdown(wait=False)
                    result, reason = None, "its process was killed (out of memory?)"
                yield shard, result, reason
            if not ended:
                yield None
        for pool in idle:
            pool.shutdown()
    except BaseException:
        for worker in set(active_children()) - others:
            worker.terminate()
        for pool in [*idle, *(pool for pool, _ in running.values())]:
            pool.shutdown(wait=False, cancel_futures=True)
        raise


def _await_shard(future: Future[ShardResult]) -> tuple[ShardResult | None, str]:
    """Return the result of a shard, or why there is none. Raises OutputError and BrokenProcessPool."""
    try:
        return future.result(), ""
    except (OutputError, BrokenProcessPool):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a shard runs into is its own
        return None, describe_error(error)


def _set_up_worker() -> None:
    """Leave Ctrl-C to the head, and end with it: a killed head must not leave processes behind."""
    gc.set_threshold(*_GC_THRESHOLDS)
    ignore_interrupts()
    # A terminated worker is the head's doing; it has nothing to clean up.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def run_on_ray(queue: deque[Shard], task: ShardTask, address: str | None) -> Iterator[_Event]:
    """Do the work on a Ray cluster: the one at `address`, else the one that is running here, else one of this machine.

    Nodes may come and go. The study must be where every node can write it.
    """
    ray = _load_ray()
    started = not ray.is_initialized()
    if started:
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
            raise SpecError(f"--workers {address or 'ray'}: the cluster does not answer ({error})") from error
    remote = ray.remote(num_cpus=1, max_retries=RAY_RETRIES)(_run_task)
    kept = ray.put(task)
    running: dict[Any, Shard] = {}
    try:
        while queue or running:
            # A few more than there are cores, so that none waits for us.
            most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while queue and len(running) < most:
                shard = queue.popleft()
                running[remote.remote(kept, shard)] = shard
            ended, _ = ray.wait(list(running), num_returns=1, timeout=_TICK_SECONDS)
            for reference in ended:
                shard = running.pop(reference)
                yield shard, *_await_ray_task(ray, reference)
            if not ended:
                yield None
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
        if started:
            ray.shutdown()


def _await_ray_task(ray: Any, reference: Any) -> tuple[ShardResult | None, str]:
    """Return the result of a shard, or why there is none. Raises OutputError."""
    try:
        return ray.get(reference), ""
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, OutputError):
            raise error.cause from error
        return None, describe_error(error.cause)
    except ray.exceptions.RayError as error:
        return None, f"its worker was lost: {str(error).strip().partition(chr(10))[0]}"


def _run_task(task: ShardTask, shard: Shard) -> ShardResult:
    return task(shard)


def _load_ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("--workers ray", "ray") from None
    return ray
