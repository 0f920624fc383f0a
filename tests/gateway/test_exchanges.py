"""What a client never saw, put back in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lacuna.dialects.live.detect import LIVE
from lacuna.gateway.exchanges import Exchanges
from lacuna.gateway.routes import Api
from lacuna.gateway.transcript import Arrived, Transcript
from lacuna.trajectory.events import Exchanged

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


class Conversation:
    """A client's messages as they grow, and what is put between them."""

    def __init__(self, api: Api = "openai") -> None:
        dialect = LIVE[api]
        self.transcript = Transcript(dialect, b"k1")
        self.exchanges = Exchanges(blocks=dialect.in_blocks)

    def says(self, *messages: Json | bytes) -> None:
        """More of them; bytes as they stand."""
        new = (each if isinstance(each, bytes) else json.dumps(each).encode() for each in messages)
        self.transcript.take(Arrived(self.transcript.dialect, [*self.transcript.raws, *new]))

    def exchanged(self, *messages: Json, after: int, results: tuple[Json, ...] = ()) -> Exchanged:
        """What stands in place of message `after`."""
        event = Exchanged(
            call=1,
            node=self.transcript.entries[after].node.hex(),
            messages=tuple(map(json.dumps, messages)),
            results=tuple(map(json.dumps, results)),
        )
        self.exchanges.learn([event])
        return event

    def expanded(self) -> list[Json]:
        said = self.exchanges.expanded(self.transcript.entries)
        assert [json.loads(each.raw) for each in said] == [each.json for each in said]
        return [each.json for each in said]


def test_without_any_the_history_is_the_clients() -> None:
    """The very objects and bytes, request after request."""
    chat = Conversation()
    chat.says(TASK, called("a"), result("a"))
    first = chat.exchanges.expanded(chat.transcript.entries)
    assert [each.raw for each in first] == chat.transcript.raws
    chat.says(called("b"), result("b"))
    second = chat.exchanges.expanded(chat.transcript.entries)
    assert all(new is old for new, old in zip(second, first, strict=False))


def test_a_recall_stands_in_front_of_what_was_shown() -> None:
    """The message that the client was shown is replaced by all that was said; what follows stays behind it."""
    chat = Conversation()
    chat.says(TASK, called("a"), result("a"))
    made = [called("r", "lacuna_recall"), result("r"), called("a")]
    chat.exchanged(*made, after=1)
    assert chat.expanded() == [TASK, *made, result("a")]
    before = chat.exchanges.expanded(chat.transcript.entries)
    chat.says(called("b"))
    after = chat.exchanges.expanded(chat.transcript.entries)
    # The library tells in O(1) that they are the same.
    assert all(new is old for new, old in zip(after, before, strict=False))


def test_another_history_has_none() -> None:
    """Names are those of histories: the same words behind other words were never answered so."""
    chat, other = Conversation(), Conversation()
    for each, task in ((chat, TASK), (other, {**TASK, "content": "Something else."})):
        each.says(task, called("a"), result("a"))
    event = chat.exchanged(called("r", "lacuna_recall"), result("r"), called("a"), after=1)
    other.exchanges.learn([event])
    assert len(other.expanded()) == 3


@pytest.mark.parametrize("ahead", [False, True])
def test_results_stand_right_behind_their_call(ahead: bool) -> None:
    """Of a recall beside other calls: chat wants them in front of the client's own; also while those are to come."""
    chat = Conversation()
    chat.says(TASK, called("a"), *([] if ahead else [result("a")]))
    both = {**called("a"), "tool_calls": [*called("a")["tool_calls"], *called("r", "lacuna_recall")["tool_calls"]]}
    chat.exchanged(both, after=1, results=(result("r"),))
    assert chat.expanded() == [TASK, both, result("r"), *([] if ahead else [result("a")])]


@pytest.mark.parametrize("words", [False, True])
def test_results_join_the_clients_message(words: bool) -> None:
    """Anthropic wants all results of a turn at the front of the next message, whatever shape that has."""
    chat = Conversation("anthropic")
    following = {"role": "user", "content": "Go on."} if words else results("a")
    chat.says(TASK, used("a"), following)
    recalled = results("r")["content"]
    chat.exchanged(used("a", "r"), after=1, results=tuple(recalled))
    last = chat.expanded()[-1]
    own = [{"type": "text", "text": "Go on."}] if words else following["content"]
    assert last == {"role": "user", "content": [*recalled, *own]}
    # The client says more: what was made stays the very object.
    made = chat.exchanges.expanded(chat.transcript.entries)[2]
    chat.says(used("b"))
    assert chat.exchanges.expanded(chat.transcript.entries)[2] is made


def test_the_clients_bytes_stay_within_a_joined_message() -> None:
    """What was not touched of it is spelled as the client spelled it."""
    chat = Conversation("anthropic")
    odd = b'{"role" :"user",  "content":[ {"type":"tool_result", "tool_use_id":"a" ,"content":"caf\\u00e9"}]}'
    chat.says(TASK, used("a"), odd)
    chat.exchanged(used("a", "r"), after=1, results=tuple(results("r")["content"]))
    raw = chat.exchanges.expanded(chat.transcript.entries)[-1].raw
    assert b'{"type":"tool_result", "tool_use_id":"a" ,"content":"caf\\u00e9"}' in raw
    assert raw.startswith(b'{"role" :"user"')
