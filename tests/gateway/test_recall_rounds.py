"""Whole answers in which the model may recall: one that does is answered, any other passes as it came."""

from __future__ import annotations

import pytest

from elision.gateway import recall_rounds
from elision.trajectory.events import UsageReported
from tests.gateway.conversation_bytes import APIS, HIDING_STEPS, PATHS, make_body, render_whole
from tests.gateway.gateway_trial import JSON_HEADER, LOOKS, find_api, open_trial
from tests.gateway.scripted_upstream import ReceivedRequest, answer_always, render_response


@pytest.mark.parametrize("spelled", [b"elision_recall", b"elision\\u005frecall"])
async def test_a_recall_is_answered_however_its_name_is_spelled(spelled: bytes) -> None:
    """JSON lets every letter of a name be escaped; the client hears of neither."""

    def answer(asked: ReceivedRequest) -> bytes:
        body = render_whole(find_api(asked), None if b"r1" in asked.body else LOOKS)
        return render_response(body.replace(b"elision_recall", spelled), "200 OK", JSON_HEADER)

    async with open_trial(answer_always(answer)) as (_, upstream, client):
        for api in APIS:
            got = await client.request("POST", PATHS[api], make_body(api, HIDING_STEPS))
            assert (got.status, b"elision" in got.body) == (200, False)
            assert b"All is done." in got.body
            assert b"r1" in upstream.requests[-1].body


@pytest.mark.parametrize("reads", [True, False])
async def test_an_answer_without_a_recall_passes_as_it_came(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read before the client has it, and its usage is recorded all the same, once."""
    odd = {api: render_whole(api).replace(b": ", b" :  ") for api in APIS}
    if not reads:
        monkeypatch.setattr(recall_rounds, "ResponseMerger", None)
    provider = answer_always(lambda asked: render_response(odd[find_api(asked)], "200 OK", JSON_HEADER))
    async with open_trial(provider) as (gateway, upstream, client):
        for api in APIS:
            got = await client.request("POST", PATHS[api], make_body(api, HIDING_STEPS))
            assert (got.status, got.body) == (200, odd[api])
            assert b"elision_recall" in upstream.requests[-1].body
            assert got.headers["x-elision-session"]
        await gateway.worker.gateway.sessions.close()
        store = gateway.worker.store
        events = [event for info in store.sessions() for event in store.events(info.key)]
        assert [each.usage.output for each in events if isinstance(each, UsageReported)] == [20] * len(APIS)
