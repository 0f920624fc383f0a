"""Shadow mode over the socket: everything is decided and priced, and nothing is changed."""

from __future__ import annotations

import asyncio
import json

import pytest

from elision.providers.provider import Api
from tests.gateway.conversation_bytes import APIS, EAGER, PATHS, make_body, render_whole
from tests.gateway.loopback_gateway import make_settings, run_gateway
from tests.gateway.scripted_upstream import ReceivedRequest, render_response, run_scripted_upstream

STEPS = 8


@pytest.mark.parametrize("api", APIS)
def test_shadow_mode(api: Api) -> None:
    """The provider gets the very bytes of each request; store and dashboard say what would have been saved."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(render_whole(api), "200 OK", "content-type: application/json"))
        await writer.drain()

    async def test() -> None:
        async with run_scripted_upstream(script) as upstream:
            given = {"gateway_off": False, "gateway_shadow": True, "strategy": EAGER}
            async with run_gateway(make_settings(upstream.url, **given)) as gateway:
                client = await gateway.connect()
                for steps in range(STEPS):
                    got = await client.request("POST", PATHS[api], make_body(api, steps), "authorization: Bearer k1")
                    assert got.status == 200
                # What was decided is written behind the answer.
                await gateway.wait_until_stored()
                told = await client.request("GET", "/elision/api/totals")
                listed = await client.request("GET", "/elision/api/sessions")
                client.close()
                (info,) = gateway.worker.store.sessions()
                assert info.family.startswith("shadow/")
        assert [asked.body for asked in upstream.requests] == [make_body(api, steps) for steps in range(STEPS)]
        totals, (row,) = told.json(), listed.json()["sessions"]
        assert totals["shadow"]
        assert row["shadow"]
        assert totals["would"]["calls"] == STEPS
        assert totals["would"]["sent_tokens"] < totals["would"]["raw_tokens"]
        # Nothing was saved.
        assert (totals["calls"], totals["saved_usd"]) == (0, 0.0)
        assert json.loads(got.body)

    asyncio.run(test())
