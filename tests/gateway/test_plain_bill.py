"""What a gateway says it saved against an independent bill: of the same agent without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pytest

from elision.lab.run_as_recorded import sizer
from elision.manager.session_history import load_session_log
from elision.strategies.guards import Guards
from elision.telemetry.diagnostics import Costs
from tests.billed_provider import (
    BilledProvider,
    Json,
    Shape,
    begin_history,
    bill_plain_agent,
    make_answer,
    make_recall,
    make_request,
    make_results,
    make_step,
)
from tests.gateway.conversation_bytes import PATHS
from tests.gateway.gateway_trial import JSON_HEADER, open_trial
from tests.gateway.scripted_upstream import ReceivedRequest, render_response
from tests.soak import pair_cases

STEPS: Final = 45


@dataclass(slots=True)
class Upstream:
    """A provider that answers step by step, recalls before some steps, and fails once at others."""

    shape: Shape
    recalls: Sequence[int] = ()
    failing: Sequence[int] = ()
    provider: BilledProvider = field(init=False)
    recalled: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.provider = BilledProvider(self.shape)

    async def answer(self, asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        body = json.loads(asked.body)
        number = 1 + max((at for at in range(1, STEPS + 1) if f'"c{at}"'.encode() in asked.body), default=0)
        if number in self.failing and number not in self.failed:
            self.failed.append(number)
            writer.write(render_response(b'{"error": {"message": "overloaded"}}', "503 Overloaded", JSON_HEADER))
            return
        call, text = make_step(number), f"step {number}"
        offered = b'"elision_recall"' in asked.body
        if offered and number in self.recalls and number not in self.recalled:
            self.recalled.append(number)
            call, text = make_recall(number, "t1.1", ""), "I need that once more."
        answer = make_answer(self.shape, [call], text)
        usage = self.provider.bill(body, answer)
        writer.write(render_response(json.dumps(self._render(answer, usage)).encode(), "200 OK", JSON_HEADER))

    def _render(self, answer: Json, usage: Json) -> Json:
        told = {"id": f"a{self.provider.prompts}", "model": "", "usage": usage}
        if self.shape == "anthropic":
            return {**told, "type": "message", **answer, "stop_reason": "tool_use", "stop_sequence": None}
        choice = {"index": 0, "message": answer, "finish_reason": "tool_calls"}
        return {**told, "object": "chat.completion", "created": 1, "choices": [choice]}


def _take_fields(said: Json) -> Json:
    return {name: said[name] for name in ("content", "tool_calls") if name in said}


async def run_agent(upstream: Upstream) -> Costs:
    """Send an agent's requests through a gateway; each step's request again until it is answered."""
    shape = upstream.shape

    async with open_trial(upstream.answer, strategy="masking(window=6)", tokens="o200k") as (gateway, _, client):
        history = begin_history()
        for number in range(1, STEPS + 1):
            raw = json.dumps(make_request(shape, history)).encode()
            response = await client.request("POST", PATHS[shape], raw, JSON_HEADER)
            while response.status == 503:
                response = await client.request("POST", PATHS[shape], raw, JSON_HEADER)
            assert response.status == 200
            step = make_step(number)
            assert f'"c{number}"'.encode() in response.body
            assert b"elision_recall" not in response.body
            told = response.json()
            said = told if shape == "anthropic" else told["choices"][0]["message"]
            history += [{"role": "assistant", **_take_fields(said)}, *make_results(shape, [step])]
        await gateway.wait_until_stored()
        store = gateway.worker.store
        (info,) = store.sessions()
        account = load_session_log(store, info, sizer(shape, "o200k"), Guards()).build_report()
        assert account.final is not None
        return account.final.costs


@pytest.mark.parametrize(("kind", "shape"), pair_cases(["plain", "recalls", "failing"], ["openai", "anthropic"]))
async def test_saved_is_what_the_plain_agent_pays_more(shape: Shape, kind: str) -> None:
    """Within 1 %, though the model recalls behind the client's back, tools are added, and requests fail."""
    given = {"recalls": range(30, STEPS, 6)} if kind == "recalls" else {}
    given |= {"failing": range(10, STEPS, 4)} if kind == "failing" else {}
    upstream = Upstream(shape, **given)
    costs = await run_agent(upstream)
    assert len(upstream.recalled) >= len(upstream.recalls) - 1
    assert len(upstream.failed) == len(upstream.failing)
    plain = bill_plain_agent(shape, STEPS)
    saved = plain.usd - upstream.provider.usd
    assert abs(saved) > 0.05 * plain.usd
    assert costs.saved == pytest.approx(saved, rel=0.01)
    assert costs.raw == pytest.approx(plain.usd, rel=0.005)
