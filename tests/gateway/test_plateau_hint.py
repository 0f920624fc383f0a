"""A session that makes no progress: the response's header `x-elision-hint` says so to the gateway's client."""

from __future__ import annotations

from typing import Any

import pytest

from elision.providers.provider import Api
from tests.gateway.conversation_bytes import APIS, make_body
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import HttpResponse

HEADER = "x-elision-hint"
WINDOW = 3


def make_failing_body(api: Api, steps: int, *, stream: bool = False) -> bytes:
    """A request after steps that all failed."""
    body = make_body(api, steps, stream=stream, lines=1)
    return body.replace(b"line 0: value ", b"Error: no such file or directory: ")


async def ask(api: Api, *bodies: bytes, **given: Any) -> list[HttpResponse]:
    """Return the response to each of `bodies`, sent one after the other."""
    async with open_trial(**({"strategy": "masking", "plateau_window": WINDOW} | given)) as (gateway, *_):
        got: list[HttpResponse] = []
        for body in bodies:
            got.append(await gateway.ask(body, api=api))
            # In shadow mode a request is read behind its response.
            await gateway.wait_until_stored()
        return got


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("api", APIS)
async def test_the_client_is_told_that_nothing_progresses(api: Api, stream: bool) -> None:
    """From the turn on that the window names, in whole responses and in streams."""
    bodies = [make_failing_body(api, steps, stream=stream) for steps in (WINDOW - 1, WINDOW, WINDOW + 1)]
    before, at, after = await ask(api, *bodies)
    assert HEADER not in before.headers
    assert at.headers[HEADER] == "no progress for 3 turns: all of them failed"
    assert after.headers[HEADER] == "no progress for 4 turns: all of them failed"


async def test_no_hint_where_turns_progress() -> None:
    """Nor where no window is set."""
    (progress,) = await ask("openai", make_body("openai", WINDOW + 1))
    assert HEADER not in progress.headers
    (unguarded,) = await ask("openai", make_failing_body("openai", WINDOW + 1), plateau_window=None)
    assert HEADER not in unguarded.headers


async def test_in_shadow_mode_the_hint_is_that_of_the_call_before() -> None:
    """The response does not wait until its own request was read."""
    bodies = [make_failing_body("openai", steps) for steps in (WINDOW, WINDOW + 1, WINDOW + 2)]
    *_, last = await ask("openai", *bodies, gateway_shadow=True)
    assert last.headers[HEADER] == "no progress for 4 turns: all of them failed"
