"""`elision replay` as a user runs it: outputs, errors in a sentence, Ctrl-C."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from elision.cli.app import app
from elision.errors import MissingExtra
from tests.cli.in_process import run_elision
from tests.processes import PATIENCE, start_process
from tests.soak import leave_to_soak
from tests.study.made_runs import write_runs

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "examples" / "runs"
SWE_AGENT = RUNS / "swe-agent-sympy-20801.traj.gz"
ELISION = (sys.executable, "-c", "from elision.cli import main; main()")
#: The same with a line for each step of the work: the lines are what these tests wait for, and no clock is.
METERED = (
    sys.executable,
    "-c",
    "from elision.cli import main, outputs; outputs.SECONDS = 0; main()",
)


def test_writes_what_was_asked_for(tmp_path: Path) -> None:
    """A table on the terminal, JSON, one page, one picture."""
    files = {name: tmp_path / f"out.{name}" for name in ("html", "png")}
    options = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    command = ["replay", str(SWE_AGENT), "-s", "raw", "-s", "masking", "-j", "1", *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "masking" in result.output
    assert files["html"].read_text("utf-8").startswith("<!doctype html>")
    assert files["png"].read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--strategy", "masks"], ["no strategy 'masks'", "masking", "hybrid", "two-tier"]),
        (["--strategy", "masking(window=-1)"], ["window=-1", "1 or more"]),
        (["--strategy", "masking(schedule=daily)"], ["daily", "cache-aware"]),
        (["--strategy", "masking("], ["missing"]),
        (["--price", "input=nan,output=1"], ["nan", "not a price"]),
        (["--price", "input=-1,output=1"], ["-1", "not a price"]),
        (["--price", "in=1,output=1"], ["'in'", "cache_read"]),
        (["--prices", "gold"], ["gold", "anthropic", "uncached"]),
        (["--model", "claude-sonnet-4-51"], ["claude-sonnet-4-5"]),
    ],
)
def test_bad_options_are_one_sentence(arguments: list[str], words: list[str]) -> None:
    """Exit code 2, what is wrong, what exists; never a traceback."""
    result = run_elision("replay", SWE_AGENT, *arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    for word in words:
        assert word in result.stderr


def test_a_truncated_file_loses_nothing_else(tmp_path: Path) -> None:
    """The runs beside it are replayed, and the table says what was wrong."""
    lines = gzip.decompress((RUNS / "pi-session.jsonl.gz").read_bytes()).splitlines(keepends=True)[:60]
    whole = gzip.compress(b"".join(lines))
    (tmp_path / "cut.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "whole.jsonl.gz").write_bytes(whole)
    out = tmp_path / "out" / "r.json"
    out.parent.mkdir()
    result = run_elision("replay", tmp_path, "-s", "masking", "--json")
    assert result.returncode == 0, result.stderr
    data = json.loads(result.stdout)
    assert any("whole" in run["file"] for run in data["runs"])
    assert any("cut" in problem["file"] for problem in data["problems"])


def test_no_folder_to_write_into(tmp_path: Path) -> None:
    """Said before the work begins."""
    result = run_elision("replay", SWE_AGENT, "--json", tmp_path / "nowhere" / "r.json")
    assert result.returncode == 2
    assert "nowhere" in result.stderr


def test_a_missing_extra_is_said_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without resvg a picture is refused at once: nothing is replayed in vain, and no empty file is left."""
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    done = CliRunner().invoke(app, ["replay", str(SWE_AGENT), "--png", str(tmp_path / "report")])
    assert isinstance(done.exception, MissingExtra)
    assert done.exception.extra == "report"
    assert "replayed" not in done.output
    assert not list(tmp_path.iterdir())


def test_recorded_window_is_a_control() -> None:
    """Plain masking at the recorded window shows the measure's false alarms."""
    command = ["replay", str(SWE_AGENT), "-s", "raw", "--recorded-window", "swe-agent=5", "-j", "1"]
    result = CliRunner(env={"COLUMNS": "140"}).invoke(app, command)
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if line.startswith("swe-agent "))
    assert "%" in line
    assert run_elision("replay", SWE_AGENT, "--recorded-window", "codex=5").returncode == 2


def test_progress_without_a_terminal_is_lines_of_one_kind(tmp_path: Path) -> None:
    """A log says how much of the work is done, and never less than before; no other meter is between its lines."""
    write_runs(tmp_path, 12)
    command = [*METERED, "replay", str(tmp_path), "-s", "raw", "-s", "masking", "--tokens", "estimate"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stderr.splitlines()
    found = [re.fullmatch(r"(\d+) % of the work is done, (\d+) of 24 replays finished", line) for line in lines]
    shares = [(int(match[1]), int(match[2])) for match in found if match]
    assert shares == sorted(shares)
    assert len(shares) >= 12
    assert shares[-1] == (100, 24)
    assert not any("replayed" in line for line in lines)


@pytest.mark.parametrize("kind", ["html", "png"])
def test_a_recording_is_never_overwritten(tmp_path: Path, kind: str) -> None:
    """An output that is an input, or somebody else's file, is refused before the work begins."""
    run = tmp_path / "run.traj.gz"
    run.write_bytes(SWE_AGENT.read_bytes())
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    for target in (run, notes, tmp_path, ""):
        result = run_elision("replay", run, "-s", "raw", f"--{kind}", target)
        assert result.returncode == 2, target
        assert f"--{kind}" in result.stderr
        assert "Traceback" not in result.stderr
    assert run.read_bytes() == SWE_AGENT.read_bytes()
    assert notes.read_text() == "mine"


def test_our_own_report_is_written_anew(tmp_path: Path) -> None:
    """The second replay replaces what the first one wrote; one file for two outputs is refused."""
    out = tmp_path / "out.html"
    assert [run_elision("replay", SWE_AGENT, "-s", "raw", "--html", out).returncode for _ in range(2)] == [0, 0]
    assert run_elision("replay", SWE_AGENT, "-s", "raw", "--png", out, "--html", out).returncode == 2


def test_json_on_standard_output() -> None:
    """`--json` prints JSON and nothing else there."""
    result = run_elision("replay", SWE_AGENT, "-s", "raw", "--json")
    assert json.loads(result.stdout)["schema"] == "elision/1"


def test_a_full_disk_and_a_poor_locale() -> None:
    """Neither is a traceback."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    command = [*ELISION, "replay", str(SWE_AGENT), "-s", "raw", "--tokens", "estimate"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert found.returncode == 0, found.stderr
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_a_closed_pipe_costs_no_file(tmp_path: Path) -> None:
    """`| head` ends the table early; the files are there all the same, and it is no failure."""
    out = tmp_path / "out.html"
    command = [*ELISION, "replay", str(SWE_AGENT), "-s", "raw", "--html", str(out)]
    with start_process(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=PATIENCE) == 0
    assert out.read_text("utf-8").startswith("<!doctype html>")


def test_nothing_replayed_is_an_error() -> None:
    """A run that fits no budget leaves nothing to show: exit code 2, and why."""
    result = run_elision("replay", SWE_AGENT, "-s", "masking(budget=4000)")
    assert result.returncode == 2
    assert "does not fit masking(budget=4000)" in result.stderr


def test_with_nothing_finished_nothing_is_written(tmp_path: Path) -> None:
    """A good report stays, no empty one comes, and what was recorded is not told of no run."""
    good, new = tmp_path / "good.html", tmp_path / "new.png"
    assert run_elision("replay", SWE_AGENT, "-s", "raw", "--html", good).returncode == 0
    before = good.read_bytes()
    result = run_elision("replay", SWE_AGENT, "-s", "masking(budget=4000)", "--html", good, "--png", new)
    assert result.returncode == 2
    assert "Nothing is written" in result.stderr
    assert "Recorded as" not in result.stderr
    assert good.read_bytes() == before
    assert os.listdir(tmp_path) == ["good.html"]


def test_a_recording_without_a_run_leaves_nothing(tmp_path: Path) -> None:
    """A file that cannot be read leaves no empty report beside it."""
    (tmp_path / "notes.txt").write_text("hello")
    assert run_elision("replay", tmp_path / "notes.txt", "--html", tmp_path / "out.html").returncode == 2
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_a_file_that_cannot_be_written_costs_neither_table_nor_the_other_files(tmp_path: Path) -> None:
    """The work is shown, the other report is there, and the error names the file."""
    page = tmp_path / "out.html"
    result = run_elision("replay", SWE_AGENT, "-s", "masking", "--png", "/dev/full", "--html", page)
    assert result.returncode == 2
    assert "elision: /dev/full: cannot be written (No space left on device)" in result.stderr
    assert f"wrote{page}" in "".join(result.stderr.split())
    assert "How to read this" in result.stdout
    assert page.read_bytes().startswith(b"<!doctype html>")


def test_a_name_that_is_no_text_is_written_all_the_same(tmp_path: Path) -> None:
    """A file's name may hold bytes that are no UTF-8."""
    run = os.fsencode(tmp_path) + b"/run-\xff.traj.gz"
    Path(os.fsdecode(run)).write_bytes(SWE_AGENT.read_bytes())
    result = run_elision("replay", tmp_path, "-s", "raw", "--json")
    assert result.returncode == 0, result.stderr
    assert "run-" in json.loads(result.stdout)["runs"][0]["file"]


def test_says_what_was_recorded() -> None:
    """The table is priced as asked; what the recordings were is said beside it."""
    result = run_elision("replay", RUNS / "pi-session.jsonl.gz", "-s", "raw")
    assert "Recorded as claude-opus-4-5 (1 run, billed $19.97); priced here as claude-opus-4-5." in " ".join(
        result.stderr.split()
    )


def _interrupted(command: tuple[object, ...], line: str) -> tuple[int, str, str]:
    """The exit code and both outputs of `elision`, interrupted when it prints what `line`, a pattern, finds."""
    command = (*METERED, *map(str, command))
    with start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        for each in process.stderr:
            said += each
            if re.search(line, each):
                break
        process.send_signal(signal.SIGINT)
        printed, rest = process.communicate(timeout=PATIENCE)
    return process.returncode, said + rest, printed


@pytest.mark.parametrize("jobs", leave_to_soak(["1", "2"], "1"))
def test_ctrl_c_before_the_first_run_is_finished_leaves_every_file(tmp_path: Path, jobs: str) -> None:
    """A good report stays as it is, and no other comes; two long runs are at work when it is pressed."""
    folder, good = tmp_path / "runs", tmp_path / "good.html"
    folder.mkdir()
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        (folder / name).write_bytes((RUNS / "pi-session.jsonl.gz").read_bytes())
    assert run_elision("replay", SWE_AGENT, "-s", "raw", "--html", good).returncode == 0
    before = good.read_bytes()
    # So many strategies that a busy machine presses it in time; the workers are there when some of it is done.
    many = [word for window in range(3, 23) for word in ("-s", f"masking(window={window})")]
    command = ("replay", folder, "-j", jobs, "--html", good, "--png", tmp_path / "new.png", *many)
    code, said, _ = _interrupted(command, r"^[1-9]\d* % of the work is done")
    assert code == 130
    assert "Nothing is written" in said
    assert "Recorded as" not in said
    assert good.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["good.html", "runs"]


def test_ctrl_c_within_a_long_run_loses_nothing_that_is_finished(tmp_path: Path) -> None:
    """A short run is done, and a long one is at its yardstick: the short one is in the report."""
    lines = gzip.decompress((RUNS / "pi-session.jsonl.gz").read_bytes()).splitlines(keepends=True)
    (tmp_path / "a.jsonl").write_bytes(b"".join(lines[:30]))
    (tmp_path / "b.jsonl").write_bytes(b"".join(lines))
    command = ("replay", tmp_path / "a.jsonl", tmp_path / "b.jsonl", "-j", "1", "--json")
    code, _, printed = _interrupted(command, r"2\d % of the work is done")
    assert code == 130
    found = json.loads(printed)
    assert found["finished"] is False
    assert {Path(run["file"]).name for run in found["runs"]} == {"a.jsonl"}


def test_raw_with_folded_results_is_no_yardstick() -> None:
    """What it saves is shown, and named first."""
    result = run_elision("replay", SWE_AGENT, "--no-hindsight", "-s", "raw", "-s", "raw(fold=true)")
    assert result.stdout.startswith("raw(")
    assert " instead of $" in result.stdout
    row = next(line for line in result.stdout.splitlines() if line.startswith("  raw("))
    assert re.search(r"\$\d.* −\d+ % ", row)


def test_hindsight_can_be_left_out() -> None:
    """No column, no yardstick in the JSON, no default strategy that needs one; asking for one is refused."""
    result = run_elision("replay", SWE_AGENT, "--no-hindsight", "--json")
    data = json.loads(result.stdout)
    assert data["hindsight"] is False
    assert {run["usd_hindsight"] for run in data["runs"]} == {None}
    assert "hybrid, hindsight" not in {run["strategy"] for run in data["runs"]}
    refused = run_elision("replay", SWE_AGENT, "--no-hindsight", "-s", "masking(schedule=hindsight)")
    assert refused.returncode == 2
    assert "--no-hindsight" in refused.stderr


def test_ctrl_c_with_several_workers(tmp_path: Path) -> None:
    """Workers are ended at once, and what they delivered is kept."""
    source = gzip.decompress(SWE_AGENT.read_bytes())
    for number in range(30):
        (tmp_path / f"run{number:02}.traj").write_bytes(source)
    command = [*METERED, "replay", str(tmp_path), "-s", "masking", "-s", "hybrid", "-j", "2", "--json"]
    with start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if re.search(r" [1-9]\d* of 60 replays finished", line):
                break
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert 1 <= len(json.loads(printed)["runs"]) < 60


def test_version_and_help() -> None:
    """What a bug report needs, and -h."""
    assert run_elision("--version").stdout.startswith("elision 0.")
    assert "replay" in run_elision("-h").stdout
    assert run_elision("replay", SWE_AGENT, "--model", "").returncode == 2


def test_turns_are_assumed_on_request(tmp_path: Path) -> None:
    """The column and the sentence below the table; in JSON what each strategy costs then. The headline stays."""
    command = [
        "replay",
        str(SWE_AGENT),
        "-s",
        "raw",
        "-s",
        "masking",
        "-j",
        "1",
        "--tokens",
        "estimate",
        "--no-hindsight",
    ]
    plain = CliRunner().invoke(app, command)
    found = CliRunner().invoke(app, [*command, "--elongation", "masking=1.2"])
    assert found.exit_code == plain.exit_code == 0
    headline = next(line for line in plain.output.splitlines() if line.startswith("Masking costs"))
    assert headline in found.output
    assert "Turns as assumed, against raw: masking +20 %" in " ".join(found.output.split())
    assert "Turns as measured live" in plain.output
    data = json.loads(CliRunner().invoke(app, [*command, "--elongation", "masking=1.2", "--json"]).stdout)
    assert data["elongation"]["factors"]["masking"] == {"low": 1.2, "high": 1.2, "basis": "given"}
    by_strategy = {row["strategy"]: row for row in data["totals"]}
    raw, masking = by_strategy["raw"], by_strategy["masking"]
    assert raw["usd_with_assumed_turns"] is None
    assert masking["usd_with_assumed_turns"][0] > masking["usd"]
    assert [entry["turn"] for entry in data["growth"]] == [10, 50]
    assert data["composition"][0]["reader"] == "swe-agent"


def test_a_wrong_assumption_is_refused_before_the_work() -> None:
    """No run is read, and the error names what may be given."""
    result = run_elision("replay", SWE_AGENT, "--elongation", "masks=1.2")
    assert result.returncode == 2
    assert "--elongation masks" in result.stderr
    assert "replayed" not in result.stderr
    assert "Traceback" not in result.stderr
