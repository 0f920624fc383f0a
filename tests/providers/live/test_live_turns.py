"""Messages read into turns: which assistant messages, results and settings make one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elision.providers.live.live_turns import LiveTurns
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
