"""A session that makes no progress: the response's header `x-elision-hint` says so to the gateway's client."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from elision.providers.provider import Api
from tests.gateway.conversation_bytes import APIS, PATHS, make_body, render_frames, render_whole
from tests.gateway.loopback_gateway import HttpResponse, make_settings, run_gateway
from tests.gateway.scripted_upstream import ReceivedRequest, render_response, run_scripted_upstream

HEADER = "x-elision-hint"
JSON = "content-type: application/json"
WINDOW = 3


def make_failing_body(api: Api, steps: int, *, stream: bool = False) -> bytes:
    """A request after steps that all failed."""
    body = make_body(api, steps, stream=stream, lines=1)
    return body.replace(b"line 0: value ", b"Error: no such file or directory: ")


def ask(api: Api, *bodies: bytes, stream: bool = False, **given: Any) -> list[HttpResponse]:
    """Return the response to each of `bodies`, sent one after the other."""

    async def answer(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if stream:
            events = b"".join(render_frames(api))
            writer.write(render_response(events, "200 OK", "content-type: text/event-stream"))
        else:
            writer.write(render_response(render_whole(api), "200 OK", JSON))

    async def run() -> list[HttpResponse]:
        usual = {"gateway_off": False, "strategy": "masking", "plateau_window": WINDOW}
        async with (
            run_scripted_upstream(answer) as upstream,
            run_gateway(make_settings(upstream.url, **(usual | given))) as gateway,
        ):
            client = await gateway.connect()
            got: list[HttpResponse] = []
            for body in bodies:
                got.append(await client.request("POST", PATHS[api], body, JSON))
                # In shadow mode a request is read behind its response.
                await gateway.wait_until_stored()
            client.close()
        return got

    return asyncio.run(run())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", APIS)
def test_the_client_is_told_that_nothing_progresses(api: Api, stream: bool) -> None:
    """From the turn on that the window names, in whole responses and in streams."""
    bodies = [make_failing_body(api, steps, stream=stream) for steps in (WINDOW - 1, WINDOW, WINDOW + 1)]
    before, at, after = ask(api, *bodies, stream=stream)
    assert HEADER not in before.headers
    assert at.headers[HEADER] == "no progress for 3 turns: all of them failed"
    assert after.headers[HEADER] == "no progress for 4 turns: all of them failed"


def test_no_hint_where_turns_progress() -> None:
    """Nor where no window is set."""
    (progress,) = ask("openai", make_body("openai", WINDOW + 1))
    assert HEADER not in progress.headers
    (unguarded,) = ask("openai", make_failing_body("openai", WINDOW + 1), plateau_window=None)
    assert HEADER not in unguarded.headers


def test_in_shadow_mode_the_hint_is_that_of_the_call_before() -> None:
    """The response does not wait until its own request was read."""
    bodies = [make_failing_body("openai", steps) for steps in (WINDOW, WINDOW + 1, WINDOW + 2)]
    *_, last = ask("openai", *bodies, gateway_shadow=True)
    assert last.headers[HEADER] == "no progress for 4 turns: all of them failed"
