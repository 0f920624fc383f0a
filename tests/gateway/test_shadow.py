"""Shadow mode over the socket: everything is decided and priced, and nothing is changed."""

from __future__ import annotations

import json

import pytest

from elision.providers.provider import Api
from tests.gateway.conversation_bytes import APIS, PATHS, make_body
from tests.gateway.gateway_trial import open_trial

STEPS = 8


@pytest.mark.parametrize("api", APIS)
async def test_shadow_mode(api: Api) -> None:
    """The provider gets the very bytes of each request; store and dashboard say what would have been saved."""

    async with open_trial(gateway_shadow=True) as (gateway, upstream, client):
        for steps in range(STEPS):
            got = await client.request("POST", PATHS[api], make_body(api, steps), "authorization: Bearer k1")
            assert got.status == 200
        # What was decided is written behind the answer.
        await gateway.wait_until_stored()
        told = await client.request("GET", "/elision/api/totals")
        listed = await client.request("GET", "/elision/api/sessions")
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
