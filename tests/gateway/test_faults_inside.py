"""Whatever of ours fails, at any point of a request's path: the client's request goes out, and the session goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

from elision.gateway import assembly
from elision.gateway.budgets import Budgets
from elision.gateway.incoming_messages import HiddenRounds
from elision.gateway.live_sessions import SessionRegistry
from elision.gateway.request_body import MessageEncoder, RequestBody
from elision.manager import ContextManager
from elision.manager.context_options import Options
from elision.manager.exchanges import Exchanges
from elision.manager.opened_session import OpenedSession
from elision.strategies.placeholder import Placeholders
from elision.strategies.policy import Policy
from tests.gateway.conversation_bytes import (
    APIS,
    HIDING_STEPS,
    PATHS,
    PLACEHOLDER_PART,
    make_body,
    render_frames,
    render_whole,
)
from tests.gateway.gateway_trial import JSON_HEADER, answer_soundly, open_trial, recall_first
from tests.gateway.loopback_gateway import TIMEOUT_SECONDS
from tests.gateway.scripted_upstream import ReceivedRequest, answer_always, render_response
from tests.soak import pair_cases

#: Each API, streamed or not.
WAYS = pair_cases(APIS, [False, True])


def failing(*arguments: object, **named: object) -> Any:
    raise ZeroDivisionError("it holds sk-ant-api03-secret-secret-secret")


async def failing_later(*arguments: object, **named: object) -> Any:
    failing()


#: Asked for at a session's first request here.
COLD = "exchanges of the store"
#: What fails, and whether the request is sent unchanged then.
PLACES: dict[str, tuple[type, str, Callable[..., Any], bool]] = {
    "a strategy": (Policy, "plan_pass", failing, True),
    "a placeholder, and its extractor": (Placeholders, "write_placeholder", failing, True),
    "a pass": (ContextManager, "prepare_async", failing_later, True),
    "rendering": (MessageEncoder, "encode_messages", failing, True),
    "reading": (RequestBody, "parse_if_small", failing, True),
    "finding its session": (SessionRegistry, "claim_session", failing, True),
    "finding what went before": (SessionRegistry, "find_continued", failing, True),
    COLD: (Exchanges, "find_stored_async", failing_later, False),
    "expanding them": (HiddenRounds, "expand_messages", failing, False),
    "budgets": (Budgets, "check_key", failing_later, False),
    "a session's budget": (Budgets, "session_check", failing, True),
    "usage": (ContextManager, "record", failing, False),
}


@pytest.mark.parametrize("place", PLACES)
async def test_whatever_fails_the_request_goes_out(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It fails for one request: that is answered all the same, the failure is logged without secrets, the next one is
    served as if nothing had been."""
    owner, name, fails, as_it_came = PLACES[place]

    async with open_trial(gateway_key_max_turns=1_000, gateway_session_max_turns=1_000) as (_, upstream, client):
        for api, stream in WAYS:
            word = f"{api} {stream}"
            said = [
                make_body(api, steps, stream=stream, task=word, word=word)
                for steps in range(HIDING_STEPS, HIDING_STEPS + 3)
            ]
            if place != COLD:
                assert (await client.request("POST", PATHS[api], said[0])).status == 200
            with monkeypatch.context() as patched:
                patched.setattr(owner, name, fails)
                got = await client.request("POST", PATHS[api], said[1])
            assert (got.status, got.is_complete) == (200, True), (api, stream, got)
            assert got.body == (b"".join(render_frames(api)) if stream else render_whole(api))
            assert (
                upstream.requests[-1].body == said[1] if as_it_came else PLACEHOLDER_PART in upstream.requests[-1].body
            )
            assert (await client.request("POST", PATHS[api], said[2])).status == 200
            assert upstream.requests[-1].body.count(PLACEHOLDER_PART) == HIDING_STEPS, "the next one is masked again"
    told = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told, "a failure is told"
    assert "sk-ant-api03-secret" not in "".join(record.getMessage() for record in told)


async def test_telemetry_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be counted is answered."""
    async with open_trial() as (gateway, _, client):
        proxy = gateway.worker.gateway.proxy
        monkeypatch.setattr(proxy._listener, "_listeners", [failing])  # type: ignore[attr-defined]
        for _ in range(2):
            got = await client.request("POST", PATHS["openai"], make_body("openai", HIDING_STEPS))
            assert (got.status, got.body) == (200, render_whole("openai"))
        assert (await client.request("POST", "/nothing", b"")).status == 404


@pytest.mark.parametrize("name", ["handle_tool_call", "record", "list_events"])
async def test_recalls_that_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is told that nothing was found, or what was said is not kept: the client gets its answer."""
    async with open_trial(answer_always(recall_first)) as (_, upstream, client):
        for api, stream in WAYS:
            word = f"{api} {stream}"
            said = [
                make_body(api, steps, stream=stream, task=word, word=word) for steps in (HIDING_STEPS, HIDING_STEPS + 1)
            ]
            with monkeypatch.context() as patched:
                patched.setattr(ContextManager if name == "handle_tool_call" else Exchanges, name, failing)
                got = await client.request("POST", PATHS[api], said[0])
            assert (got.status, got.is_complete) == (200, True)
            assert b"All is done." in got.body or b"done" in got.body, got.body
            assert b"elision_recall" not in got.body
            assert (await client.request("POST", PATHS[api], said[1])).status == 200
            assert PLACEHOLDER_PART in upstream.requests[-1].body


@pytest.mark.parametrize("after", ["cut", "refused", "silent"])
async def test_a_provider_that_fails_behind_a_recall(after: str) -> None:
    """The second request of an answer fails: a plain answer is an error in its API's shape, a stream ends with one."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if b"r1" not in asked.body:
            writer.write(recall_first(asked))
        elif after == "cut":
            writer.close()
        elif after == "refused":
            writer.write(render_response(b'{"error": {"type": "x", "message": "No, 529."}}', "529 No", JSON_HEADER))
        else:
            await asyncio.Event().wait()

    async with open_trial(script, gateway_read_seconds=0.05) as (gateway, _, client):
        for api in APIS:
            for stream in (False, True):
                word = f"{api} {stream}"
                client = await gateway.connect()
                got = await client.request(
                    "POST", PATHS[api], make_body(api, HIDING_STEPS, stream=stream, task=word, word=word)
                )
                client.close()
                status = {"cut": 502, "refused": 529, "silent": 504}[after]
                assert (got.status, got.is_complete) == (200 if stream else status, True), (api, stream, got)
                assert b'"error"' in got.body
                assert b"elision_recall" not in got.body


# -- summaries ---------------------------------------------------------------------------------------------------------

FOLDING = "hybrid(window=2, summarize_at=5, tail=2, summary_max_tokens=200, schedule=every-turn)"


@pytest.mark.parametrize("how", ["raises", "hangs", "says nothing"])
async def test_a_summarizer_that_fails(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests go out masked while nobody writes a summary; nothing waits for one that hangs."""
    released = threading.Event()

    def write(request: object) -> str:
        if how == "hangs":
            released.wait(60)
        if how == "raises":
            failing()
        return ""

    def open_with_it(options: Options) -> OpenedSession:
        opened = OpenedSession(options)
        opened.summary_runner.writer = write
        return opened

    monkeypatch.setattr(assembly, "OpenedSession", open_with_it)

    async with open_trial(strategy=FOLDING) as (_, upstream, client):
        for steps in range(4, 11):
            got = await asyncio.wait_for(
                client.request("POST", PATHS["openai"], make_body("openai", steps)), TIMEOUT_SECONDS
            )
            assert got.status == 200
        assert PLACEHOLDER_PART in upstream.requests[-1].body
        assert len(upstream.requests) == 7
        released.set()


# -- clients that go ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["the pass", "the provider", "the answer"])
async def test_a_client_that_goes(at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever its request is: the provider's answer goes with it, the session is whole, and its next try is served."""
    go_on, seen = asyncio.Event(), asyncio.Event()
    prepare = ContextManager.prepare_async

    async def slow(self: ContextManager, *arguments: Any, **named: Any) -> Any:
        seen.set()
        await go_on.wait()
        return await prepare(self, *arguments, **named)

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if at != "the pass" and not go_on.is_set():
            if at == "the answer":
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 999\r\n\r\ndata: ")
                await writer.drain()
            seen.set()
            await asyncio.Event().wait()
        await answer_soundly(asked, writer)

    async with open_trial(script) as (gateway, upstream, client):
        assert (
            (await client.request("POST", PATHS["openai"], make_body("openai", 0))).status == 200
            if go_on.is_set()
            else True
        )
        with monkeypatch.context() as patched:
            if at == "the pass":
                patched.setattr(ContextManager, "prepare_async", slow)
            leaving = await gateway.connect()
            leaving.send_request("POST", PATHS["openai"], make_body("openai", HIDING_STEPS))
            await asyncio.wait_for(seen.wait(), TIMEOUT_SECONDS)
            leaving.close()
            if at != "the pass":
                await asyncio.wait_for(upstream.connection_lost.wait(), TIMEOUT_SECONDS)
            while gateway.worker.app.limits.request_gate.in_use:
                await asyncio.sleep(0)
        go_on.set()
        assert len(upstream.requests) == (at != "the pass")
        for steps in (HIDING_STEPS, HIDING_STEPS + 1):
            assert (await client.request("POST", PATHS["openai"], make_body("openai", steps))).status == 200
            assert upstream.requests[-1].body.count(PLACEHOLDER_PART) == steps - 2
        infos = list(gateway.worker.store.sessions())
        assert [info.turns for info in infos] == [HIDING_STEPS + 1], "it is one session, whole"


async def test_a_framework_s_own_messages_pass_as_they_came(caplog: pytest.LogCaptureFixture) -> None:
    """The library refuses them; here the provider judges them, byte for byte, and the log says whose they are."""
    given = b'{"model": "gpt-5", "messages": [{"role": "user",  "parts": [{"text": "hi"}]}]}'

    async with open_trial() as (_, upstream, client):
        for _ in range(2):
            got = await client.request("POST", PATHS["openai"], given)
            assert (got.status, got.body) == (200, render_whole("openai"))
            assert upstream.requests[-1].body == given
    assert "messages[0] is a message of parts (Gemini, AI SDK); give " in caplog.text


async def test_a_reply_that_cannot_be_completed_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What fails after the last boundary closes the client's connection; it is not only the client that knows why."""
    async with open_trial(gateway_max_body_bytes=1_000_000) as (gateway, _, client):
        gateway.worker.app._listener = failing
        client.send_request("POST", PATHS["openai"], b"", length=10_000_000)
        assert (await client.read_response()).status == 500
        assert await asyncio.wait_for(client.reader.read(), TIMEOUT_SECONDS) == b""
    (logged,) = [each for each in caplog.records if "a reply could not be completed" in each.getMessage()]
    assert logged.exc_info is not None
    assert logged.exc_info[0] is ZeroDivisionError
