"""One client, a gateway that reads what passes, and a provider that is sound or follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from elision.providers.provider import Api
from tests.gateway.conversation_bytes import APIS, EAGER, PATHS, is_streamed, render_frames, render_whole
from tests.gateway.loopback_gateway import HttpClient, RunningGateway, make_settings, run_gateway
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    render_response,
    run_scripted_upstream,
)

JSON_HEADER, EVENTS_HEADER = "content-type: application/json", "content-type: text/event-stream"
TrialSteps = Callable[[RunningGateway, ScriptedUpstream, HttpClient], Awaitable[None]]


def find_api(asked: ReceivedRequest) -> Api:
    """Of a path that is none of theirs, the first."""
    return next((api for api in APIS if PATHS[api] in asked.line), "openai")


async def answer_soundly(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    """A provider that answers."""
    api = find_api(asked)
    if is_streamed(asked.body):
        writer.write(render_response(b"".join(render_frames(api)), "200 OK", EVENTS_HEADER))
    else:
        writer.write(render_response(render_whole(api), "200 OK", JSON_HEADER))


async def run_trial_async(what: TrialSteps, script: Script = answer_soundly, **given: Any) -> None:
    """`what` with a gateway as `given` says."""
    usual = {"gateway_off": False, "strategy": EAGER}
    async with (
        run_scripted_upstream(script) as upstream,
        run_gateway(make_settings(upstream.url, **(usual | given))) as gateway,
    ):
        client = await gateway.connect()
        try:
            await what(gateway, upstream, client)
        finally:
            client.close()


def run_trial(what: TrialSteps, script: Script = answer_soundly, **given: Any) -> None:
    """The same, in an event loop of its own."""
    asyncio.run(run_trial_async(what, script, **given))
