"""Requests by chance: valid ones, nearly valid ones, junk. A provider that answers by chance as well.

For each of them: no 5xx of our own making, no traceback in the log, an answer that can be read; the provider gets the
very bytes, or a body that breaks no rule which the client's own did not break; nothing of another key's sessions.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

from hypothesis import given
from hypothesis import settings as profile
from hypothesis import strategies as st

from elision.providers.provider import Api
from tests.figures import ReportFigures
from tests.gateway.conversation_bytes import APIS, LIST_FIELDS, PATHS, make_history, make_tools
from tests.gateway.random_requests import KEY_SECRETS, GatewayTrial, RandomRequest, TrialReport
from tests.soak import SOAK

#: Bodies, of which a hundredth are asked by default; and how many of them each gateway is asked.
BODIES, EACH = (100_000, 1_250) if SOAK else (200, 100)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"strategy": "hybrid(window=2, summarize_at=5, tail=2, schedule=every-turn)"},
    {"recall": "never", "session_max_turns": 20},
    {"strategy": "masking(window=1, schedule=every-turn)", "token_budget": 3_000, "shadow": False},
)


async def trials(bodies: int, first: int) -> TrialReport:
    """Gateways in turn, each with options of its own."""
    toll = TrialReport()
    for number, start in enumerate(range(0, bodies, EACH), start=first):
        given = {f"gateway_{name}" if name in ("session_max_turns", "shadow") else name: value
                 for name, value in OPTIONS[number % len(OPTIONS)].items()}  # fmt: skip
        toll += await GatewayTrial(number * 1_000, **given).run(min(EACH, bodies - start))
    return toll


def test_requests_by_chance(report_figures: ReportFigures) -> None:
    """Whatever is asked and whatever the provider says, what must hold does."""
    toll = asyncio.run(trials(BODIES, first=int(os.environ.get("ELISION_FUZZ_SEED", "0"))))
    report_figures(f"random requests: {toll}")
    assert toll.problems == []
    assert toll.bodies == BODIES
    # It is worth it: a good part is read, hidden in, recalled from.
    assert toll.edited > BODIES // 5
    assert toll.recalls > BODIES // 20
    assert all(toll.statuses[status] for status in (200, 404, 502))


def test_a_result_of_no_call_keeps_no_other_from_its_call() -> None:
    """What a soak found in trial 7, request 1130: a summary covered the call, and its result stayed without it."""
    said = make_history("openai", 8, word=KEY_SECRETS["sk-one"], lines=14)
    said.insert(2, said[8])
    raw = json.dumps({"model": "gpt-5.2", "messages": said, "tools": make_tools("openai")}).encode()
    headers = [(b"authorization", b"Bearer sk-one")]
    odd = RandomRequest(
        method="POST", path=PATHS["openai"].encode(), query=b"", headers=headers, body=raw, key="sk-one", api="openai"
    )

    async def run() -> TrialReport:
        trial = GatewayTrial(1, strategy="masking(window=1, schedule=every-turn)", token_budget=2_000)
        trial.provider.faults = (0.0, 0.0, 0.0)
        await trial.send_request(odd, b"1")
        return await trial.run(0)

    report = asyncio.run(run())
    assert report.problems == []
    assert report.edited


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "developer", "function"]) | JSON
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image", "input_text"]) | JSON},
    optional={name: st.text(max_size=9) | JSON for name in ("text", "id", "tool_use_id", "content", "input", "name")},
)
CALL = st.fixed_dictionaries(
    {"id": st.sampled_from(["call_1", "x"]) | JSON, "type": st.just("function")},
    optional={"function": JSON | st.fixed_dictionaries({"name": st.just("bash"), "arguments": st.text(max_size=9)})},
)
MESSAGE = st.fixed_dictionaries(
    {"role": ROLES, "content": st.text(max_size=30) | st.lists(BLOCK, max_size=3) | JSON},
    optional={"tool_calls": st.lists(CALL, max_size=2) | JSON, "tool_call_id": st.just("call_1") | JSON, "x": JSON},
)
ITEM = MESSAGE | st.fixed_dictionaries(
    {"type": st.sampled_from(["function_call", "function_call_output", "reasoning", "message", "item_reference"])},
    optional={name: st.just("call_1") | JSON for name in ("call_id", "id", "name", "arguments", "output", "summary")},
)
FIELDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("model", "tools", "stream", "system", "instructions", "thinking", "n"), JSON)
)


@profile(max_examples=2_000 if SOAK else 15)
@given(st.sampled_from(APIS), st.lists(ITEM, max_size=5), st.integers(0, 7), FIELDS, st.booleans())
def test_shapes(api: Api, items: list[Any], place: int, fields: dict[str, Any], long: bool) -> None:
    """Odd messages in the midst of a conversation, behind it, or alone, and odd fields beside them; twice in a row."""
    said: list[Any] = make_history(api, 6, word=KEY_SECRETS["sk-one"], lines=14) if long else []
    said[place:place] = items
    raw = json.dumps({"model": "gpt-5.2", LIST_FIELDS[api]: said, **fields}).encode("utf-8", "surrogatepass")
    headers = [(b"authorization", b"Bearer sk-one")]
    odd = RandomRequest(
        method="POST", path=PATHS[api].encode(), query=b"", headers=headers, body=raw, key="sk-one", api=api
    )

    async def run() -> TrialReport:
        trial = GatewayTrial(1)
        for mark in (b"1", b"2"):
            await trial.send_request(odd, mark)
        return await trial.run(0)

    assert asyncio.run(run()).problems == []
