"""What compressed requests become is held to `memory_bytes`; one without room is forwarded unread, byte for byte."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from elision import zstd
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import RunningGateway, wait_until
from tests.gateway.scripted_upstream import ReceivedRequest, ScriptedUpstream, render_response

CHAT = "/v1/chat/completions"
WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
kinds = pytest.mark.parametrize("kind", WRITERS)
#: A body of a megabyte is read where it is alone, and two of them are not.
MEMORY = {"gateway_memory_bytes": 8_000_000, "gateway_max_read_bytes": 1_200_000}
#: Bytes that are reserved for each byte of a decompressed body.
FACTOR = 4


def make_body(size: int) -> bytes:
    message = {"role": "user", "content": "0" * size}
    return json.dumps({"model": "gpt-4.1", "messages": [message]}).encode()


class HeldAnswers:
    """A provider that answers when `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await self.go_on.wait()
        writer.write(render_response(b"{}"))


async def send_together(
    gateway: RunningGateway, upstream: ScriptedUpstream, held: HeldAnswers, raws: list[bytes], kind: str
) -> int:
    """Send them at once; return the bytes that are reserved when all have reached the provider, then let it answer."""
    clients = [await gateway.connect() for _ in raws]
    for number, (client, raw) in enumerate(zip(clients, raws, strict=True)):
        client.send_request("POST", CHAT, raw, f"content-encoding: {kind}", f"authorization: Bearer sk-{number}")
    await wait_until(lambda: len(upstream.requests) == len(raws))
    reserved = gateway.worker.app.limits.memory_gate.in_use
    held.go_on.set()
    for client in clients:
        assert (await client.read_response()).status == 200
        client.close()
    await gateway.wait_until_stored()
    assert gateway.worker.app.limits.memory_gate.in_use == 0
    return reserved


async def trial(kind: str, bodies: list[bytes], **given: Any) -> tuple[int, ScriptedUpstream, list[bytes]]:
    held, raws = HeldAnswers(), [WRITERS[kind](body) for body in bodies]
    async with open_trial(held, strategy="raw", **given) as (gateway, upstream, _):
        return await send_together(gateway, upstream, held, raws, kind), upstream, raws


@kinds
async def test_what_a_body_becomes_is_reserved(kind: str) -> None:
    """While a request is served, its memory is what was sent and what that became."""
    body = make_body(50_000)
    reserved, _, (raw,) = await trial(kind, [body])
    assert reserved == len(raw) + FACTOR * len(body)


@kinds
async def test_without_room_a_request_is_forwarded_unread(kind: str) -> None:
    """Of many that swell at once, as many are read as have room; the others arrive with the bytes that were sent."""
    body = make_body(1_000_000)
    reserved, upstream, raws = await trial(kind, [body] * 20, **MEMORY)
    assert reserved == sum(map(len, raws)) + FACTOR * len(body)
    assert sorted(asked.body for asked in upstream.requests) == sorted(raws)
    assert {asked.get_header("content-encoding") for asked in upstream.requests} == {kind}


async def test_an_unread_request_says_why() -> None:
    """Its record, which metrics and log have, names the setting."""

    async with open_trial(strategy="raw", **MEMORY) as (gateway, _, client):
        gateway.worker.app.limits.memory_gate.in_use = 5_999_000
        raw = gzip.compress(make_body(100_000))
        assert (await client.request("POST", CHAT, raw, "content-encoding: gzip")).status == 200
        await wait_until(lambda: gateway.records)
        (record,) = gateway.records
    assert record.cause == "unreadable"
    assert "memory_bytes" in record.why
