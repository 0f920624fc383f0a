"""A prompt above its budget: the response's header and the log line say what was done to it, and whether it fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.gateway.request_record import RequestRecord, collect_facts
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import APIS, EAGER, HIDING_STEPS, make_body
from tests.gateway.gateway_trial import JSON_HEADER, answer_soundly, open_trial, render_sound
from tests.gateway.loopback_gateway import HttpResponse
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    answer_always,
    render_response,
)

HEADER = "x-elision-budget"


async def ask(
    api: Api, raw: bytes, script: Script = answer_soundly, **given: Any
) -> tuple[HttpResponse, bytes, RequestRecord]:
    """Return the response, the last body that the provider got, and the record of the only request."""
    usual = {"strategy": "masking", "reserved": 10}
    async with open_trial(script, **(usual | given)) as (gateway, upstream, _):
        got = await gateway.ask(raw, api=api)
        await gateway.wait_until_stored()
        (record,) = gateway.records
        return got, upstream.requests[-1].body, record


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("at_limit", ["hint", "refuse"])
async def test_what_was_done_is_named(api: Api, at_limit: str) -> None:
    """Old turns are summarized and the newest result is cut: the request succeeds, and nothing went wrong."""
    got, sent, record = await ask(
        api, make_body(api, HIDING_STEPS), token_budget=800, low=0.6, gateway_at_limit=at_limit
    )
    assert b"cut here to fit" in sent
    (diagnostics,) = record.step_diagnostics
    assert (len(diagnostics.clipped), diagnostics.faults) == (1, ())
    note = got.headers[HEADER]
    assert note.endswith("1 of the newest results cut")
    assert ("t1-t5 summarized" in note) == (diagnostics.summarized is not None)
    assert (f"{len(diagnostics.masked)} masked" in note) == bool(diagnostics.masked)
    assert collect_facts(record)["budget"] == note
    assert record.cause == ""


@pytest.mark.parametrize("api", APIS)
async def test_a_prompt_that_cannot_fit_is_named(api: Api) -> None:
    """The smallest prompt is sent; the log line is loud and says what it needs, and that it was sent."""
    got, sent, record = await ask(api, make_body(api, HIDING_STEPS), token_budget=150)
    assert len(sent) < len(make_body(api, HIDING_STEPS)) / 2
    assert got.status == 200
    assert got.headers[HEADER].endswith("1 of the newest results cut; the prompt does not fit")
    facts = collect_facts(record)
    assert (facts["cause"], facts["budget"]) == ("budget", got.headers[HEADER])
    assert "tokens, but only 117 are usable" in facts["why"]
    assert facts["why"].endswith("the smallest prompt is sent")


async def test_a_first_request_that_cannot_fit_is_in_the_log() -> None:
    """Its response has begun before it is read, so only the log names it; its bytes are the client's."""
    body = make_body("openai", 0, task="Mend the parser. " * 300)
    got, sent, record = await ask("openai", body, token_budget=150)
    assert sent == body
    assert HEADER not in got.headers
    assert collect_facts(record)["budget"] == "nothing hidden; the prompt does not fit"
    assert record.cause == "budget"


@pytest.mark.parametrize(
    ("steps", "given"),
    [(HIDING_STEPS, {"strategy": EAGER}), (2, {}), (HIDING_STEPS, {"token_budget": 150, "gateway_shadow": True})],
    ids=["hidden by age", "nothing hidden", "shadow"],
)
async def test_nothing_is_said_where_no_budget_acted(steps: int, given: dict[str, Any]) -> None:
    """Hiding by age needs no note, and in shadow mode the request is the client's."""
    got, _, record = await ask("openai", make_body("openai", steps), **given)
    assert HEADER not in got.headers
    assert "budget" not in collect_facts(record)
    assert record.cause == ""


async def test_a_prompt_that_the_provider_found_too_long_says_what_was_done() -> None:
    """The window is learned from the refusal, and the second request's response names what was hidden for it."""
    whole = make_body("openai", HIDING_STEPS, lines=400)

    def refuse_large(asked: ReceivedRequest) -> bytes:
        size, most = len(asked.body) // 3, len(whole) // 5
        words = f"This model's maximum context length is {most} tokens. However, your messages resulted in {size}."
        error = {"message": words, "type": "invalid_request_error", "code": "context_length_exceeded"}
        if size > most:
            return render_response(json.dumps({"error": error}).encode(), "400 No", JSON_HEADER)
        return render_sound(asked)

    got, sent, record = await ask("openai", whole, answer_always(refuse_large))
    assert got.status == 200
    assert len(sent) < len(whole)
    assert (record.cause, record.rounds) == ("overflow", 2)
    assert "masked" in got.headers[HEADER]
