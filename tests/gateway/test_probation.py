"""A summary on probation behind the gateway: held for its calls, then part of every request."""

from __future__ import annotations

import asyncio
import json

from tests.gateway.conversation_bytes import PATHS, make_body, render_whole
from tests.gateway.loopback_gateway import make_settings, run_gateway
from tests.gateway.scripted_upstream import answer_always, render_response, run_scripted_upstream

JSON = "content-type: application/json"
STRATEGY = "summarization(every=4, tail=2, schedule=every-turn, summary_max_tokens=400, probation=3)"
#: Steps after which the first summary is due.
DUE = 6


async def ask(last: int) -> tuple[list[str], list[bytes]]:
    """The reasons of the calls after 1 ... `last` steps of one conversation, and what was sent."""
    async with (
        run_scripted_upstream(answer_always(render_response(render_whole("openai"), "200 OK", JSON))) as upstream,
        run_gateway(make_settings(upstream.url, gateway_off=False, strategy=STRATEGY)) as gateway,
    ):
        client = await gateway.connect()
        reasons = []
        for steps in range(1, last + 1):
            got = await client.request("POST", PATHS["openai"], make_body("openai", steps), JSON)
            assert got.status == 200
            (session,) = gateway.worker.gateway.sessions
            assert session.newest_diagnostics is not None
            reasons.append(session.newest_diagnostics.reason)
            job = session.context._summary_runner._job
            if job is not None:
                await asyncio.wrap_future(job.future)
        client.close()
        return reasons, [received.body for received in upstream.requests]


def test_a_summary_enters_after_its_probation() -> None:
    """The gateway writes in the background; that time is part of the probation, so the call is the library's."""
    reasons, bodies = asyncio.run(ask(DUE + 4))
    summarized = ["[Record of turns 1-" in json.dumps(json.loads(body)) for body in bodies]
    assert summarized == [False] * (DUE + 2) + [True] * 2
    assert reasons[DUE : DUE + 2] == ["summary on probation"] * 2
    assert reasons[DUE + 2] == "probation over"
