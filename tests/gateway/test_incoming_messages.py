"""Messages, hidden rounds and tools of a request, compared with what came before."""

from __future__ import annotations

import asyncio
import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.incoming_messages import MAX_TOOL_SETS, HiddenRounds, IncomingMessages, ToolPins, read_meaning
from elision.gateway.request_body import RequestBody, UnreadableBody
from elision.providers.live.conversation import Conversation, count_answers
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.trajectory.events import RecallExchanged
from tests.gateway.conversation_bytes import APIS, PATHS, make_history
from tests.gateway.gateway_trial import open_trial
from tests.gateway.random_json import JsonWriter
from tests.gateway.scripted_upstream import answer_always, render_response

Json = dict[str, Any]


def make_conversation(api: Api = "openai", seed: bytes = b"k1") -> Conversation:
    return Conversation(PROVIDERS[api].live, seed)


def raws(messages: list[Json], **odd: Any) -> list[bytes]:
    return [json.dumps(message, **odd).encode() for message in messages]


def arrived(found: Conversation, sent: list[bytes]) -> IncomingMessages:
    return IncomingMessages(found.dialect, sent)


def take(found: Conversation, sent: list[bytes]) -> None:
    arrived(found, sent).extend_conversation(found)


def count_shared(found: Conversation, sent: list[bytes]) -> int:
    return arrived(found, sent).count_shared(found)


def list_raws(found: Conversation) -> list[bytes]:
    return [message.raw for message in found.messages]


@pytest.mark.parametrize("api", APIS)
def test_a_history_that_grows(api: Api) -> None:
    """What is known keeps the object that it was read to, and every history keeps its name."""
    found, whole = make_conversation(api), raws(make_history(api, 4))
    nodes: list[bytes] = []
    for count in range(1, len(whole) + 1):
        before = [id(message) for message in found.messages]
        take(found, whole[:count])
        assert [id(message) for message in found.messages][: count - 1] == before
        nodes.append(found.node)
    assert len(set(nodes)) == len(whole)
    assert found.nodes == nodes
    assert (found.head_length, count_shared(found, whole)) == (1, len(whole))
    again = make_conversation(api)
    take(again, whole)
    assert again.node == found.node
    other = make_conversation(api, b"k2")
    take(other, whole)
    assert not set(nodes) & set(other.nodes)


@pytest.mark.parametrize(
    "more", [{}, {"encrypted_content": "x"}, {"content": [{"type": "reasoning_text", "text": "Hm"}]}]
)
def test_reasoning_names_no_history(more: Json) -> None:
    """Of Responses, some clients send it back and some leave it out: both go on with what they were shown."""
    found, dropped = make_conversation("openai-responses"), make_conversation("openai-responses")
    whole = make_history("openai-responses", 2)
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "So."}], **more}
    take(dropped, raws(whole))
    take(found, raws([*whole[:3], reasoning, *whole[3:]]))
    assert found.node == dropped.node
    assert (found.messages[3].digest, found.messages[3].is_from_assistant) == (b"", True)


@pytest.mark.parametrize("api", APIS)
@given(at=st.integers(0, 8))
def test_a_message_that_says_something_else(api: Api, at: int) -> None:
    """Up to it everything is known, and nothing behind it; taking such a request forgets the rest."""
    whole = make_history(api, 4)
    at = min(at, len(whole) - 1)
    changed = json.loads(json.dumps(whole))
    changed[at] = {"role": "user", "content": f"Something else, at {at}."}
    found = make_conversation(api)
    take(found, raws(whole))
    assert count_shared(found, raws(changed)) == at
    take(found, raws(changed))
    assert list_raws(found) == raws(changed)
    assert count_shared(found, raws(whole)) == at


@pytest.mark.parametrize("api", APIS)
def test_other_bytes_that_say_the_same(api: Api) -> None:
    """Another spelling is known, and its bytes are those that count from then on; the name stays."""
    found, messages = make_conversation(api), make_history(api, 3)
    take(found, raws(messages))
    node, spelled = found.node, raws(messages, indent=1)
    assert count_shared(found, spelled) == len(messages)
    take(found, spelled)
    assert (list_raws(found), found.node) == (spelled, node)


@pytest.mark.parametrize("api", APIS)
def test_the_name_of_what_will_be_said(api: Api) -> None:
    """It is the one that the history has when the client has said it."""
    found, whole = make_conversation(api), make_history(api, 3)
    take(found, raws(whole[:-2]))
    told = found.name_continuation([whole[-2]])
    take(found, raws(whole))
    assert found.nodes[-2] == told


def test_who_spoke() -> None:
    """Of known messages and of new ones; what is said in a row is one answer."""
    found, whole = make_conversation(), raws(make_history("openai", 3))
    take(found, whole[:3])
    spoken = [False, True, False, True, False, True, False]
    assert [arrived(found, whole).flag_answers(found, known) for known in (0, 3)] == [spoken, spoken]
    assert count_answers(arrived(found, whole).flag_answers(found, 3)) == 3
    assert [count_answers(spoken) for spoken in ([], [True, True], [True, False, True], [False])] == [0, 1, 2, 0]
    assert [found.count_answers_from(first) for first in range(4)] == [1, 1, 0, 0]


def test_a_message_that_is_none() -> None:
    """It is unreadable, wherever it stands."""
    found = make_conversation()
    sent = [*raws(make_history("openai", 1)), b'"text"']
    with pytest.raises(UnreadableBody):
        take(found, sent)


TASK = {"role": "user", "content": "Mend the parser."}


def called(id: str, name: str = "bash") -> Json:
    function = {"name": name, "arguments": "{}"}
    return {"role": "assistant", "content": None, "tool_calls": [{"id": id, "type": "function", "function": function}]}


def result(id: str) -> Json:
    return {"role": "tool", "tool_call_id": id, "content": f"result of {id}"}


def used(*ids: str) -> Json:
    uses = [{"type": "tool_use", "id": id, "name": "bash", "input": {}} for id in ids]
    return {"role": "assistant", "content": uses}


def results(*ids: str) -> Json:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": id, "content": "ok"} for id in ids]}


class GrowingChat:
    """A client's messages as they grow, and what is put between them."""

    def __init__(self, api: Api = "openai") -> None:
        dialect = PROVIDERS[api].live
        self.conversation = Conversation(dialect, b"k1")
        self.exchanges = HiddenRounds(dialect)

    def says(self, *messages: Json | bytes) -> None:
        """More of them; bytes as they stand."""
        new = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages)
        raws = [message.raw for message in self.conversation.messages]
        IncomingMessages(self.conversation.dialect, [*raws, *new]).extend_conversation(self.conversation)

    def exchanged(self, *messages: Json, after: int, results: tuple[Json, ...] = ()) -> RecallExchanged:
        """What stands in place of message `after`."""
        event = RecallExchanged(
            call=1,
            node=self.conversation.nodes[after].hex(),
            messages=tuple(map(json.dumps, messages)),
            results=tuple(map(json.dumps, results)),
        )
        self.exchanges.add_events([event])
        return event

    def expanded(self) -> list[Json]:
        said = self.exchanges.expand_messages(self.conversation)
        assert [json.loads(each.raw) for each in said] == [each.json for each in said]
        return [each.json for each in said]


def test_without_any_the_history_is_the_clients() -> None:
    """The very objects and bytes, request after request."""
    chat = GrowingChat()
    chat.says(TASK, called("a"), result("a"))
    first = chat.exchanges.expand_messages(chat.conversation)
    assert [each.raw for each in first] == [message.raw for message in chat.conversation.messages]
    chat.says(called("b"), result("b"))
    second = chat.exchanges.expand_messages(chat.conversation)
    assert all(new is old for new, old in zip(second, first, strict=False))


def test_a_recall_stands_in_front_of_what_was_shown() -> None:
    """The message that the client was shown is replaced by all that was said; what follows stays behind it."""
    chat = GrowingChat()
    chat.says(TASK, called("a"), result("a"))
    made = [called("r", "elision_recall"), result("r"), called("a")]
    chat.exchanged(*made, after=1)
    assert chat.expanded() == [TASK, *made, result("a")]
    before = chat.exchanges.expand_messages(chat.conversation)
    chat.says(called("b"))
    after = chat.exchanges.expand_messages(chat.conversation)
    # The library tells in O(1) that they are the same.
    assert all(new is old for new, old in zip(after, before, strict=False))


def test_another_history_has_none() -> None:
    """Names are those of histories: the same words behind other words were never answered so."""
    chat, other = GrowingChat(), GrowingChat()
    for each, task in ((chat, TASK), (other, {**TASK, "content": "Something else."})):
        each.says(task, called("a"), result("a"))
    event = chat.exchanged(called("r", "elision_recall"), result("r"), called("a"), after=1)
    other.exchanges.add_events([event])
    assert len(other.expanded()) == 3


@pytest.mark.parametrize("ahead", [False, True])
def test_results_stand_right_behind_their_call(ahead: bool) -> None:
    """Of a recall beside other calls: chat wants them in front of the client's own; also while those are to come."""
    chat = GrowingChat()
    chat.says(TASK, called("a"), *([] if ahead else [result("a")]))
    both = {**called("a"), "tool_calls": [*called("a")["tool_calls"], *called("r", "elision_recall")["tool_calls"]]}
    chat.exchanged(both, after=1, results=(result("r"),))
    assert chat.expanded() == [TASK, both, result("r"), *([] if ahead else [result("a")])]


@pytest.mark.parametrize("words", [False, True])
def test_results_join_the_clients_message(words: bool) -> None:
    """Anthropic wants all results of a turn at the front of the next message, whatever shape that has."""
    chat = GrowingChat("anthropic")
    following = {"role": "user", "content": "Go on."} if words else results("a")
    chat.says(TASK, used("a"), following)
    recalled = results("r")["content"]
    chat.exchanged(used("a", "r"), after=1, results=tuple(recalled))
    last = chat.expanded()[-1]
    own = [{"type": "text", "text": "Go on."}] if words else following["content"]
    assert last == {"role": "user", "content": [*recalled, *own]}
    # The client says more: what was made stays the very object.
    made = chat.exchanges.expand_messages(chat.conversation)[2]
    chat.says(used("b"))
    assert chat.exchanges.expand_messages(chat.conversation)[2] is made


def test_the_clients_bytes_stay_within_a_joined_message() -> None:
    """What was not touched of it is spelled as the client spelled it."""
    chat = GrowingChat("anthropic")
    odd = b'{"role" :"user",  "content":[ {"type":"tool_result", "tool_use_id":"a" ,"content":"caf\\u00e9"}]}'
    chat.says(TASK, used("a"), odd)
    chat.exchanged(used("a", "r"), after=1, results=tuple(results("r")["content"]))
    raw = chat.exchanges.expand_messages(chat.conversation)[-1].raw
    assert b'{"type":"tool_result", "tool_use_id":"a" ,"content":"caf\\u00e9"}' in raw


def test_the_clients_ids() -> None:
    """An answer that came a second time, or went through a client that writes ids of its own, has other ones."""
    chat = GrowingChat()
    chat.says(TASK, called("b"), result("b"))
    both = {**called("a"), "tool_calls": [*called("r", "elision_recall")["tool_calls"], *called("a")["tool_calls"]]}
    chat.exchanged(both, after=1, results=(result("r"),))
    ids = [call["id"] for call in chat.expanded()[1]["tool_calls"]]
    assert ids == ["r", "b"]
    claude = GrowingChat("anthropic")
    claude.says(TASK, used("b"), results("b"))
    uses = [{**used("r")["content"][0], "name": "elision_recall"}, *used("a")["content"]]
    claude.exchanged({"role": "assistant", "content": uses}, after=1, results=tuple(results("r")["content"]))
    assert [block["id"] for block in claude.expanded()[1]["content"]] == ["r", "b"]
    assert [block["tool_use_id"] for block in claude.expanded()[2]["content"]] == ["r", "b"]


def thought(id: str) -> Json:
    return {"type": "reasoning", "id": id, "summary": [], "encrypted_content": f"sealed {id}"}


def item(id: str, name: str = "bash") -> Json:
    return {"type": "function_call", "call_id": id, "name": name, "arguments": "{}"}


def output(id: str) -> Json:
    return {"type": "function_call_output", "call_id": id, "output": f"result of {id}"}


@pytest.mark.parametrize("reasoning", [(), (thought("now"),), (thought("now"), thought("more"))])
def test_items_are_the_clients(reasoning: tuple[Json, ...]) -> None:
    """Items that were shown go out as the client has them, their reasoning with them, behind what was recalled; whether
    it sends reasoning back or not, it is the same conversation."""
    codex = GrowingChat("openai-responses")
    codex.says(TASK, *reasoning, item("b"), output("b"))
    recalled = [thought("then"), item("r", "elision_recall"), output("r")]
    codex.exchanged(*recalled, thought("next"), item("a"), after=1 + len(reasoning))
    led = reasoning or (thought("next"),)
    assert codex.expanded() == [TASK, *recalled, *led, item("b"), output("b")]


def test_reasoning_stands_where_it_stood() -> None:
    """A client that sends all of it back has it in a row; upstream each stands in front of what it led to."""
    codex = GrowingChat("openai-responses")
    codex.says(TASK, thought("then"), thought("next"), item("a"), output("a"))
    made = [thought("then"), item("r", "elision_recall"), output("r"), thought("next"), item("a")]
    codex.exchanged(*made, after=3)
    assert codex.expanded() == [TASK, *made, output("a")]


def test_reasoning_in_front_of_what_a_user_says() -> None:
    """It leads to nothing, and stays where it stands; results that wait come behind it."""
    codex = GrowingChat("openai-responses")
    codex.says(TASK, item("a"), thought("now"), {"role": "user", "content": "Go on."}, thought("last"))
    codex.exchanged(item("a"), after=1, results=(item("r", "elision_recall"), output("r")))
    said = codex.expanded()
    assert said[:3] == [TASK, item("a"), thought("now")]
    assert said[3:] == [
        item("r", "elision_recall"),
        output("r"),
        {"role": "user", "content": "Go on."},
        thought("last"),
    ]


def test_results_in_front_of_a_message_of_another_role() -> None:
    """A result has no other place than behind its call, whoever speaks next."""
    claude = GrowingChat("anthropic")
    system = {"role": "system", "content": "Be brief."}
    claude.says(TASK, used("a"), system)
    recalled = results("r")["content"]
    claude.exchanged(used("a", "r"), after=1, results=tuple(recalled))
    assert claude.expanded() == [TASK, used("a", "r"), {"role": "user", "content": recalled}, system]


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
