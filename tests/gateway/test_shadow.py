"""Shadow mode over the socket: everything is decided and priced, and nothing is changed."""

from __future__ import annotations

import asyncio
import json

import pytest

from elision.gateway.routes import Api
from tests.gateway.conversing import APIS, EAGER, PATHS, body, whole
from tests.gateway.running import PATIENCE, running, settings
from tests.gateway.scripted import Asked, answer, scripted

STEPS = 8


@pytest.mark.parametrize("api", APIS)
def test_shadow_mode(api: Api) -> None:
    """The provider gets the very bytes of each request; store and dashboard say what would have been saved."""

    async def script(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(answer(whole(api), "200 OK", "content-type: application/json"))
        await writer.drain()

    async def test() -> None:
        async with scripted(script) as upstream:
            given = {"gateway_off": False, "gateway_shadow": True, "strategy": EAGER}
            async with running(settings(upstream.url, **given)) as gateway:
                client = await gateway.connect()
                for steps in range(STEPS):
                    got = await client.ask("POST", PATHS[api], body(api, steps), "authorization: Bearer k1")
                    assert got.status == 200
                # What was decided is written behind the answer.
                async with asyncio.timeout(PATIENCE):
                    while any(live.flying for live in gateway.worker.door.sessions):
                        await asyncio.sleep(0)
                told = await client.ask("GET", "/elision/api/totals")
                listed = await client.ask("GET", "/elision/api/sessions")
                client.close()
                (info,) = gateway.worker.store.sessions()
                assert info.family.startswith("shadow/")
        assert [asked.body for asked in upstream.asked] == [body(api, steps) for steps in range(STEPS)]
        totals, (row,) = told.json(), listed.json()["sessions"]
        assert totals["shadow"]
        assert row["shadow"]
        assert totals["would"]["calls"] == STEPS
        assert totals["would"]["sent_tokens"] < totals["would"]["raw_tokens"]
        # Nothing was saved.
        assert (totals["calls"], totals["saved_usd"]) == (0, 0.0)
        assert json.loads(got.body)

    asyncio.run(test())
