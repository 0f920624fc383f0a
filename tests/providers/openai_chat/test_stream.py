"""What only chat completions have: servers that each stream a little differently."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.gateway.recall_rounds import ResponseMerger
from tests.gateway.test_recall_rounds import relayed
from tests.providers.streaming.provider_responses import (
    Json,
    ProviderResponse,
    ResponsePart,
    parse_as_client,
    render_events,
    render_stream,
)

PLAIN = ProviderResponse(number=1, parts=(ResponsePart(kind="text", id="m", text="It is in parser.py."),))
MORE = render_stream("openai", render_events("openai", PLAIN))


def chunk(delta: Json, finish: str | None = None, **more: Any) -> Json:
    frame = {"id": "c0", "object": "chat.completion.chunk", "created": 7, "model": "m0"}
    return {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def called(name: str | None, arguments: str = "", *, index: int = 0, **more: Any) -> Json:
    function = {"arguments": arguments} if name is None else {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "function": function, **more}]}


def chunks(sent: bytes) -> list[Json]:
    return [json.loads(line[6:]) for line in sent.splitlines() if line.startswith(b"data: {")]


def test_a_name_in_pieces_is_held_until_it_is_known() -> None:
    """A name may come in pieces: recall is recognised, another tool goes out as soon as it cannot be ours."""
    relay = ResponseMerger("openai", stream=True)
    relay.begin_round()
    ours = render_stream("openai", [chunk(called("elision_", id="c", type="function")), chunk(called("recall", "{}"))])
    assert relay.feed(ours.removesuffix(b"data: [DONE]\n\n")) == b""
    other = ResponseMerger("openai", stream=True)
    other.begin_round()
    first = render_stream("openai", [chunk(called("el", id="c", type="function"))]).removesuffix(b"data: [DONE]\n\n")
    second = render_stream("openai", [chunk(called("bow", "{}"))])
    assert other.feed(first) == b""
    assert other.feed(second) == first + second


def test_names_and_ids_that_are_repeated() -> None:
    """Some servers say id, type, role and name again in each piece."""
    piece = {"id": "c1", "type": "function"}
    told = [
        chunk({"role": "assistant", **called("elision_recall", '{"handle":', **piece)}),
        chunk({"role": "assistant", **called("elision_recall", '"t1.1"}', **piece)}),
        chunk({}, "tool_calls"),
    ]
    _, outcome = relayed(ResponseMerger("openai", stream=True), render_stream("openai", told))
    (call,) = outcome.recall_calls
    assert (call.id, call.name, call.arguments) == ("c1", "elision_recall", {"handle": "t1.1"})
    assert outcome.messages[0]["role"] == "assistant"


def whole(id: str, name: str, index: int | None) -> Json:
    """A call in one piece."""
    function = {"name": name, "arguments": json.dumps({"handle": id})}
    return {**({} if index is None else {"index": index}), "id": id, "type": "function", "function": function}


@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        ("elision_recall", "bash"),
        ("bash", "elision_recall"),
        ("elision_recall",) * 2,
        ("elision_recall", "bash", "bash"),
    ],
)
def test_calls_that_share_an_index(names: tuple[str, ...], at_once: bool, index: int | None) -> None:
    """Gemini sends parallel calls whole, under index 0 all of them: an id that is new begins another call."""
    calls = [whole(f"c{place}", name, index) for place, name in enumerate(names)]
    pieces = [calls] if at_once else [[call] for call in calls]
    told = [chunk({"role": "assistant", "tool_calls": each}) for each in pieces]
    sent, outcome = relayed(
        ResponseMerger("openai", stream=True), render_stream("openai", [*told, chunk({}, "tool_calls")])
    )
    assert [(call.id, call.name, call.arguments) for call in outcome.recall_calls] == [
        (f"c{place}", "elision_recall", {"handle": f"c{place}"})
        for place, name in enumerate(names)
        if name == "elision_recall"
    ]
    assert b"elision" not in sent
    got = [call for each in chunks(sent) for call in each["choices"][0]["delta"].get("tool_calls", ())]
    others = [call for call in calls if call["function"]["name"] == "bash"]
    if index is None:
        assert got == others
    else:
        assert got == [{**call, "index": place} for place, call in enumerate(others)]
    kept = {"tool_calls": [{key: call[key] for key in ("id", "type", "function")} for call in calls]}
    assert outcome.messages == ({"role": "assistant", "content": None, **kept},)


def test_calls_that_share_an_index_without_recall() -> None:
    """They go out as they came, byte for byte, and the outcome knows them apart."""
    told = [chunk({"role": "assistant", "tool_calls": [whole(id, "bash", 0)]}) for id in "ab"]
    data = render_stream("openai", [*told, chunk({}, "tool_calls")])
    sent, outcome = relayed(ResponseMerger("openai", stream=True), data)
    assert sent == data
    assert [call["id"] for call in outcome.visible[0]["tool_calls"]] == ["a", "b"]


@pytest.mark.parametrize("index", [0, None])
@pytest.mark.parametrize("id", ["first", "each", "late", "made up"])
def test_pieces_of_calls_that_share_an_index(id: str, index: int | None) -> None:
    """What comes without an id, or with one but no name, goes on with the call that was told of last."""
    told = []
    for made in (whole("c0", "bash", index), whole("c1", "elision_recall", index)):
        function = made.pop("function")
        first, more = {**made, "function": {**function, "arguments": '{"handle"'}}, {**made, "function": {}}
        more["function"] = {"arguments": ':"t1.1"}'}
        if id == "made up":
            more["id"] = f"{made['id']}-more"
        elif id != "each":
            del (more if id == "first" or made["id"] == "c1" else first)["id"]
        told += [chunk({"tool_calls": [first]}), chunk({"tool_calls": [more]})]
    _, outcome = relayed(
        ResponseMerger("openai", stream=True), render_stream("openai", [*told, chunk({}, "tool_calls")])
    )
    (call,) = outcome.recall_calls
    assert (call.id, call.name, call.arguments) == ("c1", "elision_recall", {"handle": "t1.1"})
    assert [(each["id"], each["function"]["arguments"]) for each in outcome.visible[0]["tool_calls"]] == [
        ("c0", '{"handle":"t1.1"}')
    ]


def test_an_empty_list_says_nothing() -> None:
    """Some servers send `tool_calls: []` with the end, and take no call back by it."""
    told = [chunk({"role": "assistant", **called("elision_recall", "{}", id="c")}), chunk({"tool_calls": []}, "stop")]
    _, outcome = relayed(ResponseMerger("openai", stream=True), render_stream("openai", told))
    assert [call.id for call in outcome.recall_calls] == ["c"]


@pytest.mark.parametrize("text", ["", "I look. "])
def test_everything_in_one_chunk(text: str) -> None:
    """Text, calls, end and usage at once: the text is shown, the calls are parted, the usage is counted once."""
    calls = [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "elision_recall", "arguments": "{}"}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "bash", "arguments": "{}"}},
    ]
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}
    both = render_stream(
        "openai", [chunk({"role": "assistant", "content": text, "tool_calls": calls}, "stop", usage=usage)]
    )
    sent, outcome = relayed(ResponseMerger("openai", stream=True), both)
    got = parse_as_client("openai", sent, streamed=True)["choices"][0]["message"]
    assert (got["content"], [each["id"] for each in got["tool_calls"]]) == (text, ["b"])
    assert [each["tool_calls"][0]["index"] for each in [chunks(sent)[0]["choices"][0]["delta"]]] == [0]
    assert outcome.is_done
    relay = ResponseMerger("openai", stream=True)
    one = [chunk({"role": "assistant", "content": text, "tool_calls": calls[:1]}, "tool_calls", usage=usage)]
    sent, outcome = relayed(relay, render_stream("openai", one))
    assert [call.id for call in outcome.recall_calls] == ["a"]
    sent += relayed(relay, MORE)[0]
    done = parse_as_client("openai", sent, streamed=True)
    assert done["choices"][0]["message"]["content"] == text + "It is in parser.py."
    assert done["choices"][0]["finish_reason"] == "stop"
    assert done["usage"]["prompt_tokens"] == 10 + PLAIN.counts[0]


def test_reasoning_in_parts_is_numbered_on() -> None:
    """`reasoning_details` (OpenRouter) keep their order over the rounds; what each says stays whole."""
    thought = {"type": "reasoning.text", "format": "f", "index": 0}
    told = [
        chunk({"role": "assistant", "content": "", "reasoning_details": [{**thought, "text": "so "}]}),
        chunk({"reasoning_details": [{**thought, "text": "it is", "signature": "sig"}]}),
        chunk(called("elision_recall", "{}", id="c", type="function")),
        chunk({}, "tool_calls"),
    ]
    relay = ResponseMerger("openai", stream=True)
    sent, outcome = relayed(relay, render_stream("openai", told))
    whole = {**thought, "text": "so it is", "signature": "sig"}
    assert outcome.messages[0]["reasoning_details"] == [whole]
    again = [chunk({"role": "assistant", "content": "Yes", "reasoning_details": [{**thought, "text": "then"}]})]
    more, last = relayed(relay, render_stream("openai", [*again, chunk({}, "stop")]))
    then = {**thought, "text": "then", "index": 1}
    assert last.visible[0]["reasoning_details"] == [whole, then]
    assert last.messages[0]["reasoning_details"] == [{**then, "index": 0}]
    got = parse_as_client("openai", sent + more, streamed=True)["choices"][0]["message"]["reasoning_details"]
    assert [(each["index"], each["text"]) for each in got] == [(0, "so it is"), (1, "then")]


def test_other_choices_pass() -> None:
    """Only the first choice is read: others go out while it is held, and are left out of later rounds."""
    second = {**chunk({}), "choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": None}]}
    told = [
        chunk({"role": "assistant", "content": ""}),
        chunk(called("elision_recall", "{}", id="c", type="function")),
        second,
        chunk({}, "tool_calls"),
    ]
    relay = ResponseMerger("openai", stream=True)
    sent, _ = relayed(relay, render_stream("openai", told))
    assert second in chunks(sent)
    sent, _ = relayed(relay, render_stream("openai", [second, chunk({"content": "x"}), chunk({}, "stop")]))
    assert b"other" not in sent


def test_what_stands_in_front_of_an_answer() -> None:
    """Azure's first chunk bears no id and no choice: it passes, and the id is that of the next."""
    first = {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []}
    told = [first, chunk(called("elision_recall", "{}", id="c", type="function")), chunk({}, "tool_calls")]
    relay = ResponseMerger("openai", stream=True)
    sent, _ = relayed(relay, render_stream("openai", told))
    assert chunks(sent) == [first]
    sent, _ = relayed(relay, MORE)
    assert {(each["id"], each["created"], each["model"]) for each in chunks(sent)} == {("c0", 7, "m0")}
    assert relay.response_ids == ["c0", "chatcmpl-1"]


def test_tools_that_are_no_functions() -> None:
    """A custom tool, and a legacy function, are the client's: they pass at once."""
    custom = {"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "select"}}
    legacy = {"function_call": {"name": "ls", "arguments": "{}"}}
    for delta in ({"tool_calls": [custom]}, legacy):
        data = render_stream(
            "openai", [chunk({"role": "assistant", "content": None}), chunk(delta), chunk({}, "tool_calls")]
        )
        relay = ResponseMerger("openai", stream=True)
        relay.begin_round()
        assert relay.feed(data) == data
        outcome = relay.end_round()
        assert (outcome.has_client_calls, outcome.recall_calls) == (True, ())
    assert outcome.messages[0]["function_call"] == legacy["function_call"]


def test_content_in_parts() -> None:
    """Mistral streams thinking as parts of the content, and the answer as text behind them."""
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    told = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": [part]}),
        chunk({"content": "So."}),
        chunk(called("elision_recall", "{}", id="c", type="function")),
        chunk({}, "tool_calls"),
    ]
    _, outcome = relayed(ResponseMerger("openai", stream=True), render_stream("openai", told))
    assert outcome.messages[0]["content"] == [part, {"type": "text", "text": "So."}]


def test_half_a_character() -> None:
    """A server that cuts a surrogate pair between two deltas: text and bytes stay whole."""
    told = render_stream("openai", [chunk({"content": "\ud83d"}), chunk({"content": "\ude00"}), chunk({}, "stop")])
    relay = ResponseMerger("openai", stream=True)
    relayed(relay, render_stream("openai", [chunk(called("elision_recall", "{}", id="c")), chunk({}, "tool_calls")]))
    sent, outcome = relayed(relay, told)
    assert outcome.visible[0]["content"] == "\ud83d\ude00"
    assert b"\\ud83d" in sent
