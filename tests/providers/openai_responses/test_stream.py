"""What only Responses have: items of many kinds, each replaced by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.gateway.recall_rounds import ResponseMerger
from elision.providers.streaming.rounds import RoundOutcome
from tests.gateway.test_recall_rounds import relayed
from tests.providers.streaming.provider_responses import (
    Json,
    ProviderResponse,
    ResponsePart,
    parse_as_client,
    render_body,
    render_events,
    render_item,
    render_raw,
    render_stream,
)

THOUGHT = ResponsePart(kind="thinking", id="h", text="hm")
RECALL = ResponsePart(kind="recall", id="r", text="t3.1")
TEXT = ResponsePart(kind="text", id="m", text="It is in parser.py.")
FOUND: Json = {"type": "function_call_output", "call_id": "call_r", "output": "found"}


def told(*parts: ResponsePart, number: int = 0) -> list[Json]:
    return render_events("openai-responses", ProviderResponse(number=number, parts=parts))


def sent_of(*parts: ResponsePart, number: int = 0) -> bytes:
    return render_stream("openai-responses", told(*parts, number=number))


def answered(relay: ResponseMerger, *parts: ResponsePart) -> None:
    _, outcome = relayed(relay, sent_of(*parts))
    relay.add_results([(call, "found") for call in outcome.recall_calls])


def test_hidden_items_stand_in_front_of_the_next() -> None:
    """The item behind them is replaced by all of them and itself. Reasoning is no such item, as not every client sends
    it back: it stands where it stood."""
    relay = ResponseMerger("openai-responses", stream=True)
    answered(relay, THOUGHT, RECALL)
    later = ResponsePart(kind="thinking", id="h2", text="so")
    _, outcome = relayed(relay, sent_of(later, TEXT, number=1))
    (found,) = relay.find_replacements()
    assert (found.index, found.visible) == (2, outcome.visible[2])
    assert found.messages == (render_item(THOUGHT), render_item(RECALL), FOUND, render_item(later), render_item(TEXT))
    assert found.results == ()


def test_hidden_items_behind_the_last() -> None:
    """Where nothing is shown behind them they join what the client says next, call and result."""
    relay = ResponseMerger("openai-responses", stream=True)
    tool = ResponsePart(kind="tool", id="b", text="ls")
    answered(relay, tool, RECALL)
    (found,) = relay.find_replacements()
    assert (found.index, found.messages, found.results) == (0, (render_item(tool),), (render_item(RECALL), FOUND))


def test_a_call_between_two_calls() -> None:
    """The call goes in front of the one behind it, its result behind them all."""
    relay = ResponseMerger("openai-responses", stream=True)
    tools = [ResponsePart(kind="tool", id=id, text="ls") for id in "ab"]
    answered(relay, tools[0], RECALL, tools[1])
    (found,) = relay.find_replacements()
    assert (found.index, found.messages, found.results) == (1, (render_item(RECALL), render_item(tools[1])), (FOUND,))


def test_nothing_shown_is_nothing_replaced() -> None:
    """An answer without any item leaves no place for what was hidden."""
    relay = ResponseMerger("openai-responses", stream=True)
    answered(relay, RECALL)
    relay.finish_without_recall()
    assert relay.find_replacements() == ()


@pytest.mark.parametrize("output", [[], None])
def test_an_ending_without_output(output: list[Json] | None) -> None:
    """Some servers close with no output: it stays so, and what was said is known from the items."""
    relay = ResponseMerger("openai-responses", stream=True)
    first, second = told(TEXT, RECALL), told(ResponsePart(kind="text", id="n", text="More"), number=1)
    for each in (first, second):
        each[-1]["response"]["output"] = output
    sent, outcome = relayed(relay, render_stream("openai-responses", first))
    assert [call.id for call in outcome.recall_calls] == ["call_r"]
    more, last = relayed(relay, render_stream("openai-responses", second))
    assert [each["id"] for each in last.visible] == ["msg_m", "msg_n"]
    if output is None:
        got = parse_as_client("openai-responses", sent + more, streamed=True)
        assert [each["id"] for each in got["output"]] == ["msg_m", "msg_n"]


def test_a_name_that_comes_late() -> None:
    """A call whose name is not told when it starts is held until it is; another tool's goes out then."""
    for part, held in ((RECALL, True), (ResponsePart(kind="tool", id="b", text="ls"), False)):
        events_told = told(part)
        events_told[2]["item"] = {**events_told[2]["item"], "name": ""}
        data = render_stream("openai-responses", events_told)
        relay = ResponseMerger("openai-responses", stream=True)
        sent, outcome = relayed(relay, data)
        assert (sent != data) == held
        assert bool(outcome.recall_calls) == held


def test_a_shell_that_the_provider_runs() -> None:
    """A call whose output is in the answer wants nothing of the client; one without does."""
    call = {"type": "shell_call", "id": "sh_1", "call_id": "s1", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "id": "so_1", "call_id": "s1", "output": []}
    for items, others in (([call, output], False), ([call], True)):
        body = told(RECALL)[-1]["response"]
        body["output"] = [*items, *body["output"]]
        ending = [told(RECALL)[0], {"type": "response.completed", "response": body, "sequence_number": 1}]
        _, outcome = relayed(ResponseMerger("openai-responses", stream=True), render_stream("openai-responses", ending))
        assert (outcome.has_client_calls, outcome.is_done, len(outcome.recall_calls)) == (others, others, 1)


def broken(*parts: ResponsePart, number: int = 0, streamed: bool = True, status: str = "failed") -> bytes:
    """An answer that fails behind these."""
    error = {"error": {"code": "server_error", "message": "no"}, "status": status}
    if not streamed:
        whole = {**render_body("openai-responses", ProviderResponse(number=number, parts=parts)), **error}
        return json.dumps(whole, indent=1).encode()
    failed = told(*parts, number=number)
    failed[-1] = {**failed[-1], "type": "response.failed", "response": {**failed[-1]["response"], **error}}
    return render_stream("openai-responses", failed)


def ending_of(sent: bytes, *, streamed: bool) -> Json:
    """The response that an answer ends with."""
    if not streamed:
        whole: Json = json.loads(sent)
        return whole
    last: dict[str, Any] = json.loads(sent.splitlines()[-2].removeprefix(b"data: "))
    assert last["type"] == "response.failed"
    response: Json = last["response"]
    return response


BOTH = pytest.mark.parametrize("streamed", [True, False], ids=["stream", "body"])


@BOTH
def test_a_failed_answer_ends_it(streamed: bool) -> None:
    """One that fails behind a recall goes to the client, under the id that it knows, and nothing is called."""
    relay = ResponseMerger("openai-responses", stream=streamed)
    sent, outcome = relayed(relay, broken(TEXT, RECALL, streamed=streamed))
    assert (outcome.recall_calls, outcome.visible, outcome.is_done, outcome.is_cut) == ((), (), True, False)
    assert [each["id"] for each in ending_of(sent, streamed=streamed)["output"]] == ["msg_m"]
    assert b"elision" not in sent


@BOTH
@pytest.mark.parametrize(
    "parts", [(), (ResponsePart(kind="thinking", id="h2", text="so"), RECALL)], ids=["mute", "midway"]
)
@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_later_round_that_fails(streamed: bool, parts: tuple[ResponsePart, ...], status: str) -> None:
    """The client is told, in one answer with what it was shown before; it stands for nothing in its history."""
    relay = ResponseMerger("openai-responses", stream=streamed)
    data = sent_of(THOUGHT, RECALL) if streamed else json.dumps(told(THOUGHT, RECALL)[-1]["response"]).encode()
    sent, outcome = relayed(relay, data)
    relay.add_results([(call, "found") for call in outcome.recall_calls])
    more, last = relayed(relay, broken(*parts, number=1, streamed=streamed, status=status))
    ending = ending_of(more, streamed=streamed)
    assert (ending["status"], ending["error"]["code"]) == (status, "server_error")
    assert [each["id"] for each in ending["output"]] == ["rs_h", *(["rs_h2"] if parts else [])]
    assert (last.recall_calls, last.visible, last.is_done, last.is_cut) == ((), (), True, False)
    assert relay.find_replacements() == ()
    assert b"elision" not in sent + more
    if streamed:
        lines = [line for line in (sent + more).splitlines() if line.startswith(b"data: ")]
        numbers = [json.loads(line.removeprefix(b"data: "))["sequence_number"] for line in lines]
        assert numbers == list(range(len(lines)))
        assert ending["id"] == "resp_0"


@BOTH
def test_a_failed_answer_without_recall(streamed: bool) -> None:
    """It is byte for byte as it came."""
    data = broken(TEXT, streamed=streamed)
    assert relayed(ResponseMerger("openai-responses", stream=streamed), data)[0] == data


BARE = {"id": "rs_bare", "type": "reasoning", "summary": []}
SEALED = {**BARE, "id": "rs_sealed", "encrypted_content": "sealed"}
OPEN = {**BARE, "id": "rs_open", "content": [{"type": "reasoning_text", "text": "hm"}]}


def unstored(relay: ResponseMerger, *items: Json, number: int, streamed: bool) -> tuple[bytes, RoundOutcome]:
    """One round of these items; every call is answered."""
    whole = {**render_body("openai-responses", ProviderResponse(number=number, parts=())), "output": [*items]}
    begun: list[Json] = [{"type": "response.created", "response": {**whole, "output": [], "status": "in_progress"}}]
    for index, each in enumerate(items):
        at = {"output_index": index, "item": each}
        begun += [{"type": "response.output_item.added", **at}, {"type": "response.output_item.done", **at}]
    ending = {"type": "response.completed", "response": whole}
    data = render_stream("openai-responses", [*begun, ending]) if streamed else json.dumps(whole).encode()
    sent, outcome = relayed(relay, data)
    relay.add_results([(call, "found") for call in outcome.recall_calls])
    return sent, outcome


def nameless(part: ResponsePart) -> Json:
    return {key: value for key, value in render_item(part).items() if key != "id"}


@BOTH
def test_what_the_provider_did_not_keep(streamed: bool) -> None:
    """With `store: false` nothing that is said on bears an id that the provider looks for in vain: bare reasoning is
    left out, calls go without. The client is shown all of it as it came."""
    relay = ResponseMerger("openai-responses", stream=streamed, stored=False)
    sent, outcome = unstored(
        relay, BARE, SEALED, OPEN, render_item(TEXT), render_item(RECALL), number=0, streamed=streamed
    )
    assert outcome.messages == (SEALED, OPEN, render_item(TEXT), nameless(RECALL))
    tool = ResponsePart(kind="tool", id="b", text="ls")
    more, last = unstored(relay, {**BARE, "id": "rs_2"}, render_item(tool), number=1, streamed=streamed)
    assert last.messages == (nameless(tool),)
    got = parse_as_client("openai-responses", sent + more, streamed=streamed)["output"]
    assert [each["id"] for each in got] == ["rs_bare", "rs_sealed", "rs_open", "msg_m", "rs_2", "fc_b"]
    assert last.visible == (SEALED, OPEN, render_item(TEXT), render_item(tool)), (
        "what no client can send back is not looked for"
    )
    (found,) = relay.find_replacements()
    assert (found.index, found.visible, found.results) == (3, render_item(tool), ())
    assert found.messages == (nameless(RECALL), FOUND, nameless(tool))


@BOTH
def test_what_the_provider_did_not_keep_behind_the_last(streamed: bool) -> None:
    """The same of calls that join what the client says next."""
    relay = ResponseMerger("openai-responses", stream=streamed, stored=False)
    tool = ResponsePart(kind="tool", id="b", text="ls")
    _, outcome = unstored(relay, render_item(tool), BARE, render_item(RECALL), number=0, streamed=streamed)
    (found,) = relay.find_replacements()
    assert outcome.visible == (render_item(tool),)
    assert (found.index, found.visible, found.messages) == (0, render_item(tool), (nameless(tool),))
    assert found.results == (nameless(RECALL), FOUND)


@BOTH
def test_what_the_provider_keeps_stays_named(streamed: bool) -> None:
    """Without `store: false` all is said on as it came."""
    relay = ResponseMerger("openai-responses", stream=streamed)
    _, outcome = unstored(relay, BARE, render_item(TEXT), render_item(RECALL), number=0, streamed=streamed)
    assert outcome.messages == (BARE, render_item(TEXT), render_item(RECALL))
    _, last = unstored(relay, BARE, render_item(TEXT), number=1, streamed=streamed)
    assert last.visible == (BARE, render_item(TEXT), BARE, render_item(TEXT))
    assert [each.messages for each in relay.find_replacements()] == [
        (render_item(RECALL), FOUND, BARE, render_item(TEXT))
    ]


@BOTH
def test_what_a_client_goes_on_from(streamed: bool) -> None:
    """The id that the client is given is the last round's, which has the whole history; a stream began with another,
    and its reader takes no second one."""
    relay, sent = ResponseMerger("openai-responses", stream=streamed), b""
    rounds = [(THOUGHT, RECALL), (ResponsePart(kind="tool", id="b", text="ls"),)]
    for number, parts in enumerate(rounds):
        data = render_raw("openai-responses", ProviderResponse(number=number, parts=parts), streamed=streamed)
        out, outcome = relayed(relay, data)
        sent += out
        relay.add_results([(call, "found") for call in outcome.recall_calls])
    assert parse_as_client("openai-responses", sent, streamed=streamed)["id"] == ("resp_0" if streamed else "resp_1")
    if streamed:
        before, _, behind = sent.rpartition(b"resp_0")
        with pytest.raises(RuntimeError, match="identity changed"):
            parse_as_client("openai-responses", before + b"resp_1" + behind, streamed=True)
