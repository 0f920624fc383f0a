"""The sockets of a worker, and a gateway in a thread."""

from __future__ import annotations

import asyncio
import json
import socket
from functools import partial
from http.client import HTTPConnection
from typing import Any

import pytest

from elision.errors import ElisionError
from elision.gateway import http_protocol
from elision.gateway.server import GatewayThread, bind_socket, format_url
from elision.testing.builders import step, trajectory, turn
from elision.testing.playback import Playback
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import TIMEOUT_SECONDS, make_settings, wait_until
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    ScriptedUpstream,
    answer_always,
    render_chunk,
    render_response,
)

CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

#: A gateway that reads nothing of what passes.
open_gateway = partial(open_trial, gateway_off=True)
silent = answer_always(b"", "silent")
sound = answer_always(render_response(b"ok"))


class Held:
    """A stream of two events; the second waits until `go_on` is set."""

    def __init__(self, front: bytes = STREAM) -> None:
        self.go_on = asyncio.Event()
        self.front = front

    async def __call__(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(self.front + render_chunk(b"data: 1\n\n"))
        await self.go_on.wait()
        writer.write(render_chunk(b"data: 2\n\n") + render_chunk(b""))


async def asked_for(upstream: ScriptedUpstream, count: int = 1) -> None:
    """Wait until so many requests have reached the provider."""
    await wait_until(lambda: len(upstream.requests) >= count)


# -- connections and streams -------------------------------------------------------------------------------------------


async def test_bytes_pass() -> None:
    """Path, query, body and unknown headers reach the provider as they came; status and headers come back likewise."""
    raw = render_response(b"\x00 no JSON", "418 Teapot", "X-Odd: 1", "x-odd: 2", "Content-Type: application/odd")

    async with open_gateway(answer_always(raw)) as (_, upstream, client):
        client.send_request("PUT", "/v1/odd%2Fpath?a=%7B&b", b'{ "a" :1}', "X-Mine: yes", "authorization: Bearer sk-1")
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 418 ")
        assert [line for line in head.split(b"\r\n") if b"odd" in line.lower()] == [
            b"x-odd: 1",
            b"x-odd: 2",
            b"content-type: application/odd",
        ]
        assert await client.reader.readexactly(9) == b"\x00 no JSON"[:9]
        (asked,) = upstream.requests
        assert asked.line == "PUT /v1/odd%2Fpath?a=%7B&b HTTP/1.1"
        assert asked.body == b'{ "a" :1}'
        assert (asked.get_header("x-mine"), asked.get_header("authorization")) == ("yes", "Bearer sk-1")


async def test_connections_are_kept_on_both_sides() -> None:
    """A client's second request comes over the same connection, and goes on over the same one."""
    async with open_gateway(sound) as (_, upstream, client):
        for _ in range(3):
            assert (await client.request("POST", CHAT, b"{}")).body == b"ok"
        assert upstream.connections == 1


async def test_chunks_pass_as_they_come() -> None:
    """A client has the first event before the provider has made the second."""
    held = Held()
    async with open_gateway(held) as (*_, client):
        client.send_request("POST", CHAT, b'{"stream": true}')
        assert (await client.read_head()).headers["content-type"] == "text/event-stream"
        assert await client.read_chunk() == b"data: 1\n\n"
        held.go_on.set()
        assert await client.read_chunk() == b"data: 2\n\n"
        assert await client.read_chunk() == b""


@pytest.mark.parametrize("begun", [False, True])
async def test_a_client_that_goes_takes_the_provider_s_answer_with_it(begun: bool) -> None:
    """Whether the answer has begun or not: what nobody waits for is not made any longer."""
    async with open_gateway(Held() if begun else silent) as (gateway, upstream, client):
        client.send_request("POST", CHAT, b"{}")
        await asked_for(upstream)
        if begun:
            await client.read_head()
        client.close()
        await asyncio.wait_for(upstream.connection_lost.wait(), TIMEOUT_SECONDS)
        assert gateway.worker.app.limits.request_gate.in_use == 0


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/files"])
async def test_too_large_by_its_own_word(path: str) -> None:
    """A request that says it is too large is refused before a byte of it is read."""
    async with open_gateway(sound, gateway_max_body_bytes=1_000) as (_, upstream, client):
        client.send_request("POST", path, b"", length=1_001)
        got = await client.read_response()
        assert got.status == 413
        assert "larger than 1,000 bytes" in got.json()["error"]["message"]
        assert got.headers["connection"] == "close"
        assert not upstream.requests


@pytest.mark.parametrize("read", [10_000, 500])
async def test_too_large_without_a_word(read: int) -> None:
    """One that comes in chunks is refused as soon as it is too large, also while it passes on already."""
    async with open_gateway(sound, gateway_max_body_bytes=1_000, gateway_max_read_bytes=read) as (_, upstream, client):
        client.send_request("POST", CHAT, b"", "transfer-encoding: chunked", length=-1)
        for _ in range(3):
            client.writer.write(render_chunk(b"x" * 400))
        got = await client.read_response()
        assert got.status == 413
        assert not upstream.requests


async def test_who_is_refused_may_finish_sending() -> None:
    """A client that sends megabytes before it reads still gets the refusal, and not a reset connection."""
    async with open_gateway(sound, gateway_max_body_bytes=1_000) as (*_, client):
        client.send_request("POST", CHAT, bytes(8_000_000))
        await client.writer.drain()
        assert (await client.read_response()).status == 413


@pytest.mark.parametrize("chunked", [False, True])
async def test_larger_than_what_is_taken_apart(chunked: bool) -> None:
    """Such a request passes chunk by chunk, whole and under the length that its client said."""
    body = bytes(range(256)) * 400

    first, second = (render_chunk(body), render_chunk(body) + render_chunk(b"")) if chunked else (body, body)
    field = "transfer-encoding: chunked" if chunked else f"content-length: {2 * len(body)}"

    async with open_gateway(sound, gateway_max_read_bytes=1_000) as (gateway, upstream, client):
        client.send_request("POST", CHAT, first, field, length=-1)
        await wait_until(lambda: upstream.connections)
        client.writer.write(second)
        assert (await client.read_response()).body == b"ok"
        (asked,) = upstream.requests
        assert asked.body == 2 * body
        assert asked.get_header("content-length") == (None if chunked else str(2 * len(body)))
        assert gateway.worker.app.limits.memory_gate.in_use == 0


@pytest.mark.parametrize(("path", "status"), [(CHAT, 503), (MESSAGES, 529)])
async def test_no_room(path: str, status: int) -> None:
    """Where as many are served as may be and none may wait, the next is told to come again; then it is served."""
    held = Held()
    found = {"gateway_max_concurrent": 1, "gateway_max_waiting": 0}
    async with open_gateway(held, **found) as (gateway, _, client):
        second = await gateway.connect()
        client.send_request("POST", path, b"{}")
        await client.read_head()
        got = await second.request("POST", path, b"{}")
        assert (got.status, got.headers["retry-after"]) == (status, "1")
        held.go_on.set()
        while await client.read_chunk():
            pass
        again = await gateway.connect()
        assert (await again.request("POST", path, b"{}")).status == 200
        second.close(), again.close()


@pytest.mark.parametrize(
    "limit", [{"gateway_max_concurrent": 1}, {"gateway_memory_bytes": 20, "gateway_max_read_bytes": 20}]
)
async def test_whoever_finds_no_room_waits(limit: dict[str, Any]) -> None:
    """A request that has to wait is not read, and served when the one before it is over."""
    held = Held()
    async with open_gateway(held, **limit) as (gateway, upstream, client):
        second = await gateway.connect()
        client.send_request("POST", CHAT, b"x" * 15)
        await asked_for(upstream)
        second.send_request("POST", CHAT, b"y" * 15)
        limits = gateway.worker.app.limits
        await wait_until(lambda: limits.request_gate.waiting + limits.memory_gate.waiting)
        assert len(upstream.requests) == 1
        held.go_on.set()
        assert (await client.read_response()).status == (await second.read_response()).status == 200
        assert [asked.body[:1] for asked in upstream.requests] == [b"x", b"y"]
        assert limits.request_gate.in_use == limits.memory_gate.in_use == 0
        second.close()


async def test_who_waits_too_long() -> None:
    """Is refused after its time."""
    found = {"gateway_max_concurrent": 1, "gateway_wait_seconds": 0.05}
    async with open_gateway(silent, **found) as (gateway, upstream, client):
        second = await gateway.connect()
        client.send_request("POST", CHAT, b"{}")
        await asked_for(upstream)
        got = await second.request("POST", CHAT, b"{}")
        assert got.status == 503
        assert "no room within 0.05 seconds" in got.json()["error"]["message"]
        second.close()


# -- slow clients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [b"", b"half"])
async def test_a_body_that_does_not_come(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that is not complete in its time is refused, and its connection closed."""
    monkeypatch.setattr("elision.gateway.app.LINGER_SECONDS", 0.01)

    async with open_gateway(sound, gateway_body_seconds=0.05) as (_, upstream, client):
        client.send_request("POST", CHAT, sent, length=100)
        got = await client.read_response()
        assert got.status == 408
        assert "not complete within 0.05 seconds" in got.json()["error"]["message"]
        assert await client.is_closed_by_peer()
        assert not upstream.requests


@pytest.mark.parametrize("said", [b"", b"POST /v1/chat", b"POST / HTTP/1.1\r\nhost: x\r\nx-slow: "])
async def test_a_head_that_does_not_come(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever connects and does not get to the end of a head is not waited for: a slow loris holds nothing."""
    # What has begun is not measured as a connection that is idle is.
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.05 if said else 3_600)
    monkeypatch.setattr(http_protocol, "KEEP_ALIVE_SECONDS", 3_600 if said else 0.05)

    async with open_gateway(sound) as (*_, client):
        client.writer.write(said)
        if said:
            assert (await asyncio.wait_for(client.read_head(), 20)).status == 408
        assert await client.is_closed_by_peer()


async def test_a_head_that_does_not_end() -> None:
    """One that grows and grows is refused."""
    async with open_gateway(sound) as (*_, client):
        client.writer.write(b"POST / HTTP/1.1\r\nx-long: " + b"x" * 400_000)
        assert (await client.read_head()).status == 431


async def test_what_is_no_http() -> None:
    """Is answered with 400, and the gateway goes on."""
    async with open_gateway(sound) as (gateway, _, client):
        client.writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await client.read_head()).status == 400
        again = await gateway.connect()
        assert (await again.request("POST", CHAT, b"{}")).status == 200
        again.close()


# -- the end -----------------------------------------------------------------------------------------------------------


async def test_a_stop_lets_streams_end() -> None:
    """When it stops nobody new is let in, and a stream under way comes to its end."""
    held = Held()
    async with open_gateway(held) as (gateway, _, client):
        idle = await gateway.connect()
        client.send_request("POST", CHAT, b"{}")
        await client.read_head()
        assert (await idle.request("GET", "/readyz")).status == 200
        gateway.server.begin_stop()
        assert await idle.is_closed_by_peer()
        with pytest.raises(OSError):
            await gateway.connect()
        assert gateway.worker.app.is_draining
        assert not gateway.ended.done()
        assert await client.read_chunk() == b"data: 1\n\n"
        held.go_on.set()
        assert [await client.read_chunk(), await client.read_chunk()] == [b"data: 2\n\n", b""]
        await asyncio.wait_for(gateway.ended, TIMEOUT_SECONDS)
        idle.close()


@pytest.mark.parametrize("path", [CHAT, MESSAGES, "/v1/responses"])
async def test_a_stop_cuts_what_does_not_end(path: str) -> None:
    """A stream that is not over in time gets an error event in its API's shape, and its proper end."""
    async with open_gateway(Held(), gateway_drain_seconds=0.05) as (gateway, upstream, client):
        client.send_request("POST", path, b"{}")
        gateway_answer = asyncio.ensure_future(client.read_response())
        await asked_for(upstream)
        await wait_until(lambda: gateway.worker.app.limits.request_gate.in_use)
        await asyncio.sleep(0.02)
        gateway.server.begin_stop()
        got = await gateway_answer
        assert got.is_complete
        assert got.body.startswith(b"data: 1\n\n")
        assert b"it is shutting down" in got.body
        assert (b"event: error" in got.body) is (path != CHAT)
        await asyncio.wait_for(gateway.ended, TIMEOUT_SECONDS)


async def test_a_stop_tells_who_waits() -> None:
    """A client that has nothing yet gets a refusal; one in the midst of a plain body is cut, which it notices."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if asked.body == b"begun":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        await asyncio.Event().wait()

    async with open_gateway(script, gateway_drain_seconds=0.05) as (gateway, upstream, client):
        begun = await gateway.connect()
        client.send_request("POST", CHAT, b"not yet")
        begun.send_request("POST", CHAT, b"begun")
        await asked_for(upstream, 2)
        head = await begun.read_head()
        gateway.server.begin_stop()
        got = await client.read_response()
        assert (got.status, got.headers["retry-after"]) == (503, "1")
        assert head.headers["content-length"] == "9"
        assert await begun.reader.read() == b"half"
        await asyncio.wait_for(gateway.ended, TIMEOUT_SECONDS)
        begun.close()


async def test_a_second_word_to_stop_is_meant() -> None:
    """Whoever says it again does not wait for answers."""
    async with open_gateway(silent) as (gateway, upstream, client):
        client.send_request("POST", CHAT, b"{}")
        await asked_for(upstream)
        gateway.server.begin_stop()
        gateway.server.begin_stop()
        assert (await client.read_response()).status == 503
        await asyncio.wait_for(gateway.ended, TIMEOUT_SECONDS)


# -- sockets -----------------------------------------------------------------------------------------------------------


def test_an_address_that_is_taken() -> None:
    """Is told as such, with the mend."""
    with bind_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert format_url(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(ElisionError, match=rf"cannot listen at 127\.0\.0\.1:{port}: .*another --port"):
            bind_socket("127.0.0.1", port)
    with pytest.raises(ElisionError, match=r"cannot listen at nowhere\.invalid"):
        bind_socket("nowhere.invalid", 0)


RUN = trajectory(step(1), step(2), turn(3, text="All tests pass now."), id="small")
ASKED = {"model": "run:small", "max_tokens": 100, "messages": [{"role": "user", "content": "Mend the parser."}]}


@pytest.mark.parametrize("off", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_recorded_run_through_a_gateway(path: str, off: bool) -> None:
    """It serves while the `with` statement lasts, and what it sends on is what the provider takes."""
    with Playback(RUN) as provider, GatewayThread(make_settings(provider.url, gateway_off=off)) as gateway:
        connection = HTTPConnection(gateway.url.removeprefix("http://"))
        connection.request("POST", path, json.dumps(ASKED), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert (answer.status, "make step-1" in answer.read().decode()) == (200, True)
        connection.close()
        assert provider.violations == []
    with pytest.raises(ConnectionRefusedError):
        HTTPConnection(gateway.url.removeprefix("http://")).connect()


def test_a_websocket_of_another_api_is_refused_at_once() -> None:
    """A client that tries one first sends plain requests as soon as it has the answer; the upstream never sees it."""
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    with Playback(RUN) as provider, GatewayThread(make_settings(provider.url)) as gateway:
        connection = HTTPConnection(gateway.url.removeprefix("http://"))
        connection.request("GET", "/v1/chat/completions", headers=upgrade)
        answer = connection.getresponse()
        assert answer.status == 426
        assert b"WebSockets are served at /v1/responses only" in answer.read()
        connection.close()
        assert provider.requests == []


def test_a_gateway_that_cannot_begin() -> None:
    """What is wrong is raised where it is started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        given = make_settings(gateway_port=taken.getsockname()[1])
        with pytest.raises(ElisionError, match="cannot listen at"):
            GatewayThread(given).start()
    with pytest.raises(ElisionError, match=r"not\.there"):
        GatewayThread(make_settings(gateway_off=False, store="sqlite:////dev/null/not.there")).start()
