"""What only Responses have: items of many kinds, each replaced by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.gateway.recalling import Outcome, Relay
from tests.gateway.recalling.providers import Answer, Json, Part, body, events, item, raw, received, stream
from tests.gateway.recalling.test_relay import relayed

THOUGHT = Part(kind="thinking", id="h", text="hm")
RECALL = Part(kind="recall", id="r", text="t3.1")
TEXT = Part(kind="text", id="m", text="It is in parser.py.")
FOUND: Json = {"type": "function_call_output", "call_id": "call_r", "output": "found"}


def told(*parts: Part, number: int = 0) -> list[Json]:
    return events("openai-responses", Answer(number=number, parts=parts))


def sent_of(*parts: Part, number: int = 0) -> bytes:
    return stream("openai-responses", told(*parts, number=number))


def answered(relay: Relay, *parts: Part) -> None:
    _, outcome = relayed(relay, sent_of(*parts))
    relay.answered([(call, "found") for call in outcome.calls])


def test_hidden_items_stand_in_front_of_the_next() -> None:
    """The item behind them is replaced by all of them and itself. Reasoning is no such item, as not every client sends
    it back: it stands where it stood."""
    relay = Relay("openai-responses", stream=True)
    answered(relay, THOUGHT, RECALL)
    later = Part(kind="thinking", id="h2", text="so")
    _, outcome = relayed(relay, sent_of(later, TEXT, number=1))
    (found,) = relay.replacements()
    assert (found.place, found.shown) == (2, outcome.shown[2])
    assert found.messages == (item(THOUGHT), item(RECALL), FOUND, item(later), item(TEXT))
    assert found.results == ()


def test_hidden_items_behind_the_last() -> None:
    """Where nothing is shown behind them they join what the client says next, call and result."""
    relay = Relay("openai-responses", stream=True)
    tool = Part(kind="tool", id="b", text="ls")
    answered(relay, tool, RECALL)
    (found,) = relay.replacements()
    assert (found.place, found.messages, found.results) == (0, (item(tool),), (item(RECALL), FOUND))


def test_a_call_between_two_calls() -> None:
    """The call goes in front of the one behind it, its result behind them all."""
    relay = Relay("openai-responses", stream=True)
    tools = [Part(kind="tool", id=id, text="ls") for id in "ab"]
    answered(relay, tools[0], RECALL, tools[1])
    (found,) = relay.replacements()
    assert (found.place, found.messages, found.results) == (1, (item(RECALL), item(tools[1])), (FOUND,))


def test_nothing_shown_is_nothing_replaced() -> None:
    """An answer without any item leaves no place for what was hidden."""
    relay = Relay("openai-responses", stream=True)
    answered(relay, RECALL)
    relay.finish_without_recall()
    assert relay.replacements() == ()


@pytest.mark.parametrize("output", [[], None])
def test_an_ending_without_output(output: list[Json] | None) -> None:
    """Some servers close with no output: it stays so, and what was said is known from the items."""
    relay = Relay("openai-responses", stream=True)
    first, second = told(TEXT, RECALL), told(Part(kind="text", id="n", text="More"), number=1)
    for each in (first, second):
        each[-1]["response"]["output"] = output
    sent, outcome = relayed(relay, stream("openai-responses", first))
    assert [call.id for call in outcome.calls] == ["call_r"]
    more, last = relayed(relay, stream("openai-responses", second))
    assert [each["id"] for each in last.shown] == ["msg_m", "msg_n"]
    if output is None:
        got = received("openai-responses", sent + more, streamed=True)
        assert [each["id"] for each in got["output"]] == ["msg_m", "msg_n"]


def test_a_name_that_comes_late() -> None:
    """A call whose name is not told when it starts is held until it is; another tool's goes out then."""
    for part, held in ((RECALL, True), (Part(kind="tool", id="b", text="ls"), False)):
        events_told = told(part)
        events_told[2]["item"] = {**events_told[2]["item"], "name": ""}
        data = stream("openai-responses", events_told)
        relay = Relay("openai-responses", stream=True)
        sent, outcome = relayed(relay, data)
        assert (sent != data) == held
        assert bool(outcome.calls) == held


def test_a_shell_that_the_provider_runs() -> None:
    """A call whose output is in the answer wants nothing of the client; one without does."""
    call = {"type": "shell_call", "id": "sh_1", "call_id": "s1", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "id": "so_1", "call_id": "s1", "output": []}
    for items, others in (([call, output], False), ([call], True)):
        body = told(RECALL)[-1]["response"]
        body["output"] = [*items, *body["output"]]
        ending = [told(RECALL)[0], {"type": "response.completed", "response": body, "sequence_number": 1}]
        _, outcome = relayed(Relay("openai-responses", stream=True), stream("openai-responses", ending))
        assert (outcome.others, outcome.done, len(outcome.calls)) == (others, others, 1)


def broken(*parts: Part, number: int = 0, streamed: bool = True, status: str = "failed") -> bytes:
    """An answer that fails behind these."""
    error = {"error": {"code": "server_error", "message": "no"}, "status": status}
    if not streamed:
        whole = {**body("openai-responses", Answer(number=number, parts=parts)), **error}
        return json.dumps(whole, indent=1).encode()
    failed = told(*parts, number=number)
    failed[-1] = {**failed[-1], "type": "response.failed", "response": {**failed[-1]["response"], **error}}
    return stream("openai-responses", failed)


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
    relay = Relay("openai-responses", stream=streamed)
    sent, outcome = relayed(relay, broken(TEXT, RECALL, streamed=streamed))
    assert (outcome.calls, outcome.shown, outcome.done, outcome.cut) == ((), (), True, False)
    assert [each["id"] for each in ending_of(sent, streamed=streamed)["output"]] == ["msg_m"]
    assert b"elision" not in sent


@BOTH
@pytest.mark.parametrize("parts", [(), (Part(kind="thinking", id="h2", text="so"), RECALL)], ids=["mute", "midway"])
@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_a_later_round_that_fails(streamed: bool, parts: tuple[Part, ...], status: str) -> None:
    """The client is told, in one answer with what it was shown before; it stands for nothing in its history."""
    relay = Relay("openai-responses", stream=streamed)
    data = sent_of(THOUGHT, RECALL) if streamed else json.dumps(told(THOUGHT, RECALL)[-1]["response"]).encode()
    sent, outcome = relayed(relay, data)
    relay.answered([(call, "found") for call in outcome.calls])
    more, last = relayed(relay, broken(*parts, number=1, streamed=streamed, status=status))
    ending = ending_of(more, streamed=streamed)
    assert (ending["status"], ending["error"]["code"]) == (status, "server_error")
    assert [each["id"] for each in ending["output"]] == ["rs_h", *(["rs_h2"] if parts else [])]
    assert (last.calls, last.shown, last.done, last.cut) == ((), (), True, False)
    assert relay.replacements() == ()
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
    assert relayed(Relay("openai-responses", stream=streamed), data)[0] == data


BARE = {"id": "rs_bare", "type": "reasoning", "summary": []}
SEALED = {**BARE, "id": "rs_sealed", "encrypted_content": "sealed"}
OPEN = {**BARE, "id": "rs_open", "content": [{"type": "reasoning_text", "text": "hm"}]}


def unstored(relay: Relay, *items: Json, number: int, streamed: bool) -> tuple[bytes, Outcome]:
    """One round of these items; every call is answered."""
    whole = {**body("openai-responses", Answer(number=number, parts=())), "output": [*items]}
    begun: list[Json] = [{"type": "response.created", "response": {**whole, "output": [], "status": "in_progress"}}]
    for index, each in enumerate(items):
        at = {"output_index": index, "item": each}
        begun += [{"type": "response.output_item.added", **at}, {"type": "response.output_item.done", **at}]
    ending = {"type": "response.completed", "response": whole}
    data = stream("openai-responses", [*begun, ending]) if streamed else json.dumps(whole).encode()
    sent, outcome = relayed(relay, data)
    relay.answered([(call, "found") for call in outcome.calls])
    return sent, outcome


def nameless(part: Part) -> Json:
    return {key: value for key, value in item(part).items() if key != "id"}


@BOTH
def test_what_the_provider_did_not_keep(streamed: bool) -> None:
    """With `store: false` nothing that is said on bears an id that the provider looks for in vain: bare reasoning is
    left out, calls go without. The client is shown all of it as it came."""
    relay = Relay("openai-responses", stream=streamed, stored=False)
    sent, outcome = unstored(relay, BARE, SEALED, OPEN, item(TEXT), item(RECALL), number=0, streamed=streamed)
    assert outcome.said == (SEALED, OPEN, item(TEXT), nameless(RECALL))
    tool = Part(kind="tool", id="b", text="ls")
    more, last = unstored(relay, {**BARE, "id": "rs_2"}, item(tool), number=1, streamed=streamed)
    assert last.said == (nameless(tool),)
    got = received("openai-responses", sent + more, streamed=streamed)["output"]
    assert [each["id"] for each in got] == ["rs_bare", "rs_sealed", "rs_open", "msg_m", "rs_2", "fc_b"]
    assert last.shown == (SEALED, OPEN, item(TEXT), item(tool)), "what no client can send back is not looked for"
    (found,) = relay.replacements()
    assert (found.place, found.shown, found.results) == (3, item(tool), ())
    assert found.messages == (nameless(RECALL), FOUND, nameless(tool))


@BOTH
def test_what_the_provider_did_not_keep_behind_the_last(streamed: bool) -> None:
    """The same of calls that join what the client says next."""
    relay = Relay("openai-responses", stream=streamed, stored=False)
    tool = Part(kind="tool", id="b", text="ls")
    _, outcome = unstored(relay, item(tool), BARE, item(RECALL), number=0, streamed=streamed)
    (found,) = relay.replacements()
    assert outcome.shown == (item(tool),)
    assert (found.place, found.shown, found.messages) == (0, item(tool), (nameless(tool),))
    assert found.results == (nameless(RECALL), FOUND)


@BOTH
def test_what_the_provider_keeps_stays_named(streamed: bool) -> None:
    """Without `store: false` all is said on as it came."""
    relay = Relay("openai-responses", stream=streamed)
    _, outcome = unstored(relay, BARE, item(TEXT), item(RECALL), number=0, streamed=streamed)
    assert outcome.said == (BARE, item(TEXT), item(RECALL))
    _, last = unstored(relay, BARE, item(TEXT), number=1, streamed=streamed)
    assert last.shown == (BARE, item(TEXT), BARE, item(TEXT))
    assert [each.messages for each in relay.replacements()] == [(item(RECALL), FOUND, BARE, item(TEXT))]


@BOTH
def test_what_a_client_goes_on_from(streamed: bool) -> None:
    """The id that the client is given is the last round's, which has the whole history; a stream began with another,
    and its reader takes no second one."""
    relay, sent = Relay("openai-responses", stream=streamed), b""
    rounds = [(THOUGHT, RECALL), (Part(kind="tool", id="b", text="ls"),)]
    for number, parts in enumerate(rounds):
        data = raw("openai-responses", Answer(number=number, parts=parts), streamed=streamed)
        out, outcome = relayed(relay, data)
        sent += out
        relay.answered([(call, "found") for call in outcome.calls])
    assert received("openai-responses", sent, streamed=streamed)["id"] == ("resp_0" if streamed else "resp_1")
    if streamed:
        before, _, behind = sent.rpartition(b"resp_0")
        with pytest.raises(RuntimeError, match="identity changed"):
            received("openai-responses", before + b"resp_1" + behind, streamed=True)
