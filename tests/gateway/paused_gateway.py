"""A gateway whose sessions live in a time that tests let pass, a scripted upstream, and one agent with pauses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from elision.gateway.cache_pinger import CachePinger
from elision.gateway.live_sessions import LiveSession
from elision.manager import ContextManager
from elision.providers.provider import Api
from elision.trajectory.events import CachePinged
from tests.gateway.loopback_gateway import RunningGateway, make_settings, run_gateway, wait_until
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    render_response,
    run_scripted_upstream,
)
from tests.manager.agents import Message, make_anthropic_step, make_history

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


class PausedGateway:
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
        """Make a call after each pause, in seconds."""
        for pause in pauses:
            self.pauses.now += pause
            await self._send(make_history("anthropic", self.step), status)
            self.step += 1

    async def go_another_way(self, steps_back: int) -> None:
        """Make a call whose messages end with another step, after the newest `steps_back` are gone."""
        before = make_history("anthropic", self.step - steps_back)
        await self._send([*before, *make_anthropic_step(900)], 200)

    async def _send(self, history: list[Message], status: int) -> None:
        first, *others = history
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
        # A ping may be under way.
        sessions = self.gateway.worker.gateway.sessions
        await wait_until(lambda: not any(each.requests_in_flight for each in sessions))


#: What the upstream reports of each call, and of each ping.
CALL_USAGE = {
    "input_tokens": 5,
    "cache_read_input_tokens": 0,
    "cache_creation_input_tokens": 900,
    "output_tokens": 5,
}
PING_USAGE = {
    "input_tokens": 3,
    "cache_read_input_tokens": 8_000,
    "cache_creation_input_tokens": 40,
    "output_tokens": 1,
}


def render_message(usage: dict[str, int], *, stop_reason: str = "tool_use") -> bytes:
    """Return a response of the upstream that reports `usage`."""
    said = {"type": "tool_use", "id": "c", "name": "bash", "input": {}}
    whole = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [said], "usage": usage}
    raw = json.dumps({**whole, "stop_reason": stop_reason, "stop_sequence": None}).encode()
    return render_response(raw, "200 OK", JSON)


async def answer_ping(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Answer a ping as the provider does."""
    writer.write(render_message(PING_USAGE, stop_reason="max_tokens"))


async def refuse_ping(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """Refuse a ping as the provider does where it has no room."""
    refusal = b'{"type":"error","error":{"type":"overloaded_error","message":"busy"}}'
    writer.write(render_response(refusal, "529 Busy", JSON))


def run_with_pauses(
    test: Callable[[PausedGateway], Awaitable[None]], *, on_ping: Script = answer_ping, **given: Any
) -> None:
    """Run a trial. on_ping: answers the pings."""

    async def answer(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if json.loads(asked.body)["max_tokens"] == 1:
            await on_ping(asked, writer)
        else:
            writer.write(render_message(CALL_USAGE))
        await writer.drain()

    async def whole_test() -> None:
        usual = {"gateway_off": False, "strategy": "masking", "cache_ttl": "plan", "cache_ttl_scope": "all"}
        async with run_scripted_upstream(answer) as upstream:
            settings = make_settings(upstream.url, **({"cache_pings": 2} | usual | given))
            async with run_gateway(settings) as gateway:
                await test(PausedGateway(gateway, upstream))

    asyncio.run(whole_test())
