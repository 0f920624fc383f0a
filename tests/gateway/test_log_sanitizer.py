"""What a provider says of a request that it refused, fit for a log."""

from __future__ import annotations

import json
import logging

import pytest

from elision.gateway.reply_writer import sanitize_error
from elision.gateway.wire import ClientRequest
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import APIS, HIDING_STEPS, PATHS, make_body
from tests.gateway.gateway_trial import JSON_HEADER, open_trial
from tests.gateway.scripted_upstream import answer_always, render_response

KEY = "litellm-master-opensesame"
#: With one key in a header, and one in the query, where a character of it is written as its number.
REQUEST = ClientRequest(
    method="POST",
    raw_path=b"/v1/chat/completions",
    query=b"alt=sse&key=AIza%2Fquery",
    headers=[(b"Authorization", f"Bearer {KEY}".encode())],
    body=b"",
)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (f"Key expected. Received={KEY}, which is none", "Key expected. Received=[credential], which is none"),
        ("API key not valid: AIza/query", "API key not valid: [credential]"),
        ("no such path: /x?key=AIza%2Fquery&alt=sse", "no such path: /x?key=[credential]&alt=sse"),
        ("Input should be a list [input_value='My patient Ann Lee has', input_type=str]",
         "Input should be a list [input_value='…', input_type=str]"),
        ("This model's limit is 8 tokens. The client's prompt has 9", None),
        ("messages.3: `tool_use` ids were found without 'tool_result' blocks: toolu_01", None),
        (f'bad "{"x" * 61}"', 'bad "…"'),
        ("he said 'it's Ann's book' twice", "he said '…' twice"),
        ("", None),
    ],
)  # fmt: skip
def test_names_stay_and_words_go(error: str, told: str | None) -> None:
    """What helps to mend a request is its shape: neither its words nor its key."""
    assert sanitize_error(error, REQUEST) == (error if told is None else told)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("status", ["400 No", "401 No"])
async def test_the_log_of_a_gateway(api: Api, status: str, caplog: pytest.LogCaptureFixture) -> None:
    """The client is told word for word; neither its key nor what it said is in any line."""
    caplog.set_level(logging.INFO)
    error = {"type": "x", "message": f"Received={KEY}, key=opensesame-too, input_value='My patient Ann Lee has'"}
    refusal = json.dumps({"type": "error", "error": error}).encode()
    provider = answer_always(render_response(refusal, status, JSON_HEADER))
    async with open_trial(provider, gateway_log="json") as (*_, client):
        for steps in (1, HIDING_STEPS):
            got = await client.request(
                "POST",
                f"{PATHS[api]}?key=opensesame-too",
                make_body(api, steps),
                JSON_HEADER,
                f"authorization: Bearer {KEY}",
            )
            assert got.body == refusal
    assert "Received=[credential]" in caplog.text
    assert "opensesame" not in caplog.text
    assert "Ann Lee" not in caplog.text
