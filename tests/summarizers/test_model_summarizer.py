"""Summaries by a model at a scripted server: what is asked, and asked again, what is counted, room for reasoning."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SummaryError
from elision.providers.llm.answers import EndpointAnswer, EndpointFault, parse_refusal
from elision.summarizers.endpoints import EndpointRequest
from elision.summarizers.model_summarizer import (
    FIRST_REASONING_TOKENS,
    THINKING,
    ModelSummarizer,
    ReasoningBudget,
    SummaryRetryPolicy,
)
from elision.testing.request_checks import find_problems
from elision.trajectory.plan import LivePrefix, SummaryRequest
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage
from tests.summarizers.http_endpoints import AnthropicEndpoint, OpenAIChatEndpoint, OpenAIResponsesEndpoint
from tests.summarizers.scripted_server import (
    Reply,
    ScriptedServer,
    drip,
    flood,
    hang,
    reply_chat,
    reply_claude,
    reply_error,
    reply_json,
    reply_raw,
    reset_connection,
    serve_script,
)
from tests.summarizers.turns import make_filler_turn, make_request, make_turn

PRICES = find_price_set("anthropic")
GOOD = (
    "COMPLETED: read src/parser.py; parse_line fails with ValueError in tests/test_parser.py.\n"
    "PENDING: mend parse_line.\nATTEMPTS: `pytest tests/test_parser.py`, 1x."
)
KEY = "sk-" + "proj-Zq7Wm2Xc9Vb4Nn8Kk1Jj6Hh3Gg5Ff0Dd"


def turns(*more: Turn) -> SummaryRequest:
    """Turns worth a summary: long enough, and with facts."""
    return make_request(
        make_filler_turn(1),
        make_turn(2, "I read it.", command="cat src/parser.py", result="def parse_line(text): ...\n" * 40),
        make_turn(
            3,
            "I test it.",
            command="pytest tests/test_parser.py -k parse_line",
            result="ValueError: bad\n" * 30,
            error=True,
        ),
        *more,
        max_tokens=900,
    )


def written(
    *script: Reply, asked: SummaryRequest | None = None, **options: Any
) -> tuple[Any, ScriptedServer, list[float]]:
    """The answer or the SummaryError of a chat model that answers by `script`; the server; and the pauses made."""
    pauses: list[float] = []
    patience = options.pop("patience", SummaryRetryPolicy(call_seconds=10))
    with serve_script(*script) as server:
        endpoint = OpenAIChatEndpoint("m", key="hunter22", base_url=f"{server.url}/v1")
        writer = ModelSummarizer(endpoint, retry_policy=patience, sleep=pauses.append, **options)
        try:
            return writer(asked or turns()), server, pauses
        except SummaryError as found:
            return found, server, pauses


def last(body: dict[str, Any]) -> str:
    """The text of a request's last message."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else content[-1]["text"]


def test_a_summary_with_its_bill() -> None:
    """One sound answer is taken as it is, with the tokens its provider reports and their price."""
    found, server, _ = written(reply_chat(GOOD), prices=PRICES)
    assert found.text == GOOD
    assert (found.input, found.cached, found.output, found.attempts, found.route) == (900, 300, 60, 1, "fresh")
    assert found.usd == pytest.approx((600 * 1 + 300 * 0.1 + 60 * 5) / 1e6 * PRICES.find_rates(900).input)
    (body,) = server.bodies
    assert find_problems("openai", body) == []
    assert (body["temperature"], body["max_tokens"]) == (0, 900)
    assert server.requests[0][1]["authorization"] == "Bearer hunter22"


#: Answers by how they fail: forms of texts are in `test_summary_checks`.
BAD: list[tuple[str, Reply]] = [
    ("empty", reply_chat(None)),
    ("refusal", reply_chat("", refusal="No.")),
    ("refusal", reply_chat("x", stop="content_filter")),
    ("facts-lost", reply_chat("The agent worked on the task and made some progress.")),
    (
        "tool-call",
        reply_chat(None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}]),
    ),
]


@pytest.mark.parametrize(("cause", "reply"), BAD)
def test_a_bad_answer_is_asked_for_again_otherwise(cause: str, reply: Reply) -> None:
    """Each bad answer costs one more request, which says what was wrong; then the sound one is taken and all billed.

    The same mistake twice ends it: no request is sent again as it was. The error says why and what it cost.
    """
    found, server, pauses = written(reply, reply_chat(GOOD))
    assert found.text == GOOD
    assert (found.attempts, found.input, found.output) == (2, 1800, 120)
    first, second = map(last, server.bodies)
    assert second.startswith(first)
    note = second[len(first) :]
    assert "could not be used" in note
    assert ("src/parser.py" in note) == (cause == "facts-lost")
    assert pauses == []
    failed, server, _ = written(reply, reply, reply)
    assert isinstance(failed, SummaryError)
    assert failed.cause == cause
    assert failed.billed is not None
    assert (failed.billed.input, failed.billed.output) == (1800, 120)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "cause", "requests"),
    [
        (hang, "timeout", 3),
        (drip, "timeout", 3),
        (reset_connection, "connection", 3),
        (reply_error(429, "slow down"), "rate-limited", 3),
        (reply_error(500, "oops"), "server", 3),
        (reply_error(401, "no"), "rejected", 1),
        (reply_error(404, "no such model"), "rejected", 1),
        (reply_raw(200, b"{"), "malformed", 1),
        (reply_json({"choices": []}), "malformed", 1),
        (flood, "too-large", 1),
    ],
)
def test_no_answer(reply: Reply, cause: str, requests: int) -> None:
    """A server that gives no answer is asked again if that may help, and the error says what it did."""
    patience = SummaryRetryPolicy(call_seconds=0.2, pause=0)
    found, server, _ = written(reply, reply, reply, patience=patience)
    assert isinstance(found, SummaryError)
    assert found.cause == cause
    assert str(found)
    assert found.billed is not None
    assert found.billed.input == 0
    assert len(server.requests) == requests
    assert len({json.dumps(body) for body in server.bodies}) == 1


def test_a_server_that_recovers() -> None:
    """Pauses are the server's own where it names one, else doubled."""
    found, _, pauses = written(reply_error(429, "slow", retry_after="3"), reply_error(500, "oops"), reply_chat(GOOD))
    assert found.text == GOOD
    assert found.attempts == 3
    assert pauses == [3.0, 1.0]


def test_no_waiting_beyond_the_limit() -> None:
    """A server that wants to be left alone for longer than the time there is, is not waited for."""
    found, server, pauses = written(reply_error(429, "slow", retry_after="3600"))
    assert isinstance(found, SummaryError)
    assert found.cause == "rate-limited"
    assert (len(server.requests), pauses) == (1, [])


def test_the_time_is_limited_in_all() -> None:
    """When the time is over no further request is made, whatever the last one said."""
    ticks = iter([0.0, 0.0, 0.0, 130.0, 130.0, 130.0])
    found, server, _ = written(reply_chat("no"), clock=lambda: next(ticks))
    assert isinstance(found, SummaryError)
    assert found.cause == "timeout"
    assert len(server.requests) == 1


def test_temperature_and_limit_are_learned() -> None:
    """What a model turns down is left out at once, and from then on."""
    no_heat = reply_error(400, "Unsupported value: 'temperature' does not support 0 with this model.")
    no_limit = reply_error(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    with serve_script(no_heat, no_limit, reply_chat(GOOD), reply_chat(GOOD)) as server:
        writer = ModelSummarizer(OpenAIChatEndpoint("m", base_url=server.url))
        assert writer(turns()).text == writer(turns()).text == GOOD
    assert [("temperature" in body, "max_tokens" in body) for body in server.bodies] == [
        (True, True),
        (False, True),
        (False, False),
        (False, False),
    ]
    assert server.bodies[-1]["max_completion_tokens"] == 900


def test_a_model_that_only_thinks_gets_room() -> None:
    """An answer that was all reasoning is asked for with more room, now and later."""
    found, server, _ = written(reply_chat("", stop="length"), reply_chat(GOOD))
    assert found.text == GOOD
    assert [body["max_tokens"] for body in server.bodies] == [900, 8900]


class Answering:
    """A model at hand that answers by `script`, and from then on as at its end; keeps what it was asked."""

    model = "m"

    def __init__(self, *script: EndpointAnswer | EndpointFault) -> None:
        self.script, self.asked = list(script), list[EndpointRequest]()

    def can_extend(self, live: LivePrefix) -> bool:
        return False

    def ask(self, question: EndpointRequest) -> EndpointAnswer | EndpointFault:
        self.asked.append(question)
        return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    @property
    def rooms(self) -> list[int]:
        return [question.max_tokens for question in self.asked]


CUT = EndpointAnswer(text="", stop="length")


def done(output: int) -> EndpointAnswer:
    """A summary for which `output` tokens are reported."""
    return EndpointAnswer(text=GOOD, usage=Usage(input=900, output=output))


def summarized(model: Answering, times: int, window: int = 128_000) -> ModelSummarizer:
    """A writer that asked `model` for `times` long summaries."""
    writer = ModelSummarizer(model, window=window)
    long = turns(make_turn(4, "Logs.", command="cat log", result="line of a log 4711\n" * 20_000))
    for _ in range(times):
        with contextlib.suppress(SummaryError):
            writer(long)
    return writer


@pytest.mark.parametrize("window", [4_000, 32_000, 200_000])
def test_room_for_reasoning_has_a_ceiling(window: int) -> None:
    """It takes no more than a share of the window and leaves the prompt its own, however often answers are cut off."""
    writer = summarized(model := Answering(CUT), 8, window)
    assert max(model.rooms) == 900 + window // 4
    assert min(len(question.text) for question in model.asked) > 0.2 * len(model.asked[0].text)
    assert writer.thinking_tokens <= window // 4


def test_room_that_was_of_no_use_is_given_up() -> None:
    """A model that fills even the most with reasoning is left as little as at first again."""
    summarized(model := Answering(CUT), 5)
    first = model.rooms.index(32900)
    assert model.rooms[:first] == sorted(model.rooms[:first])
    assert 900 in model.rooms[first:]


def test_room_comes_down_again() -> None:
    """What was needed once is not asked for ever: answers that reason less are left less, by half at a time."""
    writer = summarized(model := Answering(CUT, done(5_000), done(100)), 20)
    assert model.rooms[:3] == [900, 8900, 8900]
    assert model.rooms[2:] == sorted(model.rooms[2:], reverse=True)
    assert model.rooms[-1] < 1300
    assert writer.thinking_tokens < 200


REFUSED = {
    "Anthropic": ("max_tokens: 8900 > 4096, which is the maximum allowed number of output tokens for m", 4096),
    "OpenAI": ("max_tokens is too large: 8900. This model supports at most 8192 completion tokens", 8192),
    "Gemini": (
        "Unable to submit request because it has a maxOutputTokens value of 8900 but the supported range is from 1 "
        "(inclusive) to 8193 (exclusive). Update the value and try again.",
        8192,
    ),
}


@pytest.mark.parametrize(("message", "most"), REFUSED.values(), ids=REFUSED)
def test_the_longest_answer_of_a_model_is_learned(message: str, most: int) -> None:
    """A request for more is made again with as much as the model writes, and no later one asks for more."""
    model = Answering(CUT, parse_refusal(400, message, {}), done(5_000), CUT, done(5_000))
    summarized(model, 2)
    assert model.rooms == [900, 8900, most, most, most]


def test_room_that_is_refused_without_a_number_is_given_up() -> None:
    """The summary fails, and the next one asks for as little as at first."""
    summarized(model := Answering(CUT, parse_refusal(400, "max_tokens: no", {}), done(100)), 2)
    assert model.rooms == [900, 8900, 900]


def test_it_is_safe_to_use_from_several_threads() -> None:
    """Answers that are cut off at once leave room for one more step, as one would, and no lesson is lost."""
    barrier = threading.Barrier(8)

    class Together:
        """A model whose first eight answers end at one moment."""

        model = "m"

        def __init__(self) -> None:
            self.asked: list[int] = []

        def can_extend(self, live: LivePrefix) -> bool:
            return False

        def ask(self, question: EndpointRequest) -> EndpointAnswer:
            self.asked.append(question.max_tokens)
            if question.max_tokens == 900:
                barrier.wait(10)
                return EndpointAnswer(text="", stop="length")
            return EndpointAnswer(text=GOOD)

    endpoint = Together()
    writer = ModelSummarizer(endpoint)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(writer, [turns()] * 8))
    assert {each.text for each in found} == {GOOD}
    assert sorted(endpoint.asked) == [900] * 8 + [8900] * 8
    assert writer.thinking_tokens == THINKING


def test_a_cut_answer_loses_its_last_line() -> None:
    """What stops at the limit is taken without the line that was being written."""
    found, _, _ = written(reply_chat(GOOD + "\nand then it", stop="length"))
    assert found.text == GOOD


def test_thinking_in_the_text_is_left_out() -> None:
    """Local models put their reasoning in front of the answer."""
    found, _, _ = written(reply_chat(f"<think>\nI should...\n</think>\n\n{GOOD}"))
    assert found.text == GOOD


def test_overflow_is_never_sent_again_as_it_was() -> None:
    """A prompt that is too long is sent once more, cut to the size that the error names."""
    long = turns(make_turn(4, "Logs.", command="cat log", result="line of a log 4711\n" * 20_000))
    found, server, _ = written(
        reply_error(400, "prompt is too long: 60000 tokens > 20000 maximum"), reply_chat(GOOD), asked=long
    )
    assert found.text == GOOD
    first, second = (len(last(body)) for body in server.bodies)
    assert second < 0.34 * first


def test_many_turns_fit_a_small_window() -> None:
    """Where even the ends of all texts are too long, turns in the middle go, and that is said."""
    many = make_request(*(make_filler_turn(n, 2_000) for n in range(1, 200)), max_tokens=900)
    _, server, _ = written(reply_chat(GOOD), window=8_000, asked=many)
    assert "do not fit and are left out here" in last(server.bodies[0])
    assert "[turn 199: " in last(server.bodies[0])
    assert len(last(server.bodies[0])) < 8_000 * 5


def test_secrets_go_neither_in_nor_out() -> None:
    """Keys in turns, task and previous summary are not sent; one in the answer is not kept; all are counted."""
    asked = SummaryRequest(
        previous=f"used {KEY}",
        task=f"token: {KEY}",
        turns=(
            *turns().turns,
            make_turn(4, "ok", command=f"export OPENAI_API_KEY={KEY}", result=f"{KEY} set", user=KEY),
        ),
        max_tokens=900,
    )
    found, server, _ = written(reply_chat(f"{GOOD} Key: {KEY}"), asked=asked)
    assert KEY not in json.dumps(server.bodies)
    assert KEY not in found.text
    assert "[redacted: openai-key]" in found.text
    assert found.redacted >= 6


# -- extending the live prefix -----------------------------------------------------------------------------------------

CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "cat src/parser.py"}'}}
TOOL = {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
CHAT_LIVE = LivePrefix(
    dialect="openai",
    model="m",
    tools=(TOOL,),
    messages=(
        {"role": "system", "content": "You mend code."},
        {"role": "user", "content": "Mend the parser."},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "[t1.1 bash: 40 lines]"},
    ),
)
USE = {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "cat src/parser.py"}}
CLAUDE_LIVE = LivePrefix(
    dialect="anthropic",
    model="m",
    system="You mend code.",
    tools=({"name": "bash", "input_schema": {"type": "object", "properties": {}}},),
    messages=(
        {"role": "user", "content": [{"type": "text", "text": "Mend it.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "[t1.1 bash: 40 lines]"}]},
    ),
)
RESPONSES_LIVE = LivePrefix(
    dialect="openai-responses",
    model="m",
    system="You mend code.",
    tools=({"type": "function", "name": "bash", "parameters": {"type": "object", "properties": {}}, "strict": False},),
    messages=(
        {"role": "user", "content": "Mend it."},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "cat src/parser.py"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "[t1.1 bash: 40 lines]"},
    ),
)


def extending(live: LivePrefix) -> SummaryRequest:
    asked = turns()
    return SummaryRequest(previous="", task=asked.task, turns=asked.turns, max_tokens=900, route="extend", live=live)


def responded(text: str) -> Reply:
    part = {"type": "output_text", "text": text, "annotations": []}
    used = {"input_tokens": 900, "output_tokens": 60, "input_tokens_details": {"cached_tokens": 300}}
    return reply_json({"output": [{"type": "message", "role": "assistant", "content": [part]}], "usage": used})


@pytest.mark.parametrize(
    ("make", "api", "live", "reply", "field"),
    [
        (OpenAIChatEndpoint, "openai", CHAT_LIVE, reply_chat(GOOD), "messages"),
        (AnthropicEndpoint, "anthropic", CLAUDE_LIVE, reply_claude(GOOD), "messages"),
        (OpenAIResponsesEndpoint, "openai-responses", RESPONSES_LIVE, responded(GOOD), "input"),
    ],
)
def test_a_live_prefix_is_extended(
    make: Callable[..., Any], api: Any, live: LivePrefix, reply: Reply, field: str
) -> None:
    """The live messages and tools go out as they were, one message behind them; what is masked in them is told."""
    with serve_script(reply) as server:
        found = ModelSummarizer(make("m", key="k", base_url=server.url))(extending(live))
    (body,) = server.bodies
    assert found.route == "extend"
    assert (found.text, found.input, found.cached, found.output) == (GOOD, 900, 800 if api == "anthropic" else 300, 60)
    assert body[field][:-1] == [*live.messages]
    assert body["tools"] == [*live.tools]
    assert body[field][-1]["role"] == "user"
    told = json.dumps(body[field][-1])
    assert "def parse_line(text)" in told
    assert "called `pytest tests/test_parser.py -k parse_line`" in told
    assert find_problems(api, body) == []


@pytest.mark.parametrize(
    ("make", "reply"), [(OpenAIChatEndpoint, reply_chat(GOOD)), (AnthropicEndpoint, reply_claude(GOOD))]
)
def test_a_fresh_prompt_is_one_message(make: Callable[..., Any], reply: Reply) -> None:
    """Without a live prefix the request is the prompt and nothing else."""
    with serve_script(reply) as server:
        assert ModelSummarizer(make("m", key="k", base_url=server.url))(turns()).route == "fresh"
    (body,) = server.bodies
    assert len(body["messages"]) == 1
    assert find_problems("anthropic" if make is AnthropicEndpoint else "openai", body) == []
    assert "tools" not in body


def test_anthropic_keeps_tool_choice_and_cache_markers() -> None:
    """Nothing is set that would lose the cached messages; without markers the provider is asked to place them."""
    bare = LivePrefix(dialect="anthropic", model="m", messages=({"role": "user", "content": "Mend it."},))
    with serve_script(reply_claude(GOOD), reply_claude(GOOD)) as server:
        writer = ModelSummarizer(AnthropicEndpoint("m", key="k", base_url=server.url))
        writer(extending(CLAUDE_LIVE))
        writer(extending(bare))
    marked, automatic = server.bodies
    assert "tool_choice" not in marked
    assert "cache_control" not in marked
    assert automatic["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(
    "live",
    [
        CLAUDE_LIVE,
        LivePrefix(dialect="openai", model="another", messages=CHAT_LIVE.messages),
        LivePrefix(dialect="openai", model="m", messages=({"role": "user", "content": f"key {KEY}"},)),
    ],
    ids=["another dialect", "another model", "a secret in it"],
)
def test_what_cannot_be_extended_is_asked_afresh(live: LivePrefix) -> None:
    """Another provider's or model's prefix is in no cache of ours, and one with a secret is not ours to send."""
    found, server, _ = written(reply_chat(GOOD), asked=extending(live))
    assert found.route == "fresh"
    assert KEY not in json.dumps(server.bodies)


def test_an_extension_that_overflows_is_asked_afresh() -> None:
    """Where the live prefix and the question are too long together the prompt is written from the turns."""
    script = (reply_error(400, "prompt is too long: 9000 tokens > 8000 maximum"), reply_chat(GOOD))
    found, server, _ = written(*script, asked=extending(CHAT_LIVE))
    assert found.route == "fresh"
    assert [len(body["messages"]) for body in server.bodies] == [5, 1]


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        (reply_claude("", stop="refusal"), "refusal"),
        (reply_claude("", stop="max_tokens"), "truncated"),
        (
            reply_json({"content": [USE], "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}),
            "tool-call",
        ),
        (reply_json({"type": "error", "error": {"type": "overloaded_error"}}), "malformed"),
    ],
)
def test_how_claude_stops(reply: Reply, cause: str) -> None:
    """Anthropic's own words for a refusal, a full answer, a tool call and an error."""
    with serve_script(reply, reply, reply) as server, pytest.raises(SummaryError) as found:
        ModelSummarizer(AnthropicEndpoint("m", key="k", base_url=server.url))(turns())
    assert found.value.cause == cause


def test_a_router_that_hides_errors() -> None:
    """An upstream's error with status 200 is an error."""
    found, _, _ = written(reply_json({"error": {"code": 402, "message": "no credit"}}))
    assert found.cause == "rejected"


def test_nothing_shows_the_key() -> None:
    """Neither the writer nor the endpoint nor an error prints it."""
    found, _, _ = written(reply_error(401, "bad key hunter22"))
    shown = repr(ModelSummarizer(OpenAIChatEndpoint("m", key="hunter22", base_url="http://127.0.0.1:1")))
    assert "hunter22" not in shown
    assert "hunter22" not in str(found)


def test_it_doubles_up_to_its_ceiling() -> None:
    """From nothing to a first step, then twice what was not enough."""
    room, seen = ReasoningBudget(0), []
    for _ in range(5):
        room.grow(room.tokens, 50_000)
        seen.append(room.tokens)
    assert seen == [FIRST_REASONING_TOKENS, 2 * FIRST_REASONING_TOKENS, 4 * FIRST_REASONING_TOKENS, 50_000, 50_000]


def test_what_it_comes_down_to() -> None:
    """Twice what was needed, by half at most, and never less than at first."""
    room = ReasoningBudget(1_000)
    room.grow(20_000, 50_000)
    seen = []
    for needed in (15_000, 30_000, 0, 0, 0, 0, 0, 0):
        room.shrink(needed)
        seen.append(room.tokens)
    assert seen == [30_000, 30_000, 15_000, 7_500, 3_750, 1_875, 1_000, 1_000]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=40), st.integers(0, 10_000))
def test_it_stays_within_its_bounds(steps: list[tuple[bool, int]], least: int) -> None:
    """Whatever happens, in any order."""
    room = ReasoningBudget(least)
    for grows, tokens in steps:
        if grows:
            room.grow(min(tokens, room.tokens), 40_000)
        else:
            room.shrink(tokens)
        assert least <= room.tokens <= max(least, 40_000)
