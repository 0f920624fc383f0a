"""One worker put together: what it does without."""

from __future__ import annotations

import asyncio

import pytest
from tests.gateway.running import running, settings
from tests.gateway.scripted import always, answer, scripted

from lacuna.gateway.scrape import Scrape


def test_metrics_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Where the files that workers share are not to be had, it is logged, and requests are served."""

    def full(self: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Scrape, "__init__", full)

    async def run() -> None:
        async with scripted(always(answer(b"ok"))) as upstream, running(settings(upstream.url)) as gateway:
            client = await gateway.connect()
            assert (await client.ask("POST", "/v1/chat/completions", b"{}")).body == b"ok"
            assert (await client.ask("GET", "/metrics")).status == 501
            client.close()

    asyncio.run(run())
    assert "No space left on device" in caplog.text
