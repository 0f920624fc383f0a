"""Shards on several processes: order, failures and dead workers change nothing."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elision.errors import OutputError, SpecError
from elision.study.manifest import RunFacts, Shard
from elision.study.row_schema import ROWS
from elision.study.run_sample import Samples
from elision.study.shard_runner import RunnerProgress, ShardTask, find_missing_shards, make_engine, run_shards
from elision.study.study_folder import StudyFolder, StudyPlan
from elision.trajectory.trajectory import Problem, Trajectory
from tests.soak import sample_cases
from tests.study.made_runs import hash_rows, make_task, prepare, split_shards, write_runs


def prepare_small(tmp_path: Path, name: str, runs: int = 12) -> tuple[StudyPlan, list[Shard]]:
    """Prepare a study of `runs` runs, in shards of two."""
    if not (tmp_path / "runs").exists():
        write_runs(tmp_path / "runs", runs, turns=4)
    plan, shards = prepare(tmp_path / "runs", tmp_path / name)
    return plan, split_shards(shards, 2)


def run_here(task: ShardTask, shards: Sequence[Shard]) -> None:
    for shard in shards:
        task(shard)


def test_any_order_and_number_of_workers_give_the_same_rows(tmp_path: Path) -> None:
    """One hash over all columns: two workers, in a soak one, and shards by hand in random order."""
    hashes = set()
    for workers in sample_cases(("2", "1"), 2):
        plan, shards = prepare_small(tmp_path, workers)
        reports: list[int] = []
        task = make_task(tmp_path / workers, plan)
        progress = run_shards(shards, task, make_engine(workers, 1), lambda p, seen=reports: seen.append(p.runs))
        assert (progress.done, progress.runs, progress.failed) == (6, 12, {})
        assert (reports[0], reports[-1]) == (0, 12)
        assert find_missing_shards(StudyFolder(str(tmp_path / workers)), shards, plan.digest) == []
        hashes.add(hash_rows(tmp_path / workers))
    plan, shards = prepare_small(tmp_path, "by hand")
    random.Random(5).shuffle(shards)
    run_here(make_task(tmp_path / "by hand", plan), shards)
    hashes.add(hash_rows(tmp_path / "by hand"))
    assert len(hashes) == 1


@dataclass(frozen=True)
class WorkThatDies:
    """Kills its process, or raises, at the runs of one file: as often as `times` says."""

    file: str
    log: Path
    times: int
    error: type[Exception] | None = None

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"rows": ROWS}

    def measure_run(
        self, run: Trajectory, facts: RunFacts, samples: Samples, place: int
    ) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], Sequence[Problem]]:
        if run.file.endswith(self.file):
            tried = self.log.read_text() if self.log.exists() else ""
            if len(tried) < self.times:
                self.log.write_text(tried + "x")
                if self.error is not None:
                    raise self.error("bad luck")
                os.kill(os.getpid(), signal.SIGKILL)
        return {"rows": [{"file": run.file}]}, []


def run_dying(tmp_path: Path, name: str, work: WorkThatDies) -> tuple[RunnerProgress, Path, list[Shard], StudyPlan]:
    plan, shards = prepare_small(tmp_path, name)
    task = ShardTask(str(tmp_path / name), plan.digest, work)
    return run_shards(shards, task, make_engine("2", 1), lambda progress: None), tmp_path / name, shards, plan


@pytest.mark.parametrize("error", sample_cases([ConnectionError, None], 2))
def test_a_shard_that_failed_is_tried_again(tmp_path: Path, error: type[Exception] | None) -> None:
    """A process that is killed twice, and an error of the system, cost only time."""
    progress, study, _, _ = run_dying(tmp_path, "study", WorkThatDies("3.json", tmp_path / "log", 2, error))
    assert (progress.done, progress.failed) == (6, {})
    assert pq.read_table(study / "rows").num_rows == 12
    assert not (study / "problems").exists()


@pytest.mark.parametrize(
    ("error", "reason"), sample_cases([(None, "killed"), (ConnectionError, "ConnectionError: bad luck")], 2)
)
def test_a_shard_that_fails_three_times_is_a_problem(
    tmp_path: Path, error: type[Exception] | None, reason: str
) -> None:
    """It is left out with its reason, the others are kept, and a later run completes the study."""
    work = WorkThatDies("3.json", tmp_path / "log", 3, error)
    progress, study, shards, plan = run_dying(tmp_path, "study", work)
    assert progress.done == 5
    assert list(progress.failed) == [1]
    assert reason in progress.failed[1]
    assert pq.read_table(study / "rows").num_rows == 10
    (row,) = pq.read_table(study / "problems").to_pylist()
    assert (row["shard"], row["kind"]) == (1, "shard")
    assert reason in row["reason"]
    missing = find_missing_shards(StudyFolder(str(study)), shards, plan.digest)
    assert [shard.number for shard in missing] == [1]
    again = run_shards(missing, ShardTask(str(study), plan.digest, work), make_engine("1", 1), lambda progress: None)
    assert (again.done, again.failed) == (1, {})
    assert pq.read_table(study / "rows").num_rows == 12
    assert not list((study / "problems").iterdir())


def test_a_study_that_cannot_be_written_ends(tmp_path: Path) -> None:
    """Where the rows have no place, no more shards are computed for nothing."""
    plan, shards = prepare_small(tmp_path, "study")
    (tmp_path / "study" / "rows").write_text("in the way")
    with pytest.raises(OutputError, match="cannot be written"):
        run_shards(shards, make_task(tmp_path / "study", plan), make_engine("2", 1), lambda progress: None)


def test_workers_that_mean_nothing() -> None:
    """A number, `ray` or an address; anything else is a sentence."""
    for text in ("many", "-1", "dask://x", "0"):
        with pytest.raises(SpecError, match="number of processes, ray, or ray://"):
            make_engine(text, 2)
