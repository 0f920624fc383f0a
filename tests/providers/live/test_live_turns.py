"""Messages read into turns: which assistant messages, results and settings make one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.providers.live.conversation import LiveTurns
from elision.providers.provider_table import PROVIDERS
from elision.trajectory.turn import Turn

ASKED = {"role": "user", "content": "Refund?"}
TOOL = {"type": "function", "name": "policy", "parameters": {}, "defer_loading": True}


def turns_of(dialect: str, messages: Sequence[dict[str, Any]]) -> list[Turn]:
    """The turns of a conversation with tools."""
    live = PROVIDERS[dialect].live
    conversation = LiveTurns(joins_assistant_messages=live.joins_assistant_messages, has_tools=True)
    for place, message in enumerate(messages):
        conversation.add_pieces(live.split_message(message, place))
    return [conversation.build_turn(index)[0] for index in range(1, conversation.turn_count + 1)]


def use(id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "load", "input": {}}]}


def result(id: str, said: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": said}


def test_assistant_messages_in_a_row_are_one_turn_at_anthropic() -> None:
    """The service takes them for one message, so the results behind them answer the calls of all of them."""
    answers = {"role": "user", "content": [result("a", "rules"), result("b", "tool")]}
    (turn,) = turns_of("anthropic", [ASKED, use("a"), use("b"), answers])
    assert [action.id for action in turn.actions] == ["a", "b"]
    assert [observation.text for observation in turn.observations] == ["rules", "tool"]


def test_an_item_of_the_developers_begins_no_turn() -> None:
    """Tools that are added later are a setting; nothing of that was said by the model."""
    call = {"type": "function_call", "call_id": "c", "name": "load", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "{}"}
    added = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
    (turn,) = turns_of("openai-responses", [ASKED, call, output, added])
    assert [message.pinned for message in turn.interjections] == [True]


def test_a_change_of_tools_between_turns_stays() -> None:
    """A system message that adds a tool is pinned; one that only says something is not."""
    answers = {"role": "user", "content": [result("a", "rules")]}
    added = {"role": "system", "content": [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": "b"}}]}
    said = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    (turn,) = turns_of("anthropic", [ASKED, use("a"), answers, said, added])
    assert [message.pinned for message in turn.interjections] == [False, True]


def call_tools(*calls: tuple[str, str]) -> dict[str, Any]:
    """A message of chat with calls, each (id, tool)."""
    made = [{"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}} for id, name in calls]
    return {"role": "assistant", "content": None, "tool_calls": made}


def answer_chat(text: str, **fields: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, **fields}


def list_answers(turn: Turn) -> list[tuple[str, str]]:
    """(tool called, text) of each result that answers a call."""
    tools = {action.id: action.name for action in turn.actions}
    return [(tools[observation.action_id], observation.text) for observation in turn.observations]


@pytest.mark.parametrize("ids", [("", ""), ("c1", "c2")])
@pytest.mark.parametrize("named", [True, False])
def test_results_without_ids_answer_calls_in_order(ids: tuple[str, str], named: bool) -> None:
    """With the tool's name or without; whether or not the calls have ids."""
    name = {"name": "look"} if named else {}
    calls = call_tools((ids[0], "look"), (ids[1], "look"))
    (turn,) = turns_of(
        "openai", [ASKED, calls, answer_chat("one", **name), answer_chat("two", tool_call_id="", **name)]
    )
    assert [observation.text for observation in turn.observations] == ["one", "two"]
    assert [observation.action_id for observation in turn.observations] == [action.id for action in turn.actions]
    assert not turn.interjections


def test_results_without_ids_answer_calls_of_their_tool() -> None:
    """Parallel calls may be answered in another order: names are known before places."""
    calls = call_tools(("", "look"), ("", "list"), ("", "look"))
    answers = [answer_chat("l", name="list"), answer_chat("1", name="look"), answer_chat("2", name="look")]
    (turn,) = turns_of("openai", [ASKED, calls, *answers])
    assert list_answers(turn) == [("list", "l"), ("look", "1"), ("look", "2")]


def test_a_name_that_no_call_has_is_passed_over() -> None:
    """Some frameworks give a tool another name in its result: the order is left."""
    (turn,) = turns_of("openai", [ASKED, call_tools(("", "look")), answer_chat("1", name="Look tool")])
    assert list_answers(turn) == [("look", "1")]


def test_an_id_of_no_call_answers_none() -> None:
    """It names another call, which is gone: it is kept as words of the user. So is one result too many."""
    (turn,) = turns_of("openai", [ASKED, call_tools(("c1", "look")), answer_chat("x", tool_call_id="c9", name="look")])
    assert not turn.observations
    assert len(turn.interjections) == 1
    (turn,) = turns_of("openai", [ASKED, call_tools(("", "look")), answer_chat("1"), answer_chat("2")])
    assert list_answers(turn) == [("look", "1")]
    assert len(turn.interjections) == 1


def test_results_after_one_of_no_call_answer_their_calls() -> None:
    """Only words end the results of a turn. So a call and its result are covered, or kept, together."""
    answers = [answer_chat("x", tool_call_id="c9"), answer_chat("1", tool_call_id="c1")]
    (turn,) = turns_of("openai", [ASKED, call_tools(("c1", "look")), *answers])
    assert list_answers(turn) == [("look", "1")]
    assert len(turn.interjections) == 1
    late = [ASKED, call_tools(("c1", "look")), {"role": "user", "content": "Wait."}, answers[1]]
    (turn,) = turns_of("openai", late)
    assert not turn.observations
    assert len(turn.interjections) == 2


def test_parallel_calls_of_one_tool_without_ids_at_gemini() -> None:
    """The API has ids only where a client sets them: each response answers the next call of its tool."""
    asked = {"role": "user", "parts": [{"text": "Look twice."}]}
    calls = {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": at}}} for at in (1, 2)]}
    responses = [{"functionResponse": {"name": "look", "response": {"result": text}}} for text in ("one", "two")]
    (turn,) = turns_of("gemini", [asked, calls, {"role": "user", "parts": responses}])
    assert list_answers(turn) == [("look", "one"), ("look", "two")]
    assert len({action.id for action in turn.actions}) == 2


@given(tools=st.lists(st.sampled_from(["look", "list", "read"]), min_size=1, max_size=6), data=st.data())
def test_every_result_without_an_id_answers_a_call_of_its_tool(tools: list[str], data: st.DataObject) -> None:
    """In whatever order they come: none is left over, and no call is answered twice."""
    answered = data.draw(st.permutations(tools))
    answers = [answer_chat(f"{place} {tool}", name=tool) for place, tool in enumerate(answered)]
    (turn,) = turns_of("openai", [ASKED, call_tools(*(("", tool) for tool in tools)), *answers])
    assert [(tool, text.split()[1]) for tool, text in list_answers(turn)] == [(tool, tool) for tool in answered]
    assert len({observation.action_id for observation in turn.observations}) == len(tools)
