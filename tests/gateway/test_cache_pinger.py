"""Keep-alive requests in pauses: as many as are planned, billed, ended by the next request and by the end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from elision.errors import LimitError
from elision.gateway.budgets import Budgets
from elision.gateway.cache_pinger import CachePinger, make_ping
from elision.gateway.live_sessions import LiveSession
from elision.manager import ContextManager
from elision.providers.provider import Api
from elision.trajectory.events import CachePinged
from tests.gateway.loopback_gateway import RunningGateway, make_settings, run_gateway, wait_until
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    ScriptedUpstream,
    render_response,
    run_scripted_upstream,
)
from tests.manager.agents import make_history

MARK = {"type": "ephemeral"}
#: Seconds before calls: pauses that are too rare for an hour.
RARE_PAUSES = [0.0, *[10.0] * 12, 400.0, *[10.0] * 12, 400.0, *[10.0] * 3]
JSON = "content-type: application/json"


class Pauses:
    """Time that a test lets pass. asked: what the pinger waited for, in seconds; each wait ends when `go` is set."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0
        self.asked: list[float] = []
        self.go = asyncio.Event()

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self.go.wait()
        self.now += seconds


class Trial:
    """A gateway whose sessions live in the time of `pauses`, an upstream, and one agent."""

    def __init__(self, gateway: RunningGateway, upstream: ScriptedUpstream) -> None:
        self.gateway, self.upstream, self.pauses, self.step = gateway, upstream, Pauses(), 0
        whole = gateway.worker.gateway
        make_context = whole.sessions._make_context

        def make_timed(name: str, family: str, api: Api, model: str) -> ContextManager:
            made = make_context(name, family, api, model)
            return ContextManager.from_checked(replace(made.options, clock=self.pauses.read))

        whole.sessions._make_context = make_timed
        if whole.pinger is not None:
            whole.pinger._sleep, whole.pinger._read_clock = self.pauses.sleep, self.pauses.read

    @property
    def pinger(self) -> CachePinger:
        pinger = self.gateway.worker.gateway.pinger
        assert pinger is not None
        return pinger

    @property
    def session(self) -> LiveSession:
        (live,) = self.gateway.worker.gateway.sessions
        return live

    @property
    def pings(self) -> list[ReceivedRequest]:
        return [each for each in self.upstream.requests if json.loads(each.body)["max_tokens"] == 1]

    @property
    def recorded(self) -> list[CachePinged]:
        store = self.gateway.worker.store
        (info,) = store.sessions()
        return [event for event in store.events(info.key) if isinstance(event, CachePinged)]

    async def work(self, pauses: Sequence[float], status: int = 200) -> None:
        for pause in pauses:
            self.pauses.now += pause
            first, *others = make_history("anthropic", self.step)
            first = {**first, "content": [{"type": "text", "text": first["content"]}]}
            *before, newest = [first, *others]
            blocks = newest["content"]
            messages = [*before, {**newest, "content": [*blocks[:-1], {**blocks[-1], "cache_control": MARK}]}]
            body = {
                "model": "claude-sonnet-4-6",
                "max_tokens": 900,
                "system": [{"type": "text", "text": "Work. " * 3_000, "cache_control": MARK}],
                "messages": messages,
            }
            client = await self.gateway.connect()
            got = await client.request("POST", "/v1/messages", json.dumps(body).encode(), JSON, "x-api-key: secret")
            client.close()
            assert got.status == status
            await self.gateway.wait_until_stored()
            self.step += 1


def run(test: Callable[[Trial], Awaitable[None]], *, refuses: bool = False, **given: Any) -> None:
    """Run a trial. refuses: whether the upstream refuses pings."""

    async def answer(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        said = {"type": "tool_use", "id": "c", "name": "bash", "input": {}}
        usage = {
            "input_tokens": 5,
            "cache_read_input_tokens": 0,
            "cache_creation_input_tokens": 900,
            "output_tokens": 5,
        }
        whole = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [said], "usage": usage}
        if refuses and json.loads(asked.body)["max_tokens"] == 1:
            refusal = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
            writer.write(render_response(refusal, "529 Busy", JSON))
        else:
            raw = json.dumps({**whole, "stop_reason": "tool_use", "stop_sequence": None}).encode()
            writer.write(render_response(raw, "200 OK", JSON))
        await writer.drain()

    async def whole_test() -> None:
        usual = {"gateway_off": False, "strategy": "masking", "cache_ttl": "plan", "cache_ttl_scope": "all"}
        async with run_scripted_upstream(answer) as upstream:
            settings = make_settings(upstream.url, **({"cache_pings": 2} | usual | given))
            async with run_gateway(settings) as gateway:
                await test(Trial(gateway, upstream))

    asyncio.run(whole_test())


def test_a_pause_has_its_pings() -> None:
    """After rare short pauses a ping is planned: the same request with one token of output, 15 seconds before the
    entries die, and recorded. There are no more than are allowed."""

    async def test(trial: Trial) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        sent = trial.upstream.requests[-1]
        assert not trial.pings
        trial.pauses.go.set()
        await wait_until(lambda: not trial.pinger._tasks)
        assert 1 <= len(trial.pings) <= 2
        assert trial.pauses.asked[-len(trial.pings) :] == pytest.approx([285.0] * len(trial.pings))
        for ping in trial.pings:
            assert ping.get_header("x-api-key") == "secret"
            assert json.loads(ping.body) == {**json.loads(sent.body), "max_tokens": 1, "stream": False}
        await trial.gateway.wait_until_stored()
        assert len(trial.recorded) == len(trial.pings)
        assert {event.call for event in trial.recorded} == {len(RARE_PAUSES)}

    run(test)


def test_the_next_request_ends_the_pause() -> None:
    """A request that comes before the ping: none is sent, and the pause after it is another one."""

    async def test(trial: Trial) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        waits = len(trial.pauses.asked)
        await trial.work([10.0])
        await wait_until(lambda: len(trial.pauses.asked) > waits)
        assert not trial.pings
        assert len(trial.pinger._tasks) == 1

    run(test)


def test_a_request_that_is_bypassed_or_refused_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody follows what such a request leaves in the cache, and a key that is over its limit pays for no ping."""

    async def refuse(*_: Any, **__: Any) -> str:
        raise LimitError("the key has spent its limit")

    async def test_bypass(trial: Trial) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        trial.session.begin_bypass()
        await trial.work([10.0])
        assert not trial.pinger._tasks

    async def test_limit(trial: Trial) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        monkeypatch.setattr(Budgets, "check_key", refuse)
        await trial.work([10.0], status=429)
        assert not trial.pinger._tasks

    run(test_bypass)
    run(test_limit)


def test_a_session_that_is_evicted_has_no_pause() -> None:
    """Its next request opens another one, which would not end the pause."""

    async def test(trial: Trial) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        paused = trial.session
        body = {
            "model": "claude-sonnet-4-6",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Another task"}],
        }
        client = await trial.gateway.connect()
        await client.request("POST", "/v1/messages", json.dumps(body).encode(), JSON, "x-api-key: other")
        client.close()
        assert paused not in list(trial.gateway.worker.gateway.sessions)
        assert paused not in trial.pinger._tasks

    run(test, gateway_max_sessions=1)


def test_the_end_of_the_gateway_ends_all_pauses() -> None:
    """At shutdown no ping is left waiting."""
    trials: list[Trial] = []

    async def test(trial: Trial) -> None:
        trials.append(trial)
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)

    run(test)
    assert not trials[0].pinger._tasks
    assert not trials[0].pings


def test_a_refused_ping_is_the_last() -> None:
    """A provider that refuses a ping gets no further one in this pause, and nothing is recorded."""

    async def test(trial: Trial) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        trial.pauses.go.set()
        await wait_until(lambda: not trial.pinger._tasks)
        assert len(trial.pings) == 1
        assert not trial.recorded

    run(test, refuses=True)


def test_by_default_nothing_is_sent() -> None:
    """Without the setting there is no pinger at all."""

    async def test(trial: Trial) -> None:
        await trial.work(RARE_PAUSES)
        assert trial.gateway.worker.gateway.pinger is None
        assert len(trial.upstream.requests) == len(RARE_PAUSES)

    run(test, cache_pings=0)


def test_what_the_cache_compares_keeps_its_bytes() -> None:
    """Only the length of the answer and the stream change; requests that think with a budget are no ping."""
    body = b'{"model": "m", "max_tokens": 9, "messages": [{"role":"user",  "content":"\\u00e9 1.0"}], "stream": true}'
    made = make_ping(body)
    assert made is not None
    assert b'[{"role":"user",  "content":"\\u00e9 1.0"}]' in made
    assert (json.loads(made)["max_tokens"], json.loads(made)["stream"]) == (1, False)
    assert make_ping(b'{"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 1024}}') is None
    assert make_ping(b'{"max_tokens": 9, "thinking": {"type": "adaptive"}}') is not None
    assert make_ping(b"[1]") is None
