"""Several workers: the port closes with the stop, and those who serve go on while others do not come up."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

from tests.gateway.process import PATIENCE, served
from tests.gateway.running import Client
from tests.gateway.scripted import Asked, chunk, scripted

CHAT = "/v1/chat/completions"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def connect(url: str) -> Client:
    host, port = url.removeprefix("http://").split(":")
    return Client(*await asyncio.wait_for(asyncio.open_connection(host, int(port)), PATIENCE))


async def refused(url: str) -> None:
    """Connect again and again, until nobody listens."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            client = await connect(url)
        except ConnectionRefusedError:
            return
        client.close()
    raise AssertionError("somebody still listens")


def test_a_stop_closes_the_port(tmp_path: Path) -> None:
    """While a stream under way comes to its end, whoever connects is refused at once."""
    go_on = asyncio.Event()

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM + chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(chunk(b"data: 2\n\n") + chunk(b""))

    async def run() -> None:
        async with scripted(script) as upstream:
            options = ["--off", "--upstream-openai", upstream.url, "--upstream-anthropic", "none", "--workers", "2"]
            with served(tmp_path, *options, AGENT_CONTEXT_GATEWAY_DRAIN_SECONDS="20") as gateway:
                client = await connect(gateway.url)
                client.send("POST", CHAT, b"{}")
                await client.head()
                assert await client.chunk() == b"data: 1\n\n"
                gateway.popen.send_signal(signal.SIGTERM)
                await refused(gateway.url)
                assert gateway.popen.poll() is None
                go_on.set()
                assert [await client.chunk(), await client.chunk()] == [b"data: 2\n\n", b""]
                client.close()
                assert await asyncio.to_thread(gateway.popen.wait, PATIENCE) == 0

    asyncio.run(run())
