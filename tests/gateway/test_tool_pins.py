"""Tools that a client only writes otherwise go out as they came first: the same set, and no other byte changes."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.incoming_messages import MAX_TOOL_SETS, ToolPins, read_meaning
from elision.gateway.request_body import RequestBody
from tests.gateway.conversation_bytes import PATHS
from tests.gateway.gateway_trial import open_trial
from tests.gateway.random_json import APIS, JsonWriter
from tests.gateway.scripted_upstream import answer_always, render_response

JSON = "content-type: application/json"
ANSWER = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "Done."}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 9, "cache_read_input_tokens": 2_000, "output_tokens": 3},
}
TOOLS: list[Any] = [
    {"name": "read", "description": "Read é", "input_schema": {"type": "object", "properties": {"a": {}, "b": {}}}},
    {"name": "write", "input_schema": {"type": "object", "required": ["a", "b"], "maximum": 1.50, "default": None}},
    {"name": "find", "input_schema": {"type": "object", "minimum": 1, "x": True}},
]


def write(value: Any, writer: JsonWriter) -> str:
    """The value with other white space, escapes and order of keys."""
    if isinstance(value, dict):
        names = list(value)
        writer.chance.shuffle(names)
        return writer.write_object([(name, write(value[name], writer)) for name in names])
    if isinstance(value, list):
        return writer.write_array([write(each, writer) for each in value])
    return writer.write_text(value) if isinstance(value, str) else json.dumps(value)


def count_tools(raw: bytes) -> list[str]:
    """The tools of a request, each as canonical JSON, in no order."""
    return sorted(json.dumps(tool, sort_keys=True) for tool in json.loads(raw)["tools"])


def render(tools: str, rest: str = '"content": "x"', last: str = "") -> bytes:
    return f'{{"model":"m" , "tools": {tools} ,"messages":[ {{"role":"user",{rest}}} ]{last}}}'.encode()


@given(st.integers(0, 2**32), st.sampled_from(APIS))
def test_a_pinned_request_means_the_same(seed: int, api: Any) -> None:
    """The set of tools is the client's, each is equal, the bytes are the session's first, and all others stay."""
    writer = JsonWriter(random.Random(seed))
    pins = ToolPins()
    first = write(TOOLS, writer)
    assert pins.pin_tools(body := RequestBody.parse(render(first), api)) is body
    for _ in range(3):
        tools = writer.chance.sample(TOOLS, len(TOOLS))
        own = write(tools, writer)
        # The text of the tools may stand in a message too.
        rest = '"content":' + writer.write_text(own) + "," + '"x":' + own
        raw = render(own, rest, ', "z" :' + writer.write_value())
        client = RequestBody.parse(raw, api)
        pinned = pins.pin_tools(client)
        assert pinned.raw == raw.replace(own.encode(), first.encode(), 1)
        assert count_tools(pinned.raw) == count_tools(raw)
        again = RequestBody.parse(pinned.raw, api)
        assert again.get_field("tools") == pinned.get_field("tools")
        assert again.messages == pinned.messages == client.messages
        assert pinned.render_changes(fields={"y": b"1"}) == again.render_changes(fields={"y": b"1"})


@given(st.integers(0, 2**32))
def test_random_tools_are_equal_only_with_equal_meaning(seed: int) -> None:
    writer = JsonWriter(random.Random(seed), names=("a", "b"), doubles=False)
    one, other = (writer.write_array([writer.write_value(2) for _ in range(2)]) for _ in range(2))
    if read_meaning(one.encode()) == read_meaning(other.encode()):
        assert count_tools(f'{{"tools":{one}}}'.encode()) == count_tools(f'{{"tools":{other}}}'.encode())


@pytest.mark.parametrize(
    "other",
    [
        '[{"name":"b"}]',
        '[{"name":"b"},{"name":"a","n":[1,2]},{"name":"b"}]',
        '[{"name":"b"},{"name":"a","n":[2,1]}]',
        '[{"name":"b"},{"name":"a","n":[1.0,2]}]',
        '[{"name":"b"},{"name":"a","n":[true,2]}]',
        '[{"name":"b"},{"name":"a","n":["1",2]}]',
        '[{"name":"b"},{"name":"a","n":[1,2],"m":null}]',
        '[{"name":"c","name":"b"},{"name":"a","n":[1,2]}]',
        '[{"name":"b","cache_control":{"type":"ephemeral"}},{"name":"a","n":[1,2]}]',
        '{"name":"b"}',
        "null",
    ],
)
def test_what_says_something_else_stays(other: str) -> None:
    pins = ToolPins()
    pins.pin_tools(RequestBody.parse(render('[{"name":"a","n":[1,2]},{"name":"b"}]'), "anthropic"))
    body = RequestBody.parse(render(other), "anthropic")
    assert pins.pin_tools(body) is body


def test_a_breakpoint_after_the_last_tool_stays_there() -> None:
    """Clients mark the last tool, whichever it is."""
    pins = ToolPins()
    mark = ',"cache_control":{"type":"ephemeral"}'
    first = render(f'[{{"name":"a"}},{{"name":"b"{mark}}}]')
    pins.pin_tools(RequestBody.parse(first, "anthropic"))
    assert pins.pin_tools(RequestBody.parse(render(f'[{{"name":"b"}},{{"name":"a"{mark}}}]'), "anthropic")).raw == first
    moved = RequestBody.parse(render(f'[{{"name":"b"{mark}}},{{"name":"a"}}]'), "anthropic")
    assert pins.pin_tools(moved) is moved


def test_functions_in_a_group_of_gemini() -> None:
    pins = ToolPins()
    first = b'{"contents":[],"tools":[{"functionDeclarations":[{"name":"a"},{"name":"b"}]}]}'
    pins.pin_tools(RequestBody.parse(first, "gemini"))
    other = first.replace(b'{"name":"a"},{"name":"b"}', b'{"name":"b"}, {"name":"a"}')
    assert pins.pin_tools(RequestBody.parse(other, "gemini")).raw == first


def test_a_session_remembers_some_sets() -> None:
    """An agent that plans with some tools and works with others keeps both; so many that there is no use are not."""
    pins = ToolPins()
    bodies = [RequestBody.parse(render(f'[{{"name":"a"}},{{"name":"b{number}"}}]'), "anthropic") for number in range(9)]
    for body in bodies:
        pins.pin_tools(body)
    for number, body in enumerate(bodies):
        other = RequestBody.parse(render(f'[{{"name":"b{number}"}},{{"name":"a"}}]'), "anthropic")
        assert pins.pin_tools(other).raw == (body.raw if number < MAX_TOOL_SETS else other.raw)


async def serve(bodies: list[bytes], **given: Any) -> tuple[list[bytes], str]:
    """What reaches the provider of these requests, and the metrics."""
    answer = render_response(json.dumps(ANSWER).encode(), "200 OK", JSON)
    async with open_trial(answer_always(answer), **given) as (_, upstream, client):
        for body in bodies:
            assert (await client.request("POST", PATHS["anthropic"], body, JSON)).status == 200
        # A request is counted after the last byte of its answer.
        async with asyncio.timeout(60):
            counted, metrics = 0.0, ""
            while counted < len(bodies):
                metrics = (await client.request("GET", "/metrics", b"")).body.decode()
                counted = sum(map(float, re.findall(r"^agent_context_gateway_requests_total\S* (\S+)", metrics, re.M)))
        return [received.body for received in upstream.requests], metrics


def make_session(task: str, *, tools_last: bool = False) -> list[bytes]:
    """Three requests of one agent, whose tools come in another order each time, before or after the messages."""
    orders = ['[{"name":"a"}, {"name":"b"}]', '[{"name":"b"},{"name":"a"}]', '[ {"name":"a"},{"name":"b"}]']
    words: list[str] = [f'{{"role":"user","content":"{task}"}}']
    bodies = []
    for step, tools in enumerate(orders):
        fields = [f'"tools":{tools}', f'"messages":[{",".join(words)}]']
        bodies.append(f'{{"model":"claude-sonnet-4-5",{",".join(fields[:: -1 if tools_last else 1])}}}'.encode())
        words += ['{"role":"assistant","content":"Done."}', f'{{"role":"user","content":"more {step}"}}']
    return bodies


@pytest.mark.parametrize("tools_last", [False, True])
@pytest.mark.parametrize("strategy", ["raw", "masking"])
async def test_the_gateway_pins_within_a_session_only(strategy: str, tools_last: bool) -> None:
    one, other = (make_session(task, tools_last=tools_last) for task in ("one", "other"))
    # Another session of the same client begins with another order, and keeps its own.
    bodies = [one[0], one[1], other[1], one[2]]
    sent, metrics = await serve(bodies, gateway_pin_tools=True, strategy=strategy)
    first = b'[{"name":"a"}, {"name":"b"}]'
    assert sent[0] == one[0]
    assert sent[1] == one[1].replace(b'[{"name":"b"},{"name":"a"}]', first)
    assert sent[2] == other[1]
    assert sent[3] == one[2].replace(b'[ {"name":"a"},{"name":"b"}]', first)
    assert "agent_context_gateway_pinned_requests_total 2.0" in metrics
    assert "agent_context_gateway_pinned_tokens_total 4000.0" in metrics


@pytest.mark.parametrize("given", [{}, {"gateway_pin_tools": True, "gateway_shadow": True}])
async def test_nothing_is_pinned_unless_it_is_asked_for(given: dict[str, Any]) -> None:
    bodies = make_session("one")
    sent, metrics = await serve(bodies, **given)
    assert sent == bodies
    assert "agent_context_gateway_pinned_requests_total 0.0" in metrics


async def test_a_failure_costs_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(pins: ToolPins, body: RequestBody) -> RequestBody:
        raise RuntimeError("broken")

    monkeypatch.setattr(ToolPins, "pin_tools", fail)
    bodies = make_session("one")
    sent, _ = await serve(bodies, gateway_pin_tools=True)
    assert sent == bodies
