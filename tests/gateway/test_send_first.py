"""Requests that go ahead: what is sent unchanged whatever is in it is looked at while the provider works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from elision.manager import ContextManager
from elision.providers.provider import Api
from elision.trajectory.events import RequestSent, UsageReported
from tests.gateway.conversation_bytes import APIS, PATHS, make_body, render_refusal, render_whole
from tests.gateway.gateway_trial import JSON_HEADER, answer_soundly, open_trial, render_sound
from tests.gateway.loopback_gateway import TIMEOUT_SECONDS, HttpResponse, RunningGateway, wait_until
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    answer_always,
    render_response,
)


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
    """A gateway in front of a script. told: records of served requests."""

    def __init__(self, gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
        self.gateway, self.upstream, self.told = gateway, upstream, gateway.records

    async def ask(self, raw: bytes, api: Api = "openai") -> HttpResponse:
        return await self.gateway.ask(raw, api=api)

    @property
    def log(self) -> list[tuple[str, int]]:
        """Calls and answers as the only session has them."""
        store = self.gateway.worker.store
        (info,) = store.sessions()
        kept = (event for event in store.events(info.key) if isinstance(event, RequestSent | UsageReported))
        return [(type(event).__name__, event.call) for event in kept]


@asynccontextmanager
async def open_front(script: Script = answer_soundly, **given: Any) -> AsyncIterator[Front]:
    async with open_trial(script, **given) as (gateway, upstream, _):
        yield Front(gateway, upstream)


@pytest.fixture
def no_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pass waits for the answer alone."""
    monkeypatch.setattr("elision.gateway.request_handler.PREPARE_WAIT_SECONDS", TIMEOUT_SECONDS)


@pytest.mark.parametrize("api", APIS)
async def test_a_first_request_waits_for_nothing_of_ours(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has its whole answer before the request was looked at; the session's next request comes behind that,
    and the log has both calls in order, with what they were billed."""
    async with open_front() as front:
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


async def test_while_the_provider_works_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that takes its time is not waited for, and neither is its answer."""
    slow = asyncio.Event()

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await slow.wait()
        writer.write(render_sound(asked))

    async with open_front(script) as front:
        held = Held(monkeypatch)
        held.go.set()
        asking = asyncio.ensure_future(front.ask(make_body("openai", 0)))
        await held.reached.wait()
        await wait_until(lambda: any(live.newest_diagnostics for live in front.gateway.worker.gateway.sessions))
        assert not asking.done()
        slow.set()
        assert (await asking).status == 200


async def test_a_pass_that_fails_behind_the_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client has its answer; it is told that we failed, and the session goes on."""
    async with open_front() as front:
        with monkeypatch.context() as broken:
            Held(broken, RuntimeError("a bug")).go.set()
            assert (await front.ask(make_body("openai", 0))).status == 200
            await wait_until(lambda: front.told)
        assert [(served.how, served.cause, served.status) for served in front.told] == [("failed", "prepare", 200)]
        assert (await front.ask(make_body("openai", 1))).status == 200
        await wait_until(lambda: len(front.told) == 2)
        assert front.log == [("RequestSent", 2), ("UsageReported", 2)]
    assert "prepare failed" in caplog.text


@pytest.mark.parametrize("status", [400, 413, 529])
async def test_a_refusal_is_the_providers(status: int) -> None:
    """What the provider says to a request that went ahead is the client's, word for word, and the call is kept."""
    told = render_refusal("openai", status)

    async with open_front(answer_always(render_response(told, f"{status} No", JSON_HEADER))) as front:
        got = await front.ask(make_body("openai", 0))
        assert (got.status, got.body) == (status, told)
        await wait_until(lambda: front.told)
        assert front.told[0].cause == f"upstream-{status}"
        assert front.log == [("RequestSent", 1)]
        assert len(front.upstream.requests) == 1


@pytest.mark.usefixtures("no_haste")
async def test_a_client_that_leaves_is_in_the_log() -> None:
    """A request that went ahead and whose client went away before it was looked at is a call all the same: it is
    billed."""
    async with open_front(answer_always(b"", "silent")) as front:
        client = await front.gateway.connect()
        client.send_request("POST", PATHS["openai"], make_body("openai", 0), JSON_HEADER)
        await wait_until(lambda: front.upstream.requests)
        client.close()
        await wait_until(lambda: front.told)
        assert [served.cause for served in front.told] == ["client-gone"]
        assert front.log == [("RequestSent", 1)]
        assert not any(
            live.requests_in_flight or live.requests_unanswered for live in front.gateway.worker.gateway.sessions
        )


@pytest.mark.usefixtures("no_haste")
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
async def test_which_go_ahead(given: dict[str, Any], ahead: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of a session, and in shadow mode all of them; none where somebody must be asked first."""
    found = []
    async with open_front(**given) as front:
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


async def test_the_name_that_the_client_is_told(tmp_path: Path) -> None:
    """It is the session's in the store, also where the store must be asked for it: behind a restart, and where the
    client went another way."""
    names: list[tuple[str, str]] = []
    for each in ((0, 1, 2), (3, 4, 2, 3)):
        async with open_front(gateway_shadow=True, store=f"sqlite:///{tmp_path}/agents.db") as front:
            for steps in each:
                before = len(front.told)
                got = await front.ask(make_body("openai", steps, word="other" if len(names) > 4 else "value"))
                await wait_until(lambda before=before: len(front.told) > before)
                names.append((got.headers["x-elision-session"], front.told[-1].session))
            kept = {info.key for info in front.gateway.worker.store.sessions()}
            assert {told for told, _ in names} == kept
    assert all(told == served for told, served in names)
    assert len({told for told, _ in names[:5]}) == 1
    assert len({told for told, _ in names}) == 2


async def _is_answered(asking: asyncio.Future[HttpResponse]) -> bool:
    """Whether an answer comes while the pass is held: the loop's other work is done by then."""
    for _ in range(200):
        await asyncio.sleep(0)
    return asking.done()
