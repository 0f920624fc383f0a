"""What a recording lacks is said in a sentence and beside the row of what was sent, by every command that compares."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elision.cli.app import app
from elision.errors import FormatError
from tests.cli.test_calibration import pi_line

#: Prompts and what of them was read from the cache.
BILLS = [(5_000 + 400 * index, 4_600 + 400 * index if index else 0) for index in range(16)]
QUICK = ("--space", "family=masking", "--space", "window=3", "--space", "rules=none", "--judge-share", "0", "-j", "1")


def _write(path: Path, edit: Callable[[list[list[dict[str, Any]]]], object]) -> Path:
    """Write a pi session of 16 calls. edit: what is done to its lines, a list for each call."""
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T10:00:00.000Z", "cwd": "/"}
    calls = [pi_line(index, prompt, read, "done " * 40) for index, (prompt, read) in enumerate(BILLS)]
    edit(calls)
    lines = [header, *(line for call in calls for line in call)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def _drop_usage(calls: list[list[dict[str, Any]]]) -> None:
    for _, answer in calls:
        del answer["message"]["usage"]


def _mix_models(calls: list[list[dict[str, Any]]]) -> None:
    for _, answer in calls[8:10]:
        answer["message"]["model"] = "claude-haiku-4-5"


def _clear(calls: list[list[dict[str, Any]]]) -> None:
    """The agent edits its context, and its prompts begin small again."""
    edit = {"type": "context_edit", "id": "e", "timestamp": "2026-01-01T10:00:08.000Z"}
    calls[8].insert(0, edit)
    for index, call in enumerate(calls[8:]):
        call[-1]["message"]["usage"] |= {"cacheRead": 1_000, "cacheWrite": 1_500 + 400 * index}


def _clear_unseen(calls: list[list[dict[str, Any]]]) -> None:
    """The same, and no usage tells what it kept."""
    _clear(calls)
    _drop_usage([call[-2:] for call in calls])


CASES = {
    "no usage": (_drop_usage, "as recorded (no usage)", "no recording has usage"),
    "mixed models": (
        _mix_models,
        "as recorded (mixed models)",
        "2 calls of other models appear in every row as billed",
    ),
    "cuts by the bill": (_clear, "as recorded (cuts by the bill)", "in a way that the recording does not describe"),
    "at most": (_clear_unseen, "as recorded (no usage, at most)", "does not describe"),
}


def _say(*arguments: object) -> str:
    done = CliRunner().invoke(app, [str(each) for each in arguments], env={"COLUMNS": "160"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return " ".join(done.stdout.split())


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "command",
    [("replay", "-s", "raw", "-s", "masking", "-j", "1"), ("tune", *QUICK), ("view", "--call", "12"), ("audit",)],
    ids=lambda command: command[0],
)
def test_what_is_lacking_is_said(tmp_path: Path, case: str, command: tuple[str, ...]) -> None:
    """A sentence, and a mark in the row's name."""
    edit, row, sentence = CASES[case]
    run = _write(tmp_path / "run.jsonl", edit)
    if command[0] == "audit" and "no usage" in row:
        # An audit divides bills: it has no rows where there is none.
        with pytest.raises(
            FormatError, match="no run with recorded usage was found: 1 run without any; `elision replay`"
        ):
            _say(*command, run)
        return
    text = _say(*command, run)
    assert row in text
    assert sentence in text


def test_another_models_prices_blend_the_calls(tmp_path: Path) -> None:
    """Priced as one model, calls of another one have no bill: they are priced as the rest, and that is said."""
    run = _write(tmp_path / "run.jsonl", _mix_models)
    text = _say("view", run, "--model", "gpt-5")
    assert "2 calls of other models, without a bill, are priced like the others of their run." in text


def test_some_runs_without_usage(tmp_path: Path) -> None:
    """The bill is of those that have one, and its row says of how many."""
    _write(tmp_path / "a.jsonl", _drop_usage)
    _write(tmp_path / "b.jsonl", lambda calls: None)
    text = _say("replay", tmp_path, "-s", "masking", "-j", "1")
    assert "as billed (1 of 2 runs)" in text
    assert "in 1 of 2 runs (1 run without usage)." in text


def test_names_of_one_model_do_not_mix(tmp_path: Path) -> None:
    """A host and a date in a call's name make no other model."""

    def date(calls: list[list[dict[str, Any]]]) -> None:
        for _, answer in calls[8:10]:
            answer["message"]["model"] = "anthropic/claude-opus-4-5-20251101"

    assert "ixed models" not in _say("view", _write(tmp_path / "run.jsonl", date))


@pytest.mark.parametrize("case", ["no usage", "mixed models", "cuts by the bill", "at most"])
def test_outcomes_say_what_is_lacking(tmp_path: Path, case: str) -> None:
    """The strategy's name has the mark, and the cost as recorded is there without a bill too."""
    edit, row, _ = CASES[case]
    run = _write(tmp_path / "run.jsonl", edit)
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"resolved_ids": ["run"], "unresolved_ids": []}))
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps([{"instance_id": "run", "problem_statement": "x" * 40}]))
    text = _say("lab", "outcomes", f"raw={run}", f"--outcomes={report}", f"--tasks={tasks}")
    assert row.replace("as recorded", "raw") in text
    assert "as recorded" in text
    assert ("No bill is known; as recorded raw costs least" in text) == ("no usage" in row)
