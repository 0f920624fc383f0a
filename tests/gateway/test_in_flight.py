"""Requests under way: two of one session at a time, one whose client leaves, and what is told of each at its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from elision.gateway.budgets import Budgets
from elision.gateway.identity import ClientIdentity
from elision.gateway.request_record import RequestRecord
from elision.providers.provider import Api
from elision.stores.memory import MemoryStore
from elision.trajectory.events import UsageReported
from tests.gateway.conversation_bytes import (
    APIS,
    EAGER,
    HIDING_STEPS,
    PATHS,
    PLACEHOLDER_PART,
    make_body,
    make_reply,
    render_frames,
    render_refusal,
    render_whole,
)
from tests.gateway.loopback_gateway import (
    TIMEOUT_SECONDS,
    HttpResponse,
    RunningGateway,
    make_settings,
    run_gateway,
    wait_until,
)
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    answer_always,
    render_chunk,
    render_response,
    run_scripted_upstream,
)

JSON = "content-type: application/json"


@asynccontextmanager
async def between(
    script: Script, **given: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream, list[RequestRecord]]]:
    """A gateway in front of `script`, and all that is told of served requests."""
    told: list[RequestRecord] = []
    usual = {"gateway_off": False, "strategy": EAGER}
    async with (
        run_scripted_upstream(script) as upstream,
        run_gateway(make_settings(upstream.url, **(usual | given))) as gateway,
    ):
        gateway.worker.app._listener = gateway.worker.gateway.proxy._listener = told.append
        yield gateway, upstream, told


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def ask(gateway: RunningGateway, raw: bytes, *fields: str, api: Any = "openai") -> HttpResponse:
    client = await gateway.connect()
    try:
        return await client.request("POST", PATHS[api], raw, JSON, *fields)
    finally:
        client.close()


class Held:
    """A step that is taken by the first who comes only when a test says so."""

    def __init__(self, then: Callable[..., Awaitable[Any]]) -> None:
        self.reached, self.go, self._then = asyncio.Event(), asyncio.Event(), then

    async def __call__(self, *given: Any, **named: Any) -> Any:
        if not self.reached.is_set():
            self.reached.set()
            await self.go.wait()
        return await self._then(*given, **named)


def test_two_requests_of_a_session_say_what_each_of_them_said() -> None:
    """A request that waits for its budget is not changed by the next one of its session, which overtakes it."""

    async def test() -> None:
        async with between(answer_always(render_response(render_whole("openai"), "200 OK", JSON))) as (
            gateway,
            upstream,
            _,
        ):
            budgets = gateway.worker.gateway.proxy.budgets
            budgets.limits_keys = True
            held = budgets.check_key = Held(budgets.check_key)  # type: ignore[method-assign]
            first = asyncio.ensure_future(ask(gateway, make_body("openai", 1)))
            await held.reached.wait()
            await ask(gateway, make_body("openai", 2))
            held.go.set()
            await first
            assert [asked.body for asked in upstream.requests] == [make_body("openai", 2), make_body("openai", 1)]
            assert len(gateway.worker.gateway.sessions) == 1

    run(test)


def test_usage_of_each_of_them_is_billed() -> None:
    """What the provider says of a call is noted for that call, though another of its session was made meanwhile."""

    async def test() -> None:
        first = asyncio.Event()
        reached = asyncio.Event()

        async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            if asked.body == make_body("openai", 1):
                reached.set()
                await first.wait()
            writer.write(render_response(render_whole("openai"), "200 OK", JSON))

        async with between(script) as (gateway, _, _told):
            early = asyncio.ensure_future(ask(gateway, make_body("openai", 1)))
            await reached.wait()
            await ask(gateway, make_body("openai", 2))
            first.set()
            await early
            await gateway.wait_until_stored()
            store = gateway.worker.store
            (info,) = store.sessions()
            noted = [event.call for event in store.events(info.key) if isinstance(event, UsageReported)]
            assert sorted(noted) == [2, 3]

    run(test)


def test_a_client_that_leaves_is_told_of_once() -> None:
    """A client that goes while the provider works is counted once, as gone, and its session is free again."""

    async def test() -> None:
        asked_for = asyncio.Event()

        async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            asked_for.set()
            await asyncio.Event().wait()

        async with between(script) as (gateway, upstream, told):
            for fields in ((), ("x-elision: off",)):
                asked_for.clear()
                client = await gateway.connect()
                client.send_request("POST", PATHS["openai"], make_body("openai", 1), JSON, *fields)
                await asked_for.wait()
                client.close()
                await upstream.connection_lost.wait()
                upstream.connection_lost.clear()
            await wait_until(lambda: len(told) == 2)
            assert [served.cause for served in told] == ["client-gone", "client-gone"]
            assert not any(
                live.requests_in_flight or live.requests_unanswered for live in gateway.worker.gateway.sessions
            )

    run(test)


@pytest.mark.parametrize("steps", [1, HIDING_STEPS])
@pytest.mark.parametrize("leaves", [False, True])
def test_usage_of_an_answer_that_broke_off_is_billed(leaves: bool, steps: int) -> None:
    """Whoever ends it, provider or client: what its beginning said of the prompt is in the log, and is told."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.writelines(render_chunk(each) for each in render_frames("anthropic")[:-2])
        await writer.drain()
        if leaves:
            await asyncio.Event().wait()
        writer.close()

    async def test() -> None:
        async with between(script) as (gateway, _, told):
            client = await gateway.connect()
            client.send_request("POST", PATHS["anthropic"], make_body("anthropic", steps, stream=True), JSON)
            await client.read_head()
            await client.read_chunk()
            client.close()
            await wait_until(lambda: told)
            store = gateway.worker.store
            events = [event for info in store.sessions() for event in store.events(info.key)]
            assert [event.usage.prompt for event in events if isinstance(event, UsageReported)] == [1_000]
            assert getattr(told[-1].usage, "prompt", 0) == 1_000

    run(test)


@pytest.mark.parametrize("api", APIS)
def test_usage_of_all_rounds_is_told(api: Any) -> None:
    """What a request was billed is what every request to the provider was that it took."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        looks = make_reply("I look.", [("r1", "elision_recall", {"handle": "t1.1"})])
        writer.write(
            render_response(render_whole(api, make_reply() if b"I look." in asked.body else looks), "200 OK", JSON)
        )

    async def test() -> None:
        async with between(script) as (gateway, _, told):
            await ask(gateway, make_body(api, HIDING_STEPS), api=api)
            await wait_until(lambda: told)
            assert told[-1].usage is not None
            assert (told[-1].rounds, told[-1].usage.prompt, told[-1].usage.output) == (2, 2_000, 40)

    run(test)


def test_a_bug_is_told_of_once() -> None:
    """A request in which we fail beyond mending is one request in the metrics, and the client hears of it."""

    async def test() -> None:
        async with between(answer_always(b"")) as (gateway, _, told):

            async def broken(*given: Any) -> Any:
                raise RuntimeError("a bug")

            gateway.worker.gateway.upstream.open = broken  # type: ignore[method-assign]
            for fields in ((), ("x-elision: off",)):
                assert (await ask(gateway, make_body("openai", 1), *fields)).status == 500
            assert [(served.cause, served.status) for served in told] == [("bug", 500)] * 2
            assert not any(
                live.requests_in_flight or live.requests_unanswered for live in gateway.worker.gateway.sessions
            )

    run(test)


@pytest.mark.parametrize("api", APIS)
def test_a_request_that_is_sent_twice(api: Any) -> None:
    """Where what we made of a request is refused both requests are counted, and what we added is counted once."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        gone = PLACEHOLDER_PART in asked.body
        writer.write(
            render_response(render_refusal(api, 400), "400 No", JSON)
            if gone
            else render_response(render_whole(api), "200 OK", JSON)
        )

    async def test() -> None:
        async with between(script) as (gateway, _, told):
            upstream, opened = gateway.worker.gateway.upstream, []
            plain = upstream.open

            async def noted(*given: Any) -> Any:
                opened.append(asyncio.get_running_loop().time())
                return await plain(*given)

            upstream.open = noted  # type: ignore[method-assign]
            assert (await ask(gateway, make_body(api, HIDING_STEPS), api=api)).status == 200
            await wait_until(lambda: told)
            (served,) = told
            assert (served.how, served.rounds, len(opened)) == ("failed", 2, 2)
            assert served.added_seconds <= served.total_seconds - (opened[1] - opened[0])

    run(test)


def test_a_session_that_was_left_alone_is_tried_again() -> None:
    """One odd refusal does not end all saving: after some requests that pass as they come it is tried again, after
    more of them where it is refused once more, and at once when the client goes another way."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        gone = PLACEHOLDER_PART in asked.body
        writer.write(
            render_response(render_refusal("openai", 400), "400 No", JSON)
            if gone
            else render_response(taken, "200 OK", JSON)
        )

    taken = render_whole("openai")

    async def test() -> None:
        async with between(script) as (gateway, upstream, _):
            tried = []
            for steps in range(HIDING_STEPS, HIDING_STEPS + 40):
                assert (await ask(gateway, make_body("openai", steps))).status == 200
                if PLACEHOLDER_PART in upstream.requests[-2 if len(upstream.requests) > 1 else -1].body:
                    tried.append(steps - HIDING_STEPS)
            assert tried == [0, 9, 26]
            count = len(upstream.requests)
            assert (await ask(gateway, make_body("openai", HIDING_STEPS))).status == 200
            assert PLACEHOLDER_PART in upstream.requests[count].body, "an undo takes away what was refused"

    run(test)


def test_who_a_request_is_of_is_no_prefix() -> None:
    """A request is read on from one of its own key's requests alone, whatever the keys' names begin with."""

    async def test() -> None:
        async with between(answer_always(render_response(render_whole("openai"), "200 OK", JSON))) as (
            gateway,
            _,
            _told,
        ):
            await ask(gateway, make_body("openai", 1))
            sessions = gateway.worker.gateway.sessions
            (live,) = sessions
            assert ClientIdentity(namespace=live.family).namespace == "anonymous"
            assert sessions.find_continued("anonymous", "openai", make_body("openai", 2)) is live
            assert sessions.find_continued("anon", "openai", make_body("openai", 2)) is None

    run(test)


def test_budgets_that_fail_stop_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in finding out what a key has spent, its request goes out."""

    async def test() -> None:
        given = {"gateway_key_max_turns": 5, "gateway_at_limit": "refuse"}
        async with between(answer_always(render_response(render_whole("openai"), "200 OK", JSON)), **given) as (
            gateway,
            _,
            told,
        ):

            def broken() -> Any:
                raise RuntimeError("a bug")

            gateway.worker.store.sessions = broken  # type: ignore[method-assign]
            assert (await ask(gateway, make_body("openai", 1))).status == 200
            await wait_until(lambda: told)
            assert [served.cause for served in told] == ["engine"]

    run(test)
    assert "what its key has spent failed" in caplog.text


def test_who_gives_up_does_not_have_a_bill_counted_twice() -> None:
    """A look into the store whose client is gone comes to its end before the next begins."""
    begun, go, looks = threading.Event(), threading.Event(), list[str]()

    class Slow(MemoryStore):
        def sessions(self, **asked: Any) -> Any:
            looks.append("begins")
            begun.set()
            go.wait(TIMEOUT_SECONDS)
            looks.append("ends")
            return super().sessions(**asked)

    async def test() -> None:
        found = Budgets(make_settings(gateway_key_max_turns=9), Slow(), on_store_error=lambda error: None)
        asking = asyncio.ensure_future(found.check_key("k1"))
        await asyncio.to_thread(begun.wait, TIMEOUT_SECONDS)
        asking.cancel()
        other = asyncio.ensure_future(found.check_key("k1"))
        await asyncio.wait({asking, other}, timeout=0)
        go.set()
        assert await other == ""
        # Two looks, each at what is done and at what is only tried.
        assert looks == ["begins", "ends"] * 4

    run(test)


def test_a_bug_in_the_midst_of_a_stream_is_said() -> None:
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

    async def test() -> None:
        raw = render_response(b"".join(render_frames("anthropic")), "200 OK", "content-type: text/event-stream")
        chunked = raw.replace(b"content-length", b"x-length").replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK")

        async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
            writer.write(chunked)
            writer.close()

        async with between(script) as (gateway, _, told):
            plain = gateway.worker.gateway.upstream.open

            async def breaking(*given: Any) -> Any:
                return Breaking(await plain(*given))

            gateway.worker.gateway.upstream.open = breaking  # type: ignore[method-assign]
            got = await ask(gateway, make_body("anthropic", 1, stream=True), api="anthropic")
            assert got.is_complete
            assert got.body.startswith(render_frames("anthropic")[0])
            assert b"event: error" in got.body
            assert [served.cause for served in told] == ["bug"]

    run(test)


def test_a_session_that_cannot_be_closed_keeps_no_other_open(caplog: pytest.LogCaptureFixture) -> None:
    """At the end every session is closed, whatever becomes of one."""

    async def test() -> None:
        async with between(answer_always(render_response(render_whole("openai"), "200 OK", JSON))) as (
            gateway,
            _,
            _told,
        ):
            for task in ("One.", "Two."):
                await ask(gateway, make_body("openai", 1, task=task))
            first, second = gateway.worker.gateway.sessions

            def broken() -> None:
                raise RuntimeError("a bug")

            first.context.close = broken  # type: ignore[method-assign]
        assert second.opened._is_closed

    run(test)
    assert "could not be closed" in caplog.text


@pytest.mark.parametrize("api", APIS)
def test_the_end_waits_for_the_store(api: Api) -> None:
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

    async def test() -> None:
        async with between(script) as (gateway, _, _told):
            client, other = await gateway.connect(), await gateway.connect()
            client.send_request("POST", PATHS[api], make_body(api, HIDING_STEPS, stream=True), JSON)
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
            client.close()
            other.close()

    run(test)
