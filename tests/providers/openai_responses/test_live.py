"""Responses items, live: what is whose, which call a result answers, and how a result is hidden."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision import Advanced
from elision.manager import ContextManager
from elision.providers.live.conversation import LiveTurns
from elision.providers.openai_responses.messages import LiveOpenAIResponses
from elision.stores.memory import MemoryStore
from elision.testing.request_checks import find_problems

LONG = "\n".join(f"line {number} of a long output" for number in range(200))
TOOLS = [{"type": "function", "name": "look_up", "description": LONG, "parameters": {}, "strict": None}]
SHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64," + "A" * 4_000}
ACTION = {"type": "exec", "command": ["ls"], "env": {}}
RUN = {"stdout": LONG, "stderr": "", "outcome": {"type": "exit", "exit_code": 2}}
DIFF = {"type": "update_file", "path": "a.py", "diff": "+1"}
#: Output type -> (the call, its output), each as the API's own types want them.
PAIRS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "function_call_output": ({"type": "function_call", "name": "f", "arguments": "{}"}, {"output": LONG}),
    "custom_tool_call_output": ({"type": "custom_tool_call", "name": "f", "input": "x"}, {"output": LONG}),
    "local_shell_call_output": (
        {"type": "local_shell_call", "id": "l1", "status": "completed", "action": ACTION},
        {"id": "c1", "output": LONG},
    ),
    "shell_call_output": ({"type": "shell_call", "action": {"commands": ["ls"]}}, {"output": [RUN]}),
    "apply_patch_call_output": (
        {"type": "apply_patch_call", "status": "completed", "operation": DIFF},
        {"status": "completed", "output": LONG},
    ),
    "program_output": (
        {"type": "program", "id": "p1", "code": "f()", "fingerprint": "x"},
        {"id": "po1", "status": "completed", "result": LONG},
    ),
    "computer_call_output": (
        {
            "type": "computer_call",
            "id": "cu1",
            "status": "completed",
            "pending_safety_checks": [],
            "action": {"type": "wait"},
        },
        {"output": SHOT},
    ),
    "tool_search_output": (
        {"type": "tool_search_call", "execution": "client", "arguments": {"query": "x"}},
        {"execution": "client", "tools": TOOLS},
    ),
}
#: Outputs that no text can stand for: a screenshot, and tools that the model may call from then on.
WHOLE = ("computer_call_output", "tool_search_output")


def paired(kind: str) -> list[dict[str, Any]]:
    """A call and its output."""
    call, output = PAIRS[kind]
    named = {} if kind == "local_shell_call_output" else {"call_id": "c1"}
    return [{"call_id": "c1", **call}, {"type": kind, **named, **output}]


def sent_for(items: list[dict[str, Any]], strategy: str = "masking(window=1, schedule=every-turn)") -> list[Any]:
    """What a context manager makes of `items`, with two more turns behind them."""
    more: list[dict[str, Any]] = []
    for number in (8, 9):
        more += [
            {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": "ok"},
        ]
    context = ContextManager(
        strategy, store=MemoryStore(), advanced=Advanced(dialect="openai-responses"), model="gpt-5.2"
    )
    return context.prepare([{"role": "user", "content": "Work."}, *items, *more]).messages


@pytest.mark.parametrize("kind", [kind for kind in PAIRS if kind not in WHOLE])
def test_a_hidden_output_is_one_that_the_api_takes(kind: str) -> None:
    """Every kind of output is hidden in the field and the shape that its type has."""
    items = paired(kind)
    hidden = sent_for(items)[2]
    assert "hidden" in json.dumps(hidden)
    assert hidden.keys() == items[1].keys()
    assert (
        find_problems(
            "openai-responses", {"model": "gpt-5.2", "input": [{"role": "user", "content": "Work."}, items[0], hidden]}
        )
        == []
    )


@pytest.mark.parametrize("kind", WHOLE)
def test_what_no_text_can_stand_for_is_never_hidden(kind: str) -> None:
    """A screenshot, and tools that were loaded, go as they came however old they are."""
    items = paired(kind)
    assert sent_for(items)[2] is items[1]


def test_the_outcome_of_a_hidden_command_stays() -> None:
    """Of a shell's output the text is hidden, and whether it failed is not."""
    hidden = sent_for(paired("shell_call_output"))[2]
    assert [run["outcome"] for run in hidden["output"]] == [{"type": "exit", "exit_code": 2}]


def test_a_search_that_the_provider_runs_is_answered_by_the_output_behind_it() -> None:
    """Call and output have an id each and none in common; with or without those they are one turn's."""
    search = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["a"]}}
    found = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": TOOLS}
    named = [{**search, "id": "tsc_1"}, {**found, "id": "tso_1"}]
    for items in (named, [search, found]):
        conversation = LiveTurns(joins_assistant_messages=True)
        for place, item in enumerate(
            [{"role": "user", "content": "Work."}, *items, {"role": "user", "content": "On."}]
        ):
            conversation.add_pieces(LiveOpenAIResponses().split_message(item, place))
        turn, _ = conversation.build_turn(1)
        assert [seen.tool for seen in turn.observations] == ["tool_search"]
        assert len(turn.interjections) == 1


def test_tools_that_the_client_adds_are_the_clients() -> None:
    """`additional_tools` is no word of the model's: no turn begins with it, and a summary does not swallow it."""
    item = {"type": "additional_tools", "role": "developer", "tools": TOOLS}
    (piece,) = LiveOpenAIResponses().split_message(item, 0)
    assert piece.kind == "user"
    strategy = "summarization(every=1, tail=1, schedule=every-turn)"
    sent = sent_for([*paired("function_call_output"), item, *paired("custom_tool_call_output")], strategy)
    assert item in sent
