"""One client, a gateway that reads what passes, and a provider that is sound or follows a script."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from elision.gateway.routes import Api
from tests.gateway.conversing import APIS, EAGER, PATHS, frames, whole
from tests.gateway.running import Client, Gateway, running, settings
from tests.gateway.scripted import Asked, Script, Scripted, answer, scripted

JSON, EVENTS = "content-type: application/json", "content-type: text/event-stream"
Trial = Callable[[Gateway, Scripted, Client], Awaitable[None]]


def api_of(asked: Asked) -> Api:
    """Of a path that is none of theirs, the first."""
    return next((api for api in APIS if PATHS[api] in asked.line), "openai")


async def sound(asked: Asked, writer: asyncio.StreamWriter) -> None:
    """A provider that answers."""
    api = api_of(asked)
    if b'"stream" :  true' in asked.body:
        writer.write(answer(b"".join(frames(api)), "200 OK", EVENTS))
    else:
        writer.write(answer(whole(api), "200 OK", JSON))


async def through(what: Trial, script: Script = sound, **given: Any) -> None:
    """`what` with a gateway as `given` says."""
    usual = {"gateway_off": False, "strategy": EAGER}
    async with scripted(script) as upstream, running(settings(upstream.url, **(usual | given))) as gateway:
        client = await gateway.connect()
        try:
            await what(gateway, upstream, client)
        finally:
            client.close()


def trial(what: Trial, script: Script = sound, **given: Any) -> None:
    """The same, in an event loop of its own."""
    asyncio.run(through(what, script, **given))
