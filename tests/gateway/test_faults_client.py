"""Clients that do it wrong, or large: on real sockets, and whoever comes next is served."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from tests.gateway.conversation_bytes import APIS, HIDING_STEPS, PATHS, PLACEHOLDER_PART, make_body, render_whole
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import TIMEOUT_SECONDS, connect
from tests.gateway.scripted_upstream import render_chunk, render_response
from tests.gateway.serve_process import start_serve
from tests.soak import sample_cases

CHAT = PATHS["openai"]
MIB = 2**20


# -- large bodies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", sample_cases([True, False], 2))
def test_eighty_megabytes_pass_in_bounded_memory(chunked: bool, tmp_path: Path) -> None:
    """A body larger than what is taken apart passes chunk by chunk: a gateway of its own hardly grows by it."""
    size, part = 80 * MIB, bytes(range(256)) * 4_096
    read = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal read
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"content-length: 0" in head or (b"content-length" not in head and b"chunked" not in head):
            writer.close()
            return
        while read < size and (got := await reader.read(MIB)):
            read += len(got)
        if b"chunked" in head:
            # The sizes of chunks were counted too; its end is what remains.
            while not got.endswith(b"0\r\n\r\n") and (more := await reader.read(MIB)):
                got = (got + more)[-16:]
        writer.write(render_response(b"{}", "200 OK", "content-type: application/json", "connection: close"))
        await writer.drain()
        writer.close()

    async def run() -> tuple[int, int]:
        async with await asyncio.start_server(count, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            limits = {"AGENT_CONTEXT_GATEWAY_MAX_READ_BYTES": str(8 * MIB)}
            with start_serve(tmp_path, "--upstream-openai", url, "--store", "memory:", **limits) as gateway:
                # What is loaded after the start is no part of what a body takes.
                await asyncio.to_thread(gateway.wait_until_warm)
                before = most = gateway.memory
                client = await connect(gateway.url)
                said = "transfer-encoding: chunked" if chunked else f"content-length: {size}"
                client.send_request("POST", CHAT, b"", said, length=-1)
                for _ in range(size // len(part)):
                    client.writer.write(render_chunk(part) if chunked else part)
                    await client.writer.drain()
                    most = max(most, gateway.memory)
                client.writer.write(render_chunk(b"") if chunked else b"")
                got = await client.read_head()
                assert got.status == 200
                client.close()
                return before, most

    before, most = asyncio.run(run())
    assert read >= size
    assert most - before < 48 * MIB, f"it grew by {(most - before) / MIB:.0f} MiB"


# -- connections -------------------------------------------------------------------------------------------------------


async def test_requests_one_behind_the_other() -> None:
    """A client that does not wait for answers gets them in the order of its requests."""
    async with open_trial() as (_, upstream, client):
        for api in APIS:
            client.send_request("POST", PATHS[api], make_body(api, 1, task=api))
        client.send_request("GET", "/healthz")
        client.send_request("POST", CHAT, b"{")
        assert [(await client.read_response()).body for _ in APIS] == [render_whole(api) for api in APIS]
        assert (await client.read_response()).status == 200
        assert (await client.read_response()).status == 200
        assert upstream.requests[-1].body == b"{"


async def test_a_connection_is_kept_behind_errors() -> None:
    """What was refused by us, or by the provider, or is unreadable, costs no connection."""
    async with open_trial() as (*_, client):
        for _ in range(3):
            assert (await client.request("GET", "/nothing")).status == 404
            assert (await client.request("POST", CHAT, b"\xff no JSON")).status == 200
            assert (
                await client.request("POST", CHAT, make_body("openai", HIDING_STEPS), "content-encoding: gzip")
            ).status == 200
            assert (await client.request("POST", CHAT, make_body("openai", 1))).body == render_whole("openai")


async def test_who_asks_whether_to_go_on() -> None:
    """`Expect: 100-continue` is answered before the body; where the request is refused it is not."""
    async with open_trial(gateway_max_body_bytes=1_000_000) as (gateway, upstream, client):
        raw = make_body("openai", HIDING_STEPS)
        client.send_request("POST", CHAT, b"", "expect: 100-continue", length=len(raw))
        assert await asyncio.wait_for(client.reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS) == (
            b"HTTP/1.1 100 Continue\r\n\r\n"
        )
        client.writer.write(raw)
        assert (await client.read_response()).body == render_whole("openai")
        assert upstream.requests[-1].get_header("expect") is None
        assert PLACEHOLDER_PART in upstream.requests[-1].body
        other = await gateway.connect()
        other.send_request("POST", CHAT, b"", "expect: 100-continue", length=10_000_000)
        got = await other.read_response()
        assert got.status == 413
        other.writer.write_eof()
        assert await asyncio.wait_for(other.reader.read(), TIMEOUT_SECONDS) == b"", "and nothing stands behind that"
        other.close()


@pytest.mark.parametrize("pieces", [1, 7, 1_000])
async def test_bodies_in_chunks(pieces: int) -> None:
    """A body that comes in chunks is taken apart like any other."""
    raw = make_body("openai", HIDING_STEPS)

    async with open_trial() as (_, upstream, client):
        client.send_request("POST", CHAT, b"", "transfer-encoding: chunked", length=-1)
        for start in range(0, len(raw), pieces):
            client.writer.write(render_chunk(raw[start : start + pieces]))
        client.writer.write(render_chunk(b""))
        assert (await client.read_response()).body == render_whole("openai")
        assert PLACEHOLDER_PART in upstream.requests[-1].body
        assert upstream.requests[-1].get_header("transfer-encoding") is None


WRONG = {
    "a length that is none": b"content-length: many\r\n\r\n{}",
    "a negative length": b"content-length: -1\r\n\r\n{}",
    "two lengths": b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a length and chunks": b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "chunks of no size": b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk that is longer": b"transfer-encoding: chunked\r\n\r\n1\r\n{}}}\r\n0\r\n\r\n",
    "an unknown coding": b"transfer-encoding: snappy\r\n\r\n{}",
    "a field without a name": b": x\r\n\r\n",
    "a field with a zero byte": b"x-a: \x00\r\n\r\n",
    "a space in a name": b"x a: 1\r\n\r\n",
}


@pytest.mark.parametrize("raw", WRONG.values(), ids=WRONG)
async def test_what_is_no_http(raw: bytes) -> None:
    """Is refused with 400 or closed, never passed on half understood, and the next client is served."""
    async with open_trial() as (gateway, upstream, client):
        client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n" + raw)
        client.writer.write_eof()
        said = await asyncio.wait_for(client.reader.read(), TIMEOUT_SECONDS)
        assert not said or said.startswith(b"HTTP/1.1 4"), said
        assert not upstream.requests
        other = await gateway.connect()
        assert (await other.request("POST", CHAT, make_body("openai", 1))).status == 200
        other.close()


async def test_bytes_by_chance_on_a_socket(caplog: pytest.LogCaptureFixture) -> None:
    """Requests with flipped, doubled and missing bytes: every answer is HTTP, none is a 5xx, nothing is logged."""
    chance = random.Random(7)

    async with open_trial() as (gateway, _, client):
        sound_one = b"POST %s HTTP/1.1\r\nhost: x\r\nx-a: 1\r\ncontent-length: 2\r\n\r\n{}" % CHAT.encode()
        for _ in range(300):
            raw = bytearray(sound_one * chance.choice((1, 1, 2)))
            for _ in range(chance.choice((1, 2, 5, 20))):
                start = chance.randrange(len(raw))
                new = chance.choice((b"", b"\r\n", b"\x00", b"\xff", b":", b" ", b"\n", chance.randbytes(3), raw[:30]))
                raw[start : start + chance.randrange(4)] = new
            other = await gateway.connect()
            other.writer.write(bytes(raw))
            other.writer.write_eof()
            said = await asyncio.wait_for(other.reader.read(), TIMEOUT_SECONDS)
            assert not said or said.startswith(b"HTTP/1.1 "), (bytes(raw), said)
            assert b"HTTP/1.1 5" not in said, (bytes(raw), said)
            other.close()
        while gateway.worker.app.limits.request_gate.in_use:
            await asyncio.sleep(0)
        assert (await client.request("POST", CHAT, make_body("openai", 1))).status == 200
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
