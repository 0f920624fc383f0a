"""One client, a gateway that reads what passes, and a provider that is sound or follows a script."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from elision.providers.provider import Api
from elision.testing.recorded_run import RecordedReply
from tests.gateway.conversation_bytes import (
    APIS,
    EAGER,
    PATHS,
    PLACEHOLDER_PART,
    is_streamed,
    make_reply,
    render_frames,
    render_refusal,
    render_whole,
)
from tests.gateway.loopback_gateway import HttpClient, RunningGateway, make_settings, run_gateway
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    answer_always,
    render_response,
    run_scripted_upstream,
)

JSON_HEADER, EVENTS_HEADER = "content-type: application/json", "content-type: text/event-stream"


def find_api(asked: ReceivedRequest) -> Api:
    """Of a path that is none of theirs, the first."""
    return next((api for api in APIS if PATHS[api] in asked.line), "openai")


def render_sound(asked: ReceivedRequest, said: RecordedReply | None = None) -> bytes:
    """The whole answer of a provider, streamed where the client asked for that."""
    api = find_api(asked)
    if is_streamed(asked.body):
        return render_response(b"".join(render_frames(api, said)), "200 OK", EVENTS_HEADER)
    return render_response(render_whole(api, said), "200 OK", JSON_HEADER)


def refuse_edited(asked: ReceivedRequest) -> bytes:
    """400 to a request in which something is hidden."""
    if PLACEHOLDER_PART in asked.body:
        return render_response(render_refusal(find_api(asked), 400), "400 No", JSON_HEADER)
    return render_sound(asked)


def recall_first(asked: ReceivedRequest) -> bytes:
    """A recall, and behind its result the answer."""
    return render_sound(asked, make_reply() if b"I look." in asked.body else LOOKS)


#: What a model says that recalls.
LOOKS = make_reply("I look.", [("r1", "elision_recall", {"handle": "t1.1"})])
#: A provider that answers.
answer_soundly = answer_always(render_sound)


@asynccontextmanager
async def open_trial(
    script: Script = answer_soundly, **given: Any
) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream, HttpClient]]:
    """A gateway as `given` says, in front of a provider, and a connection to it."""
    usual = {"gateway_off": False, "strategy": EAGER}
    async with (
        run_scripted_upstream(script) as upstream,
        run_gateway(make_settings(upstream.url, **(usual | given))) as gateway,
    ):
        client = await gateway.connect()
        try:
            yield gateway, upstream, client
        finally:
            client.close()
