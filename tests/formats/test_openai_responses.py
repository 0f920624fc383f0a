"""Files of OpenAI Responses items."""

from __future__ import annotations

import json

import pytest

from elision.formats.document import Document
from elision.formats.openai_responses import OpenAIResponsesReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import Opaque
from tests.formats.found import load_document, make_document, make_lines, separate

CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "r"}
ASK = {"role": "user", "content": "go"}
USAGE = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 40}, "output_tokens": 5}


def read(document: Document) -> tuple[list[Trajectory], list[Problem]]:
    return separate(OpenAIResponsesReader().read(document))


def test_consecutive_items_are_one_turn() -> None:
    """Reasoning, text and parallel calls up to the next result make one assistant message."""
    (run,), problems = read(load_document("openai_responses/items.jsonl"))
    first = run.turns[0]
    assert not problems
    assert OpenAIResponsesReader().sniff(load_document("openai_responses/items.jsonl"))
    assert [turn.text for turn in run.turns] == ["Looking.", "", "", "", "Stopped."]
    assert first.reasoning == "Look first."
    assert isinstance(first.content[0], Opaque)
    assert [action.id for action in first.actions] == ["call_1", "call_2"]
    assert [observation.action_id for observation in first.observations] == ["call_1", "call_2"]


def test_hosted_tools_carry_their_results() -> None:
    """A local shell result answers by the call item's id; an MCP call holds its result; a web search stays opaque."""
    (run,), _ = read(load_document("openai_responses/items.jsonl"))
    shell, mcp = run.turns[2], run.turns[3]
    assert (shell.actions[0].id, shell.observations[0].text) == ("call_4", "1 passed")
    assert [part.kind for part in mcp.content if isinstance(part, Opaque)] == ["web_search_call"]
    assert mcp.observations[0].text == "found x"
    assert [message.text for message in mcp.interjections] == ["Good. Now stop."]


def test_a_compaction_item_is_a_compaction() -> None:
    """It stands before the call that was the first to see the rewritten context."""
    (run,), _ = read(load_document("openai_responses/items.jsonl"))
    assert [compaction.before for compaction in run.compactions] == [3]


def test_a_request_and_its_response_are_one_run() -> None:
    """Instructions, tools and model come from the request; the output is a turn with its usage."""
    (run,), problems = read(load_document("openai_responses/pair.json"))
    assert not problems
    assert OpenAIResponsesReader().sniff(load_document("openai_responses/pair.json"))
    assert [message.text for message in run.head.messages] == ["You repair tests.", "Fix the test."]
    assert (len(run.head.tools), run.model, len(run.turns)) == (1, "gpt-5.6-sol", 2)
    assert run.turns[0].usage is None
    assert run.turns[1].usage is not None
    assert (run.turns[1].usage.input, run.turns[1].usage.cache_read, run.turns[1].usage.cache_write) == (100, 600, 300)


def test_a_text_as_input_is_the_users() -> None:
    """`input` may be a plain text."""
    (run,), _ = read(make_document({"input": "go", "output": [CALL]}))
    assert [(message.role, message.text) for message in run.head.messages] == [("user", "go")]


def test_response_objects_among_items_bring_usage_and_bounds() -> None:
    """In a chain of items and responses each response is one turn with its own usage, and gives the head."""
    response = {"object": "response", "instructions": "sys", "output": [CALL], "usage": USAGE, "model": "m"}
    made = make_lines(
        ASK, response, OUTPUT, {**response, "output": [{"type": "message", "role": "assistant", "content": "x"}]}
    )
    (run,), problems = read(made)
    assert not problems
    assert OpenAIResponsesReader().sniff(made)
    assert [turn.usage.cache_read if turn.usage else None for turn in run.turns] == [40, 40]
    assert [turn.is_finished for turn in run.turns] == [True, False]
    assert [message.text for message in run.head.messages] == ["go", "sys"]


@pytest.mark.parametrize(
    "made",
    [make_document([ASK, CALL, OUTPUT]), make_lines(ASK, CALL, OUTPUT), make_document({"input": [ASK, CALL, OUTPUT]})],
)
def test_lists_lines_and_requests(made: Document) -> None:
    """The same items in any nesting are the same run."""
    (run,), problems = read(made)
    assert OpenAIResponsesReader().sniff(made)
    assert (problems, run.tool_turns, run.id) == ([], 1, "main")


def test_every_request_of_a_log_is_a_run() -> None:
    """A line with a request is a run of its own."""
    runs, _ = read(make_lines({"input": [ASK], "output": [CALL]}, {"input": [ASK], "output": [CALL]}))
    assert [run.id for run in runs] == ["line 1", "line 2"]


def test_a_reference_into_nowhere_is_a_problem() -> None:
    """What an item_reference points at cannot be made up."""
    runs, problems = read(make_document([ASK, {"type": "item_reference", "id": "gone"}, CALL, OUTPUT]))
    assert (len(runs), len(problems)) == (1, 1)
    assert "gone" in problems[0].reason


def test_an_unknown_item_is_kept() -> None:
    """A type that is yet to come stays in the message, opaque."""
    (run,), problems = read(make_document([ASK, CALL, {"type": "quantum_leap", "x": 1}, OUTPUT]))
    assert not problems
    assert [part.kind for part in run.turns[0].content if isinstance(part, Opaque)] == ["quantum_leap"]


def test_one_odd_item_does_not_hide_the_format() -> None:
    """An item without type and role is a Problem with its place, and the rest is read."""
    items = [
        {"role": "user", "content": "go"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"x": 1},
        {"role": "banana"},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
    ]
    odd = Document("x.json", json.dumps({"input": items}).encode())
    found = list(OpenAIResponsesReader().read(odd))
    assert OpenAIResponsesReader().sniff(odd)
    assert [item.line for item in found if isinstance(item, Problem)] == [3, 4]
    assert [item.tool_turns for item in found if isinstance(item, Trajectory)] == [1]


def test_a_search_that_the_provider_runs_has_the_output_behind_it() -> None:
    """Call and output share no id, so they are one pair by their order; tools that were found are never hidden."""
    search = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["a"]}}
    found = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [{"name": "a"}]}
    pairs = [{**item, "id": f"ts_{number}"} for number, item in enumerate([search, found, search, found])]
    (run,), problems = read(make_lines(ASK, *pairs))
    assert not problems
    assert [[(seen.tool, seen.tags) for seen in turn.observations] for turn in run.turns] == [
        [("tool_search", frozenset({"keep_output"}))]
    ] * 2


def test_tags() -> None:
    """Tags of an output, and of the call that it answers, are of its observation; other calls have their own."""
    items = [ASK, {**CALL, "tags": ["mine"]}, {**CALL, "call_id": "d"}, {**OUTPUT, "keep_output": True}]
    (run,), problems = read(make_document({"input": [*items, {**OUTPUT, "call_id": "d"}]}))
    assert not problems
    assert [sorted(seen.tags) for seen in run.turns[0].observations] == [["keep_output", "mine"], []]
