"""`elision tune` as a user runs it: outputs, settings that load, errors in a sentence, Ctrl-C."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elision.cli.app import app
from elision.config import load_settings
from elision.errors import ElisionError, MissingExtra, OutputError
from elision.strategies.spec import parse_strategy
from elision.study import run_sample
from tests.lab.tuning.recorded import write_runs
from tests.processes import PATIENCE, start_process
from tests.study.made_runs import prepare

SMALL = [
    "--space",
    "family=masking",
    "--space",
    "window=3,10",
    "--space",
    "gist=50",
    "--space",
    "rules=none",
    "-j",
    "1",
]
#: The command with a line for each step of the work: the lines are what these tests wait for, and no clock is.
METERED = (
    sys.executable,
    "-c",
    "from elision.cli import main, outputs; outputs.SECONDS = 0; main()",
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_runs(folder, 3, turns=16)
    return folder


def _tune(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["tune", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


def _tune_to_json(*arguments: object) -> Any:
    done = CliRunner().invoke(app, ["tune", *map(str, arguments), "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_writes_what_was_asked_for(runs: Path, tmp_path: Path) -> None:
    """A table, JSON, a page, a picture, and settings that `elision doctor --settings` reads."""
    pytest.importorskip("resvg_py", reason="the extra `report` is not installed")
    files = {name: tmp_path / f"out.{name}" for name in ("html", "png")}
    options = [word for name, file in files.items() for word in (f"--{name}", file)]
    assert "all 4 points replayed" in _tune(runs, *SMALL)
    data = _tune_to_json(runs, *SMALL, *options, "--out", tmp_path / "elision.toml")
    assert data["schema"] == "elision/1"
    assert files["html"].read_text("utf-8").startswith("<!doctype html>")
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    settings = load_settings({}, tmp_path)
    assert settings.strategy == parse_strategy(data["recommended"])


def test_a_settings_file_is_not_overwritten(runs: Path, tmp_path: Path) -> None:
    """Unless --force says so; the error comes before the work."""
    out = tmp_path / "elision.toml"
    out.write_text('model = "gpt-5"\n')
    with pytest.raises(OutputError, match=r"--out .*elision\.toml: already exists; use --force"):
        _tune(runs, *SMALL, "--out", out)
    assert out.read_text() == 'model = "gpt-5"\n'
    _tune(runs, *SMALL, "--out", out, "--force")
    assert "strategy = " in out.read_text()


def test_the_recommended_figure_is_replays(runs: Path) -> None:
    """`elision replay -s TEXT` on the same runs prints the same cost."""
    tuned = _tune_to_json(runs, *SMALL, "--judge-share", "0")
    best = next(point for point in tuned["points"] if point["strategy"] == tuned["recommended"])
    replay = ["replay", str(runs), "-s", tuned["recommended"], "--no-hindsight", "-j", "1", "--json"]
    totals = json.loads(CliRunner().invoke(app, replay).stdout)["totals"]
    total = next(row for row in totals if row["strategy"] == tuned["recommended"])
    assert best["fit"]["usd"] == total["usd"]
    assert best["fit"]["evidence_recall"] == total["evidence_recall"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--space", "windows=3"], ["windows=3", "there are", "window"]),
        (["--objective", "speed"], ["--objective speed", "cost, evidence"]),
        (["--min-evidence", "2"], ["--min-evidence 2", "0 to 1"]),
        (["--judge-share", "1"], ["--judge-share 1", "below 1"]),
        (["--model", "gpt-5", "--prices", "openai"], ["contradict"]),
        (["--dialect", "latin"], ["latin", "anthropic"]),
        (["--space", "window=20,30"], ["too short", "16 calls", "--space window=1,2"]),
    ],
)
def test_bad_options_are_one_sentence(runs: Path, arguments: list[str], words: list[str]) -> None:
    """What is wrong, and the mend."""
    with pytest.raises(ElisionError) as caught:
        _tune(runs, *SMALL, *arguments)
    for word in words:
        assert word in str(caught.value)


def test_one_run_is_refused_and_an_unreadable_one_is_a_problem(runs: Path, tmp_path: Path) -> None:
    """One run cannot be judged; a broken file beside good ones is shown."""
    with pytest.raises(ElisionError, match="--judge-share 0"):
        _tune(runs / "run-1.json", *SMALL)
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    text = _tune(runs, broken, *SMALL)
    assert "1 problem while reading" in text


def test_a_large_space_without_optuna(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra, before anything is replayed."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtra) as caught:
        _tune(runs, "-j", "1")
    assert caught.value.extra == "tune"


def test_ctrl_c_keeps_what_is_finished(runs: Path, tmp_path: Path) -> None:
    """Exit code 130; the second run continues from the file and finds what a whole one finds."""
    study = tmp_path / "study.jsonl"
    options = [
        *SMALL[:-2],
        "--space",
        "window=2,3,4,5,6,7,8,9",
        "--space",
        "schedule=cache-aware,every-turn",
        "-j",
        "2",
    ]
    command = [*METERED, "tune", str(runs), *options, "--study", str(study)]
    with start_process(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        # This line means that the default is evaluated, and some more; no clock is involved.
        assert any(re.match(r"\d\d+ of at most", line) for line in process.stderr)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in errors
    kept = study.read_text().splitlines()
    assert len(kept) > 1
    if process.returncode == 130:
        assert "the same command continues" in out
    assert _tune_to_json(runs, *options, "--study", study) == _tune_to_json(runs, *options)


def test_each_run_at_its_own_models_prices(runs: Path) -> None:
    """As `elision replay` does without --model: the recorded model, and the newest flagship where it is not known."""
    done = CliRunner().invoke(app, ["tune", str(runs), *SMALL, "--json"])
    assert json.loads(done.stdout)["prices"]["name"] == "claude-opus-5-5"
    assert "priced here as claude-opus-5-5 (3 runs without a model's name as claude-opus-5-5, the newest flagship)" in (
        " ".join(done.stderr.split())
    )


def test_a_study_is_tuned_on_a_sample(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of a study are those of its manifest; of many the seed decides which, and it is said."""
    prepare(runs, tmp_path / "study")
    assert "sample" not in _tune(tmp_path / "study", *SMALL)
    assert _tune_to_json(tmp_path / "study", *SMALL) == _tune_to_json(runs, *SMALL)
    monkeypatch.setattr(run_sample, "TUNED_RUNS", 2)
    assert "Tuned on a stratified sample: 2 runs of 2 of 3 files" in _tune(tmp_path / "study", *SMALL)
