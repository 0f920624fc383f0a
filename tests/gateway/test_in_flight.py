"""Requests under way: two of one session at a time, one whose client leaves, and what is told of each at its end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from elision.gateway.budgets import Budgets
from elision.gateway.identity import Identity
from elision.gateway.routes import Api
from elision.gateway.served import Served
from elision.stores.memory import MemoryStore
from elision.trajectory.events import Answered
from tests.gateway.conversing import APIS, EAGER, ENOUGH, GAP, PATHS, body, frames, refused, reply, whole
from tests.gateway.running import PATIENCE, Gateway, Got, running, settings
from tests.gateway.scripted import Asked, Script, Scripted, always, answer, chunk, scripted

JSON = "content-type: application/json"


@asynccontextmanager
async def between(script: Script, **given: Any) -> AsyncIterator[tuple[Gateway, Scripted, list[Served]]]:
    """A gateway in front of `script`, and all that is told of served requests."""
    told: list[Served] = []
    usual = {"gateway_off": False, "strategy": EAGER}
    async with scripted(script) as upstream, running(settings(upstream.url, **(usual | given))) as gateway:
        gateway.worker.app._watch = gateway.worker.door.proxy._watch = told.append
        yield gateway, upstream, told


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


async def ask(gateway: Gateway, raw: bytes, *fields: str, api: Any = "openai") -> Got:
    client = await gateway.connect()
    try:
        return await client.ask("POST", PATHS[api], raw, JSON, *fields)
    finally:
        client.close()


async def until(holds: Callable[[], object]) -> None:
    """Let others go on until it holds."""
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0)


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
        async with between(always(answer(whole("openai"), "200 OK", JSON))) as (gateway, upstream, _):
            budgets = gateway.worker.door.proxy.budgets
            held = budgets.of_key = Held(budgets.of_key)  # type: ignore[method-assign]
            first = asyncio.ensure_future(ask(gateway, body("openai", 1)))
            await held.reached.wait()
            await ask(gateway, body("openai", 2))
            held.go.set()
            await first
            assert [asked.body for asked in upstream.asked] == [body("openai", 2), body("openai", 1)]
            assert len(gateway.worker.door.sessions) == 1

    run(test)


def test_usage_of_each_of_them_is_billed() -> None:
    """What the provider says of a call is noted for that call, though another of its session was made meanwhile."""

    async def test() -> None:
        first = asyncio.Event()
        reached = asyncio.Event()

        async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
            if asked.body == body("openai", 1):
                reached.set()
                await first.wait()
            writer.write(answer(whole("openai"), "200 OK", JSON))

        async with between(script) as (gateway, _, _told):
            early = asyncio.ensure_future(ask(gateway, body("openai", 1)))
            await reached.wait()
            await ask(gateway, body("openai", 2))
            first.set()
            await early
            await until(lambda: not any(live.flying for live in gateway.worker.door.sessions))
            store = gateway.worker.store
            (info,) = store.sessions()
            noted = [event.call for event in store.events(info.key) if isinstance(event, Answered)]
            assert sorted(noted) == [2, 3]

    run(test)


def test_a_client_that_leaves_is_told_of_once() -> None:
    """A client that goes while the provider works is counted once, as gone, and its session is free again."""

    async def test() -> None:
        asked_for = asyncio.Event()

        async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
            asked_for.set()
            await asyncio.Event().wait()

        async with between(script) as (gateway, upstream, told):
            for fields in ((), ("x-elision: off",)):
                asked_for.clear()
                client = await gateway.connect()
                client.send("POST", PATHS["openai"], body("openai", 1), JSON, *fields)
                await asked_for.wait()
                client.close()
                await upstream.lost.wait()
                upstream.lost.clear()
            await until(lambda: len(told) == 2)
            assert [served.cause for served in told] == ["client-gone", "client-gone"]
            assert not any(live.flying or live.asking for live in gateway.worker.door.sessions)

    run(test)


@pytest.mark.parametrize("steps", [1, ENOUGH])
@pytest.mark.parametrize("leaves", [False, True])
def test_usage_of_an_answer_that_broke_off_is_billed(leaves: bool, steps: int) -> None:
    """Whoever ends it, provider or client: what its beginning said of the prompt is in the log, and is told."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.writelines(chunk(each) for each in frames("anthropic")[:-2])
        await writer.drain()
        if leaves:
            await asyncio.Event().wait()
        writer.close()

    async def test() -> None:
        async with between(script) as (gateway, _, told):
            client = await gateway.connect()
            client.send("POST", PATHS["anthropic"], body("anthropic", steps, stream=True), JSON)
            await client.head()
            await client.chunk()
            client.close()
            await until(lambda: told)
            store = gateway.worker.store
            events = [event for info in store.sessions() for event in store.events(info.key)]
            assert [event.usage.prompt for event in events if isinstance(event, Answered)] == [1_000]
            assert getattr(told[-1].usage, "prompt", 0) == 1_000

    run(test)


@pytest.mark.parametrize("api", APIS)
def test_usage_of_all_rounds_is_told(api: Any) -> None:
    """What a request was billed is what every request to the provider was that it took."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        looks = reply("I look.", [("r1", "elision_recall", {"handle": "t1.1"})])
        writer.write(answer(whole(api, reply() if b"I look." in asked.body else looks), "200 OK", JSON))

    async def test() -> None:
        async with between(script) as (gateway, _, told):
            await ask(gateway, body(api, ENOUGH), api=api)
            await until(lambda: told)
            assert told[-1].usage is not None
            assert (told[-1].rounds, told[-1].usage.prompt, told[-1].usage.output) == (2, 2_000, 40)

    run(test)


def test_a_bug_is_told_of_once() -> None:
    """A request in which we fail beyond mending is one request in the metrics, and the client hears of it."""

    async def test() -> None:
        async with between(always(b"")) as (gateway, _, told):

            async def broken(*given: Any) -> Any:
                raise RuntimeError("a bug")

            gateway.worker.door.upstream.open = broken  # type: ignore[method-assign]
            for fields in ((), ("x-elision: off",)):
                assert (await ask(gateway, body("openai", 1), *fields)).status == 500
            assert [(served.cause, served.status) for served in told] == [("bug", 500)] * 2
            assert not any(live.flying or live.asking for live in gateway.worker.door.sessions)

    run(test)


@pytest.mark.parametrize("api", APIS)
def test_a_request_that_is_sent_twice(api: Any) -> None:
    """Where what we made of a request is refused both requests are counted, and what we added is counted once."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        gone = GAP in asked.body
        writer.write(answer(refused(api, 400), "400 No", JSON) if gone else answer(whole(api), "200 OK", JSON))

    async def test() -> None:
        async with between(script) as (gateway, _, told):
            upstream, opened = gateway.worker.door.upstream, []
            plain = upstream.open

            async def noted(*given: Any) -> Any:
                opened.append(asyncio.get_running_loop().time())
                return await plain(*given)

            upstream.open = noted  # type: ignore[method-assign]
            assert (await ask(gateway, body(api, ENOUGH), api=api)).status == 200
            await until(lambda: told)
            (served,) = told
            assert (served.how, served.rounds, len(opened)) == ("failed", 2, 2)
            assert served.added <= served.whole - (opened[1] - opened[0])

    run(test)


def test_a_session_that_was_left_alone_is_tried_again() -> None:
    """One odd refusal does not end all saving: after some requests that pass as they come it is tried again, after
    more of them where it is refused once more, and at once when the client goes another way."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        gone = GAP in asked.body
        writer.write(answer(refused("openai", 400), "400 No", JSON) if gone else answer(taken, "200 OK", JSON))

    taken = whole("openai")

    async def test() -> None:
        async with between(script) as (gateway, upstream, _):
            tried = []
            for steps in range(ENOUGH, ENOUGH + 40):
                assert (await ask(gateway, body("openai", steps))).status == 200
                if GAP in upstream.asked[-2 if len(upstream.asked) > 1 else -1].body:
                    tried.append(steps - ENOUGH)
            assert tried == [0, 9, 26]
            count = len(upstream.asked)
            assert (await ask(gateway, body("openai", ENOUGH))).status == 200
            assert GAP in upstream.asked[count].body, "an undo takes away what was refused"

    run(test)


def test_who_a_request_is_of_is_no_prefix() -> None:
    """A request is read on from one of its own key's requests alone, whatever the keys' names begin with."""

    async def test() -> None:
        async with between(always(answer(whole("openai"), "200 OK", JSON))) as (gateway, _, _told):
            await ask(gateway, body("openai", 1))
            sessions = gateway.worker.door.sessions
            (live,) = sessions
            assert Identity(namespace=live.family).namespace == "anonymous"
            assert sessions.before("anonymous", "openai", body("openai", 2)) is live
            assert sessions.before("anon", "openai", body("openai", 2)) is None

    run(test)


def test_budgets_that_fail_stop_nobody(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever goes wrong in finding out what a key has spent, its request goes out."""

    async def test() -> None:
        given = {"gateway_key_max_turns": 5, "gateway_at_limit": "refuse"}
        async with between(always(answer(whole("openai"), "200 OK", JSON)), **given) as (gateway, _, told):

            def broken() -> Any:
                raise RuntimeError("a bug")

            gateway.worker.store.sessions = broken  # type: ignore[method-assign]
            assert (await ask(gateway, body("openai", 1))).status == 200
            await until(lambda: told)
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
            go.wait(PATIENCE)
            looks.append("ends")
            return super().sessions(**asked)

    async def test() -> None:
        found = Budgets(settings(gateway_key_max_turns=9), Slow(), unread=lambda error: None)
        asking = asyncio.ensure_future(found.of_key("k1"))
        await asyncio.to_thread(begun.wait, PATIENCE)
        asking.cancel()
        other = asyncio.ensure_future(found.of_key("k1"))
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
            self._answer, self.status, self.headers, self.header = answer, answer.status, answer.headers, answer.header

        async def chunks(self) -> AsyncIterator[bytes]:
            yield frames("anthropic")[0]
            raise RuntimeError("a bug")

        async def __aenter__(self) -> Breaking:
            return self

        async def __aexit__(self, *given: Any) -> None:
            await self._answer.close()

    async def test() -> None:
        raw = answer(b"".join(frames("anthropic")), "200 OK", "content-type: text/event-stream")
        chunked = raw.replace(b"content-length", b"x-length").replace(b"HTTP/1.1 200 OK", b"HTTP/1.0 200 OK")

        async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
            writer.write(chunked)
            writer.close()

        async with between(script) as (gateway, _, told):
            plain = gateway.worker.door.upstream.open

            async def breaking(*given: Any) -> Any:
                return Breaking(await plain(*given))

            gateway.worker.door.upstream.open = breaking  # type: ignore[method-assign]
            got = await ask(gateway, body("anthropic", 1, stream=True), api="anthropic")
            assert got.whole
            assert got.body.startswith(frames("anthropic")[0])
            assert b"event: error" in got.body
            assert [served.cause for served in told] == ["bug"]

    run(test)


def test_a_session_that_cannot_be_closed_keeps_no_other_open(caplog: pytest.LogCaptureFixture) -> None:
    """At the end every session is closed, whatever becomes of one."""

    async def test() -> None:
        async with between(always(answer(whole("openai"), "200 OK", JSON))) as (gateway, _, _told):
            for task in ("One.", "Two."):
                await ask(gateway, body("openai", 1, task=task))
            first, second = gateway.worker.door.sessions

            def broken() -> None:
                raise RuntimeError("a bug")

            first.context.close = broken  # type: ignore[method-assign]
        assert second.context._closed

    run(test)
    assert "could not be closed" in caplog.text


@pytest.mark.parametrize("api", APIS)
def test_the_end_waits_for_the_store(api: Api) -> None:
    """Behind a recall a client reads no end, however the answer is cut, before what it was not shown is written."""
    began, turns, recalled = asyncio.Event(), asyncio.Queue[None](), [("r1", "elision_recall", {"handle": "t1.1"})]
    ends = (b"message_stop", b'"stop_reason": "end_turn"', b"response.completed", b'"finish_reason": "stop"')

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        last = b"r1" in asked.body
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n")
        for frame in frames(api, None if last else reply("", recalled)):
            if last:
                began.set()
                await turns.get()
            writer.write(chunk(frame))
        if last:
            await turns.get()
        writer.write(chunk(b""))

    async def test() -> None:
        async with between(script) as (gateway, _, _told):
            client, other = await gateway.connect(), await gateway.connect()
            client.send("POST", PATHS[api], body(api, ENOUGH, stream=True), JSON)
            await client.head()
            await asyncio.wait_for(began.wait(), PATIENCE)
            for _ in frames(api):
                turns.put_nowait(None)
                for _ in range(3):
                    # Meanwhile it is read here what the provider said there.
                    assert (await other.ask("GET", "/healthz")).status == 200
            got = bytes(client.reader._buffer)  # type: ignore[attr-defined]
            assert b"All is done" in got
            assert not any(end in got for end in ends)
            turns.put_nowait(None)
            got = b""
            while part := await client.chunk():
                got += part
            assert any(end in got for end in ends)
            client.close()
            other.close()

    run(test)
