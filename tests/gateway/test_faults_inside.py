"""Whatever of ours fails, at any point of a request's path: the client's request goes out, and the session goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from elision.gateway.body import RequestBody
from elision.gateway.budgets import Budgets
from elision.gateway.exchanges import Exchanges
from elision.gateway.sent import Sent
from elision.gateway.sessions import Sessions
from elision.manager import ContextManager
from elision.strategies.placeholder import Placeholders
from elision.strategies.policy import Policy
from tests.gateway.conversing import APIS, ENOUGH, GAP, PATHS, body, frames, reply, whole
from tests.gateway.providing import EVENTS, JSON, api_of, sound, trial
from tests.gateway.running import PATIENCE, Client, Gateway
from tests.gateway.scripted import Asked, Script, Scripted, answer


def failing(*arguments: object, **named: object) -> Any:
    raise ZeroDivisionError("it holds sk-ant-api03-secret-secret-secret")


async def failing_later(*arguments: object, **named: object) -> Any:
    failing()


#: Asked for at a session's first request here.
COLD = "exchanges of the store"
#: What fails, and whether the request goes out as it came then.
PLACES: dict[str, tuple[type, str, Callable[..., Any], bool]] = {
    "a strategy": (Policy, "decide", failing, True),
    "a placeholder, and its extractor": (Placeholders, "write", failing, True),
    "a pass": (ContextManager, "prepare_async", failing_later, True),
    "rendering": (Sent, "messages", failing, True),
    "reading": (RequestBody, "parse_new", failing, True),
    "finding its session": (Sessions, "find", failing, True),
    "finding what went before": (Sessions, "before", failing, True),
    COLD: (ContextManager, "recorded_exchanges_async", failing_later, False),
    "expanding them": (Exchanges, "expanded", failing, False),
    "budgets": (Budgets, "of_key", failing_later, False),
    "a session's budget": (Budgets, "of_session", failing, True),
    "usage": (ContextManager, "record", failing, False),
}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_fails_the_request_goes_out(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails for one request: that is answered all the same, the failure is logged without secrets, the next one is
    served as if nothing had been."""
    owner, name, fails, as_it_came = PLACES[place]

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        for api in APIS:
            for stream in (False, True):
                word = f"{api} {stream}"
                said = [body(api, steps, stream=stream, task=word, word=word) for steps in range(ENOUGH, ENOUGH + 3)]
                if place != COLD:
                    assert (await client.ask("POST", PATHS[api], said[0])).status == 200
                with monkeypatch.context() as patched:
                    patched.setattr(owner, name, fails)
                    got = await client.ask("POST", PATHS[api], said[1])
                assert (got.status, got.whole) == (200, True), (api, stream, got)
                assert got.body == (b"".join(frames(api)) if stream else whole(api))
                assert upstream.asked[-1].body == said[1] if as_it_came else GAP in upstream.asked[-1].body
                assert (await client.ask("POST", PATHS[api], said[2])).status == 200
                assert upstream.asked[-1].body.count(GAP) == ENOUGH, "the next one is masked again"

    trial(what, gateway_key_max_turns=1_000, gateway_session_max_turns=1_000)
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told, "a failure is told"
    assert "sk-ant-api03-secret" not in "".join(record.getMessage() for record in told)


def test_telemetry_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be counted is answered."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        proxy = gateway.worker.door.proxy
        monkeypatch.setattr(proxy._watch, "_watches", [failing])  # type: ignore[attr-defined]
        for _ in range(2):
            got = await client.ask("POST", PATHS["openai"], body("openai", ENOUGH))
            assert (got.status, got.body) == (200, whole("openai"))
        assert (await client.ask("POST", "/nothing", b"")).status == 404

    trial(what)


RECALL = [("r1", "elision_recall", {"handle": "t1.1"})]


def recalling(calls: int = 1) -> Script:
    """A provider whose model recalls so often."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        api, left = api_of(asked), calls - asked.body.count(b"r1")
        said = reply("I look.", RECALL) if b"elision_recall" in asked.body and left > 0 else reply()
        if b'"stream" :  true' in asked.body:
            writer.write(answer(b"".join(frames(api, said)), "200 OK", EVENTS))
        else:
            writer.write(answer(whole(api, said), "200 OK", JSON))

    return script


@pytest.mark.parametrize("name", ["handle_tool_call", "exchanged", "exchanges"])
def test_recalls_that_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is told that nothing was found, or what was said is not kept: the client gets its answer."""

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        for api in APIS:
            for stream in (False, True):
                word = f"{api} {stream}"
                said = [body(api, steps, stream=stream, task=word, word=word) for steps in (ENOUGH, ENOUGH + 1)]
                with monkeypatch.context() as patched:
                    patched.setattr(ContextManager, name, failing)
                    got = await client.ask("POST", PATHS[api], said[0])
                assert (got.status, got.whole) == (200, True)
                assert b"All is done." in got.body or b"done" in got.body, got.body
                assert b"elision_recall" not in got.body
                assert (await client.ask("POST", PATHS[api], said[1])).status == 200
                assert GAP in upstream.asked[-1].body

    trial(what, recalling())


@pytest.mark.parametrize("after", ["cut", "refused", "silent"])
def test_a_provider_that_fails_behind_a_recall(after: str) -> None:
    """The second request of an answer fails: a plain answer is an error in its API's shape, a stream ends with one."""
    back = recalling()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if b"r1" not in asked.body:
            await back(asked, writer)
        elif after == "cut":
            writer.close()
        elif after == "refused":
            writer.write(answer(b'{"error": {"type": "x", "message": "No, 529."}}', "529 No", JSON))
        else:
            await asyncio.Event().wait()

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        for api in APIS:
            for stream in (False, True):
                word = f"{api} {stream}"
                client = await gateway.connect()
                got = await client.ask("POST", PATHS[api], body(api, ENOUGH, stream=stream, task=word, word=word))
                client.close()
                status = {"cut": 502, "refused": 529, "silent": 504}[after]
                assert (got.status, got.whole) == (200 if stream else status, True), (api, stream, got)
                assert b'"error"' in got.body
                assert b"elision_recall" not in got.body

    trial(what, script, gateway_read_seconds=0.05)


# -- summaries ---------------------------------------------------------------------------------------------------------

FOLDING = "hybrid(window=2, summarize_at=5, tail=2, summary_max_tokens=200, schedule=every-turn)"


@pytest.mark.parametrize("how", ["raises", "hangs", "says nothing"])
def test_a_summarizer_that_fails(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go out masked while nobody writes a summary; nothing waits for one that hangs."""
    released = threading.Event()

    def write(request: object) -> str:
        if how == "hangs":
            released.wait(60)
        if how == "raises":
            failing()
        return ""

    from_settings = ContextManager.from_settings

    def with_it(found: Any, environment: Any = None, **options: Any) -> ContextManager:
        made = from_settings(found, environment, **options)
        made._summary_runner.writer = write  # type: ignore[attr-defined]
        return made

    monkeypatch.setattr(ContextManager, "from_settings", with_it)

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        for steps in range(4, 11):
            got = await asyncio.wait_for(client.ask("POST", PATHS["openai"], body("openai", steps)), PATIENCE)
            assert got.status == 200
        assert GAP in upstream.asked[-1].body
        assert len(upstream.asked) == 7
        released.set()

    trial(what, strategy=FOLDING)


# -- clients that go ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["the pass", "the provider", "the answer"])
def test_a_client_that_goes(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever its request is: the provider's answer goes with it, the session is whole, and its next try is served."""
    go_on, seen = asyncio.Event(), asyncio.Event()
    prepare = ContextManager.prepare_async

    async def slow(self: ContextManager, *arguments: Any, **named: Any) -> Any:
        seen.set()
        await go_on.wait()
        return await prepare(self, *arguments, **named)

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        if at != "the pass" and not go_on.is_set():
            if at == "the answer":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\ndata: ")
                await writer.drain()
            seen.set()
            await asyncio.Event().wait()
        await sound(asked, writer)

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        assert (await client.ask("POST", PATHS["openai"], body("openai", 0))).status == 200 if go_on.is_set() else True
        with monkeypatch.context() as patched:
            if at == "the pass":
                patched.setattr(ContextManager, "prepare_async", slow)
            leaving = await gateway.connect()
            leaving.send("POST", PATHS["openai"], body("openai", ENOUGH))
            await asyncio.wait_for(seen.wait(), PATIENCE)
            leaving.close()
            if at != "the pass":
                await asyncio.wait_for(upstream.lost.wait(), PATIENCE)
            while gateway.worker.app.limits.turns.taken:
                await asyncio.sleep(0)
        go_on.set()
        assert len(upstream.asked) == (at != "the pass")
        for steps in (ENOUGH, ENOUGH + 1):
            assert (await client.ask("POST", PATHS["openai"], body("openai", steps))).status == 200
            assert upstream.asked[-1].body.count(GAP) == steps - 2
        infos = list(gateway.worker.store.sessions())
        assert [info.turns for info in infos] == [ENOUGH + 1], "it is one session, whole"

    trial(what, script)


def test_a_framework_s_own_messages_pass_as_they_came(caplog: pytest.LogCaptureFixture) -> None:
    """The library refuses them; here the provider judges them, byte for byte, and the log says whose they are."""
    given = b'{"model": "gpt-5", "messages": [{"role": "user",  "parts": [{"text": "hi"}]}]}'

    async def what(gateway: Gateway, upstream: Scripted, client: Client) -> None:
        for _ in range(2):
            got = await client.ask("POST", PATHS["openai"], given)
            assert (got.status, got.body) == (200, whole("openai"))
            assert upstream.asked[-1].body == given

    trial(what)
    assert "messages[0] is a message of parts (Gemini, AI SDK); give " in caplog.text
