"""`elision run` against a playback server: what it does, prints and keeps."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from elision import ContextManager, open_store
from elision.agent import ModelAnswer, RunReport
from elision.cli import main
from elision.cli.run_screen import RunScreen
from elision.testing.builders import commands
from elision.testing.faults import Refused
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.trajectory.usage import Usage
from tests.processes import PATIENCE, start_process

TASK = "Write one line."
WRITE = commands(
    "echo one > a.txt", "cat a.txt; cat missing.txt", "wc -l a.txt", id="write", task=TASK, done="It is there."
)
LONG = commands(*(f"seq {number * 900} {number * 900 + 300}" for number in range(9)), id="long", task="Count.")
ODD = commands("printf '\\033[2J\\007[bold]x[/bold]'; : [red]", id="odd", task="Odd.", done="\x1b[31mred\x07 [blink]")


@pytest.fixture
def server() -> Iterator[Playback]:
    with Playback([WRITE, LONG, ODD]) as playing:
        yield playing


@pytest.fixture(autouse=True)
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without settings, and an environment without keys."""
    for name in [*os.environ]:
        if name.startswith("AGENT_CONTEXT_") or name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "work").mkdir()
    return tmp_path


def elision(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit code of the command."""
    monkeypatch.setattr(sys, "argv", ["elision", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def given(server: Playback, name: str, *more: str) -> list[str]:
    return ["--model", f"run:{name}", "--base-url", f"{server.url}/v1", "--dir", "work", *more]


def test_a_task_is_done(
    server: Playback, at: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The result is standard output; a line a turn and the report are standard error; the session is kept."""
    assert elision(monkeypatch, "run", TASK, *given(server, "write", "--session", "s")) == 0
    out, err = capsys.readouterr()
    assert out == "It is there.\n"
    lines = err.splitlines()
    assert re.search(r"^   1 .+ edit +echo one > a\.txt", lines[2])
    assert re.search(r"^   2 .+ explore +cat a\.txt; cat missing\.txt  ✗", lines[3])
    assert "ended    done: answered without a call" in [line.rstrip() for line in lines]
    assert "elision run --session s" in err
    assert (at / "work" / "a.txt").read_text() == "one\n"
    assert server.violations == []
    store = open_store("sqlite:///elision.db")
    assert store.info("s").turns >= 3
    store.close()


def test_the_command_to_go_on_is_whole(
    server: Playback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed at the end can be typed as it stands: model, server, strategy, store and folder are in it."""
    more = ("--strategy", "masking(window=2)", "--store", "sqlite:///own.db", "--session", "l")
    assert elision(monkeypatch, "run", "Count.", *given(server, "long", *more, "--max-turns", "3")) == 0
    printed = re.search(r"^To go on: +elision (.+)$", capsys.readouterr().err, re.MULTILINE)
    assert printed is not None
    assert elision(monkeypatch, *shlex.split(printed[1])) == 0
    err = capsys.readouterr().err
    assert "session l goes on" in err
    assert "ended    done" in err
    assert "elision store export l --store sqlite:///own.db --out run.jsonl" in err


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_session_goes_on(
    api: str, server: Playback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped at its limit, it goes on where it was, and tells what was hidden and summarized."""
    more = ["--session", "s", "--api", api, "-s", "masking(window=2, schedule=every-turn)"]
    assert elision(monkeypatch, "run", "Count.", *given(server, "long", *more, "--max-turns", "4")) == 0
    assert "stopped: max_turns: 4 of 4" in capsys.readouterr().err
    assert elision(monkeypatch, "run", *given(server, "long", *more)) == 0
    out, err = capsys.readouterr()
    assert out == "Done.\n"
    assert "session s goes on" in err
    assert re.search(r"hidden: 1 result \(t3\.1\), \d+ tokens|hidden: 1 result \(t3\.1\), [\d.]+k tokens", err)
    assert [request.turn for request in server.requests] == list(range(1, 11))
    assert server.violations == []


def test_a_limit_of_cost(server: Playback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The run stops before the next request once the session costs that much."""
    assert elision(monkeypatch, "run", "Count.", *given(server, "long", "--max-cost", "0.01")) == 0
    assert "stopped: max_cost_usd" in capsys.readouterr().err
    assert len(server.requests) < 10


@pytest.mark.parametrize(("reported", "told"), [((1,), " (in this run 1 of 2 calls)"), ((1, 2), "")])
def test_how_many_calls_were_reported(reported: tuple[int, ...], told: str) -> None:
    """The reported sum says of how many calls it is, unless it is of all."""
    written, report = StringIO(), RunReport(model="m")
    with ContextManager("raw", store="memory:", model="claude-sonnet-4-5") as context:
        for call in (1, 2):
            report.add_prepared(context.prepare([{"role": "user", "content": "Go."}] * call).diagnostics)
            usage = {"prompt_tokens": 9_000, "completion_tokens": 20} if call in reported else {}
            context.record(usage)
            assert report.newest is not None
            report.add_turn(ModelAnswer(usage=Usage(input=9_000) if usage else None), (), report.newest)
        report.set_final_costs(context.prepare([{"role": "user", "content": "Go."}] * 3).diagnostics.costs)
    RunScreen(Console(file=written, width=200)).print_end(None, report, "s", {})
    (line,) = (line.rstrip() for line in written.getvalue().splitlines() if line.startswith("cost"))
    assert re.search(rf"; as reported \$[\d.]+{re.escape(told)}$", line)


def test_what_the_model_says_is_only_text(
    server: Playback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Escapes never reach the terminal, and what looks like markup is shown."""
    assert elision(monkeypatch, "run", "Odd.", *given(server, "odd")) == 0
    out, err = capsys.readouterr()
    assert out == "red [blink]\n"
    assert "\x1b[2J" not in err
    assert "\x07" not in out + err
    assert ": [red]" in err


def test_a_model_that_fails_is_one_sentence(
    server: Playback, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the server said, code 2; the session is kept."""
    server.fail(Refused(status=403, message="not for you"))
    assert elision(monkeypatch, "run", TASK, *given(server, "write")) == 2
    err = capsys.readouterr().err
    assert "not for you" in err.splitlines()[-1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["run", "Go."], "name the model to ask"),
        (["run", "Go.", "--max-cost", "-1"], "elision: --max-cost: -1.0 will not do; give US dollars, above 0"),
        (["run", "Go.", "--model", "gpt-5"], "OPENAI_API_KEY is not set"),
        (["run", "Go.", "--model", "claude-sonnet-5"], "ANTHROPIC_API_KEY is not set"),
        (
            ["run", "Go.", "--model", "gpt-5", "--base-url", "https://example.com/v1"],
            "https://example.com/v1 wants a key",
        ),
        (["run", "Go.", "--model", "m", "--api", "gemini"], "--api gemini: give auto, openai or anthropic"),
        (["run", "--model", "m", "--base-url", "http://127.0.0.1:9"], "say what is to be done"),
        (["run", "--session", "x", "--model", "m", "--base-url", "http://127.0.0.1:9"], "no session 'x' to go on with"),
        (
            ["run", "Go.", "--model", "m", "--base-url", "http://127.0.0.1:9", "--dir", "nowhere"],
            "nowhere: is no folder",
        ),
        (["run", "Go.", "--model", "m", "--base-url", "http://127.0.0.1:9", "-s", "magic"], "magic"),
        (["run", "Go.", "--model", "m", "--base-url", "http://127.0.0.1:9", "--store", "floppy:"], "floppy"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says what to mend, before anything is asked."""
    assert elision(monkeypatch, *arguments) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_ctrl_c_loses_nothing(at: Path) -> None:
    """Stopped in the midst of a command, the session is kept with the call that was under way, and goes on."""
    run = commands("echo first", "echo started > pipe; sleep 600", id="slow", task="Wait.")
    os.mkfifo(at / "work" / "pipe")
    command = [sys.executable, "-c", "from elision.cli import main; main()", "run"]
    with Playback(run, Terms(key=None)) as server:
        options = given(server, "slow", "--session", "s")
        with start_process([*command, "Wait.", *options], stderr=subprocess.PIPE, text=True) as process:
            # Opening waits for the command; then it is under way.
            assert (at / "work" / "pipe").read_text() == "started\n"
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        assert "ended    interrupted" in err
        again = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert (again.returncode, again.stdout) == (0, "Done.\n"), again.stderr
        assert server.violations == []
        assert "[interrupted by the user]" in str(server.requests[-1].body)
