"""`elision audit` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elision.audit.cause_table import CAUSES
from elision.errors import FormatError
from tests.cli.in_process import Command
from tests.cli.test_calibration import BILLS, session

run = Command("audit", width=80).run


@pytest.mark.parametrize("width", [80, 120])
def test_audit_fits_the_terminal(tmp_path: Path, width: int) -> None:
    """No line is longer than the terminal is wide; the bill, its causes and the recorded bill are there."""
    result = run(session(tmp_path / "s.jsonl", *BILLS), "--full", width=width)
    assert result.exit_code == 0, result.output
    assert all(len(line) <= width for line in result.output.splitlines() if not line.startswith("Next: "))
    assert "prefix changed" in result.output
    assert "the logs state" in result.output
    assert "most of it" in result.output


def test_audit_json_sums_to_the_bill(tmp_path: Path) -> None:
    result = run(session(tmp_path / "s.jsonl", *BILLS), "--json", "--no-replay")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["schema"] == "elision/1"
    assert set(found["causes"]) <= set(CAUSES)
    assert sum(cause["usd"] for cause in found["causes"].values()) == pytest.approx(found["usd"])
    assert found["findings"][0]["cause"] == "prefix-changed"
    assert found["saving"] is None


def test_given_prices_are_taken(tmp_path: Path) -> None:
    result = run(session(tmp_path / "s.jsonl", *BILLS), "--json", "--no-replay", "--price", "input=1,output=0")
    # All of 26,000 prompt tokens at one price.
    assert json.loads(result.stdout)["usd"] == pytest.approx(0.026)


def test_no_logs_are_an_error_that_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "PI_CODING_AGENT_DIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "elision audit PATH" in str(run().exception)


def test_logs_are_found_without_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sessions"
    folder.mkdir()
    session(folder / "s.jsonl", *BILLS)
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    result = run("--no-replay")
    assert result.exit_code == 0, result.output
    assert "pi-session" in result.output or "4 calls in 1 run" in result.output


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    error = run(tmp_path / "gone").exception
    assert isinstance(error, FormatError)
    assert "gone" in str(error)


def test_the_page_is_written(tmp_path: Path) -> None:
    """Without charts it needs no other package."""
    file = tmp_path / "audit.html"
    result = run(session(tmp_path / "s.jsonl", *BILLS), "--html", file, "--no-replay")
    assert result.exit_code == 0, result.output
    assert "prefix changed" in file.read_text()
