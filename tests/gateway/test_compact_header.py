"""The client's wish for one request: `x-elision-compact`."""

from __future__ import annotations

import asyncio
import json

import pytest

from elision.engine import SUMMARY_BEING_WRITTEN
from tests.gateway.conversation_bytes import PATHS, make_body
from tests.gateway.gateway_trial import open_trial

JSON = "content-type: application/json"
LATE = "hybrid(window=1, summarize_at=200, tail=2, summary_max_tokens=200)"


async def ask(strategy: str, wishes: list[str]) -> tuple[list[str], list[bytes]]:
    """The reasons of the calls of one session, one for each of `wishes` ("" for no header), and what was sent."""
    async with open_trial(strategy=strategy) as (gateway, upstream, client):
        reasons = []
        for wish in wishes:
            headers = [JSON, f"x-elision-compact: {wish}"] if wish else [JSON]
            got = await client.request("POST", PATHS["openai"], make_body("openai", 8), *headers)
            assert got.status == 200
            (session,) = gateway.worker.gateway.sessions
            assert session.newest_diagnostics is not None
            reasons.append(session.newest_diagnostics.reason)
            job = session.context._opened.summary_runner._job
            if job is not None:
                await asyncio.wrap_future(job.future)
        for received in upstream.requests:
            assert not any(name.lower().startswith("x-elision") for name, _ in received.headers)
        return reasons, [received.body for received in upstream.requests]


async def test_a_summary_enters_once_it_is_written() -> None:
    """The gateway writes in the background: the request that asks is not delayed, and a later one has the summary."""
    reasons, bodies = await ask(LATE, ["", "summary", "", ""])
    assert "forced" not in reasons[0]
    assert "forced" in reasons[1:3] or SUMMARY_BEING_WRITTEN in reasons[1:3]
    first, last = (json.loads(body)["messages"] for body in (bodies[0], bodies[-1]))
    assert len(last) < len(first)


@pytest.mark.parametrize("wish", ["hide", "SUMMARY"])
async def test_a_strategy_without_summaries_hides(wish: str) -> None:
    """A header that cannot be followed whole costs no request: what the strategy may hide is hidden."""
    reasons, bodies = await ask("masking(window=1)", ["", wish])
    assert reasons[1] == "forced"
    assert len(bodies[1]) < len(bodies[0])


async def test_another_word_does_nothing() -> None:
    reasons, bodies = await ask("masking(window=1)", ["", "please"])
    assert reasons[1] != "forced"
    assert bodies[0] == bodies[1]
