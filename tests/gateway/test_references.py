"""What a request leaves behind in memory: nothing that holds its body until a look for garbage finds it.

A look that finds a few bodies of 30 MB gives their memory back in one go, and nobody is served for 40 to 90 ms.
"""

from __future__ import annotations

import asyncio
import gc
import gzip
from collections.abc import Iterator

import pytest

from elision.gateway.json_bytes import MAX_STRING_BYTES
from tests.gateway.conversation_bytes import PATHS, make_body, render_refusal
from tests.gateway.gateway_trial import JSON_HEADER, open_trial, render_sound
from tests.gateway.scripted_upstream import ReceivedRequest, answer_always, render_response
from tests.gateway.test_off_loop import request

#: What holds a body, or what was made of it.
HOLDERS = {"ClientRequest", "RequestBody", "RequestBodyReader", "RequestHandler", "RequestRecord", "_ModelRequest"}
TOO_LONG = request("openai", [{"role": "user", "content": "x" * (MAX_STRING_BYTES + 1)}])


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def count_holders() -> dict[str, int]:
    found: dict[str, int] = {}
    for each in gc.get_objects():
        name = type(each).__qualname__
        if name in HOLDERS and type(each).__module__.startswith("elision."):
            found[name] = found.get(name, 0) + 1
    return found


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        pytest.param(make_body("openai", 6), (), id="read"),
        pytest.param(make_body("openai", 6, lines=15_000), (), id="large", marks=pytest.mark.soak),
        pytest.param(TOO_LONG, (), id="unreadable"),
        pytest.param(b'{"model": "gpt-4.1", "messages": [1]}', (), id="small and unreadable"),
        pytest.param(gzip.compress(TOO_LONG), ("content-encoding: gzip",), id="compressed"),
        pytest.param(b"no gzip" * 9_000, ("content-encoding: gzip",), id="not compressed"),
        pytest.param(make_body("openai", 6), ("x-refused: 400",), id="refused"),
    ],
)
async def test_an_answered_request_is_freed_at_once(raw: bytes, fields: tuple[str, ...]) -> None:
    """Whether it could be read or not, and whether the provider refused it or not."""

    def answer(asked: ReceivedRequest) -> bytes:
        refused = asked.get_header("x-refused")
        return render_response(render_refusal("openai", 400), "400 No", JSON_HEADER) if refused else render_sound(asked)

    async with open_trial(answer_always(answer)) as (gateway, _, client):

        async def ask(times: int) -> dict[str, int]:
            for _ in range(times):
                got = await client.request("POST", PATHS["openai"], raw, *fields)
                assert got.status == (400 if "x-refused: 400" in fields else 200)
            await gateway.wait_until_stored()
            await asyncio.sleep(0)
            # They are kept for other tests.
            gateway.records.clear()
            return count_holders()

        assert await ask(3) == await ask(5)
