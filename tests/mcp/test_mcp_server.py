"""`elision mcp` as hosts reach it, by the SDK's own client: in process, over standard input and output, over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

mcp = pytest.importorskip("mcp", reason="the extra `mcp` is not installed: elision mcp is not tried")
StdioServerParameters = pytest.importorskip("mcp.client.stdio").StdioServerParameters

from elision.cli.mcp import is_local  # noqa: E402
from elision.manager import ContextManager  # noqa: E402
from elision.mcp.mcp_server import build_mcp_server  # noqa: E402
from tests.cli import stored  # noqa: E402
from tests.cli.in_process import run_elision  # noqa: E402
from tests.mcp.served import read_sessions  # noqa: E402

TOOLS = {"recall_hidden", "search_history", "list_hidden", "list_sessions", "inspect_session"}
ELISION = Path(sys.executable).with_name("elision")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a store with sessions of every kind."""
    at = tmp_path_factory.mktemp("kept")
    stored.everything(at)
    return stored.url(at)


def environment(**more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_CONTEXT", "ELISION"))}
    return {**plain, **more}


async def call(client: Any, name: str, **arguments: Any) -> str:
    """The text of an answer, errors included."""
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert content.type == "text"
    return f"error: {content.text}" if result.is_error else content.text


async def try_everything(client: Any) -> None:
    """Every tool, resource and prompt, with a good and a bad argument."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == TOOLS
    for tool in tools.values():
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is False
        assert tool.annotations.open_world_hint is False
    assert await call(client, "recall_hidden", handle="t1.1", session="main") == stored.report(1)
    assert await call(client, "recall_hidden", handle="t1.1", session="main", head=1) == "1: report 1"
    assert "keeps nothing under t99.1" in await call(client, "recall_hidden", handle="t99.1", session="main")
    assert (await call(client, "search_history", query="module_3_7", session="main")).startswith("t3.1 look: ")
    assert json.loads(await call(client, "list_hidden", session="main"))["hidden_results"] == 5
    sessions = (await client.call_tool("list_sessions", {})).structured_content
    assert sessions["in_all"] == 6
    assert json.loads(await call(client, "inspect_session", session="digested"))["calls"] == 9
    assert (await call(client, "inspect_session", session="nope")).startswith("error: ")
    assert (await call(client, "list_sessions", limit=0)).startswith("error: ")

    async def read(uri: str) -> str:
        (content,) = (await client.read_resource(uri)).contents
        return str(content.text)

    assert await read("elision://session/main/result/t2.1") == stored.report(2)
    assert (await read("elision://session/main%2Fscout/turn/1")).startswith("Looking at 1.")
    assert json.loads(await read("elision://session/main/view/last"))["call"] == 8
    assert json.loads(await read("elision://session/main"))["session"] == "main"
    assert json.loads(await read("elision://sessions"))["in_all"] == 6
    with pytest.raises(mcp.MCPError, match="has no call"):
        await read("elision://session/main/view/99")
    with pytest.raises(mcp.MCPError, match="no session"):
        await read("elision://session/..%2F..%2Fetc%2Fpasswd")
    assert {prompt.name for prompt in (await client.list_prompts()).prompts} == {"what_did_i_lose", "why_this_cost"}
    (message,) = (await client.get_prompt("what_did_i_lose", {"session": "main"})).messages
    assert 'list_hidden with session="main"' in message.content.text


def test_in_process(kept: str) -> None:
    """The server object, without a transport."""

    async def work() -> None:
        with closing(read_sessions(kept)) as sessions:
            async with mcp.Client(build_mcp_server(sessions)) as client:
                await try_everything(client)

    asyncio.run(work())


@contextmanager
def serve(*arguments: str, **variables: str) -> Iterator[str]:
    """The address of `elision mcp --http` at a free port."""
    command = [str(ELISION), "mcp", "--http", "--port", "0", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(**variables)
    ) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("MCP: http://127.0.0.1:"), (line, process.stderr and process.stderr.read())
            yield line.removeprefix("MCP: ").strip()
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_http(kept: str) -> None:
    """Streamable HTTP on a socket, today's protocol and the handshake of older hosts."""

    async def work(url: str) -> None:
        async with mcp.Client(url) as client:
            await try_everything(client)
        async with mcp.Client(url, mode="legacy") as client:
            assert await call(client, "recall_hidden", handle="t1.1", session="main", head=1) == "1: report 1"

    with serve("--store", kept) as url:
        asyncio.run(work(url))
        # A web page that reaches this machine by a name of its own is refused.
        assert ask(url, host="evil.example") == 421


def test_a_token(kept: str) -> None:
    """Without it, or with another one, nothing is answered."""
    with serve("--store", kept, ELISION_MCP_TOKEN="s3cret") as url:
        assert ask(url) == 401
        assert ask(url, authorization="Bearer other") == 401
        assert ask(url, authorization="Bearer s3cret") == 200


def ask(url: str, **headers: str) -> int:
    """The status of a request for the server's tools."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    fields = {"content-type": "application/json", "accept": "application/json, text/event-stream", **headers}
    request = urllib.request.Request(url, json.dumps(body).encode(), fields)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert {tool["name"] for tool in json.load(answer)["result"]["tools"]} == TOOLS
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_beyond_this_machine_a_token_is_needed() -> None:
    """Before anything is read or listened to."""
    done = run_elision("mcp", "--http", "--host", "0.0.0.0", "--store", "sqlite:///not-there.db")
    assert done.returncode == 2
    assert "give --token, or listen at 127.0.0.1" in done.stderr
    assert is_local("127.0.0.1")
    assert is_local("::1")
    assert not is_local("example.com")


def test_a_store_that_cannot_be_read() -> None:
    """One that can never be is refused at once."""
    for url in ("memory:", "mysql://h/d", "agent.db"):
        done = run_elision("mcp", "--store", url)
        assert done.returncode == 2, url
        assert done.stderr.startswith("elision: "), url


def test_a_store_that_comes_later(tmp_path: Path) -> None:
    """The host starts the server, the agent makes the store; one session is shown by the environment's name."""

    async def work() -> None:
        command = StdioServerParameters(
            command=str(ELISION),
            args=["mcp", "--store", stored.url(tmp_path)],
            env=environment(AGENT_CONTEXT_SESSION="mine"),
        )
        async with mcp.Client(command) as client:
            assert "there is no store yet" in await call(client, "list_sessions")
            stored.played(tmp_path, "theirs", 3)
            assert "no session 'mine' is shown here yet" in await call(client, "list_hidden")
            stored.played(tmp_path, "mine", 3)
            assert json.loads(await call(client, "list_hidden"))["session"] == "mine"
            assert await call(client, "recall_hidden", handle="t1.1") == stored.report(1)
            refused = await call(client, "recall_hidden", handle="t1.1", session="theirs")
            assert refused.startswith("error: ")
            assert refused.endswith("no session 'theirs'; there are: mine")
            assert "theirs" not in await call(client, "list_sessions")

    asyncio.run(work())


def test_while_an_agent_writes(tmp_path: Path) -> None:
    """Another process reads each turn as soon as the agent's call returned."""

    async def work() -> None:
        url = stored.url(tmp_path)
        with ContextManager(stored.EAGER, store=url, session="live") as context:
            context.turns.begin("Look.")
            context.turns.view()
            command = StdioServerParameters(command=str(ELISION), args=["mcp", "--store", url], env=environment())
            async with mcp.Client(command) as client:
                for turn in range(1, 6):
                    context.turns.add("", "look", stored.report(turn))
                    context.turns.view()
                    assert await call(client, "recall_hidden", handle=f"t{turn}.1") == stored.report(turn)

    asyncio.run(work())


def test_an_error_of_ours_is_not_quoted(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody foresaw is reported without its text, which may quote anything."""

    async def work() -> None:
        with closing(read_sessions(kept)) as sessions:
            async with mcp.Client(build_mcp_server(sessions)) as client:
                answer = await call(client, "list_sessions")
                assert answer == "error: Error executing tool list_sessions"

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr("elision.mcp.stored_sessions.StoredSessions.list_sessions", fail)
    asyncio.run(work())
