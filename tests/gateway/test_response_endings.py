"""How an answer ends that calls recall: with other calls, cut, truncated, in an error, or at a limit of rounds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.recall_rounds import ResponseMerger
from elision.providers.provider import Api
from elision.providers.streaming.rounds import RecallCall
from elision.providers.streaming.sse import FrameSplitter
from tests.gateway.conversation_bytes import APIS
from tests.gateway.test_recall_rounds import expected, relayed, said, same, stop
from tests.providers.streaming.provider_responses import (
    Json,
    ProviderResponse,
    ResponsePart,
    parse_as_client,
    render_body,
    render_events,
    render_raw,
    render_stream,
)

TEXT = ResponsePart(kind="text", id="t", text="Let me look that up.")
RECALL = ResponsePart(kind="recall", id="r", text="t3.1")
TOOL = ResponsePart(kind="tool", id="b", text="ls")
LOOKS = ProviderResponse(number=0, parts=(TEXT, RECALL))
MORE = ResponsePart(kind="text", id="m", text="It is in parser.py.")
ERRORS: dict[str, bytes] = {
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    "openai": b'data: {"error":{"message":"overloaded","type":"server_error"}}\n\n',
    "openai-responses": b'event: error\ndata: {"type":"error","code":"server_error","message":"overloaded"}\n\n',
}
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
EVERY = pytest.mark.parametrize("api", APIS)
BOTH = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "body"])


def data_of(sent: bytes) -> list[Json]:
    return [json.loads(frame.data) for frame in FrameSplitter().feed(sent) if frame.data.startswith(b"{")]


@EVERY
@BOTH
def test_a_call_is_told_with_its_arguments(api: Api, streamed: bool) -> None:
    """The outcome names the call; the text in front of it is out already, its ending is not."""
    relay = ResponseMerger(api, stream=streamed)
    sent, outcome = relayed(relay, render_raw(api, LOOKS, streamed=streamed))
    assert [(call.name, dict(call.arguments)) for call in outcome.recall_calls] == [
        ("elision_recall", {"handle": "t3.1"})
    ]
    assert (outcome.is_done, outcome.has_client_calls, outcome.is_cut, outcome.visible) == (False, False, False, ())
    assert "elision_recall" in json.dumps(outcome.messages)
    assert streamed == (b"look that" in sent)
    assert b"stop_reason" not in sent.replace(b'"stop_reason": null', b"")
    assert b"[DONE]" not in sent
    assert b"response.completed" not in sent


@EVERY
@BOTH
def test_recall_beside_another_tool(api: Api, streamed: bool) -> None:
    """The client gets the other call, whole; the recall's results join what it says next."""
    answer = ProviderResponse(number=0, parts=(TEXT, RECALL, TOOL))
    relay = ResponseMerger(api, stream=streamed)
    sent, outcome = relayed(relay, render_raw(api, answer, streamed=streamed))
    got = parse_as_client(api, sent, streamed=streamed)
    assert (len(outcome.recall_calls), outcome.has_client_calls, outcome.is_done) == (1, True, True)
    assert same(said(api, got), expected(api, [answer]))
    assert stop(api, got) == stop(api, render_body(api, answer))
    relay.add_results([(outcome.recall_calls[0], "found")])
    *_, last = relay.find_replacements()
    assert "elision_recall" in json.dumps([*relay.find_replacements()[0].messages])
    assert [each.get("content", each.get("output")) for each in last.results] == ["found"]


@EVERY
def test_frames_that_need_no_change_keep_their_bytes(api: Api) -> None:
    """In a first answer everything up to the recall, and a call in front of it, is byte for byte as it came."""
    answer = ProviderResponse(number=0, parts=(TEXT, TOOL, RECALL))
    data = render_raw(api, answer, streamed=True)
    sent, _ = relayed(ResponseMerger(api, stream=True), data)
    untouched = data.index(b"elision_recall")
    before = data[: data.rindex(b"\n\n", 0, untouched) + 2]
    assert sent.startswith(before)


@EVERY
@given(at=st.floats(0, 1), sizes=st.lists(st.integers(1, 200), min_size=1, max_size=3))
def test_a_stream_cut_in_its_midst(api: Api, at: float, sizes: list[int]) -> None:
    """What was held is not sent, nothing is called, and the caller is told to tell the client."""
    data = render_raw(api, LOOKS, streamed=True)
    ending = {"anthropic": b"event: message_delta", "openai": b'"tool_calls"}]', "openai-responses": b".completed"}[api]
    data = data[: int(at * data.rindex(ending))]
    sent, outcome = relayed(ResponseMerger(api, stream=True), data, sizes)
    assert (outcome.is_cut, outcome.is_done, outcome.recall_calls) == (True, False, ())
    assert b"elision_recall" not in sent
    assert not outcome.nothing_held or sent == data
    # While frames are held, pings go by.
    assert data.replace(PING, b"").startswith(sent.replace(PING, b""))


@EVERY
@BOTH
@pytest.mark.parametrize("parts", [(TEXT, RECALL), (TEXT, TOOL, RECALL)], ids=["alone", "beside"])
def test_a_call_that_was_truncated_is_dropped(api: Api, streamed: bool, parts: tuple[ResponsePart, ...]) -> None:
    """An answer that ran out of tokens in the midst of a recall ends as the provider said it ended."""
    answer = ProviderResponse(number=0, parts=parts, is_truncated=True)
    said_events = render_events(api, answer)
    data = render_stream(api, said_events) if streamed else render_raw(api, answer, streamed=False)
    relay = ResponseMerger(api, stream=streamed)
    sent, outcome = relayed(relay, data)
    assert (outcome.recall_calls, outcome.is_done, outcome.is_cut) == ((), True, False)
    assert b"elision" not in sent
    assert b"elision" not in json.dumps(outcome.messages).encode()
    whole = json.loads(sent) if not streamed else None
    found = whole if whole is not None else _last_stop(api, sent)
    assert stop(api, found) == stop(api, render_body(api, answer))
    assert relay.find_replacements() == ()


def _last_stop(api: Api, sent: bytes) -> Json:
    told = data_of(sent)
    if api == "anthropic":
        return next(each["delta"] for each in told if each["type"] == "message_delta")
    if api == "openai":
        return next(each for each in told if each["choices"] and each["choices"][0]["finish_reason"])
    found: Json = told[-1]["response"]
    return found


@EVERY
@BOTH
def test_a_limit_of_rounds(api: Api, streamed: bool) -> None:
    """An answer that may not go on ends as if the model had ended it; unanswered calls stand nowhere."""
    relay = ResponseMerger(api, stream=streamed)
    sent, _ = relayed(relay, render_raw(api, LOOKS, streamed=streamed))
    ended = relay.finish_without_recall()
    got = parse_as_client(api, sent + ended.output, streamed=streamed)
    assert stop(api, got) in ("end_turn", "stop", "completed")
    assert same(said(api, got), expected(api, [LOOKS]))
    assert same([*ended.visible], expected(api, [LOOKS]))
    assert ended.is_done
    assert relay.find_replacements() == ()


@EVERY
@BOTH
def test_a_limit_of_rounds_with_an_answer(api: Api, streamed: bool) -> None:
    """Results that were found all the same join what the client says next."""
    relay = ResponseMerger(api, stream=streamed)
    _, outcome = relayed(relay, render_raw(api, LOOKS, streamed=streamed))
    relay.add_results([(outcome.recall_calls[0], "found")])
    relay.finish_without_recall()
    (found,) = relay.find_replacements()
    assert "found" in json.dumps(found.results)
    assert "elision_recall" in json.dumps([*found.messages, *found.results])


@EVERY
@BOTH
def test_nothing_more_is_said_behind_a_recall(api: Api, streamed: bool) -> None:
    """A last round without a word ends the answer; the results join what the client says next."""
    relay = ResponseMerger(api, stream=streamed)
    sent, outcome = relayed(relay, render_raw(api, LOOKS, streamed=streamed))
    relay.add_results([(outcome.recall_calls[0], "found")])
    more, last = relayed(relay, render_raw(api, ProviderResponse(number=1, parts=()), streamed=streamed))
    assert (last.is_done, last.messages) == (True, ())
    assert same(said(api, parse_as_client(api, sent + more, streamed=streamed)), expected(api, [LOOKS]))
    (found,) = relay.find_replacements()
    assert "found" not in json.dumps(found.messages)
    assert "found" in json.dumps(found.results)


@EVERY
def test_an_error_of_the_provider_reaches_the_client(api: Api) -> None:
    """While frames are held, and in a later round: the error's very bytes go out, and nothing else of what is held."""
    data = render_raw(api, LOOKS, streamed=True)
    half = data[: data.rindex(b"\n\n", 0, len(data) - 400) + 2]
    sent, outcome = relayed(ResponseMerger(api, stream=True), half + ERRORS[api])
    assert sent.endswith(ERRORS[api])
    assert b"elision" not in sent
    assert (outcome.is_done, outcome.is_cut, outcome.recall_calls, outcome.visible) == (True, False, (), ())
    relay = ResponseMerger(api, stream=True)
    _, looked = relayed(relay, data)
    relay.add_results([(looked.recall_calls[0], "found")])
    sent, outcome = relayed(relay, ERRORS[api])
    assert (sent, outcome.is_done) == (ERRORS[api], True)
    assert relay.find_replacements() == (), "the client was shown an error, which no history holds"


@EVERY
@pytest.mark.parametrize("text", [b"", b"<html>", b'{"type":"error","error":{"message":"no"}}', b"[]", b'{"a":'])
def test_a_body_that_is_no_answer(api: Api, text: bytes) -> None:
    """It passes as it came, in the first round and later."""
    relay = ResponseMerger(api, stream=False)
    assert relayed(relay, text)[0] == text
    relay = ResponseMerger(api, stream=False)
    _, looked = relayed(relay, render_raw(api, LOOKS, streamed=False))
    relay.add_results([(looked.recall_calls[0], "found")])
    sent, outcome = relayed(relay, text)
    assert (sent, outcome.is_done, outcome.visible, relay.find_replacements()) == (text, True, (), ())


@EVERY
def test_while_the_client_waits(api: Api) -> None:
    """Keep-alives between the rounds change nothing; the provider's own pings and comments pass while frames are
    held."""
    relay = ResponseMerger(api, stream=True)
    data = render_raw(api, LOOKS, streamed=True).replace(b"event: ping", b": upstream\n\nevent: ping")
    sent, outcome = relayed(relay, data)
    sent += relay.keep_alive_bytes * 3
    relay.add_results([(outcome.recall_calls[0], "found")])
    more, _ = relayed(relay, render_raw(api, ProviderResponse(number=1, parts=(MORE,)), streamed=True))
    got = parse_as_client(api, sent + more, streamed=True)
    assert same(said(api, got), expected(api, [LOOKS, ProviderResponse(number=1, parts=(MORE,))]))
    if api == "anthropic":
        assert sent.count(b": upstream\n\n") == 2
        assert relay.keep_alive_bytes.startswith(b"event: ping\n")
    assert ResponseMerger(api, stream=False).keep_alive_bytes == b""


@EVERY
def test_ids_of_all_rounds(api: Api) -> None:
    """The client knows the first round's id, or the last one's where it can go on by that; the relay knows them all."""
    for streamed in (True, False):
        relay = ResponseMerger(api, stream=streamed)
        relayed(relay, render_raw(api, LOOKS, streamed=streamed))
        sent, _ = relayed(relay, render_raw(api, ProviderResponse(number=1, parts=(MORE,)), streamed=streamed))
        assert relay.response_ids == [render_body(api, replace(LOOKS, number=number))["id"] for number in (0, 1)]
        hidden = relay.response_ids[1 if streamed or api != "openai-responses" else 0]
        assert hidden.encode() not in sent


@EVERY
def test_line_ends_and_unended_frames(api: Api) -> None:
    """CRLF stays CRLF, and a stream that stops without its last blank line is read to its end."""
    relay = ResponseMerger(api, stream=True)
    sent, outcome = relayed(relay, render_stream(api, render_events(api, LOOKS), end="\r\n").rstrip(b"\r\n"), (7,))
    assert [call.name for call in outcome.recall_calls] == ["elision_recall"]
    more, last = relayed(
        relay,
        render_stream(api, render_events(api, ProviderResponse(number=1, parts=(MORE,))), end="\r\n").rstrip(),
        (5,),
    )
    assert last.is_done
    got = parse_as_client(api, sent + more, streamed=True)
    assert same(said(api, got), expected(api, [LOOKS, ProviderResponse(number=1, parts=(MORE,))]))
    assert b"\n" not in (sent + more).removesuffix(b"\n\n").replace(b"\r\n", b"")


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_FIELDS = (
    "type index delta content_block choices tool_calls function name item output_index response output usage message "
    "finish_reason sequence_number text input call_id id stop_reason status role content"
)
_VALUES = (
    "content_block_start content_block_delta message_delta message_start message_stop tool_use text text_delta stop "
    "elision_recall response.output_item.added response.output_item.done response.created response.completed "
    "function_call citations_delta input_json_delta completed assistant"
)
_WORDS, _KINDS = st.sampled_from(_FIELDS.split()), st.sampled_from(_VALUES.split())
_JUNK = st.recursive(
    _SCALARS | _KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=5),
    max_leaves=12,
)


@EVERY
@given(junk=st.lists(st.dictionaries(_WORDS, _JUNK, max_size=6), max_size=6), later=st.booleans())
def test_junk_never_raises(api: Api, junk: list[Json], later: bool) -> None:
    """Events of any shape, in any round: no error of our making, in the stream or at its end."""
    frames = b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in junk)
    relay = ResponseMerger(api, stream=True)
    if later:
        relayed(relay, render_raw(api, LOOKS, streamed=True))
    sent, outcome = relayed(relay, frames)
    if not outcome.recall_calls and b"elision" not in frames and not later:
        assert sent == frames or outcome.is_cut
    relay.find_replacements()


@EVERY
@given(junk=st.dictionaries(_WORDS, _JUNK, max_size=6), later=st.booleans())
def test_junk_bodies_never_raise(api: Api, junk: Json, later: bool) -> None:
    """Bodies of any shape, in any round."""
    relay = ResponseMerger(api, stream=False)
    if later:
        relayed(relay, render_raw(api, LOOKS, streamed=False))
    text = json.dumps(junk).encode()
    sent, outcome = relayed(relay, text)
    if not later and b"elision" not in text:
        assert sent == text
    if outcome.recall_calls:
        relay.add_results([(call, "x") for call in outcome.recall_calls])
        relay.finish_without_recall()
    relay.find_replacements()


def test_arguments_that_are_no_json() -> None:
    """A call whose arguments cannot be read is a call all the same, of nothing: the tool says what it needs."""
    told = render_events("openai", LOOKS)
    for each in told:
        for choice in each["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                call["function"]["arguments"] = "{"
    _, outcome = relayed(ResponseMerger("openai", stream=True), render_stream("openai", told))
    assert outcome.recall_calls == (RecallCall(id="call_r", name="elision_recall", arguments={}),)
