"""`import elision.auto`: programs that know nothing of a gateway, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from elision.gateway.server import GatewayThread
from elision.gateway.settings import gateway_settings
from elision.manager.session_history import CallReport, add_plateau_guard, load_session_log
from elision.stores.store_urls import open_existing
from elision.strategies.guards import Guards
from elision.testing.playback import Playback
from elision.trajectory.tokens import Sizer, make_counter
from tests.soak import leave_to_soak
from tests.wrap.wrapped import CALLS, EAGER, TIMEOUT_SECONDS, make_environment, make_run

#: Programs in their clients' usual words; each prints what the model says last.
CHAT = """
import openai
client, messages = openai.OpenAI(), [{"role": "user", "content": "Look at every file."}]
while True:
    answer = client.chat.completions.create(model="gpt-5", messages=messages).choices[0].message
    messages.append(answer.model_dump(exclude_none=True))
    if not answer.tool_calls:
        break
    for call in answer.tool_calls:
        output = f"{len(messages)} " + "row of text\\n" * 300
        messages.append({"role": "tool", "tool_call_id": call.id, "content": output})
print(answer.content)
"""
RESPONSES = """
import openai
client, items = openai.OpenAI(), [{"role": "user", "content": "Look at every file."}]
while True:
    answer = client.responses.create(model="gpt-5", input=items)
    items += [item.model_dump(exclude_none=True) for item in answer.output]
    calls = [item for item in answer.output if item.type == "function_call"]
    if not calls:
        break
    for call in calls:
        output = f"{len(items)} " + "row of text\\n" * 300
        items.append({"type": "function_call_output", "call_id": call.call_id, "output": output})
print(answer.output_text)
"""
MESSAGES = """
import anthropic
client, messages = anthropic.Anthropic(), [{"role": "user", "content": "Look at every file."}]
while True:
    with client.messages.stream(model="claude-opus-4-6", max_tokens=900, messages=messages) as stream:
        answer = stream.get_final_message()
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in answer.content]})
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": f"{len(messages)} " + "row of text\\n" * 300}
        for block in answer.content
        if block.type == "tool_use"
    ]
    if not results:
        break
    messages.append({"role": "user", "content": results})
print(answer.content[0].text)
"""
#: The same chat over plain HTTP, for what is not about a client: to import one takes a second.
PLAIN = """
import json, os, urllib.request
messages = [{"role": "user", "content": "Look at every file."}]
headers = {"Content-Type": "application/json", "Authorization": "Bearer sk-client"}
while messages[-1]["role"] != "assistant":
    body = json.dumps({"model": "gpt-5", "messages": messages}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, headers)
    messages.append(json.load(urllib.request.urlopen(request))["choices"][0]["message"])
    for call in messages[-1].get("tool_calls", ()):
        output = f"{len(messages)} " + "row of text\\n" * 300
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})
print(messages[-1]["content"])
"""
ENDINGS = ("import sys; sys.exit(3)", "raise RuntimeError('ours')")
PROGRAMS = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}


@pytest.fixture
def provider() -> Iterator[Playback]:
    with Playback(make_run()) as playing:
        yield playing


def run_program(text: str, folder: Path, upstream: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a program behind the import, with the usual clients' variables leading to `upstream`."""
    environment = make_environment(
        folder / "home",
        upstream,
        OPENAI_API_KEY="sk-client",
        ANTHROPIC_API_KEY="sk-client",
        AGENT_CONTEXT_STORE="sqlite:///agent.db",
        **more,
    )
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import elision.auto\n{text}"],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


def read_calls(folder: Path) -> list[CallReport]:
    """The calls of the only session of the program's store."""
    sizer = Sizer(make_counter("estimate"))
    with closing(open_existing(f"sqlite:///{folder / 'agent.db'}")) as store:
        (info,) = store.sessions()
        return list(load_session_log(store, info, sizer, add_plateau_guard(Guards())).build_report().calls)


# A chat is what the tests below have.
@pytest.mark.parametrize("name", leave_to_soak(PROGRAMS, "chat"))
def test_a_program(name: str, provider: Playback, tmp_path: Path) -> None:
    """It works as before, old results are hidden on the way, and the record of the last call is kept."""
    done = run_program(PROGRAMS[name], tmp_path, provider.url)
    assert (done.returncode, done.stdout) == (0, "I have seen all.\n")
    begin, end = done.stderr.splitlines()
    assert begin == (
        "elision: model requests of this program go through Elision; conversations are kept in sqlite:///agent.db"
    )
    assert re.fullmatch(rf"elision: {CALLS} calls, [\d.]+k of [\d.]+k tokens sent, hiding .*: elision sessions", end)
    assert provider.violations == []
    assert len(provider.requests) == CALLS
    assert b"tokens hidden" in provider.requests[-1].raw
    calls = read_calls(tmp_path)
    assert len(calls) == CALLS
    assert all(call.usage is not None for call in calls)


def test_the_notes_can_be_switched_off(provider: Playback, tmp_path: Path) -> None:
    """The setting that silences the gateway's log silences them, too."""
    done = run_program(PLAIN, tmp_path, provider.url, ELISION_GATEWAY_LOG="none")
    assert (done.returncode, done.stdout, done.stderr) == (0, "I have seen all.\n", "")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("", "no model request came through; `import elision.auto` must come before clients are made"),
        ("import sys; sys.stderr.close()", ""),
    ],
)
def test_a_program_without_requests(program: str, said: str, tmp_path: Path) -> None:
    """It learns that nothing came through, and ends well without a standard error."""
    done = run_program(program, tmp_path, "http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (0, f"elision: {said}\n" if said else "")


@pytest.mark.parametrize("ending", leave_to_soak(ENDINGS, ENDINGS[0]))
def test_nothing_is_lost_at_any_end(ending: str, provider: Playback, tmp_path: Path) -> None:
    """Also where the program ends in the middle, right after an answer."""
    done = run_program(f"{PLAIN}\n{ending}", tmp_path, provider.url)
    assert done.returncode != 0
    assert "cannot schedule" not in done.stderr
    calls = read_calls(tmp_path)
    assert len(calls) == CALLS
    assert calls[-1].usage is not None


@pytest.mark.parametrize("variable", leave_to_soak(["ELISION_GATEWAY_URL", "ANTHROPIC_BASE_URL"], "ANTHROPIC_BASE_URL"))
def test_the_gateway_that_is_there_is_used(variable: str, provider: Playback, tmp_path: Path) -> None:
    """Under `elision wrap`, and where base URLs lead to a gateway already, no second one is put in between."""
    options = {"gateway_upstream_openai": provider.url, "store": "memory:", "strategy": EAGER, "gateway_log": "none"}
    with GatewayThread(gateway_settings({}, Path("/nowhere"), gateway_port=0, **options)) as gateway:
        done = run_program(PLAIN, tmp_path, "http://127.0.0.1:9", **{variable: gateway.url})
        assert len(gateway.worker.gateway.sessions) == 1
    assert (done.returncode, done.stdout) == (0, "I have seen all.\n"), done.stderr
    assert not (tmp_path / "agent.db").exists()


def test_a_fork_leaves_the_gateway_alone(provider: Playback, tmp_path: Path) -> None:
    """A forked process that ends does not end its parent's gateway.

    A base URL that the user set before decides where requests are forwarded to, if no setting does.
    """
    # An empty variable is a setting that nobody gave.
    unset = {"AGENT_CONTEXT_GATEWAY_UPSTREAM_OPENAI": "", "AGENT_CONTEXT_TOKENS": ""}
    more = {**unset, "OPENAI_BASE_URL": f"{provider.url}/v1"}
    fork = "import os, warnings; warnings.simplefilter('ignore')\nif os.fork() == 0:\n    raise SystemExit\nos.wait()\n"
    done = run_program(fork + CHAT, tmp_path, "http://127.0.0.1:9", **more)
    assert (done.returncode, done.stdout) == (0, "I have seen all.\n"), done.stderr
    assert len(read_calls(tmp_path)) == len(provider.requests) == CALLS
    assert b"tokens hidden" in provider.requests[-1].raw
