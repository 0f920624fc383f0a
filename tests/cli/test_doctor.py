"""`elision doctor` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.in_process import run_elision


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without agents, and a base URL at which nothing answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("AGENT_CONTEXT_GATEWAY_PORT", "9")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")


def test_the_table() -> None:
    """It fits 80 columns, each finding has its mend below, and what cannot work is the exit code."""
    done = run_elision("doctor")
    assert done.returncode == 1
    assert max(map(len, done.stdout.splitlines())) <= 80
    words = " ".join(done.stdout.split())
    assert "OPENAI_BASE_URL failed set; leads to this machine, where no gateway answers" in words
    assert "→ elision serve at that port, or unset OPENAI_BASE_URL" in words


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same findings; without failures the exit code is 0."""
    monkeypatch.delenv("OPENAI_BASE_URL")
    done = run_elision("doctor", "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert (report["schema"], report["command"]) == ("elision/1", "doctor")
    assert {"subject", "status", "message", "fix"} == set(report["findings"][0])
    assert [each["subject"] for each in report["findings"]][:3] == ["elision", "extras", "gateway"]
