"""Rounds of recall become one response for the client."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from elision.gateway import recall_rounds
from elision.gateway.recall_rounds import ResponseMerger
from elision.providers.openai_responses.stream import is_identifying
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.providers.streaming.rounds import RecallCall, Replacement, RoundOutcome, add_usage
from elision.providers.streaming.sse import FrameSplitter
from elision.testing import response_anthropic, response_openai_chat, response_openai_responses
from elision.testing.exchange import ReplySpec
from elision.testing.recorded_run import RecordedReply
from elision.testing.request_rules import list_new_violations
from elision.trajectory.events import UsageReported
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage
from tests.gateway.conversation_bytes import APIS, HIDING_STEPS, PATHS, make_body, render_whole
from tests.gateway.gateway_trial import JSON_HEADER, LOOKS, find_api, open_trial
from tests.gateway.scripted_upstream import ReceivedRequest, answer_always, render_response
from tests.providers.streaming.provider_responses import (
    Json,
    ProviderResponse,
    ResponsePart,
    parse_as_client,
    render_block,
    render_body,
    render_item,
    render_message,
    render_raw,
    render_stream,
)


@pytest.mark.parametrize("spelled", [b"elision_recall", b"elision\\u005frecall"])
async def test_a_recall_is_answered_however_its_name_is_spelled(spelled: bytes) -> None:
    """JSON lets every letter of a name be escaped; the client hears of neither."""

    def answer(asked: ReceivedRequest) -> bytes:
        body = render_whole(find_api(asked), None if b"r1" in asked.body else LOOKS)
        return render_response(body.replace(b"elision_recall", spelled), "200 OK", JSON_HEADER)

    async with open_trial(answer_always(answer)) as (_, upstream, client):
        for api in APIS:
            got = await client.request("POST", PATHS[api], make_body(api, HIDING_STEPS))
            assert (got.status, b"elision" in got.body) == (200, False)
            assert b"All is done." in got.body
            assert b"r1" in upstream.requests[-1].body


@pytest.mark.parametrize("reads", [True, False])
async def test_an_answer_without_a_recall_passes_as_it_came(reads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read before the client has it, and its usage is recorded all the same, once."""
    odd = {api: render_whole(api).replace(b": ", b" :  ") for api in APIS}
    if not reads:
        monkeypatch.setattr(recall_rounds, "ResponseMerger", None)
    provider = answer_always(lambda asked: render_response(odd[find_api(asked)], "200 OK", JSON_HEADER))
    async with open_trial(provider) as (gateway, upstream, client):
        for api in APIS:
            got = await client.request("POST", PATHS[api], make_body(api, HIDING_STEPS))
            assert (got.status, got.body) == (200, odd[api])
            assert b"elision_recall" in upstream.requests[-1].body
            assert got.headers["x-elision-session"]
        await gateway.worker.gateway.sessions.close()
        store = gateway.worker.store
        events = [event for info in store.sessions() for event in store.events(info.key)]
        assert [each.usage.output for each in events if isinstance(each, UsageReported)] == [20] * len(APIS)


FOUND = "what t3.1 hid"

_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(lambda text: "elision" not in text)


@st.composite
def conversations(draw: st.DrawFn) -> list[ProviderResponse]:
    """Answers of which all but the last call recall and nothing else; the last says anything."""
    count = draw(st.integers(0, 3))
    kinds = st.lists(st.sampled_from(["text", "thinking", "recall", "hosted"]), min_size=1, max_size=4)
    rounds = [draw(kinds.filter(lambda each: "recall" in each)) for _ in range(count)]
    closing = st.lists(st.sampled_from(["text", "thinking", "tool", "recall", "hosted"]), max_size=5)
    rounds.append(draw(closing.filter(lambda each: "recall" not in each or "tool" in each)))
    counts = st.tuples(*[st.integers(0, 10**6)] * 5)
    return [
        ProviderResponse(
            number=number,
            parts=tuple(
                ResponsePart(kind=kind, id=f"{number}_{place}", text=draw(_TEXT)) for place, kind in enumerate(said)
            ),
            counts=draw(counts),
        )
        for number, said in enumerate(rounds)
    ]


def cut(data: bytes, sizes: Sequence[int]) -> list[bytes]:
    """`data` in pieces of these sizes, over and over."""
    found, start = [], 0
    while start < len(data):
        size = sizes[len(found) % len(sizes)]
        found.append(data[start : start + size])
        start += size
    return found


def relayed(relay: ResponseMerger, data: bytes, sizes: Sequence[int] = (1 << 20,)) -> tuple[bytes, RoundOutcome]:
    """One round: all that goes out, and the outcome."""
    relay.begin_round()
    out = b"".join([relay.feed(chunk) for chunk in cut(data, sizes)])
    outcome = relay.end_round()
    return out + outcome.output, outcome


def conversed(
    api: Api, answers: Sequence[ProviderResponse], *, streamed: bool, sizes: Sequence[int] = (1 << 20,)
) -> tuple[bytes, RoundOutcome, ResponseMerger]:
    """All rounds, every call answered."""
    relay, sent = ResponseMerger(api, stream=streamed), b""
    for number, answer in enumerate(answers):
        out, outcome = relayed(relay, render_raw(api, answer, streamed=streamed), sizes)
        sent += out
        assert outcome.is_done == (number == len(answers) - 1)
        if outcome.recall_calls:
            relay.add_results([(call, FOUND) for call in outcome.recall_calls])
    return sent, outcome, relay


def visible(answers: Sequence[ProviderResponse]) -> list[ResponsePart]:
    return [part for answer in answers for part in answer.parts if part.kind != "recall"]


def expected(api: Api, answers: Sequence[ProviderResponse]) -> list[Json]:
    """What the client is to be shown, as it would send it back."""
    parts = visible(answers)
    if api == "anthropic":
        return [{"role": "assistant", "content": [render_block(part) for part in parts]}]
    if api == "openai":
        return [{key: value for key, value in render_message(parts).items() if value is not None or key == "content"}]
    return [render_item(part) for part in parts]


def said(api: Api, answer: Json) -> list[Json]:
    """What the client got, as it would send it back."""
    if api == "anthropic":
        return [{"role": answer["role"], "content": answer["content"]}]
    if api == "openai-responses":
        return [*answer["output"]]
    got = answer["choices"][0]["message"]
    calls = got.get("tool_calls") or []
    got["tool_calls"] = [{key: call[key] for key in ("id", "type", "function")} for call in calls]
    for call in got["tool_calls"]:
        call["function"].pop("parsed_arguments", None)
    kept = {key: value for key, value in got.items() if value not in (None, []) and key not in ("content", "parsed")}
    return [{"content": got.get("content"), **kept}]


def stop(api: Api, answer: Json) -> str:
    if api == "openai-responses":
        return str(answer["status"])
    return str(answer["stop_reason"] if api == "anthropic" else answer["choices"][0]["finish_reason"])


def holds(whole: Any, part: Any) -> bool:
    """Whether all that `part` has stands in `whole`."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(holds(whole.get(key), value) for key, value in part.items())
    return bool(whole == part)


def same(got: list[Json], wanted: list[Json]) -> bool:
    """Equal, but that a chat message's missing content may be "" as well, and what was parsed out of a text."""
    return _plain(got) == _plain(wanted)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if inner not in ("", None) and key != "parsed"}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def summed_usage(api: Api, answers: Sequence[ProviderResponse]) -> Any:
    total: Any = reduce(add_usage, [answer.usage(api) for answer in answers])
    return total


@pytest.mark.parametrize("api", APIS)
@given(answers=conversations(), sizes=st.lists(st.integers(1, 400), min_size=1, max_size=4), streamed=st.booleans())
def test_the_providers_own_client_reads_one_answer(
    api: Api, answers: list[ProviderResponse], sizes: list[int], streamed: bool
) -> None:
    """Any parts in any order over any rounds, cut anywhere: the SDK ends with all that was said, recall apart."""
    sent, outcome, _ = conversed(api, answers, streamed=streamed, sizes=sizes)
    got = parse_as_client(api, sent, streamed=streamed)
    usage = summed_usage(api, answers)
    if api == "anthropic" and streamed:
        usage.pop("cache_creation")  # The SDK does not look for it where it is summed.
    assert same(said(api, got), expected(api, answers))
    assert same([*outcome.visible], expected(api, answers))
    assert holds(got["usage"], usage)
    assert stop(api, got) == stop(api, render_body(api, answers[-1]))
    assert b"elision" not in sent
    named = render_body(api, answers[0 if streamed or api != "openai-responses" else -1])
    assert (got["id"], got["model"]) == (named["id"], named["model"])


@pytest.mark.parametrize("api", APIS)
@given(
    answer=conversations().map(lambda answers: answers[-1]),
    sizes=st.lists(st.integers(1, 90), min_size=1, max_size=4),
    streamed=st.booleans(),
)
def test_without_recall_the_bytes_are_the_same(
    api: Api, answer: ProviderResponse, sizes: list[int], streamed: bool
) -> None:
    """An answer that calls no recall tool goes out byte for byte, and no later than its frames are complete."""
    answer = replace(answer, parts=tuple(part for part in answer.parts if part.kind != "recall"))
    data, relay, sent, came = render_raw(api, answer, streamed=streamed), ResponseMerger(api, stream=streamed), b"", b""
    relay.begin_round()
    for chunk in cut(data, sizes):
        came, sent = came + chunk, sent + relay.feed(chunk)
        assert data.startswith(sent)
        assert not streamed or len(came) - len(sent) < 2 or b"\n\n" not in came[len(sent) :]
    assert sent + relay.end_round().output == data
    assert relay.find_replacements() == ()


@pytest.mark.parametrize("api", APIS)
@given(answers=conversations())
def test_streams_stay_well_formed(api: Api, answers: list[ProviderResponse]) -> None:
    """Indices count up from 0, what starts stops, there is one beginning and one end, and numbers have no gap."""
    sent, _, _ = conversed(api, answers, streamed=True)
    events = [json.loads(frame.data) for frame in FrameSplitter().feed(sent) if frame.data != b"[DONE]"]
    named = [frame.event for frame in FrameSplitter().feed(sent)]
    if api == "openai":
        calls = [
            call for each in events for choice in each["choices"] for call in choice["delta"].get("tool_calls", ())
        ]
        begun = [call["index"] for call in calls if "id" in call]
        assert begun == list(range(len(begun)))
        assert sum("role" in choice["delta"] for each in events for choice in each["choices"]) == 1
        assert len({(each["id"], each["created"], each["model"]) for each in events}) == 1
        assert named.count("") == len(events) + 1
        return
    assert [each["type"] for each in events] == named
    starts, stops, index = (
        ("content_block_start", "content_block_stop", "index")
        if api == "anthropic"
        else ("response.output_item.added", "response.output_item.done", "output_index")
    )
    for kind in (starts, stops):
        found = [each[index] for each in events if each["type"] == kind]
        assert found == list(range(len(visible(answers))))
    assert sum(each["type"] in ("message_start", "response.created") for each in events) == 1
    assert sum(each["type"] in ("message_stop", "response.completed") for each in events) == 1
    if api == "openai-responses":
        assert [each["sequence_number"] for each in events] == list(range(len(events)))


@pytest.mark.parametrize("api", APIS)
@given(answers=conversations(), streamed=st.booleans())
def test_what_stands_upstream_in_its_place_is_valid(api: Api, answers: list[ProviderResponse], streamed: bool) -> None:
    """The conversation, put back together with what the client did not see, breaks no rule of the provider."""
    if api == "openai-responses":  # Reasoning always leads to something there.
        assume(all(not answer.parts or answer.parts[-1].kind != "thinking" for answer in answers))
        # A recall and then an empty answer leave reasoning alone, which no message of the client takes up.
        assume(not visible(answers) or visible(answers)[-1].kind != "thinking")
    _, outcome, relay = conversed(api, answers, streamed=streamed)
    own = [_own(api, part) for part in visible(answers) if part.kind == "tool"]
    history = _history(api, outcome, relay.find_replacements(), own)
    # A model may say what no provider takes back (a text of white space): that is so with and without us.
    assert list_new_violations(api, _history(api, outcome, (), own), history) == []
    text = json.dumps(history)
    recalled = [part for answer in answers for part in answer.parts if part.kind == "recall"]
    if visible(answers) or api != "openai-responses":
        assert text.count(FOUND) == len(recalled)
        assert text.count('"elision_recall"') == len(recalled)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("streamed", [True, False])
def test_what_the_playback_server_says(api: Api, streamed: bool) -> None:
    """Answers of `elision lab playback`, which are checked against the providers' types, are merged like any other."""
    calls = Action(id="a", name="elision_recall", arguments='{"handle": "t1.1"}')
    replies = [
        RecordedReply(number=1, text="Let me see.", reasoning="hm", calls=(calls,)),
        RecordedReply(number=2, text="Found it."),
    ]
    usage = Usage(input=50, cache_read=7, cache_write=3, output=9)
    relay, sent = ResponseMerger(api, stream=streamed), b""
    for number, reply in enumerate(replies):
        told = ReplySpec(reply=reply, usage=usage, model="any", id=str(number), include_usage=True, signature="seal")
        voice = _PLAYED[api]
        data = (
            render_stream(api, [*voice.build_events(told)]) if streamed else json.dumps(voice.build_body(told)).encode()
        )
        out, outcome = relayed(relay, data)
        sent += out
        relay.add_results([(call, FOUND) for call in outcome.recall_calls])
    text = json.dumps(said(api, parse_as_client(api, sent, streamed=streamed)))
    assert text.index("Let me see.") < text.index("Found it.")
    assert outcome.is_done
    assert FOUND in json.dumps(relay.find_replacements()[0].messages)


_PLAYED = {
    "anthropic": response_anthropic,
    "openai": response_openai_chat,
    "openai-responses": response_openai_responses,
}


def _own(api: Api, part: ResponsePart) -> RecallCall:
    """A call of the client's own tool."""
    return RecallCall(id=f"toolu_{part.id}" if api == "anthropic" else f"call_{part.id}", name=part.name, arguments={})


def _history(api: Api, outcome: RoundOutcome, replaced: Sequence[Replacement], own: Sequence[RecallCall]) -> Json:
    """The client's next request, expanded as the gateway does."""
    before: Json = {"role": "user", "content": "?"}
    places = {each.index: each for each in replaced}
    spoken: list[Json] = []
    joining: list[Json] = []
    silent: list[Json] = []
    for place, shown in enumerate(outcome.visible):
        if api == "openai-responses" and not is_identifying(shown):
            silent.append(shown)
            continue
        found = places.get(place)
        spoken += found.messages if found else (*silent, shown)
        joining += found.results if found else ()
        silent = []
    spoken += silent
    answers = list(PROVIDERS[api].response_format.render_results([(call, "ran") for call in own]))
    after: Json = {"role": "user", "content": "And now?"}
    if api == "anthropic":
        blocks = [*joining, *(answers[0]["content"] if answers else ()), {"type": "text", "text": "And now?"}]
        return {"model": "any", "max_tokens": 9, "messages": [before, *spoken, {"role": "user", "content": blocks}]}
    where = "messages" if api == "openai" else "input"
    return {"model": "any", where: [before, *spoken, *joining, *answers, after]}
