"""Messages read into turns: which assistant messages, results and settings make one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lacuna.dialects.live.conversation import Conversation
from lacuna.dialects.live.detect import LIVE
from lacuna.trajectory.turn import Turn

ASKED = {"role": "user", "content": "Refund?"}
TOOL = {"type": "function", "name": "policy", "parameters": {}, "defer_loading": True}


def turns_of(dialect: str, messages: Sequence[dict[str, Any]]) -> list[Turn]:
    """The turns of a conversation with tools."""
    live = LIVE[dialect]
    conversation = Conversation(runs=live.runs, tools=True)
    for place, message in enumerate(messages):
        conversation.read(live.pieces(message, place))
    return [conversation.turn(index)[0] for index in range(1, conversation.turns + 1)]


def use(id: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": id, "name": "load", "input": {}}]}


def result(id: str, said: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id, "content": said}


def search(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "call_id": None, "execution": "server", "status": "completed", **fields}


def test_assistant_messages_in_a_row_are_one_turn_at_anthropic() -> None:
    """The service takes them for one message, so the results behind them answer the calls of all of them."""
    answers = {"role": "user", "content": [result("a", "rules"), result("b", "tool")]}
    (turn,) = turns_of("anthropic", [ASKED, use("a"), use("b"), answers])
    assert [action.id for action in turn.actions] == ["a", "b"]
    assert [observation.text for observation in turn.observations] == ["rules", "tool"]


def test_a_search_that_the_service_ran_is_part_of_what_the_model_said() -> None:
    """Call and outcome have no `call_id`; both stay whole, and what follows belongs to the same turn."""
    asked = search("tool_search_call", id="tsc_1", arguments={"queries": ["policy"]})
    found = search("tool_search_output", id="tso_1", tools=[TOOL])
    call = {"type": "function_call", "call_id": "c", "name": "policy", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "30 days"}
    (turn,) = turns_of("openai-responses", [ASKED, asked, found, call, output])
    assert [action.id for action in turn.actions] == ["c"]
    assert [observation.text for observation in turn.observations] == ["30 days"]
    assert [part.data for part in turn.content if part.kind] == [asked, found]


def test_a_search_that_the_client_ran_is_a_call_with_its_result() -> None:
    """The client's outcome answers by `call_id`, like any other tool's."""
    asked = {**search("tool_search_call", arguments={"queries": ["policy"]}), "call_id": "s", "execution": "client"}
    found = {**search("tool_search_output", tools=[TOOL]), "call_id": "s", "execution": "client"}
    (turn,) = turns_of("openai-responses", [ASKED, asked, found])
    assert [(each.action_id, each.tool) for each in turn.observations] == [("s", "tool_search")]


def test_an_item_of_the_developers_begins_no_turn() -> None:
    """Tools that are added later are a setting; nothing of that was said by the model."""
    call = {"type": "function_call", "call_id": "c", "name": "load", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "{}"}
    added = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
    (turn,) = turns_of("openai-responses", [ASKED, call, output, added])
    assert [(message.role, len(message.content)) for message in turn.interjections] == [("developer", 1)]
