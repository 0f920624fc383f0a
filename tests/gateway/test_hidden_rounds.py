"""What a client never saw, put back in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.gateway.incoming_messages import HiddenRounds, IncomingMessages
from elision.providers.live.conversation import Conversation
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.trajectory.events import RecallExchanged

Json = dict[str, Any]
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
