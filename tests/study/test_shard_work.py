"""One shard: what its rows are, and what becomes of what fails."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elision.errors import OutputError
from elision.lab.results import Row, is_on_top
from elision.lab.run_loading import load_runs
from elision.lab.study import run_study
from elision.study.manifest import RunFacts
from elision.study.row_schema import COLUMNS, ROWS, decode_row
from elision.study.run_sample import Samples
from elision.study.shard_runner import ReplayWork, ShardTask
from elision.trajectory.trajectory import Problem, Trajectory
from tests.study.made_runs import SETTINGS, make_messages, make_task, prepare, read_rows, write_runs

EXAMPLES = Path(__file__).parents[2] / "examples" / "runs"


def test_rows_are_those_of_a_replay_in_memory(tmp_path: Path) -> None:
    """Every figure of every row of real recordings is the one that `elision replay` finds, controls included."""
    settings = replace(SETTINGS, prices=None, elongation="measured")
    plan, shards = prepare(EXAMPLES, tmp_path / "study", settings)
    for shard in shards:
        assert make_task(tmp_path / "study", plan, settings)(shard).runs == 4
    expected = run_study(load_runs([EXAMPLES]), settings)
    found = {(row.file, row.strategy): row for row in map(decode_row, read_rows(tmp_path / "study"))}
    rows = {(row.file, row.strategy): row for row in expected.rows}
    condensed = {row.file for row in expected.rows if row.strategy == "as recorded" and row.summaries}
    kept = {key for key in rows if key[0] in condensed or not is_on_top(key[1])}
    assert len(condensed) == 1
    assert set(found) == kept
    assert {key: asdict(found[key]) for key in kept} == {key: asdict(rows[key]) for key in kept}


def test_every_column_has_a_meaning() -> None:
    """Each column is named once and described."""
    assert [name for name, _, _ in COLUMNS] == ROWS.names
    assert len(set(ROWS.names)) == len(COLUMNS)
    assert all(meaning for _, _, meaning in COLUMNS)


def test_what_is_finished_is_not_done_again(tmp_path: Path) -> None:
    """A second call finds the part and leaves it alone."""
    plan, (shard,) = prepare(write_runs(tmp_path / "runs", 3), tmp_path / "study")
    task = make_task(tmp_path / "study", plan)
    assert task(shard).runs == 3
    (part,) = (tmp_path / "study" / "rows").iterdir()
    before = part.stat()
    assert task(shard).runs == 0
    assert (part.stat().st_mtime_ns, part.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_calls_are_kept_where_that_is_asked_for(tmp_path: Path) -> None:
    """With `calls`, a second table has each call's tokens, a row for each run and strategy."""
    plan, (shard,) = prepare(write_runs(tmp_path / "runs", 2), tmp_path / "study")
    ShardTask(str(tmp_path / "study"), plan.digest, ReplayWork(SETTINGS, calls=True))(shard)
    (file,) = (tmp_path / "study" / "calls").iterdir()
    calls = {(row["run"], row["strategy"]): row for row in pq.read_table(file).to_pylist()}
    rows = read_rows(tmp_path / "study")
    assert {(row["run"], row["strategy"]) for row in rows} == set(calls)
    for row in rows:
        tokens = calls[row["run"], row["strategy"]]["tokens"]
        assert (len(tokens), max(tokens)) == (row["calls"], row["peak"])


def test_problems_are_kept_with_the_shard(tmp_path: Path) -> None:
    """What could not be read is a row of the shard's problems; a later attempt without any removes them."""
    runs = write_runs(tmp_path / "runs", 2)
    (runs / "run-00001.json").write_text('{"broken": ')
    plan, (shard,) = prepare(runs, tmp_path / "study")
    task = make_task(tmp_path / "study", plan)
    result = task(shard)
    assert (result.runs, result.problems) == (1, 1)
    (file,) = (tmp_path / "study" / "problems").iterdir()
    (row,) = pq.read_table(file).to_pylist()
    assert row["file"] == str(runs / "run-00001.json")
    assert row["kind"] == "input"
    next((tmp_path / "study" / "rows").iterdir()).unlink()
    (runs / "run-00001.json").write_text(json.dumps({"messages": make_messages(1)}))
    assert task(shard).runs == 2
    assert not list((tmp_path / "study" / "problems").iterdir())


@dataclass(frozen=True)
class WorkWithBug:
    """Work that fails for runs of one file."""

    file: str
    error: type[Exception] = ZeroDivisionError

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"rows": ROWS}

    def measure_run(
        self, run: Trajectory, facts: RunFacts, samples: Samples, place: int
    ) -> tuple[Mapping[str, Sequence[Mapping[str, Any]]], Sequence[Problem]]:
        if run.file.endswith(self.file):
            raise self.error("bad luck")
        return {"rows": [{"file": run.file}]}, []


def test_a_bug_costs_one_run(tmp_path: Path) -> None:
    """The other runs of the shard are kept, and the problem names run, error and place."""
    plan, (shard,) = prepare(write_runs(tmp_path / "runs", 3), tmp_path / "study")
    result = ShardTask(str(tmp_path / "study"), plan.digest, WorkWithBug("1.json"))(shard)
    assert (result.runs, result.problems) == (3, 1)
    assert [Path(row["file"]).name for row in pq.read_table(tmp_path / "study" / "rows").to_pylist()] == [
        "run-00000.json",
        "run-00002.json",
    ]
    (problem,) = pq.read_table(tmp_path / "study" / "problems").to_pylist()
    assert problem["kind"] == "bug"
    assert "main: a bug in Elision (ZeroDivisionError: bad luck; test_shard_work.py:" in problem["reason"]


def test_what_the_system_refuses_fails_the_shard(tmp_path: Path) -> None:
    """An error of the system is not the run's fault: nothing is written, and the shard is tried again."""
    plan, (shard,) = prepare(write_runs(tmp_path / "runs", 2), tmp_path / "study")
    with pytest.raises(ConnectionError):
        ShardTask(str(tmp_path / "study"), plan.digest, WorkWithBug("1.json", ConnectionError))(shard)
    assert not (tmp_path / "study" / "rows").exists()


def test_a_text_that_is_no_unicode(tmp_path: Path) -> None:
    """A lone surrogate in a recording costs neither the run nor the shard."""
    runs = tmp_path / "runs"
    runs.mkdir()
    value = {"model": "m\ud800", "messages": make_messages(1)}
    (runs / "a.json").write_text(json.dumps(value))
    plan, (shard,) = prepare(runs, tmp_path / "study")
    assert make_task(tmp_path / "study", plan)(shard).runs == 1
    assert {row["model"] for row in read_rows(tmp_path / "study")} == {"m\ufffd"}


def test_a_study_that_cannot_be_written(tmp_path: Path) -> None:
    """A file where the folder of the rows belongs is named, with what to do."""
    plan, (shard,) = prepare(write_runs(tmp_path / "runs", 1), tmp_path / "study")
    (tmp_path / "study" / "rows").write_text("in the way")
    with pytest.raises(OutputError, match=r"study/rows/part-.*cannot be written .*run the command again"):
        make_task(tmp_path / "study", plan)(shard)


def test_rows_do_not_depend_on_the_other_runs_of_a_shard(tmp_path: Path) -> None:
    """A run's row is the same whichever runs are read with it."""
    runs = write_runs(tmp_path / "runs", 6)
    plan, (shard,) = prepare(runs, tmp_path / "study")
    make_task(tmp_path / "study", plan)(shard)
    rows = [row for row in read_rows(tmp_path / "study") if row["file"].endswith("3.json")]
    alone = replace(shard, units=shard.units[3:4])
    next((tmp_path / "study" / "rows").iterdir()).unlink()
    make_task(tmp_path / "study", plan)(alone)
    assert read_rows(tmp_path / "study") == rows
    assert isinstance(decode_row(rows[0]), Row)
