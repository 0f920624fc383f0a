"""What is not ours to decide on: a history that the provider holds is not in the request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from elision.gateway import proxy
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import EAGER, PATHS, make_body, render_whole
from tests.gateway.loopback_gateway import make_settings, run_gateway
from tests.gateway.scripted_upstream import answer_always, render_response, run_scripted_upstream

JSON = "content-type: application/json"


def sent(api: Api, field: dict[str, Any]) -> tuple[bytes, bytes, int]:
    """(the client's bytes, the provider's, sessions kept) of a request with `field`."""
    raw = json.dumps({**json.loads(make_body(api, 4)), **field}).encode()

    async def ask() -> tuple[bytes, int]:
        given = {"gateway_off": False, "strategy": EAGER}
        async with (
            run_scripted_upstream(answer_always(render_response(render_whole(api), "200 OK", JSON))) as upstream,
            run_gateway(make_settings(upstream.url, **given)) as gateway,
        ):
            client = await gateway.connect()
            got = await client.request("POST", PATHS[api], raw, JSON)
            client.close()
            assert got.status == 200
            await gateway.wait_until_stored()
            return upstream.requests[0].body, len(gateway.worker.store.sessions())

    came, sessions = asyncio.run(ask())
    return raw, came, sessions


@pytest.mark.parametrize(
    ("api", "field"),
    [
        ("openai-responses", {"previous_response_id": "resp_1"}),
        ("openai-responses", {"conversation": "conv_1"}),
        ("openai-responses", {"conversation": {"id": "conv_1"}}),
        ("anthropic", {"thread": {"type": "create"}}),
        ("anthropic", {"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
    ],
)
def test_a_history_that_the_provider_holds_passes_as_it_came(api: Api, field: dict[str, Any]) -> None:
    """Nothing is hidden, no recall tool enters, and no request of it becomes a session of its own."""
    raw, came, sessions = sent(api, field)
    assert came == raw
    assert sessions == 0


def test_a_history_that_the_provider_holds_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what the client must set for the gateway to help."""
    proxy._log_held_history.cache_clear()
    for _ in range(2):
        sent("anthropic", {"thread": {"type": "create"}})
    told = [record.getMessage() for record in caplog.records if "the provider holds its history" in record.getMessage()]
    assert len(told) == 1
    assert "with thread=False the client sends its whole history" in told[0]


@pytest.mark.parametrize("field", [{"thread": None}, {"thread": False}, {"container": "container_1"}])
def test_a_field_that_holds_no_history_changes_nothing(field: dict[str, Any]) -> None:
    """A thread that is switched off, or a container of files: the whole history is in the request, and ours to see."""
    raw, came, sessions = sent("anthropic", field)
    assert came != raw
    assert b"elision_recall" in came
    assert sessions == 1


def test_an_answer_that_is_fetched_later_passes_as_it_came() -> None:
    """In background mode other requests fetch the answer, and pass through: a recall in it would reach the client."""
    raw, came, sessions = sent("openai-responses", {"background": True})
    assert came == raw
    assert sessions == 0
