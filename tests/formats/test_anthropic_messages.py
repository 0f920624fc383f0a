"""Files of Anthropic messages."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.formats.anthropic_messages import AnthropicMessagesReader
from elision.formats.document import Document
from elision.trajectory.trajectory import Compaction, Problem, Trajectory
from elision.trajectory.turn import Opaque
from elision.trajectory.usage import Usage
from tests.formats.found import load_document, make_document, separate

HI = {"role": "user", "content": "hi"}

TALK = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]},
]


def read(document: Document) -> tuple[list[Trajectory], list[Problem]]:
    return separate(AnthropicMessagesReader().read(document))


def test_a_recorded_run() -> None:
    """System prompt, tools, thinking, server tools, parallel calls, errors and usage find their places."""
    (run,), problems = read(load_document("anthropic_messages/run.json"))
    first = run.turns[0]
    assert not problems
    assert AnthropicMessagesReader().sniff(load_document("anthropic_messages/run.json"))
    assert [message.text for message in run.head.messages] == ["You repair tests.", "Fix it."]
    assert (run.model, len(run.head.tools), first.reasoning) == ("claude-opus-5-5", 1, "Look first.")
    kinds = [part.kind if isinstance(part, Opaque) else part.text for part in first.content]
    assert kinds == ["redacted_thinking", "Looking.", "server_tool_use", "web_search_tool_result"]
    assert [(action.id, action.decoded_arguments) for action in first.actions] == [
        ("tu_1", {"command": "ls"}),
        ("tu_2", {"command": "cat nothing"}),
    ]
    assert [observation.error for observation in first.observations] == [None, True]
    assert first.usage is not None
    assert (first.usage.input, first.usage.cache_read, first.usage.cache_write, first.usage.output) == (10, 500, 90, 40)


def test_text_beside_results_is_an_interjection() -> None:
    """Results join the turn of their calls; the text of the same message is the user's own."""
    (run,), _ = read(load_document("anthropic_messages/run.json"))
    assert [message.text for message in run.turns[0].interjections] == ["Hurry."]


def test_a_compaction_block_is_a_compaction() -> None:
    """The provider's summary is recorded before the call that wrote it, and stays in the message."""
    (run,), _ = read(load_document("anthropic_messages/run.json"))
    assert run.compactions == (Compaction(before=2, summary="The file is a.py."),)
    assert run.turns[1].text == "The file is a.py.\nDone."


@pytest.mark.parametrize(
    "made",
    [
        make_document(TALK),
        make_document([{"messages": TALK}]),
        make_document({"request": {"system": "s", "messages": TALK}}),
        Document("x.jsonl", "\n".join(json.dumps(message) for message in TALK).encode()),
        Document("x.jsonl", json.dumps({"messages": TALK}).encode() + b"\n"),
    ],
)
def test_every_nesting_is_read(made: Document) -> None:
    """A list, an object, lists and lines of either are recognised and read."""
    (run,), problems = read(made)
    assert AnthropicMessagesReader().sniff(made)
    assert (problems, run.tool_turns, run.format) == ([], 1, "anthropic-messages")


def test_the_response_to_a_recorded_request_is_the_last_turn() -> None:
    """A response beside its request brings its message, model and usage."""
    usage = {"input_tokens": 3, "output_tokens": 1}
    response = {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "bye"}], "usage": usage}
    (run,), _ = read(make_document({"messages": TALK, "response": response}))
    assert (run.turns[-1].text, run.turns[-1].model) == ("bye", "m")
    assert run.turns[-1].usage is not None


def test_a_stray_result_and_a_strange_role_are_problems() -> None:
    """What has no call or no known role is left out and reported; the rest is read."""
    stray = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nobody", "content": "x"}]}
    runs, problems = read(make_document([*TALK, stray, {"role": "ghost", "content": "boo"}]))
    assert [run.tool_turns for run in runs] == [1]
    assert [problem.line for problem in problems] == [4, 5]


def test_a_plain_conversation_is_left_to_chat() -> None:
    """Without a sign of this dialect a conversation is not taken."""
    assert not AnthropicMessagesReader().sniff(
        make_document([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"}])
    )


def test_a_plain_request_is_told_by_its_response() -> None:
    """An answer of type `message` is this API's, whatever little the request says."""
    response = {"type": "message", "role": "assistant", "model": "claude", "content": [{"type": "text", "text": "hi"}]}
    made = make_document({"request": {"model": "claude", "messages": [HI]}, "response": response})
    assert AnthropicMessagesReader().sniff(made)
    (run,), problems = read(made)
    assert not problems
    assert [turn.text for turn in run.turns] == ["hi"]


def test_one_odd_message_does_not_hide_the_format() -> None:
    """A message of unknown role is a Problem with its place, and the rest is read."""
    odd = make_document([*TALK, {"role": "banana"}, {"role": "assistant", "content": "end"}])
    (run,), (problem,) = read(odd)
    assert AnthropicMessagesReader().sniff(odd)
    assert run.turns[-1].text == "end"
    assert (problem.line, "'banana'" in problem.reason) == (len(TALK) + 1, True)


def test_a_role_of_another_dialect_is_no_slip() -> None:
    """One tool message is enough to leave a conversation to its own reader."""
    assert not AnthropicMessagesReader().sniff(make_document([*TALK, {"role": "tool", "content": "r"}]))


def cline(**metrics: Any) -> Document:
    said = {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}], "ts": 1_700_000_000_000}
    return make_document([HI, {**said, "modelInfo": {"id": "m"}, "metrics": metrics}])


def test_metrics_of_cline_are_usage() -> None:
    """Its input tokens include cache reads and writes; time and model stand beside the message too."""
    made = cline(inputTokens=100, outputTokens=7, cacheReadTokens=60, cacheWriteTokens=30, cost=0.5)
    ((turn,),) = (run.turns for run in read(made)[0])
    assert turn.usage == Usage(input=10, cache_read=60, cache_write=30, output=7, usd=0.5)
    assert (turn.at, turn.model) == (1_700_000_000.0, "m")


@pytest.mark.parametrize("metrics", [{}, {"outputTokens": 7}, {"inputTokens": 10, "cacheReadTokens": 60}])
def test_metrics_that_are_not_clear_are_not_taken(metrics: dict[str, int]) -> None:
    """Without input tokens, or with more read from cache than sent, there is no usage."""
    ((turn,),) = (run.turns for run in read(cline(**metrics))[0])
    assert turn.usage is None


def test_tags() -> None:
    """Tags of a block are of its result; those of a message are of the results in it, not of its other words."""
    result = {"type": "tool_result", "tool_use_id": "t", "content": "r", "observation": {"type": "tool_output"}}
    talk = [
        TALK[0],
        {"role": "assistant", "content": [{**TALK[1]["content"][0], "tags": "mine"}]},
        {"role": "user", "content": [result, {"type": "text", "text": "well"}], "remove_output": True},
    ]
    (run,), problems = read(make_document(talk))
    assert not problems
    (seen,) = run.turns[0].observations
    assert seen.tags == {"tool_output", "mine", "remove_output"}
    assert [message.text for message in run.turns[0].interjections] == ["well"]
