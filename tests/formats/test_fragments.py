"""Consecutive assistant messages: one response, or a response each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.formats.anthropic_messages import AnthropicMessagesReader
from elision.formats.conversations import Fragment, is_same_response
from elision.formats.document import Document
from elision.formats.openai_chat import OpenAIChatReader
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage

FIRST, SECOND = Usage(input=10, output=5), Usage(input=15, output=5)
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "s"}


@pytest.mark.parametrize(
    ("earlier", "later", "same"),
    [
        ({}, {}, True),
        ({"id": "a"}, {"id": "a"}, True),
        ({"id": "a"}, {"id": "b"}, False),
        ({"id": "a"}, {}, True),
        ({"usage": FIRST}, {"usage": Usage(input=10, output=9)}, True),
        ({"usage": FIRST}, {"usage": SECOND}, False),
        ({"usage": FIRST}, {}, True),
        ({"model": "m"}, {"model": "n"}, False),
        ({"speaker": "planner"}, {"speaker": "coder"}, False),
        ({"is_final": True}, {}, False),
    ],
)
def test_two_adjacent_messages(earlier: dict[str, Any], later: dict[str, Any], same: bool) -> None:
    """They are one response unless their ids, prompts, models, speakers or an announced continuation say otherwise."""
    assert is_same_response(Fragment(**earlier), Fragment(**later), is_adjacent=True) is same


def test_with_something_between_only_the_id_tells() -> None:
    """Results may stand between fragments that share an id; without one, a result ends the response."""
    assert is_same_response(Fragment(id="a"), Fragment(id="a"), is_adjacent=False)
    assert not is_same_response(Fragment(), Fragment(), is_adjacent=False)


def anthropic(*messages: dict[str, Any], **outer: Any) -> Trajectory:
    data = json.dumps({"messages": [{"role": "user", "content": "go"}, *messages], "system": "s", **outer})
    (run,) = AnthropicMessagesReader().read(Document("x.json", data.encode()))
    assert isinstance(run, Trajectory)
    return run


def said(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks), **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(id: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "bash", "input": {}}


def results(*ids: str) -> dict[str, Any]:
    return {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": id, "content": f"result {id}"} for id in ids],
    }


def test_a_message_for_each_block() -> None:
    """A response of which each block is a message, and the place of one that was left out, is one call; so the run has
    as many calls as there were requests."""
    run = anthropic(
        said(THINKING),
        said(),
        said(text("I look.")),
        said(use("a")),
        said(use("b")),
        results("a", "b"),
        said(),
        said(use("c")),
        results("c"),
        said(),
        {"role": "user", "content": "thanks"},
    )
    assert [(turn.text, turn.reasoning, [action.id for action in turn.actions]) for turn in run.turns] == [
        ("I look.", "Hm.", ["a", "b"]),
        ("", "", ["c"]),
    ]
    assert [len(turn.observations) for turn in run.turns] == [2, 1]
    assert run.turns[1].interjections[0].text == "thanks"


def test_fragments_that_share_an_id() -> None:
    """Parallel calls that were answered while the response still came in are one turn; its usage is the last stated."""
    first = {"input_tokens": 10, "output_tokens": 1}
    run = anthropic(
        said(use("a"), id="msg_1", model="claude-x", usage=first),
        results("a"),
        said(use("b"), id="msg_1", model="claude-x", usage={**first, "output_tokens": 30}),
        results("b"),
        said(text("Done."), id="msg_2", model="claude-x", usage={"input_tokens": 50, "output_tokens": 2}),
    )
    assert [[o.text for o in turn.observations] for turn in run.turns] == [["result a", "result b"], []]
    assert [turn.usage.output for turn in run.turns if turn.usage] == [30, 2]


def test_an_empty_response_is_a_call_where_it_is_stated() -> None:
    """A model may answer nothing; that is a call if the message tells of a response."""
    run = anthropic(said(use("a")), results("a"), said(stop_reason="end_turn"), {"role": "user", "content": "well?"})
    assert len(run.turns) == 2


def test_a_response_that_was_continued() -> None:
    """What follows a paused response, or one that was cut off, with nothing between is another call."""
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    assert len(anthropic(said(search, stop_reason="pause_turn"), said(text("Found."))).turns) == 2
    assert len(anthropic(said(text("a"), stop_reason="max_tokens"), said(text("b"))).turns) == 2
    recorded = said(text("Found."), id="msg_2", usage={"input_tokens": 9, "output_tokens": 1})
    assert len(anthropic(said(search), response=recorded).turns) == 2


def test_a_request_that_begins_its_own_response() -> None:
    """A request may end with the first words of the response; with the response they are one call."""
    run = anthropic(said(text("{")), response=said(text('"a": 1}'), id="msg_1", model="claude-x"))
    assert [turn.text.split() for turn in run.turns] == [["{", '"a":', "1}"]]


def chat(*messages: dict[str, Any], **outer: Any) -> Trajectory:
    data = json.dumps({"messages": [{"role": "user", "content": "go"}, *messages], **outer})
    (run,) = OpenAIChatReader().read(Document("x.json", data.encode()))
    assert isinstance(run, Trajectory)
    return run


def answer(content: str | None = None, *calls: str, **more: Any) -> dict[str, Any]:
    named = [{"type": "function", "id": id, "function": {"name": "bash", "arguments": "{}"}} for id in calls]
    return {"role": "assistant", "content": content, **({"tool_calls": named} if named else {}), **more}


def test_chat_messages_of_one_response() -> None:
    """Calls after a text, and whatever comes while calls are unanswered, are the response that is already there."""
    tools = [{"role": "tool", "tool_call_id": id, "content": id} for id in ("a", "b")]
    run = chat(answer("I look."), answer(None, "a"), answer(None, "b"), *tools, answer(""), answer("Done."))
    assert [(turn.text, len(turn.observations)) for turn in run.turns] == [("I look.", 2), ("Done.", 0)]


def test_chat_messages_of_two_responses() -> None:
    """A text after a text is another call, and so is the message of another speaker."""
    assert len(chat(answer("One."), answer("Two.")).turns) == 2
    assert len(chat(answer("Plan.", name="planner"), answer(None, "a", name="coder")).turns) == 2


def test_chat_calls_without_ids_in_fragments() -> None:
    """Calls without ids in several messages of a response are answered in order."""
    tools = [{"role": "tool", "content": word} for word in ("one", "two")]
    run = chat(answer("I look."), answer(None, ""), answer(None, ""), *tools, tools=[{"type": "function"}])
    assert [o.text for o in run.turns[0].observations] == ["one", "two"]
