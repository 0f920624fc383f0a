"""Agents at work: each follows its recorded run through a gateway, so many of them at a time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import msgspec

from elision.providers.provider import Api
from elision.testing.follower import Follower
from elision.testing.playback import PATHS
from tests.gateway.checking_provider import AGENT_HEADER, TURN_HEADER
from tests.gateway.recorded_agents import RecordedAgent

Json = dict[str, Any]

_PATH: Final = {api: path for path, api in PATHS.items()}
_MODEL: Final[Mapping[Api, str]] = {
    "openai": "gpt-5.2",
    "openai-responses": "gpt-5.2",
    "anthropic": "claude-sonnet-4-5",
}


@dataclass(slots=True)
class RecordedClients:
    """urls: of gateways, asked in turn. sessions: the session names that served each agent's requests.

    on_response: called after every response with the count. fan_out_turn: from that turn on every request goes to
    all gateways at once. keep_connections: whether connections are reused; each worker of a gateway has its own.
    """

    urls: list[str]
    on_response: Callable[[int], None] = lambda count: None
    fan_out_turn: float = float("inf")
    keep_connections: bool = True
    count: int = 0
    errors: list[str] = field(default_factory=list)
    sessions: dict[int, list[str]] = field(default_factory=dict)

    async def run_all(self, trials: Iterable[RecordedAgent], together: int) -> None:
        """Have all of them work to their end, at most `together` at once. trials: asked for one when it begins."""
        waiting = iter(trials)
        connector = aiohttp.TCPConnector(limit=4 * together, force_close=not self.keep_connections)
        limit, traces = aiohttp.ClientTimeout(300), [_trace_reuse()]
        async with aiohttp.ClientSession(connector=connector, timeout=limit, trace_configs=traces) as http:

            async def one() -> None:
                for trial in waiting:
                    try:
                        await self._run_trial(http, trial)
                    except Exception as error:  # noqa: BLE001 - told at the end, with whose it was
                        self.errors.append(f"agent {trial.number}: {type(error).__name__}: {error}")

            workers: list[Awaitable[None]] = [one() for _ in range(together)]
            await asyncio.gather(*workers)

    async def _run_trial(self, http: aiohttp.ClientSession, trial: RecordedAgent) -> None:
        agent = Follower(trial.run, trial.api)
        names = self.sessions.setdefault(trial.number, [])
        while not agent.done:
            asked = self.urls if agent.turn >= self.fan_out_turn else [self.urls[agent.turn % len(self.urls)]]
            told = await asyncio.gather(*(self._send_request(http, url, agent, trial) for url in asked))
            names += [name for name, _ in told]
            agent.take(told[0][1])
            self.count += 1
            self.on_response(self.count)

    async def _send_request(
        self, http: aiohttp.ClientSession, url: str, agent: Follower, trial: RecordedAgent
    ) -> tuple[str, Json]:
        """The session's name, and the answer."""
        data, headers, sent = _make_body(agent, trial), _make_headers(agent, trial), _SentRequest()
        try:
            async with http.post(url + _PATH[trial.api], data=data, headers=headers, trace_request_ctx=sent) as answer:
                raw = await answer.read()
                if answer.status != 200:
                    raise ValueError(f"status {answer.status}: {raw[:300]!r}")
                name = answer.headers.get("x-elision-session", "")
        except aiohttp.ClientError as error:
            # A connection that idled may be closed by the server at any time; any other must not be.
            seconds = time.monotonic() - sent.began
            kind = "a connection used before" if sent.is_reused else "a new connection"
            where = f"{url}, {kind}, turn {agent.turn}, after {seconds:.1f} s"
            raise ValueError(f"{type(error).__name__}: {error} ({where})") from error
        return name, assemble_stream(trial.api, raw) if trial.stream else json.loads(raw)


@dataclass(slots=True)
class _SentRequest:
    """began: `time.monotonic()`. is_reused: whether its connection had served another one."""

    began: float = field(default_factory=time.monotonic)
    is_reused: bool = False


def _trace_reuse() -> aiohttp.TraceConfig:
    """Return what notes reused connections in the `_SentRequest` of each request."""

    async def note_reuse(session: aiohttp.ClientSession, context: Any, told: object) -> None:
        context.trace_request_ctx.is_reused = True

    traced = aiohttp.TraceConfig()
    traced.on_connection_reuseconn.append(note_reuse)
    return traced


def _make_body(agent: Follower, trial: RecordedAgent) -> bytes:
    limit = "max_output_tokens" if trial.api == "openai-responses" else "max_completion_tokens"
    body = {"model": _MODEL[trial.api], "max_tokens" if trial.api == "anthropic" else limit: 999, **agent.request}
    if trial.stream:
        body["stream"] = True
        if trial.api == "openai":
            body["stream_options"] = {"include_usage": True}
    return msgspec.json.encode(body)


def _make_headers(agent: Follower, trial: RecordedAgent) -> dict[str, str]:
    named = {"x-api-key": trial.key} if trial.api == "anthropic" else {"authorization": f"Bearer {trial.key}"}
    return {**named, "content-type": "application/json", AGENT_HEADER: str(trial.number), TURN_HEADER: str(agent.turn)}


# -- streams ----------------------------------------------------------------------------------------------------------


def assemble_stream(api: Api, raw: bytes) -> Json:
    """A streamed answer as it would have come in one piece, as far as a `Follower` reads it."""
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith(b"data: {")]
    return _WHOLE[api](events)


def _assemble_chat(events: list[Json]) -> Json:
    message: Json = {"role": "assistant", "content": ""}
    calls: dict[int, Json] = {}
    for delta in (choice["delta"] for event in events for choice in event["choices"]):
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls") or ():
            call = calls.setdefault(part["index"], {"type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] = part.get("id") or call["id"]
            call["function"]["name"] += part["function"].get("name") or ""
            call["function"]["arguments"] += part["function"].get("arguments") or ""
    if calls:
        message["tool_calls"] = [calls[index] for index in sorted(calls)]
    return {"choices": [{"message": message}]}


def _assemble_anthropic(events: list[Json]) -> Json:
    return {"content": list(_assemble_blocks(events))}


def _assemble_blocks(events: list[Json]) -> Iterator[Json]:
    for start in (event for event in events if event["type"] == "content_block_start"):
        deltas = [event["delta"] for event in events if event.get("index") == start["index"] and "delta" in event]
        block = dict(start["content_block"])
        if block["type"] == "tool_use":
            block["input"] = json.loads("".join(delta.get("partial_json", "") for delta in deltas) or "{}")
        else:
            block["text"] = "".join(delta.get("text", "") for delta in deltas)
        yield block


def _assemble_responses(events: list[Json]) -> Json:
    response: Json = next(event["response"] for event in events if event["type"] == "response.completed")
    return response


_WHOLE: Final[Mapping[Api, Callable[[list[Json]], Json]]] = {
    "openai": _assemble_chat,
    "anthropic": _assemble_anthropic,
    "openai-responses": _assemble_responses,
}
