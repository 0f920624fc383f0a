"""What is not ours to decide on: a history that the provider holds is not in the request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.gateway import proxy
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import make_body
from tests.gateway.gateway_trial import open_trial


async def sent(api: Api, field: dict[str, Any]) -> tuple[bytes, bytes, int]:
    """(the client's bytes, the provider's, sessions kept) of a request with `field`."""
    raw = json.dumps({**json.loads(make_body(api, 4)), **field}).encode()
    async with open_trial() as (gateway, upstream, _):
        assert (await gateway.ask(raw, api=api)).status == 200
        await gateway.wait_until_stored()
        return raw, upstream.requests[0].body, len(gateway.worker.store.sessions())


@pytest.mark.parametrize(
    ("api", "field"),
    [
        ("openai-responses", {"previous_response_id": "resp_1"}),
        ("openai-responses", {"conversation": "conv_1"}),
        ("openai-responses", {"conversation": {"id": "conv_1"}}),
        # Other requests fetch the answer and pass through: a recall in it would reach the client.
        ("openai-responses", {"background": True}),
        ("anthropic", {"thread": {"type": "create"}}),
        ("anthropic", {"thread": {"type": "continue", "previous_message_id": "msg_1"}}),
    ],
)
async def test_a_history_that_the_provider_holds_passes_as_it_came(api: Api, field: dict[str, Any]) -> None:
    """Nothing is hidden, no recall tool enters, and no request of it becomes a session of its own."""
    raw, came, sessions = await sent(api, field)
    assert came == raw
    assert sessions == 0


async def test_a_history_that_the_provider_holds_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what the client must set for the gateway to help."""
    proxy._log_held_history.cache_clear()
    for _ in range(2):
        await sent("anthropic", {"thread": {"type": "create"}})
    told = [record.getMessage() for record in caplog.records if "the provider holds its history" in record.getMessage()]
    assert len(told) == 1
    assert "with thread=False the client sends its whole history" in told[0]


@pytest.mark.parametrize("field", [{"thread": None}, {"thread": False}, {"container": "container_1"}])
async def test_a_field_that_holds_no_history_changes_nothing(field: dict[str, Any]) -> None:
    """A thread that is switched off, or a container of files: the whole history is in the request, and ours to see."""
    raw, came, sessions = await sent("anthropic", field)
    assert came != raw
    assert b"elision_recall" in came
    assert sessions == 1
