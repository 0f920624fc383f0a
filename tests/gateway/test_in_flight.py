"""Requests under way: two of one session at a time, one whose client leaves, and what is told of each at its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from elision.gateway.budgets import Budgets
from elision.gateway.identity import ClientIdentity
from elision.providers.provider import Api
from elision.stores.memory import MemoryStore
from elision.trajectory.events import UsageReported
from tests.gateway.conversation_bytes import (
    APIS,
    HIDING_STEPS,
    PATHS,
    PLACEHOLDER_PART,
    make_body,
    make_reply,
    render_frames,
)
from tests.gateway.gateway_trial import JSON_HEADER, open_trial, recall_first, refuse_edited, render_sound
from tests.gateway.loopback_gateway import TIMEOUT_SECONDS, make_settings, wait_until
from tests.gateway.scripted_upstream import ReceivedRequest, answer_always, render_chunk, render_response


class Held:
    """A step that is taken by the first who comes only when a test says so."""

    def __init__(self, then: Callable[..., Awaitable[Any]]) -> None:
        self.reached, self.go, self._then = asyncio.Event(), asyncio.Event(), then

    async def __call__(self, *given: Any, **named: Any) -> Any:
        if not self.reached.is_set():
            self.reached.set()
            await self.go.wait()
        return await self._then(*given, **named)


async def test_two_requests_of_a_session_say_what_each_of_them_said() -> None:
    """A request that waits for its budget is not changed by the next one of its session, which overtakes it."""
    async with open_trial() as (gateway, upstream, _):
        budgets = gateway.worker.gateway.proxy.budgets
        budgets.limits_keys = True
        held = budgets.check_key = Held(budgets.check_key)  # type: ignore[method-assign]
        first = asyncio.ensure_future(gateway.ask(make_body("openai", 1)))
        await held.reached.wait()
        await gateway.ask(make_body("openai", 2))
        held.go.set()
        await first
        assert [asked.body for asked in upstream.requests] == [make_body("openai", 2), make_body("openai", 1)]
        assert len(gateway.worker.gateway.sessions) == 1


async def test_usage_of_each_of_them_is_billed() -> None:
    """What the provider says of a call is noted for that call, though another of its session was made meanwhile."""
    first = asyncio.Event()
    reached = asyncio.Event()

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if asked.body == make_body("openai", 1):
            reached.set()
            await first.wait()
        writer.write(render_sound(asked))

    async with open_trial(script) as (gateway, *_):
        early = asyncio.ensure_future(gateway.ask(make_body("openai", 1)))
        await reached.wait()
        await gateway.ask(make_body("openai", 2))
        first.set()
        await early
        await gateway.wait_until_stored()
        store = gateway.worker.store
        (info,) = store.sessions()
        noted = [event.call for event in store.events(info.key) if isinstance(event, UsageReported)]
        assert sorted(noted) == [2, 3]


async def test_a_client_that_leaves_is_told_of_once() -> None:
    """A client that goes while the provider works is counted once, as gone, and its session is free again."""
    async with open_trial(answer_always(b"", "silent")) as (gateway, upstream, client):
        for count, fields in enumerate(((), ("x-elision: off",)), 1):
            client = await gateway.connect()
            client.send_request("POST", PATHS["openai"], make_body("openai", 1), JSON_HEADER, *fields)
            await wait_until(lambda count=count: len(upstream.requests) == count)
            client.close()
            await upstream.connection_lost.wait()
            upstream.connection_lost.clear()
        await wait_until(lambda: len(gateway.records) == 2)
        assert [served.cause for served in gateway.records] == ["client-gone", "client-gone"]
        assert not any(live.requests_in_flight or live.requests_unanswered for live in gateway.worker.gateway.sessions)


@pytest.mark.parametrize("steps", [1, HIDING_STEPS])
@pytest.mark.parametrize("leaves", [False, True])
async def test_usage_of_an_answer_that_broke_off_is_billed(leaves: bool, steps: int) -> None:
    """Whoever ends it, provider or client: what its beginning said of the prompt is in the log, and on its record."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    begun = head + b"".join(map(render_chunk, render_frames("anthropic")[:-2]))
    async with open_trial(answer_always(begun, "silent" if leaves else "close")) as (gateway, _, client):
        client.send_request("POST", PATHS["anthropic"], make_body("anthropic", steps, stream=True), JSON_HEADER)
        await client.read_head()
        await client.read_chunk()
        client.close()
        await wait_until(lambda: gateway.records)
        store = gateway.worker.store
        events = [event for info in store.sessions() for event in store.events(info.key)]
        assert [event.usage.prompt for event in events if isinstance(event, UsageReported)] == [1_000]
        assert getattr(gateway.records[-1].usage, "prompt", 0) == 1_000


@pytest.mark.parametrize("api", APIS)
async def test_usage_of_all_rounds_is_told(api: Any) -> None:
    """What a request was billed is what every request to the provider was that it took."""
    async with open_trial(answer_always(recall_first)) as (gateway, *_):
        await gateway.ask(make_body(api, HIDING_STEPS), api=api)
        await wait_until(lambda: gateway.records)
        (served,) = gateway.records
        assert served.usage is not None
        assert (served.rounds, served.usage.prompt, served.usage.output) == (2, 2_000, 40)


async def test_a_bug_is_told_of_once() -> None:
    """A request in which we fail beyond mending is one request in the metrics, and the client hears of it."""
    async with open_trial(answer_always(b"")) as (gateway, *_):

        async def broken(*given: Any) -> Any:
            raise RuntimeError("a bug")

        gateway.worker.gateway.upstream.open = broken  # type: ignore[method-assign]
        for fields in ((), ("x-elision: off",)):
            assert (await gateway.ask(make_body("openai", 1), *fields)).status == 500
        assert [(served.cause, served.status) for served in gateway.records] == [("bug", 500)] * 2
        assert not any(live.requests_in_flight or live.requests_unanswered for live in gateway.worker.gateway.sessions)


@pytest.mark.parametrize("api", APIS)
async def test_a_request_that_is_sent_twice(api: Any) -> None:
    """Where what we made of a request is refused both requests are counted, and what we added is counted once."""
    async with open_trial(answer_always(refuse_edited)) as (gateway, *_):
        outgoing, opened = gateway.worker.gateway.upstream, []
        plain = outgoing.open

        async def noted(*given: Any) -> Any:
            opened.append(asyncio.get_running_loop().time())
            return await plain(*given)

        outgoing.open = noted  # type: ignore[method-assign]
        assert (await gateway.ask(make_body(api, HIDING_STEPS), api=api)).status == 200
        await wait_until(lambda: gateway.records)
        (served,) = gateway.records
        assert (served.how, served.rounds, len(opened)) == ("failed", 2, 2)
        assert served.added_seconds <= served.total_seconds - (opened[1] - opened[0])


async def test_a_session_that_was_left_alone_is_tried_again() -> None:
    """One odd refusal does not end all saving: after some requests that pass as they come it is tried again, after
    more of them where it is refused once more, and at once when the client goes another way."""
    async with open_trial(answer_always(refuse_edited)) as (gateway, upstream, _):
        tried = []
        for steps in range(HIDING_STEPS, HIDING_STEPS + 40):
            assert (await gateway.ask(make_body("openai", steps))).status == 200
            if PLACEHOLDER_PART in upstream.requests[-2 if len(upstream.requests) > 1 else -1].body:
                tried.append(steps - HIDING_STEPS)
        assert tried == [0, 9, 26]
        count = len(upstream.requests)
        assert (await gateway.ask(make_body("openai", HIDING_STEPS))).status == 200
        assert PLACEHOLDER_PART in upstream.requests[count].body, "an undo takes away what was refused"


async def test_who_a_request_is_of_is_no_prefix() -> None:
    """A request is read on from one of its own key's requests alone, whatever the keys' names begin with."""
    async with open_trial() as (gateway, *_):
        await gateway.ask(make_body("openai", 1))
        sessions = gateway.worker.gateway.sessions
        (live,) = sessions
        assert ClientIdentity(namespace=live.family).namespace == "anonymous"
        assert sessions.find_continued("anonymous", "openai", make_body("openai", 2)) is live
        assert sessions.find_continued("anon", "openai", make_body("openai", 2)) is None


async def test_budgets_that_fail_stop_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in finding out what a key has spent, its request goes out."""
    given = {"gateway_key_max_turns": 5, "gateway_at_limit": "refuse"}
    async with open_trial(**given) as (gateway, *_):

        def broken() -> Any:
            raise RuntimeError("a bug")

        gateway.worker.store.sessions = broken  # type: ignore[method-assign]
        assert (await gateway.ask(make_body("openai", 1))).status == 200
        await wait_until(lambda: gateway.records)
        assert [served.cause for served in gateway.records] == ["engine"]
    assert "what its key has spent failed" in caplog.text


async def test_who_gives_up_does_not_have_a_bill_counted_twice() -> None:
    """A look into the store whose client is gone comes to its end before the next begins."""
    begun, go, looks = threading.Event(), threading.Event(), list[str]()

    class Slow(MemoryStore):
        def sessions(self, **asked: Any) -> Any:
            looks.append("begins")
            begun.set()
            go.wait(TIMEOUT_SECONDS)
            looks.append("ends")
            return super().sessions(**asked)

    found = Budgets(make_settings(gateway_key_max_turns=9), Slow())
    asking = asyncio.ensure_future(found.check_key("k1"))
    await asyncio.to_thread(begun.wait, TIMEOUT_SECONDS)
    asking.cancel()
    other = asyncio.ensure_future(found.check_key("k1"))
    await asyncio.wait({asking, other}, timeout=0)
    go.set()
    assert await other == ""
    # Two looks, each at what is done and at what is only tried.
    assert looks == ["begins", "ends"] * 4


async def test_a_bug_in_the_midst_of_a_stream_is_said() -> None:
    """A stream that we break off ends with an error event of its API, not in silence."""

    class Breaking:
        def __init__(self, answer: Any) -> None:
            self._answer, self.status, self.headers = answer, answer.status, answer.headers
            self.content_type, self.content_encoding = answer.content_type, answer.content_encoding
            self.is_event_stream = answer.is_event_stream

        async def iter_chunks(self) -> AsyncIterator[bytes]:
            yield render_frames("anthropic")[0]
            raise RuntimeError("a bug")

        async def __aenter__(self) -> Breaking:
            return self

        async def __aexit__(self, *given: Any) -> None:
            await self._answer.close()

    raw = render_response(b"".join(render_frames("anthropic")), "200 OK", "content-type: text/event-stream")
    chunked = raw.replace(b"content-length", b"x-length").replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK")

    async with open_trial(answer_always(chunked, "close")) as (gateway, *_):
        plain = gateway.worker.gateway.upstream.open

        async def breaking(*given: Any) -> Any:
            return Breaking(await plain(*given))

        gateway.worker.gateway.upstream.open = breaking  # type: ignore[method-assign]
        got = await gateway.ask(make_body("anthropic", 1, stream=True), api="anthropic")
        assert got.is_complete
        assert got.body.startswith(render_frames("anthropic")[0])
        assert b"event: error" in got.body
        assert [served.cause for served in gateway.records] == ["bug"]


async def test_a_session_that_cannot_be_closed_keeps_no_other_open(caplog: pytest.LogCaptureFixture) -> None:
    """At the end every session is closed, whatever becomes of one."""
    async with open_trial() as (gateway, *_):
        for task in ("One.", "Two."):
            await gateway.ask(make_body("openai", 1, task=task))
        first, second = gateway.worker.gateway.sessions

        def broken() -> None:
            raise RuntimeError("a bug")

        first.context.close = broken  # type: ignore[method-assign]
    assert second.opened._is_closed
    assert "could not be closed" in caplog.text


@pytest.mark.parametrize("api", APIS)
async def test_the_end_waits_for_the_store(api: Api) -> None:
    """Behind a recall a client reads no end, however the answer is cut, before what it was not shown is written."""
    began, turns, recalled = asyncio.Event(), asyncio.Queue[None](), [("r1", "elision_recall", {"handle": "t1.1"})]
    ends = (b"message_stop", b'"stop_reason": "end_turn"', b"response.completed", b'"finish_reason": "stop"')

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        last = b"r1" in asked.body
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n")
        for frame in render_frames(api, None if last else make_reply("", recalled)):
            if last:
                began.set()
                await turns.get()
            writer.write(render_chunk(frame))
        if last:
            await turns.get()
        writer.write(render_chunk(b""))

    async with open_trial(script) as (gateway, _, client):
        other = await gateway.connect()
        client.send_request("POST", PATHS[api], make_body(api, HIDING_STEPS, stream=True), JSON_HEADER)
        await client.read_head()
        await asyncio.wait_for(began.wait(), TIMEOUT_SECONDS)
        for _ in render_frames(api):
            turns.put_nowait(None)
            for _ in range(3):
                # Meanwhile it is read here what the provider said there.
                assert (await other.request("GET", "/healthz")).status == 200
        got = bytes(client.reader._buffer)  # type: ignore[attr-defined]
        assert b"All is done" in got
        assert not any(end in got for end in ends)
        turns.put_nowait(None)
        got = b""
        while part := await client.read_chunk():
            got += part
        assert any(end in got for end in ends)
        other.close()
