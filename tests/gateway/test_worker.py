"""One worker put together: what it does without, and what the dashboard's threads see of it."""

from __future__ import annotations

import asyncio
import json
import sys
import threading

import pytest

from elision.gateway.identity import ClientIdentity
from elision.gateway.request_body import RequestBody
from elision.gateway.request_metrics import MetricsPage
from elision.gateway.worker import Worker
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import make_settings, run_gateway
from tests.gateway.scripted_upstream import answer_always, render_response


async def test_metrics_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the files that workers share are not to be had, it is logged, and requests are served."""

    def full(self: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(MetricsPage, "__init__", full)

    async with open_trial(answer_always(render_response(b"ok")), gateway_off=True) as (*_, client):
        assert (await client.request("POST", "/v1/chat/completions", b"{}")).body == b"ok"
        assert (await client.request("GET", "/metrics")).status == 501
    assert "No space left on device" in caplog.text


def begin(worker: Worker, name: str) -> None:
    """A session of that name, at rest."""
    raw = json.dumps({"model": "m", "messages": [{"role": "user", "content": name}]}).encode()
    live = worker.gateway.sessions.claim_session(
        ClientIdentity(namespace="anonymous"), "openai", RequestBody.parse(raw, "openai")
    )
    worker.gateway.sessions.release_session(live, answered=True)


def test_the_dashboard_looks_while_sessions_come() -> None:
    """Its threads ask which sessions are busy at any moment, also while there come new ones."""
    failed, over = list[RuntimeError](), threading.Event()

    def look(worker: Worker) -> None:
        while not over.is_set():
            try:
                worker._list_busy_sessions()
            except RuntimeError as error:
                failed.append(error)

    async def run() -> None:
        async with run_gateway(make_settings(gateway_off=False)) as gateway:
            looking = threading.Thread(target=look, args=(gateway.worker,))
            looking.start()
            for number in range(80):
                begin(gateway.worker, f"task {number}")
            over.set()
            looking.join()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        asyncio.run(run())
    finally:
        over.set()
        sys.setswitchinterval(interval)
    assert not failed
