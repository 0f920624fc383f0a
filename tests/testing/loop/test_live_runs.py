"""Runs with a real model: a scripted server on the loopback interface, checked with the types of the SDKs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from anthropic.types import Message
from openai.types.chat import ChatCompletion

from elision.agent.model import Prompt, Shape
from elision.cli.app import app
from elision.errors import ElisionError, SettingError
from elision.testing.exchange import ReplySpec
from elision.testing.loop.loop_study import RunFile
from elision.testing.loop.scripted_agent import ScriptedAgent
from elision.testing.loop.task_plan import Knobs
from elision.testing.loop.worlds.database_world import DatabaseSkill
from elision.testing.recorded_provider import RESPONSE_FORMATS
from elision.testing.recorded_run import RecordedReply
from elision.testing.request_checks import find_problems
from elision.trajectory.usage import Usage

KEY = "a-test-key-of-no-account"
#: Tokens that the server reports for every call.
INPUT, OUTPUT = 1_000, 50


class Server(ThreadingHTTPServer):
    """A provider of both shapes, whose model is the scripted agent. problems: what is wrong with requests, answers."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.problems: list[str] = []
        self.requests = 0
        self.status = 200
        self.agents: dict[str, ScriptedAgent] = {}

    def answer(self, shape: Shape, body: dict[str, Any]) -> dict[str, Any]:
        self.requests += 1
        self.problems += find_problems(shape, body)
        # Ids are unique over all answers, as a provider's are.
        if shape not in self.agents:
            self.agents[shape] = ScriptedAgent(DatabaseSkill(), 1, Knobs(careless=0, rot=0), shape)
        answer = self.agents[shape].answer(
            Prompt(messages=body["messages"], tools=body.get("tools", ()), system=body.get("system"))
        )
        reply = RecordedReply(number=1, text=answer.text, calls=answer.calls)
        spec = ReplySpec(reply=reply, usage=Usage(input=INPUT, output=OUTPUT), model="m", id="1")
        written = RESPONSE_FORMATS[shape].build_body(spec)
        kind = ChatCompletion if shape == "openai" else Message
        kind.model_validate(written)
        return written


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        shape: Shape = "anthropic" if self.path.endswith("/messages") else "openai"
        sent = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        status = self.server.status if sent == KEY else 401
        answer = self.server.answer(shape, body) if status == 200 else {"error": {"type": "e", "message": "no"}}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as serving:
        thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def make_arguments(server: Server, rows: Path, *more: str, shape: str = "openai", budget: float = 100) -> list[str]:
    url = f"http://127.0.0.1:{server.server_port}" + ("/v1" if shape == "openai" else "")
    own = ["--model", f"{shape}:m", "--base-url", url, "--key-variable", "A_TEST_KEY", "--rows", str(rows)]
    task = [
        "--family",
        "database",
        "--seeds",
        "2",
        "--knob",
        "calls=20",
        "--prices",
        "uncached",
        "--max-cost-usd",
        str(budget),
    ]
    return [*own, *task, "-s", "masking(window=3)", *more]


def main(arguments: list[str]) -> None:
    app(["lab", "closed-loop", *arguments], standalone_mode=False)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TEST_KEY", KEY)


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
def test_a_model_over_http(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: Shape) -> None:
    """Tasks are solved, billed as the server reported, in the providers' own types; the key is written nowhere."""
    rows = tmp_path / "rows.jsonl"
    main(make_arguments(server, rows, shape=shape))
    printed = capsys.readouterr().out
    assert "uncached, 2 tasks" in printed
    assert server.problems == []
    outcomes = [row["outcome"] for row in map(json.loads, rows.read_text().splitlines()) if row["row"] == "outcome"]
    assert len(outcomes) == 4
    assert all(each["solved"] for each in outcomes)
    assert outcomes[0]["usd"] == pytest.approx(outcomes[0]["calls"] * (INPUT + 5 * OUTPUT) / 1e6)
    assert KEY not in printed + rows.read_text()


def test_a_second_command_goes_on(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file whose last line was cut short goes on with the runs that are missing, and asks for none again."""
    rows = tmp_path / "rows.jsonl"
    main(make_arguments(server, rows))
    table, asked = capsys.readouterr().out, server.requests
    lines = rows.read_bytes().splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines) if b'"outcome"' in line)
    rows.write_bytes(b"".join(lines[: first + 1]) + lines[first + 1][:9])
    main(make_arguments(server, rows))
    # The first run is not repeated.
    assert server.requests - asked == asked - sum(b'"call"' in line for line in lines[:first])
    assert capsys.readouterr().out == table
    before = server.requests
    main(make_arguments(server, rows))
    assert server.requests == before


def test_the_budget_stops_it(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It stops before a call that might exceed the budget, counts earlier commands, and goes on with a larger one."""
    rows = tmp_path / "rows.jsonl"
    for _ in range(2):
        main(make_arguments(server, rows, budget=0.03))
        assert "stopped: $0.0" in capsys.readouterr().err
        assert RunFile(rows, "openai:m", Knobs(calls=20), 1).spent <= 0.0301
    main(make_arguments(server, rows))
    assert "uncached, 2 tasks" in capsys.readouterr().out


def test_an_endpoint_that_refuses(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What cannot be asked is no failed task: the command says why, and nothing is compared."""
    server.status = 403
    main(make_arguments(server, tmp_path / "rows.jsonl"))
    printed = capsys.readouterr().err
    assert "403" in printed
    assert "the same command continues" in printed
    assert '"outcome"' not in (tmp_path / "rows.jsonl").read_text()


def test_files_of_other_runs(tmp_path: Path) -> None:
    """Another model, other knobs and a damaged line are refused with the file's name and the line."""
    path = tmp_path / "rows.jsonl"
    RunFile(path, "openai:m", Knobs(), 1).add_call(0.5)
    assert RunFile(path, "openai:m", Knobs(), 1).spent == 0.5
    for model, knobs in (("openai:other", Knobs()), ("openai:m", Knobs(rot=0.5))):
        with pytest.raises(SettingError, match="another model or with other knobs"):
            RunFile(path, model, knobs, 1)
    path.write_text(path.read_text() + "nonsense\n")
    with pytest.raises(SettingError, match="line 3"):
        RunFile(path, "openai:m", Knobs(), 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "m"], "write openai:NAME"),
        (["--model", "openai:m"], "give --max-cost-usd"),
        (["--model", "openai:m", "--max-cost-usd", "1"], "--rows FILE"),
    ],
)
def test_a_model_needs_terms(arguments: list[str], message: str) -> None:
    """A shape, a budget and a file."""
    with pytest.raises(ElisionError, match=message):
        main(arguments)
