"""Requests that go ahead: what is sent unchanged whatever is in it is looked at while the provider works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from elision.gateway.request_record import RequestRecord
from elision.manager import ContextManager
from elision.trajectory.events import RequestSent, UsageReported
from tests.gateway.conversation_bytes import APIS, EAGER, PATHS, make_body, render_refusal, render_whole
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
    render_response,
    run_scripted_upstream,
)

JSON = "content-type: application/json"


class Held:
    """Passes wait until a test lets them go on. begun: how many did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.begun, self.go, self.reached = 0, asyncio.Event(), asyncio.Event()
        plain = ContextManager.prepare_async

        async def prepare(context: ContextManager, *given: Any, **named: Any) -> Any:
            self.begun += 1
            self.reached.set()
            await self.go.wait()
            if error is not None:
                raise error
            return await plain(context, *given, **named)

        monkeypatch.setattr(ContextManager, "prepare_async", prepare)


class Front:
    """A gateway in front of a script. told: of served requests."""

    def __init__(self, gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
        self.gateway, self.upstream, self.told = gateway, upstream, list[RequestRecord]()
        gateway.worker.app._listener = gateway.worker.gateway.proxy._listener = self.told.append

    async def ask(self, raw: bytes, api: Any = "openai") -> HttpResponse:
        client = await self.gateway.connect()
        try:
            return await client.request("POST", PATHS[api], raw, JSON)
        finally:
            client.close()

    @property
    def log(self) -> list[tuple[str, int]]:
        """Calls and answers as the only session has them."""
        store = self.gateway.worker.store
        (info,) = store.sessions()
        kept = (event for event in store.events(info.key) if isinstance(event, RequestSent | UsageReported))
        return [(type(event).__name__, event.call) for event in kept]


def run(test: Callable[[Front], Awaitable[None]], script: Script | None = None, **given: Any) -> None:
    async def whole_test() -> None:
        usual = {"gateway_off": False, "strategy": EAGER}
        async with (
            run_scripted_upstream(
                script or answer_always(render_response(render_whole("openai"), "200 OK", JSON))
            ) as upstream,
            run_gateway(make_settings(upstream.url, **(usual | given))) as gateway,
        ):
            await test(Front(gateway, upstream))

    asyncio.run(whole_test())


@contextmanager
def no_haste(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The pass waits for the answer alone."""
    monkeypatch.setattr("elision.gateway.request_handler.PREPARE_WAIT_SECONDS", TIMEOUT_SECONDS)
    yield


@pytest.mark.parametrize("api", APIS)
def test_a_first_request_waits_for_nothing_of_ours(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has its whole answer before the request was looked at; the session's next request comes behind that,
    and the log has both calls in order, with what they were billed."""

    async def test(front: Front) -> None:
        held = Held(monkeypatch)
        got = await front.ask(make_body(api, 0), api)
        assert (got.status, got.body) == (200, render_whole(api))
        assert front.upstream.requests[0].body == make_body(api, 0)
        await held.reached.wait()
        following = asyncio.ensure_future(front.ask(make_body(api, 1), api))
        (live,) = front.gateway.worker.gateway.sessions
        await wait_until(lambda: live.requests_in_flight == 2)
        assert (held.begun, len(front.upstream.requests)) == (1, 1), "the second waits for the pass of the first"
        held.go.set()
        assert (await following).status == 200
        await wait_until(lambda: len(front.told) == 2)
        assert [(served.how, served.cause, len(served.step_diagnostics)) for served in front.told] == [
            ("same", "", 1)
        ] * 2
        assert front.log == [("RequestSent", 1), ("UsageReported", 1), ("RequestSent", 2), ("UsageReported", 2)]
        assert got.headers["x-elision-session"] == front.told[0].session == front.told[1].session

    run(test, answer_always(render_response(render_whole(api), "200 OK", JSON)))


def test_while_the_provider_works_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that takes its time is not waited for, and neither is its answer."""

    async def test(front: Front) -> None:
        held = Held(monkeypatch)
        held.go.set()
        asking = asyncio.ensure_future(front.ask(make_body("openai", 0)))
        await held.reached.wait()
        await wait_until(lambda: any(live.newest_diagnostics for live in front.gateway.worker.gateway.sessions))
        assert not asking.done()
        slow.set()
        assert (await asking).status == 200

    slow = asyncio.Event()

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await slow.wait()
        writer.write(render_response(render_whole("openai"), "200 OK", JSON))

    run(test, script)


def test_a_pass_that_fails_behind_the_answer(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """The client has its answer; it is told that we failed, and the session goes on."""

    async def test(front: Front) -> None:
        with monkeypatch.context() as broken:
            Held(broken, RuntimeError("a bug")).go.set()
            assert (await front.ask(make_body("openai", 0))).status == 200
            await wait_until(lambda: front.told)
        assert [(served.how, served.cause, served.status) for served in front.told] == [("failed", "prepare", 200)]
        assert (await front.ask(make_body("openai", 1))).status == 200
        await wait_until(lambda: len(front.told) == 2)
        assert front.log == [("RequestSent", 2), ("UsageReported", 2)]

    run(test)
    assert "prepare failed" in caplog.text


@pytest.mark.parametrize("status", [400, 401, 413, 429, 500, 529])
def test_a_refusal_is_the_providers(status: int) -> None:
    """What the provider says to a request that went ahead is the client's, word for word, and the call is kept."""
    told = render_refusal("openai", status)

    async def test(front: Front) -> None:
        got = await front.ask(make_body("openai", 0))
        assert (got.status, got.body) == (status, told)
        await wait_until(lambda: front.told)
        assert front.told[0].cause == f"upstream-{status}"
        assert front.log == [("RequestSent", 1)]
        assert len(front.upstream.requests) == 1

    run(test, answer_always(render_response(told, f"{status} No", JSON)))


def test_a_client_that_leaves_is_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that went ahead and whose client went away before it was looked at is a call all the same: it is
    billed."""

    async def test(front: Front) -> None:
        with no_haste(monkeypatch):
            client = await front.gateway.connect()
            client.send_request("POST", PATHS["openai"], make_body("openai", 0), JSON)
            await wait_until(lambda: front.upstream.requests)
            client.close()
            await wait_until(lambda: front.told)
        assert [served.cause for served in front.told] == ["client-gone"]
        assert front.log == [("RequestSent", 1)]
        assert not any(
            live.requests_in_flight or live.requests_unanswered for live in front.gateway.worker.gateway.sessions
        )

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    run(test, script)


@pytest.mark.parametrize(
    ("given", "ahead"),
    [
        ({}, [True, False, False]),
        ({"gateway_shadow": True}, [True, True, True]),
        ({"gateway_session_max_turns": 9}, [False, False, False]),
        ({"gateway_session_max_turns": 9, "gateway_shadow": True}, [False, False, False]),
    ],
    ids=str,
)
def test_which_go_ahead(given: dict[str, Any], ahead: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a session, and in shadow mode all of them; none where somebody must be asked first."""

    async def test(front: Front) -> None:
        found = []
        for steps in range(3):
            with monkeypatch.context() as patched:
                held = Held(patched)
                asking = asyncio.ensure_future(front.ask(make_body("openai", steps)))
                await held.reached.wait()
                found.append(await _is_answered(asking))
                held.go.set()
                assert (await asking).status == 200
                await wait_until(lambda steps=steps: len(front.told) == steps + 1)
        assert found == ahead

    with no_haste(monkeypatch):
        run(test, **given)


def test_the_name_that_the_client_is_told(tmp_path: Path) -> None:
    """It is the session's in the store, also where the store must be asked for it: behind a restart, and where the
    client went another way."""
    names: list[tuple[str, str]] = []

    async def test(front: Front) -> None:
        for steps in (0, 1, 2) if not names else (3, 4, 2, 3):
            before = len(front.told)
            got = await front.ask(make_body("openai", steps, word="other" if len(names) > 4 else "value"))
            await wait_until(lambda before=before: len(front.told) > before)
            names.append((got.headers["x-elision-session"], front.told[-1].session))
        kept = {info.key for info in front.gateway.worker.store.sessions()}
        assert {told for told, _ in names} == kept

    for _ in range(2):
        run(test, gateway_shadow=True, store=f"sqlite:///{tmp_path}/agents.db")
    assert all(told == served for told, served in names)
    assert len({told for told, _ in names[:5]}) == 1
    assert len({told for told, _ in names}) == 2


async def _is_answered(asking: asyncio.Future[HttpResponse]) -> bool:
    """Whether an answer comes while the pass is held: the loop's other work is done by then."""
    for _ in range(200):
        await asyncio.sleep(0)
    return asking.done()
