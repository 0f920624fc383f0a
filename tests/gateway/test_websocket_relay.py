"""WebSockets of the Responses API over real sockets: every message passes as it is, and each response is metered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed, InvalidStatus

from elision.gateway.request_record import RequestRecord
from tests.gateway.loopback_gateway import RunningGateway, make_settings, run_gateway, wait_until

USAGE = {"input_tokens": 1_000, "input_tokens_details": {"cached_tokens": 200}, "output_tokens": 20}
CREATE = json.dumps({"type": "response.create", "model": "gpt-5.2", "input": [{"role": "user", "content": "Go on. ☃"}]})


def event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(" ,", ": "))


def completed(**fields: Any) -> str:
    response = {"id": "resp_1", "model": "gpt-5.2-2026", "usage": USAGE, "output": []}
    return event("response.completed", response=response, **fields)


class Provider:
    """A provider that speaks WebSocket. asked: what it got. fields: of each handshake. answer: to each message."""

    def __init__(self, answer: Callable[[ServerConnection, str], Awaitable[None]] | None = None) -> None:
        self.asked: list[str | bytes] = []
        self.fields: list[Any] = []
        self.closed: list[tuple[int | None, str | None]] = []
        self._answer = answer or self.answer_whole
        self.server: Server | None = None
        self.refusal = 0

    async def answer_whole(self, socket: ServerConnection, message: str) -> None:
        for each in (event("response.created"), event("response.output_text.delta", delta="☃"), completed()):
            await socket.send(each)

    async def handle(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        self.fields.append(socket.request)
        try:
            async for message in socket:
                self.asked.append(message)
                await self._answer(socket, message)  # type: ignore[arg-type]
        except ConnectionClosed:
            pass
        self.closed.append((socket.close_code, socket.close_reason))

    def respond(self, socket: ServerConnection, request: Any) -> Any:
        if self.refusal:
            return socket.respond(self.refusal, "no\n")
        return None

    def add_field(self, socket: ServerConnection, request: Any, response: Any) -> None:
        response.headers["x-codex-turn-state"] = "opaque"


@asynccontextmanager
async def running(provider: Provider, **given: Any) -> AsyncIterator[tuple[RunningGateway, list[RequestRecord]]]:
    """A gateway in front of `provider`, and the records of its requests."""
    async with serve(
        provider.handle, "127.0.0.1", 0, process_request=provider.respond, process_response=provider.add_field
    ) as provider.server:
        port = next(iter(provider.server.sockets)).getsockname()[1]
        settings = make_settings(f"http://127.0.0.1:{port}", **({"gateway_off": False} | given))
        async with run_gateway(settings) as gateway:
            yield gateway, gateway.records


def opened(gateway: RunningGateway, path: str = "/v1/responses?x=%20", **fields: str) -> connect:
    headers = {"authorization": "Bearer k1", "OpenAI-Beta": "responses_websockets=2026-02-06", **fields}
    return connect(gateway.url.replace("http", "ws") + path, additional_headers=headers)


async def receive_all(client: ClientConnection, count: int) -> list[str | bytes]:
    return [await asyncio.wait_for(client.recv(), 60) for _ in range(count)]


@pytest.mark.parametrize("off", [False, True])
async def test_every_message_passes_as_it_is(off: bool) -> None:
    """Text and bytes both ways, the handshake's path, query and fields, and the fields of its answer."""

    async def echo(socket: ServerConnection, message: str | bytes) -> None:
        await socket.send(message)

    provider = Provider(echo)
    async with running(provider, gateway_off=off) as (gateway, _), opened(gateway) as client:
        assert client.response is not None
        assert client.response.headers["x-codex-turn-state"] == "opaque"
        sent = ["no JSON at all", event("response.steer", text="☃" * 70_000), b"\0\xff" * 9, CREATE]
        for message in sent:
            await client.send(message)
        assert await receive_all(client, 4) == sent
        assert provider.asked == sent
        (request,) = provider.fields
        assert request.path == "/v1/responses?x=%20"
        assert request.headers["authorization"] == "Bearer k1"
        assert request.headers["openai-beta"] == "responses_websockets=2026-02-06"


async def test_each_response_is_metered() -> None:
    """One record for each `response.create`, with model, usage and size; streams that run at once are told apart."""

    async def together(socket: ServerConnection, message: str) -> None:
        if len(provider.asked) == 2:
            await socket.send(completed(stream_id="b"))
            await socket.send(completed(stream_id="a"))

    provider = Provider(together)
    async with running(provider) as (gateway, records), opened(gateway) as client:
        for name, model in (("a", "gpt-5.2"), ("b", "gpt-5-nano")):
            await client.send(event("response.create", model=model, stream_id=name, input="☃"))
        await receive_all(client, 2)
        await wait_until(lambda: len(records) == 2)
        assert [(each.model, each.is_complete, each.status) for each in records] == [
            ("gpt-5-nano", True, 200),
            ("gpt-5.2", True, 200),
        ]
        for each in records:
            assert (each.api, each.how, each.path) == ("openai-responses", "passed", "/v1/responses")
            assert each.usage is not None
            assert (each.usage.prompt, each.usage.cache_read, each.usage.output) == (1_000, 200, 20)
            asked = event("response.create", model=each.model, stream_id="a", input="☃")
            assert each.bytes_in == len(asked.encode())


async def test_a_key_at_its_limit_is_told_in_the_socket() -> None:
    """Beyond it a message is not sent, the client gets an event as the provider's are, and the socket stays open."""
    provider = Provider()
    async with running(provider, gateway_key_max_turns=1) as (gateway, records), opened(gateway) as client:
        await client.send(CREATE)
        await receive_all(client, 3)
        await client.send(CREATE)
        (raw,) = await receive_all(client, 1)
        told = json.loads(raw)
        assert (told["type"], told["status"]) == ("error", 429)
        assert "key_max_turns: this key has made 1 of 1 turns" in told["error"]["message"]
        assert len(provider.asked) == 1
        assert [(each.how, each.cause) for each in records] == [("passed", ""), ("refused", "limit")]
        async with opened(gateway, **{"x-elision": "off"}) as free:
            await free.send(CREATE)
            await receive_all(free, 3)


async def test_a_handshake_that_the_provider_refuses() -> None:
    """Its status reaches the client, and a provider that is not there is 502."""
    provider = Provider()
    async with running(provider) as (gateway, records):
        provider.refusal = 401
        with pytest.raises(InvalidStatus) as caught:
            await opened(gateway).__aenter__()
        assert caught.value.response.status_code == 401
        assert b"refused the WebSocket with status 401" in (caught.value.response.body or b"")
        assert provider.server is not None
        provider.server.close()
        await provider.server.wait_closed()
        with pytest.raises(InvalidStatus) as caught:
            await opened(gateway).__aenter__()
        assert caught.value.response.status_code == 502
        assert caught.value.response.headers["x-elision-error"] == "refused"
        assert [each.cause for each in records] == ["malformed", "refused"]


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/chat/completions", "/elision/x"])
async def test_only_responses_have_sockets(path: str) -> None:
    """Elsewhere clients that try one first are told at once to send plain requests."""
    async with running(Provider()) as (gateway, _):
        with pytest.raises(InvalidStatus) as caught:
            await opened(gateway, path).__aenter__()
        assert caught.value.response.status_code == (404 if path == "/elision/x" else 426)


async def test_both_ends_close_with_the_others_words() -> None:
    """Code and reason pass; a response that was not complete is one that was cut."""

    async def leave(socket: ServerConnection, message: str) -> None:
        await socket.close(4_321, "websocket_connection_limit_reached")

    provider = Provider(leave)
    async with running(provider) as (gateway, records):
        async with opened(gateway) as client:
            await client.send(CREATE)
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(client.recv(), 60)
            assert (client.close_code, client.close_reason) == (4_321, "websocket_connection_limit_reached")
        await wait_until(lambda: len(records) == 1)
        assert (records[0].cause, records[0].is_complete) == ("cut", False)
        client = await opened(gateway).__aenter__()
        await client.close(4_000, "enough")
        await wait_until(lambda: len(provider.closed) == 2)
        assert provider.closed[1] == (4_000, "enough")


async def test_a_client_that_is_gone() -> None:
    """Its response is on the record, and the provider's socket is closed."""

    async def silent(socket: ServerConnection, message: str) -> None: ...

    provider = Provider(silent)
    async with running(provider) as (gateway, records):
        client = await opened(gateway).__aenter__()
        await client.send(CREATE)
        await wait_until(lambda: provider.asked)
        client.transport.abort()
        await wait_until(lambda: provider.closed and records)
        assert records[0].cause == "client-gone"


async def test_a_gateway_that_stops_ends_sockets_between_responses() -> None:
    """An idle socket at once, one with a response under way behind it; a third is cut when time is over."""
    goes_on = asyncio.Event()

    async def slow(socket: ServerConnection, message: str) -> None:
        await socket.send(event("response.created"))
        if len(provider.asked) == 1:
            await goes_on.wait()
            await socket.send(completed())

    provider = Provider(slow)
    async with running(provider, gateway_drain_seconds=0.5) as (gateway, records):
        idle, busy, late = [await opened(gateway).__aenter__() for _ in range(3)]
        for client in (busy, late):
            await client.send(CREATE)
            await receive_all(client, 1)
        gateway.server.begin_stop()
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(idle.recv(), 60)
        assert idle.close_code == 1001
        goes_on.set()
        assert json.loads((await receive_all(busy, 1))[0])["type"] == "response.completed"
        told = json.loads((await receive_all(late, 1))[0])
        assert (told["type"], told["status"]) == ("error", 503)
        for client in (busy, late):
            with pytest.raises(ConnectionClosed):
                await asyncio.wait_for(client.recv(), 60)
            assert client.close_code == 1001
        await asyncio.wait_for(gateway.ended, 60)
        assert sorted(each.cause for each in records) == ["", "stopping"]


async def test_openais_own_client() -> None:
    """`responses.connect()` of the official SDK works over the gateway as it is."""
    provider = Provider()
    async with running(provider) as (gateway, records):
        client = openai.AsyncOpenAI(api_key="k1", base_url=f"{gateway.url}/v1")
        async with client, client.responses.connect() as connection:
            await connection.send({"type": "response.create", "model": "gpt-5.2", "input": "Hello."})  # type: ignore[arg-type]
            kinds = [(await connection.recv()).type for _ in range(3)]
        assert kinds == ["response.created", "response.output_text.delta", "response.completed"]
        assert records[0].usage is not None
        assert provider.fields[0].headers["authorization"] == "Bearer k1"


async def test_frames_right_behind_the_handshake() -> None:
    """A client that does not wait for the answer loses nothing."""
    provider = Provider()
    async with running(provider) as (gateway, _):
        http = await gateway.connect()
        fields = ("connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13")
        key = "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ=="
        frame = bytes([0x81, 0x80 | 5, 0, 0, 0, 0]) + b"hello"
        http.send_request("GET", "/v1/responses", frame, *fields, key, length=-1)
        got = await http.read_head()
        assert (got.status, got.headers["sec-websocket-accept"]) == (101, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        await wait_until(lambda: provider.asked == ["hello"])
        http.close()
