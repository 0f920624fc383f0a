"""One shard: its units are read run by run, and its rows become files that appear when they are whole."""

from __future__ import annotations

import io
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from elision.lab.evidence import collect_evidence
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.study import replay_candidates, replay_floor
from elision.lab.study_settings import StudySettings
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
