"""`elision replay --out`, `--report`: studies as a user runs them, and what kills and full disks leave of one."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from elision.study import manifest
from elision.study.study_folder import StudyFolder
from tests.cli.in_process import run_elision
from tests.processes import PATIENCE, start_process
from tests.soak import SOAK
from tests.study.made_runs import hash_rows, read_rows, write_runs

EXAMPLES = Path(__file__).parents[2] / "examples" / "runs"
#: Shards of fewer files than a user's, and a line for each step of the work: the lines are what these tests wait for,
#: and no clock is.
SHARD_UNITS = 80
SETTINGS = (
    "from elision.cli import main, outputs\n"
    "from elision.study import manifest\n"
    f"outputs.SECONDS, manifest.SHARD_UNITS = 0, {SHARD_UNITS}\n"
)
METERED = (sys.executable, "-c", f"{SETTINGS}main()")
OPTIONS = ("-s", "raw", "-s", "masking", "--tokens", "estimate", "--prices", "anthropic", "--no-hindsight")
#: Three shards.
MANY = 200


@pytest.fixture(scope="module", autouse=True)
def _small_shards() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "SHARD_UNITS", SHARD_UNITS)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_runs(tmp_path_factory.mktemp("many") / "runs", MANY, turns=2)


@pytest.fixture(scope="module")
def whole(runs: Path) -> Path:
    """A study of all runs that nothing disturbed."""
    study = runs.parent / "whole"
    result = run_elision("replay", runs, "--out", study, "--workers", "1", *OPTIONS)
    assert result.returncode == 0, result.stderr
    return study


def start_study(runs: Path, study: Path, *more: str, **options: Any) -> Any:
    command = (*METERED, "replay", str(runs), "--out", str(study), *OPTIONS, *more)
    return start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def wait_for_shard(process: subprocess.Popen[str]) -> None:
    """Wait until the first shard is finished, by the line that says so."""
    assert process.stderr is not None
    assert any(re.match(r"[1-9]\d* of \d+ shards", line) for line in process.stderr)


def find_workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())]


def test_a_study_ends_with_its_report(whole: Path, runs: Path) -> None:
    """Every run is in it once; the report is printed by the study, and by --report alike."""
    assert len(read_rows(whole)) == MANY * 3
    again = run_elision("replay", runs, "--out", whole, "--workers", "1", *OPTIONS)
    report = run_elision("replay", "--report", whole)
    assert (again.returncode, report.returncode) == (0, 0), again.stderr + report.stderr
    assert again.stdout == report.stdout
    assert f"{MANY} runs" in report.stdout
    assert f"{MANY} files in 3 shards, 0 to do" in again.stderr
    names = ["manifest.parquet", "rows", "sample.parquet", "study.json", "summary"]
    assert sorted(path.name for path in whole.iterdir()) == names


def test_a_report_of_the_summary_is_that_of_the_rows(whole: Path, tmp_path: Path) -> None:
    """A finished study has a summary; without it the report is the same, and a lost part is not in it."""
    study = tmp_path / "study"
    shutil.copytree(whole, study)
    forms: tuple[tuple[str, ...], ...] = ((), ("--json",))
    before = [run_elision("replay", "--report", study, *form).stdout for form in forms]
    shutil.rmtree(study / "summary")
    after = [run_elision("replay", "--report", study, *form).stdout for form in forms]
    assert before[0] == after[0] != ""
    assert json.loads(before[1])["tables"] == json.loads(after[1])["tables"]
    shutil.copytree(whole / "summary", study / "summary")
    next((study / "rows").iterdir()).unlink()
    assert "2 of 3 shards are finished" in run_elision("replay", "--report", study).stdout


@pytest.mark.soak
@pytest.mark.parametrize("count_from", [1, 0])
def test_parts_of_an_array_job(runs: Path, whole: Path, tmp_path: Path, count_from: int) -> None:
    """Parts in any order, counted from 0 or from 1, make the same study; only the last one completes it."""
    for place in (1, 0):
        result = run_elision(
            "replay",
            runs,
            "--out",
            tmp_path / "study",
            "--shard",
            f"{place + count_from}/2",
            "--workers",
            "1",
            *OPTIONS,
        )
        assert result.returncode == 0, result.stderr
        assert not result.stdout
    assert hash_rows(tmp_path / "study") == hash_rows(whole)


def test_the_array_job_of_the_guide(runs: Path, whole: Path, tmp_path: Path) -> None:
    """Its commands are valid for a shell, and what `sbatch` would start for each task makes the study."""
    page = (Path(__file__).parents[2] / "docs" / "guides" / "studies.md").read_text("utf-8")
    block = r"```text\n([^`]*sbatch --array=0-(\d+) [^`]*--wrap \\\n  '([^'`]*)'[^`]*)```"
    found = re.search(block, page)
    assert found is not None
    subprocess.run(["bash", "-n"], input=found[1], text=True, check=True)
    assert f"/{int(found[2]) + 1}" in found[3]
    places = {"s3://bucket/runs": runs, "s3://bucket/study": tmp_path / "study"}
    task = found[3].replace(f"/{int(found[2]) + 1}", "/2")
    for url, place in places.items():
        task = task.replace(url, shlex.quote(str(place)))
    command = tmp_path / "bin" / "elision"
    command.parent.mkdir()
    command.write_text(f"#!{sys.executable}\n{SETTINGS}if __name__ == '__main__':\n    main()\n")
    command.chmod(0o700)
    path = f"{command.parent}:{os.environ['PATH']}"
    # In a soak one task is started again, and finds nothing to do.
    for number in (1, 0, 1) if SOAK else (1, 0):
        environment = {**os.environ, "PATH": path, "SLURM_ARRAY_TASK_ID": str(number)}
        line = ["sh", "-c", f"{task} {shlex.join(OPTIONS)}"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (", 0 to do" in done.stderr) == SOAK
    assert hash_rows(tmp_path / "study") == hash_rows(whole)


def test_only_prepared(runs: Path, whole: Path, tmp_path: Path) -> None:
    """With no workers, manifest, sample and settings are written, and nothing is replayed."""
    result = run_elision("replay", runs, "--out", tmp_path / "study", "--workers", "0", *OPTIONS)
    assert result.returncode == 0, result.stderr
    assert "3 to do" in result.stderr
    assert sorted(path.name for path in (tmp_path / "study").iterdir()) == [
        "manifest.parquet",
        "sample.parquet",
        "study.json",
    ]
    report = run_elision("replay", "--report", tmp_path / "study")
    assert "0 of 3 shards are finished" in report.stdout
    assert (whole / "sample.parquet").read_bytes() == (tmp_path / "study" / "sample.parquet").read_bytes()


def test_a_killed_worker_costs_nothing(runs: Path, whole: Path, tmp_path: Path) -> None:
    """Its shard is done again by another, and the rows are the same."""
    with start_study(runs, tmp_path / "study", "--workers", "2") as process:
        wait_for_shard(process)
        for worker in find_workers(process):
            worker.kill()
        _, errors = process.communicate(timeout=PATIENCE * 4)
    assert process.returncode == 0, errors
    assert hash_rows(tmp_path / "study") == hash_rows(whole)


@pytest.mark.soak
def test_a_killed_head_is_continued(runs: Path, whole: Path, tmp_path: Path) -> None:
    """Its workers end with it; the same command completes the study, with nothing lost and nothing twice."""
    with start_study(runs, tmp_path / "study", "--workers", "1") as process:
        wait_for_shard(process)
        workers = find_workers(process)
        process.kill()
        process.wait(PATIENCE)
        assert len(workers) == 1
        _, alive = psutil.wait_procs(workers, timeout=PATIENCE)
        assert not alive
    done = StudyFolder(str(tmp_path / "study")).list_names("rows")
    assert 1 <= len(done) < 3
    report = run_elision("replay", "--report", tmp_path / "study")
    assert f"{len(done)} of 3 shards are finished" in report.stdout
    result = run_elision("replay", runs, "--out", tmp_path / "study", "--workers", "1", *OPTIONS)
    assert result.returncode == 0, result.stderr
    assert f"{3 - len(done)} to do" in result.stderr
    assert hash_rows(tmp_path / "study") == hash_rows(whole)
    assert not [path for path in (tmp_path / "study").rglob("*") if path.name.startswith(".")]


def test_ctrl_c_leaves_a_valid_study(runs: Path, whole: Path, tmp_path: Path) -> None:
    """What is finished can be reported, what to do is said, and the same command completes the study."""
    with start_study(runs, tmp_path / "study", "--workers", "1") as process:
        wait_for_shard(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert re.search(r"interrupted: [12] of 3 shards are left; run the command again", errors)
    assert "Traceback" not in errors
    assert run_elision("replay", "--report", tmp_path / "study").returncode == 0
    result = run_elision("replay", runs, "--out", tmp_path / "study", "--workers", "1", *OPTIONS)
    assert result.returncode == 0, result.stderr
    assert hash_rows(tmp_path / "study") == hash_rows(whole)


def test_a_full_disk_is_continued(tmp_path: Path) -> None:
    """Where no file may grow further, the study ends with a sentence; with room, the same command completes it."""
    runs = write_runs(tmp_path / "runs", 3, turns=4)
    prepared = run_elision("replay", runs, "--out", tmp_path / "study", "--workers", "0", *OPTIONS)
    assert prepared.returncode == 0, prepared.stderr

    def limit_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, 2_000))

    # Python must not leave bytecode that the limit has cut.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    limited = {"preexec_fn": limit_files, "env": environment}
    with start_study(runs, tmp_path / "study", "--workers", "1", **limited) as process:
        output, errors = process.communicate(timeout=PATIENCE * 2)
    assert process.returncode == 2
    assert re.search(r"study/rows/part-\S+: cannot be written \(File too large\); run the command again", errors)
    assert "Traceback" not in errors
    assert not output
    assert not [path for path in (tmp_path / "study").rglob("*") if path.name.startswith(".")]
    for study in ("study", "whole"):
        result = run_elision("replay", runs, "--out", tmp_path / study, "--workers", "1", *OPTIONS)
        assert result.returncode == 0, result.stderr
    assert hash_rows(tmp_path / "study") == hash_rows(tmp_path / "whole")


def test_a_shard_that_cannot_be_done(tmp_path: Path) -> None:
    """Exit code 3 and the list; the rest is in the report, and so is the failure."""
    runs = write_runs(tmp_path / "runs", 3, turns=4)
    prepared = run_elision("replay", runs, "--out", tmp_path / "study", "--workers", "0", *OPTIONS)
    assert prepared.returncode == 0
    # A worker may not have so little memory that it cannot even begin; its own code is what fails then.
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, os\nif '--multiprocessing-fork' in sys.argv: os.kill(os.getpid(), 9)\n"
    )
    with start_study(runs, tmp_path / "study", "--workers", "1", env=environment) as process:
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "shard 0 failed three times: its process was killed" in errors
    report = run_elision("replay", "--report", tmp_path / "study")
    assert "shard 0 of 3 files failed 3 times" in report.stdout


def test_queries(whole: Path) -> None:
    """--sql asks the tables; piped, the answer is CSV. A wrong query is a sentence."""
    sql = "select strategy, count(*) as n, sum(calls) from rows group by 1 order by 1"
    result = run_elision("replay", "--report", whole, "--sql", sql)
    assert result.returncode == 0, result.stderr
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["strategy"] for row in rows] == ["as recorded", "masking", "raw"]
    assert {row["n"] for row in rows} == {str(MANY)}
    count = run_elision("replay", "--report", whole, "--sql", "select count(*) from manifest, problems")
    assert count.stdout.splitlines()[1] == "0"
    bar = run_elision("replay", "--report", whole, "--sql", "select current_setting('enable_progress_bar') as bar")
    assert bar.stdout == "bar\nFalse\n", "DuckDB would draw it among the CSV"
    wrong = run_elision("replay", "--report", whole, "--sql", "select nothing from rows")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("elision: --sql: ")


def test_pages_and_json(tmp_path: Path) -> None:
    """The page of a study has the sections of a page in memory, and its own; JSON has the same totals."""
    study, page, other = tmp_path / "study", tmp_path / "page.html", tmp_path / "memory.html"
    two = [EXAMPLES / name for name in ("swe-agent-sympy-20801.traj.gz", "openhands-pylint.tar.gz")]
    command = ("replay", *two, "--no-hindsight", "-s", "raw", "-s", "masking")
    result = run_elision(*command, "--out", study, "--calls", "--workers", "1", "--html", page, "--json")
    assert result.returncode == 0, result.stderr
    memory = run_elision(*command, "-j", "1", "--html", other, "--json")
    ours, theirs = (re.findall(r"<h2>(.*?)</h2>", path.read_text("utf-8")) for path in (page, other))
    assert [title for title in ours if title in theirs] == theirs
    assert {"Masking by model", "Which strategy costs least, run by run"} <= set(ours) - set(theirs)
    assert f'<a href="{two[0].as_uri()}">' in page.read_text("utf-8")
    found, expected = json.loads(result.stdout), json.loads(memory.stdout)
    assert found["run_count"] == expected["run_count"] == 2
    assert found["sent"] == expected["sent"]
    for ours_row, theirs_row in zip(found["totals"], expected["totals"], strict=True):
        assert ours_row.keys() == theirs_row.keys()
        for name, value in theirs_row.items():
            assert ours_row[name] == (value if isinstance(value, str | None) else pytest.approx(value)), name
    assert found["growth"] == expected["growth"]
    assert found["composition"] == expected["composition"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x", "--workers", "2"], ["--workers is for a study", "--out"]),
        (["s3://bucket/runs"], ["s3://bucket/runs", "--out"]),
        (["x", "--out", "y", "--jobs", "2"], ["--jobs", "--workers"]),
        (["x", "--out", "y", "--shard", "4/3"], ["--shard 4/3", "I/N"]),
        (["x", "--out", "y", "--workers", "some"], ["--workers some", "ray"]),
        (["--sql", "select 1"], ["--report STUDY"]),
        (["x", "--report", "y"], ["takes no paths"]),
        (["--report", "nowhere"], ["there is no study", "--out nowhere"]),
        ([], ["recorded runs"]),
    ],
)
def test_bad_options_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: list[str]
) -> None:
    """Exit code 2 and what to do instead."""
    write_runs(tmp_path / "x", 1)
    monkeypatch.chdir(tmp_path)
    result = run_elision("replay", *arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_without_the_extra(tmp_path: Path) -> None:
    """What a study needs is named with how to install it; runs in memory need none of it."""
    write_runs(tmp_path / "runs", 1)
    code = (
        "import sys, importlib.util\n"
        "names = ('pyarrow', 'duckdb', 'fsspec', 'ray')\n"
        "find = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, package=None: None if name in names else find(name, package)\n"
        "for name in names: sys.modules[name] = None\n"
        "from elision.cli import main; main()"
    )
    for option in (["runs", "--out", "study"], ["--report", "study"]):
        done = subprocess.run(
            [sys.executable, "-c", code, "replay", *option], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 2
        assert "needs an extra" in done.stderr
        assert "[study]" in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", code, "replay", "runs", "-s", "raw", "--tokens", "estimate"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
