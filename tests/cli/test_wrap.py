"""`elision wrap` as a process: a gateway of its own or the running one, savings, and nothing of the user's changed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.testing.playback import Playback
from elision.wrap.agent_table import AGENTS
from tests.cli.in_process import run_elision
from tests.wrap.wrapped import CALLS, CLIENT_PROGRAM, EAGER, make_environment, make_run, read_tree, run_wrap, start_wrap

CLIENT = ("--", sys.executable, CLIENT_PROGRAM)
NOWHERE = Path("/nowhere")


@pytest.fixture
def provider() -> Iterator[Playback]:
    with Playback(make_run()) as playing:
        yield playing


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_a_gateway_of_its_own(provider: Playback, tmp_path: Path, work: Path) -> None:
    """The program's requests are masked on the way; its output and exit code are its own; one line says the rest."""
    home = tmp_path / "home"
    # With the vocabulary, as a user has it.
    environment = make_environment(home, provider.url, AGENT_CONTEXT_TOKENS="")
    done = run_wrap([*CLIENT, str(CALLS), "3"], environment, work)
    assert (done.returncode, done.stdout) == (3, "I have seen all.\n")
    assert provider.violations == []
    assert len(provider.requests) == CALLS
    assert b"tokens hidden" in provider.requests[-1].raw
    first, line = done.stderr.splitlines()
    assert re.fullmatch(r"elision: dashboard, until \S+ ends: http://127\.0\.0\.1:\d+/", first)
    assert line.startswith(f"elision: {CALLS} calls, ")
    words, _, place = line.removesuffix(")").partition(" (store: ")
    assert place == f"sqlite:///{home}/.local/state/elision/sessions.db"
    look = [*words.partition(": elision ")[2].split(), "--store", place]
    # The command that the line names works, and the user's project has no new file.
    shown = run_elision(*look)
    assert shown.returncode == 0, shown.stderr
    assert "calls" in shown.stdout
    assert read_tree(work) == {}
    kept = {
        ".local/state/elision/sessions.db",
        ".local/state/elision/sessions.db.secret",
        ".cache/elision/listing.json",
    }
    # A reader leaves the files of SQLite's log, which the next writer takes away.
    left = {f".local/state/elision/sessions.db-{end}" for end in ("shm", "wal")}
    assert kept <= set(read_tree(home)) <= kept | left


#: Three calls over plain HTTP, which go on where the last start of the program ended: an SDK takes a second to import.
RESUMED = """
import json, os, pathlib, urllib.request
kept = pathlib.Path("messages.json")
messages = json.loads(kept.read_text()) if kept.exists() else [{"role": "user", "content": "Look at every file."}]
headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-client"}
for _ in range(3):
    body = json.dumps({"model": "gpt-5", "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    messages.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
    for call in messages[-1]["tool_calls"]:
        output = f"{len(messages)} " + "row of text\\n" * 300
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
kept.write_text(json.dumps(messages))
"""


def test_a_resumed_session_is_counted(provider: Playback, tmp_path: Path, work: Path) -> None:
    """A conversation that goes on after another start is the same session, and the line says so. Who sends requests to
    another address already gets them forwarded there."""
    environment = make_environment(tmp_path / "home", "", OPENAI_BASE_URL=f"{provider.url}/v1")
    environment = {name: value for name, value in environment.items() if "UPSTREAM" not in name}
    told = [run_wrap(["--", sys.executable, "-c", RESUMED], environment, work).stderr for _ in range(2)]
    lines = [each.splitlines()[-1] for each in told]
    assert [line.partition(",")[0] for line in lines] == ["elision: 3 calls", "elision: 6 calls"]
    assert lines[0].rpartition(" show ")[2] == lines[1].rpartition(" show ")[2]


def test_the_running_gateway_is_used(provider: Playback, tmp_path: Path, work: Path) -> None:
    """Where one answers at the configured address, no other is started; it keeps running."""
    options = {"gateway_upstream_openai": provider.url, "store": "memory:", "strategy": EAGER, "gateway_log": "none"}
    with GatewayThread(gateway_settings({}, NOWHERE, gateway_port=0, **options)) as gateway:
        port = gateway.url.rpartition(":")[2]
        environment = make_environment(tmp_path / "home", "http://127.0.0.1:9", AGENT_CONTEXT_GATEWAY_PORT=port)
        done = run_wrap(["--", sys.executable, "-c", RESUMED], environment, work)
        assert len(gateway.worker.gateway.sessions) == 1
    assert (done.returncode, len(provider.requests)) == (0, 3), done.stderr
    assert f"the gateway at {gateway.url} keeps running" in done.stderr


def test_a_program_that_asks_nothing(provider: Playback, tmp_path: Path, work: Path) -> None:
    """The line says so, and names the mend."""
    done = run_wrap(["--", sys.executable, "-c", ""], make_environment(tmp_path / "home", provider.url), work)
    assert done.returncode == 0
    assert "no request came through the gateway" in done.stderr


WAITING = "import os, sys\nprint(os.environ['ELISION_GATEWAY_URL'], flush=True)\nsys.stdin.read()"


def test_killed(provider: Playback, tmp_path: Path, work: Path) -> None:
    """SIGKILL ends the gateway with the command, and leaves the user's files as they were."""
    home = tmp_path / "home"
    environment = make_environment(home, provider.url)
    (home / ".claude").mkdir()
    (home / ".claude" / "settings.json").write_text('{"theme": "dark"}\n', encoding="utf-8")
    before = read_tree(home)
    process = start_wrap(["--", sys.executable, "-c", WAITING], environment, work, stdin=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        connection = HTTPConnection(url.removeprefix("http://"))
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        with pytest.raises(ConnectionRefusedError):
            HTTPConnection(url.removeprefix("http://")).connect()
    after = read_tree(home)
    assert {path: after[path] for path in before} == before


def test_print(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables as lines that shells read, and the command; nothing is started."""
    monkeypatch.setenv("AGENT_CONTEXT_GATEWAY_PORT", "9")
    done = run_elision("wrap", "--print", "codex", "exec", "--json", "Look.")
    assert done.stdout.splitlines()[0] == "export ELISION_GATEWAY_URL=http://127.0.0.1:9"
    assert done.stdout.splitlines()[-1].startswith("# codex -c 'model_provider=\"elision\"'")
    assert done.stdout.endswith(" exec --json Look.\n")
    assert done.stderr == "elision: no gateway answers at http://127.0.0.1:9 yet; start it with `elision serve`\n"
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:9\n" in run_elision("wrap", "--print", "claude").stdout
    refused = run_elision("wrap", "--print", "pi")
    assert refused.returncode == 2
    assert "omit --print" in refused.stderr


def test_a_server_that_cannot_be_offered() -> None:
    """`--mcp` is refused with a sentence where it could show nothing, or the wrong sessions."""
    for arguments, said in (
        (("--mcp", "--print", "claude"), "which --print does not start"),
        (("--mcp", "--gateway", "http://127.0.0.1:9", "--", sys.executable), "leave out --mcp"),
        (("--mcp", "--", sys.executable, "-c", ""), "takes no server by flag or variable"),
        (("--mcp", "--store", "memory:", "--", sys.executable, "-c", ""), "no other process reads a store in memory"),
    ):
        done = run_elision("wrap", *arguments)
        assert done.returncode == 2
        assert said in done.stderr


def test_bad_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each ends with a sentence that says what to mend: no agent, no folder for the store, a broken address."""
    assert "name an agent (claude, codex, opencode" in run_elision("wrap").stderr
    monkeypatch.setenv("AGENT_CONTEXT_GATEWAY_PORT", "9")
    monkeypatch.setenv("XDG_STATE_HOME", "/dev/null/nope")
    done = run_elision("wrap", "--", sys.executable, "-c", "")
    assert "/dev/null/nope/elision: the folder for sessions cannot be made" in done.stderr
    assert "--store" in done.stderr
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:notaport/v1")
    done = run_elision("wrap", "--store", "memory:", "--", sys.executable, "-c", "")
    assert done.stderr == "elision: OPENAI_BASE_URL is not an http or https address; fix or unset it\n"
    asked = run_elision("wrap", "--gateway", "http://[::1", "--", sys.executable)
    assert "no gateway answers there" in asked.stderr
    assert "fix or unset OPENAI_BASE_URL" in run_elision("doctor").stdout


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence each: agents that cannot be wrapped, and gateways that do not answer."""
    monkeypatch.setenv("AGENT_CONTEXT_GATEWAY_PORT", "9")
    assert "Cursor's own servers" in run_elision("wrap", "cursor").stderr
    assert AGENTS["droid"].refusal in run_elision("wrap", "droid").stderr
    missing = run_elision("wrap", "--gateway", "http://127.0.0.1:9", "--", sys.executable, "-c", "")
    assert missing.stderr == (
        "elision: --gateway http://127.0.0.1:9: no gateway answers there; start one with `elision serve`\n"
    )
    both = run_elision("wrap", "--gateway", "http://127.0.0.1:9", "--shadow", "--", sys.executable)
    assert "has its own settings" in both.stderr
