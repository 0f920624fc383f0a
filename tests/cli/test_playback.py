"""`elision lab playback`: recorded runs behind a provider's API."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from elision.cli import main
from tests.processes import PATIENCE, start_process

RUNS = Path(__file__).parents[2] / "examples" / "runs"


def test_it_says_what_it_would_play(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--list` names every run as a model, with its turns."""
    monkeypatch.setattr(sys, "argv", ["elision", "lab", "playback", str(RUNS), "--list"])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert "run:swe-agent-sympy-20801" in out
    assert "189" in out


def test_a_file_without_a_run_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is served where nothing can be read."""
    (tmp_path / "x.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["elision", "lab", "playback", str(tmp_path / "x.json")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "x.json" in capsys.readouterr().err


def test_it_serves_until_it_is_stopped() -> None:
    """The addresses are printed, requests are answered and told, and Ctrl-C ends it without a fault."""
    command = [sys.executable, "-c", "from elision.cli import main; main()", "lab", "playback", "--port", "0"]
    file = str(RUNS / "swe-agent-sympy-20801.traj.gz")
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with start_process([*command, file], **piped) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
        request = urllib.request.Request(f"{url}/chat/completions", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer)["choices"][0]["message"]["content"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "200 openai -> run:swe-agent-sympy-20801 turn 1" in err
    assert "1 requests, 0 violations" in err
