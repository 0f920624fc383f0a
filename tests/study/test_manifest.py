"""What a study reads: files, folders that are one recording, archives, data sets; and the shards of these."""

from __future__ import annotations

import gzip
import json
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elision.errors import FormatError
from elision.formats.registry import read_runs
from elision.study.manifest import (
    SHARD_BYTES,
    SHARD_UNITS,
    RunFacts,
    Unit,
    cut_shards,
    decode_manifest,
    encode_manifest,
    list_units,
    read_unit,
)
from elision.trajectory.trajectory import Problem, Trajectory
from tests.study.made_runs import make_messages, write_runs

OPENHANDS = Path(__file__).parents[1] / "data" / "openhands-v1"


def read_all(path: Path | str) -> tuple[list[tuple[Trajectory, RunFacts]], list[Problem]]:
    found = [item for unit in list_units([str(path)]) for item in read_unit(unit)]
    problems = [item for item in found if isinstance(item, Problem)]
    return [item for item in found if not isinstance(item, Problem)], problems


def test_what_is_called_like_a_recording_is_listed(tmp_path: Path) -> None:
    """Recordings, compressed ones and archives are units of one file each, sorted; other files are passed over."""
    write_runs(tmp_path / "b", 2)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    (tmp_path / "notes.txt").write_text("no recording")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("x.json", json.dumps({"messages": make_messages(7)}))
    names = [Path(unit.url).name for unit in list_units([str(tmp_path)])]
    assert names == ["a.jsonl.gz", "run-00000.json", "run-00001.json", "c.zip"]


def test_a_pattern_lists_what_it_matches(tmp_path: Path) -> None:
    """A pattern is resolved; one path named twice is read once."""
    write_runs(tmp_path / "runs", 12)
    units = list_units([f"{tmp_path}/runs/run-0000*.json", str(tmp_path / "runs" / "run-00001.json")])
    assert len(units) == 10


def test_nothing_to_read_is_refused(tmp_path: Path) -> None:
    """A path that does not exist, and a folder without recordings, are named."""
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(FormatError, match=str(path)):
            list_units([str(path)])


def test_a_name_that_parquet_cannot_keep_is_refused(tmp_path: Path) -> None:
    """A file whose name is not UTF-8 is named, before any work."""
    (tmp_path / "run-\udcff.json").write_text("{}")
    with pytest.raises(FormatError, match="not UTF-8"):
        list_units([str(tmp_path)])


def test_a_folder_that_is_one_recording_is_one_unit(tmp_path: Path) -> None:
    """Events in files of their own are read together, as elsewhere, whatever lies beside their folder."""
    folder = tmp_path / "runs" / "one" / "events"
    folder.mkdir(parents=True)
    for number, source in enumerate(("user", "agent", "environment")):
        event = {"id": str(number), "source": source, "kind": "MessageEvent"}
        (folder / f"event-{number:05}-{number}.json").write_text(json.dumps(event))
    write_runs(tmp_path / "runs" / "two", 1)
    units = list_units([str(tmp_path / "runs")])
    assert [(Path(unit.url).name, unit.is_folder) for unit in units] == [("one", True), ("run-00000.json", False)]


def test_shards_are_cut_by_number_and_by_bytes() -> None:
    """A shard has at most so many units and bytes; a larger unit is alone in its own."""
    small = [Unit(f"f{number:04}", 10, "v") for number in range(SHARD_UNITS + 1)]
    assert [len(shard.units) for shard in cut_shards(small)] == [SHARD_UNITS, 1]
    large = [Unit("a", SHARD_BYTES // 2, "v"), Unit("b", SHARD_BYTES, "v"), Unit("c", 1, "v"), Unit("d", 1, "v")]
    assert [len(shard.units) for shard in cut_shards(large)] == [1, 1, 2]
    assert cut_shards([]) == []


def test_a_part_is_named_by_content_and_plan() -> None:
    """A file that changed, and another plan, give a shard another name."""
    (one,) = cut_shards([Unit("a", 1, "v1")])
    (other,) = cut_shards([Unit("a", 1, "v2")])
    assert one.name_part("plan") == one.name_part("plan")
    assert len({one.name_part("plan"), other.name_part("plan"), one.name_part("plan 2")}) == 3


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Shards come back with their numbers and units."""
    shards = cut_shards(list_units([str(write_runs(tmp_path, SHARD_UNITS + 5, turns=1))]))
    assert len(shards) == 2
    assert decode_manifest(encode_manifest(shards)) == shards


def test_runs_are_those_that_other_commands_read(tmp_path: Path) -> None:
    """A study reads the same runs under the same names as `elision replay` does in memory."""
    write_runs(tmp_path / "runs", 3)
    with tarfile.open(tmp_path / "runs" / "more.tar.gz", "w:gz") as archive:
        archive.add(write_runs(tmp_path / "packed", 2, first=50), "packed")
    runs, problems = read_all(tmp_path / "runs")
    expected = [run for run in read_runs(tmp_path / "runs") if isinstance(run, Trajectory)]
    assert not problems
    assert sorted((run.file, run.id, len(run.turns)) for run, _ in runs) == sorted(
        (run.file, run.id, len(run.turns)) for run in expected
    )


def test_a_path_says_day_and_tag(tmp_path: Path) -> None:
    """`day=` and `tag=` in the path of a recording are facts of its runs."""
    write_runs(tmp_path / "day=2026-11-02" / "tag=payments", 1)
    ((_, facts),), _ = read_all(tmp_path)
    assert facts == RunFacts(day="2026-11-02", tag="payments")


def test_what_cannot_be_read_is_a_problem(tmp_path: Path) -> None:
    """A file in no known format, one that is gone, and a broken data set are problems with their files."""
    write_runs(tmp_path, 1)
    (tmp_path / "other.json").write_text('{"no": "recording"}')
    (tmp_path / "set.parquet").write_bytes(b"no parquet")
    runs, problems = read_all(tmp_path)
    assert len(runs) == 1
    assert [Path(problem.file).name for problem in problems] == ["other.json", "set.parquet"]
    assert "no known trajectory format" in problems[0].reason
    assert "formats known" not in problems[0].reason
    (gone,) = read_unit(Unit(str(tmp_path / "gone.json"), 1, ""))
    assert isinstance(gone, Problem)
    assert "no such file or folder" in gone.reason


def write_set(file: Path, rows: int, *, as_text: bool = False, **columns: list[str]) -> None:
    messages = [make_messages(number) for number in range(rows)]
    table = pa.table(
        {
            "run_id": [f"run {number}" for number in range(rows)],
            "messages": [json.dumps(each) for each in messages] if as_text else messages,
            **columns,
        }
    )
    pq.write_table(table, file, row_group_size=2)


@pytest.mark.parametrize("as_text", [False, True])
def test_a_data_set_is_read_row_by_row(tmp_path: Path, as_text: bool) -> None:
    """Each row of a data set is a run, whether its messages are lists or text; a row group is a unit."""
    columns = {"model": ["gpt-5"] * 5, "tag": list("aabbb"), "day": ["2026-11-02"] * 5}
    write_set(tmp_path / "set.parquet", 5, as_text=as_text, **columns)
    assert [unit.row_group for unit in list_units([str(tmp_path)])] == [0, 1, 2]
    runs, problems = read_all(tmp_path)
    assert not problems
    assert [(run.id, run.model, facts.tag, facts.day) for run, facts in runs] == [
        (f"run {number}", "gpt-5", tag, "2026-11-02") for number, tag in enumerate("aabbb")
    ]
    (tmp_path / "alone").mkdir()
    for number, (run, _) in enumerate(runs):
        alone = tmp_path / "alone" / f"{number}.json"
        alone.write_text(json.dumps({"messages": make_messages(number)}))
        (expected,) = read_runs(alone)
        assert isinstance(expected, Trajectory)
        assert run.turns == expected.turns


def test_a_row_that_is_broken_is_a_problem(tmp_path: Path) -> None:
    """A row that is no JSON, or no conversation, is a problem with its number; the others are read."""
    good = json.dumps(make_messages(1))
    pq.write_table(pa.table({"messages": [good, "[broken", '"a word"', good]}), tmp_path / "set.parquet")
    runs, problems = read_all(tmp_path)
    assert [run.id for run, _ in runs] == ["row 1", "row 4"]
    assert [problem.line for problem in problems] == [2, 3]


def test_a_data_set_without_messages_is_a_problem(tmp_path: Path) -> None:
    """The columns that are there are named."""
    pq.write_table(pa.table({"prompt": ["x"]}), tmp_path / "set.parquet")
    _, (problem,) = read_all(tmp_path)
    assert "no column `messages`" in problem.reason
    assert "prompt" in problem.reason
