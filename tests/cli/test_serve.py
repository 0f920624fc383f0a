"""`elision serve` as a process of its own: what it says, workers, metrics over all of them, its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from elision.cli.declarations import build_command
from elision.cli.serve import serve
from elision.errors import ElisionError, SettingError, SpecError
from tests.gateway.scripted_upstream import ReceivedRequest, render_response, run_scripted_upstream
from tests.gateway.serve_process import TIMEOUT_SECONDS, ServeProcess, start_serve


@pytest.fixture
def upstream() -> Iterator[str]:
    """A provider that answers everything with ok, in a thread of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    urls: list[str] = []
    over = asyncio.Event()

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(b"ok"))

    async def run() -> None:
        async with run_scripted_upstream(script) as server:
            urls.append(server.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(run()))
    thread.start()
    ready.wait()
    yield urls[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


def until(what: Callable[[], bool]) -> None:
    """Look again and again, for as long as a busy machine may take."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def options(upstream: str) -> list[str]:
    return ["--off", "--upstream-openai", upstream, "--upstream-anthropic", "none", "--upstream-gemini", "none"]


def test_one_worker(tmp_path: Path, upstream: str) -> None:
    """It says where clients find it, serves, logs a line for each request, and ends with 0 when asked to."""
    with start_serve(tmp_path, *options(upstream)) as gateway:
        assert gateway.first_lines[0] == f"OpenAI clients:    {gateway.url}/v1\n"
        assert gateway.first_lines[2] == f"Dashboard:         {gateway.url}/\n"
        assert gateway.first_lines[3] == "Sessions:          nowhere\n"
        assert gateway.first_lines[4] == ("Summaries:         off\n")
        assert gateway.send_request("/v1/chat/completions", b"{}", authorization="Bearer sk-secret") == (200, b"ok")
        assert gateway.end_process() == 0
        (line,) = gateway.log.splitlines()
        told = json.loads(line)
        assert (told["event"], told["api"], told["status"], told["how"]) == ("request", "openai", 200, "passed")
        assert "sk-secret" not in gateway.log


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("--off", "Off:               everything is forwarded unchanged; nothing is stored\n"),
        ("--shadow", "Shadow mode:       requests are sent unchanged; the dashboard shows what would be saved\n"),
    ],
)
def test_nobody_wonders_why_nothing_is_saved(tmp_path: Path, upstream: str, mode: str, told: str) -> None:
    """A gateway that changes no request says so when it comes up."""
    with start_serve(tmp_path, mode, "--upstream-openai", upstream) as gateway:
        assert gateway.popen.stdout is not None
        assert gateway.popen.stdout.readline() == told


def test_workers(tmp_path: Path, upstream: str) -> None:
    """Two processes answer at one address, and metrics are those of both; one that is killed is replaced."""
    with start_serve(tmp_path, *options(upstream), "--workers", "2", "--log", "none") as gateway:
        until(lambda: len(gateway.list_workers()) == 2)
        before = gateway.list_workers()
        for count in range(1, 21):
            assert gateway.send_request("/v1/chat/completions", b"{}") == (200, b"ok")
            # A worker counts a request after the last byte of its answer.
            until(lambda count=count: _requests(gateway) == count)
        os.kill(min(before), signal.SIGKILL)
        until(lambda: len(gateway.list_workers()) == 2 and gateway.list_workers() != before)
        assert gateway.send_request("/v1/chat/completions", b"{}") == (200, b"ok")
        # What a worker counted stays counted when it is gone.
        until(lambda: _requests(gateway) == 21)
        until(lambda: "is replaced" in gateway.log)
        assert gateway.end_process(signal.SIGINT) == 0
        assert "cannot" not in gateway.log


def _requests(gateway: ServeProcess) -> int:
    page = gateway.send_request("/metrics")[1].decode()
    row = 'agent_context_gateway_requests_total{api="openai",how="passed",status="2xx"} '
    return next(int(float(line.removeprefix(row))) for line in page.splitlines() if line.startswith(row))


def test_workers_that_outlive_their_supervisor(tmp_path: Path, upstream: str) -> None:
    """Where it is killed its workers end too: nobody would ever tell them to."""
    with start_serve(tmp_path, *options(upstream), "--workers", "2") as gateway:
        until(lambda: len(gateway.list_workers()) == 2)
        workers = gateway.list_workers()
        gateway.end_process(signal.SIGKILL)
        until(lambda: not any(_alive(each) for each in workers))


def _alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


# -- in this process ---------------------------------------------------------------------------------------------------

APP = build_command("serve", serve)


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str, **environ: str) -> Any:
    monkeypatch.chdir(folder)
    return CliRunner().invoke(APP, list(options), env={"COLUMNS": "200", **environ})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--host", "0.0.0.0"], "--host '0.0.0.0': others can reach it there, and"),
        (["--workers", "2", "--store", "memory:"], "--workers 2: a store at memory: serves one process"),
        (["--store", "nonsense"], "--store: 'nonsense' is not valid; give one of: memory:, sqlite:///FILE"),
        (["--at-limit", "stop"], "--at-limit: 'stop' is not valid; give one of: hint, refuse"),
        (["--log", "x"], "--log: 'x' is not valid; give one of: auto, none, text, json"),
        (
            ["--upstream-openai", "api.openai.com"],
            "--upstream-openai: 'api.openai.com' is not valid; give an address that begins with http:// or https://",
        ),
        (["--token", "short"], "--token: the value is not valid; give 16 or more"),
        (["--strategy", "maskin"], "--strategy: "),
    ],
)
def test_what_cannot_be_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], said: str) -> None:
    """Is an error of ours that says what to do, of the option as it was typed: the command line makes a sentence of
    it."""
    error = run(tmp_path, monkeypatch, *given).exception
    assert isinstance(error, SettingError)
    assert str(error).startswith(said)


def test_a_port_that_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Likewise."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        error = run(tmp_path, monkeypatch, "--log", "none", "--port", str(taken.getsockname()[1])).exception
    assert isinstance(error, ElisionError)
    assert "is another gateway running?" in str(error)


def test_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, upstream: str) -> None:
    """It shows each value that was set and its place, and what was tried; 0 if all is well, else 1; no token."""
    token = "correct-horse-battery"
    environ = {"AGENT_CONTEXT_GATEWAY_ADMIN_TOKEN": token, "AGENT_CONTEXT_GATEWAY_PORT": "0"}
    given = ["--check", "--upstream-openai", upstream, "--upstream-anthropic", "none", "--upstream-gemini", "none"]
    done = run(tmp_path, monkeypatch, *given, **environ)
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines() if line.split()]
    rows = {line[0]: line for line in reversed(lines)}
    assert rows["gateway_upstream_openai"][1:] == [upstream, "--upstream-openai"]
    assert rows["gateway_admin_token"][1:] == ["***", "AGENT_CONTEXT_GATEWAY_ADMIN_TOKEN"]
    assert "strategy" not in rows
    assert "settings are at their defaults" in done.output
    assert token not in done.output
    assert "does not exist yet; it is created at the start" in done.output
    done = run(tmp_path, monkeypatch, "--check", "--upstream-openai", "http://127.0.0.1:1", **environ)
    assert done.exit_code == 1
    assert "nothing listens at http://127.0.0.1:1" in done.output
    # Where room is short, the reason takes several lines.
    narrow = run(tmp_path, monkeypatch, "--check", "--upstream-openai", "http://127.0.0.1:1", COLUMNS="60", **environ)
    assert "nothing listens" in " ".join(narrow.output.split())


@pytest.mark.parametrize("options", [[], ["--check"]])
def test_a_summarizer_without_a_key_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    """Not by the first session, whose requests would go out unchanged."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    error = run(tmp_path, monkeypatch, *options, AGENT_CONTEXT_SUMMARIZER="openai:gpt-5-mini").exception
    assert isinstance(error, SpecError)
    assert "no key for https://api.openai.com/v1" in str(error)
    assert "set OPENAI_API_KEY" in str(error)
