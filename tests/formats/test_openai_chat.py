"""Files of OpenAI chat messages."""

from __future__ import annotations

from typing import Any

import pytest

from elision.errors import FormatError
from elision.formats.document import Document
from elision.formats.openai_chat import OpenAIChatReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import Opaque
from tests.corpus import CORPUS, needs_corpus
from tests.formats.found import load_document, make_document, make_lines, separate

TALK = [
    {"role": "user", "content": "go"},
    {"role": "assistant", "content": "a", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "c", "content": "r"},
]


def read(document: Document) -> tuple[list[Trajectory], list[Problem]]:
    return separate(OpenAIChatReader().read(document))


@pytest.mark.parametrize(
    "made",
    [
        make_document(TALK),
        make_document({"messages": TALK}),
        make_document([{"messages": TALK}, {"messages": TALK}]),
        make_document([TALK, TALK]),
        make_lines({"messages": TALK}, {"messages": TALK}),
        make_lines(*TALK),
        make_document({"request": {"messages": TALK}, "response": {"id": "r"}}),
    ],
)
def test_every_nesting_is_read(made: Document) -> None:
    """A list, an object, lists and lines of either: each conversation is a run, and is recognised."""
    runs, problems = read(made)
    assert OpenAIChatReader().sniff(made)
    assert not problems
    assert {(run.tool_turns, run.format, run.file) for run in runs} == {(1, "openai-chat", made.path)}
    assert len({run.id for run in runs}) == len(runs) == (1 if made.data.count(b"tool_call_id") == 1 else 2)


def test_a_recorded_conversation() -> None:
    """Parallel calls and their results are one turn; images, unknown parts, reasoning and usage are kept."""
    (run,), problems = read(load_document("openai_chat/usage-and-images.json"))
    first, last = run.turns
    assert not problems
    assert run.model == "gpt-5.1"
    assert [message.role for message in run.head.messages] == ["developer", "user"]
    assert isinstance(run.head.messages[1].content[1], Opaque)
    assert len(run.head.tools) == 1
    assert first.reasoning == "I should look."
    assert [observation.action_id for observation in first.observations] == ["c2", "c1"]
    assert [message.text for message in first.interjections] == ["Be quick."]
    assert first.usage is not None
    assert (first.usage.input, first.usage.cache_read, first.usage.cache_write) == (16, 64, 40)
    assert last.usage is None


def test_calls_without_ids_are_paired_in_order() -> None:
    """Recorders that leave ids out pair results with the calls of the newest message, one after another."""
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk = [
        {"role": "assistant", "content": None, "tool_calls": [call, call]},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "three"},
    ]
    (run,), problems = read(make_document(talk))
    assert not problems
    assert [[o.text for o in turn.observations] for turn in run.turns] == [["one", "two"], ["three"]]


def test_the_answer_to_a_recorded_request_is_the_last_turn() -> None:
    """A response beside its request brings its message, model, time and usage."""
    response = {
        "model": "m-2",
        "created": 1_700_000_000,
        "choices": [{"message": {"role": "assistant", "content": "bye"}}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 1},
    }
    (run,), _ = read(make_document({"model": "m", "messages": TALK, "response": response}))
    last = run.turns[-1]
    assert (last.text, last.model, last.at) == ("bye", "m-2", 1_700_000_000.0)
    assert last.usage is not None
    assert last.usage.input == 9


def test_an_agent_that_acts_in_text_gets_its_observations_as_user_messages() -> None:
    """Without tools, the user message behind an action is its observation."""
    talk = [
        {"role": "user", "content": "task"},
        {"role": "assistant", "content": "```bash\nls\n```"},
        {"role": "user", "content": "a.py"},
    ]
    (run,), _ = read(make_document(talk))
    assert run.turns[0].observations[0].text == "a.py"


def test_broken_lines_are_reported_with_their_number_and_the_rest_is_read() -> None:
    """Broken JSON, a stray result, an unknown role: a Problem each, with its line."""
    stray = {"role": "tool", "tool_call_id": "nobody", "content": "r"}
    runs, problems = read(
        make_lines('{"role": "user", "con', *TALK, stray, {"role": "ghost", "content": "boo"}, {"x": 1})
    )
    assert [run.tool_turns for run in runs] == [1]
    assert sorted((problem.line or 0) for problem in problems) == [1, 5, 6, 7]


@pytest.mark.parametrize("data", [b"", b"hello", b'[{"role": "user", "content": "x"', b'{"a": 1'])
def test_what_is_no_conversation_raises(data: bytes) -> None:
    """A file that holds nothing readable is a FormatError that names it."""
    with pytest.raises(FormatError, match=r"x\.json"):
        list(OpenAIChatReader().read(Document("x.json", data)))


def test_a_deeply_nested_conversation_is_a_problem() -> None:
    """Nesting that would exhaust the stack is reported, not raised."""
    arguments: Any = {}
    for _ in range(900):
        arguments = {"a": arguments}
    talk = [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": arguments}}]}]
    runs, problems = read(make_document([{"messages": talk}, {"messages": TALK}]))
    assert len(runs) + len(problems) == 2
    assert runs


def test_the_excerpt_of_the_corpus_is_read() -> None:
    """Two recorded conversations, one a line."""
    runs, problems = read(load_document("openai_chat/tau2-sft-excerpt.jsonl"))
    assert not problems
    assert [run.id for run in runs] == ["line 1", "line 2"]
    assert all(run.tool_turns for run in runs)


@needs_corpus("recordings of OpenAI messages")
def test_the_corpus_is_read_whole() -> None:
    """The largest of the 24 recorded conversations has 14 tool turns, and nothing is lost."""
    import gzip

    path = CORPUS / "openai-messages" / "tau2-test_sft-v1-small.jsonl.gz"
    runs, problems = read(Document(str(path), gzip.decompress(path.read_bytes())))
    assert (len(runs), max(run.tool_turns for run in runs), problems) == (24, 14, [])


ODD = [TALK[0], {"role": "assistant", "content": "a"}, {"role": "banana"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    ("made", "place"),
    [(make_document(ODD), 3), (make_lines(*ODD), 3), (make_lines({"messages": ODD}, {"messages": [TALK[0]]}), 1)],
)
def test_one_odd_message_does_not_hide_the_format(made: Document, place: int) -> None:
    """A message of unknown role is a Problem with its place, and the rest is read."""
    (run,), (problem,) = read(made)
    assert OpenAIChatReader().sniff(made)
    assert [turn.text for turn in run.turns] == ["a", "b"]
    assert (problem.line, "'banana'" in problem.reason) == (place, True)


def test_mostly_odd_messages_are_another_format() -> None:
    """Where valid messages are no majority the file is not taken."""
    assert not OpenAIChatReader().sniff(make_document([TALK[0], {"role": "model", "parts": []}]))


def test_tags() -> None:
    """Tags of results, of calls and of user messages are those of their observations."""
    talk = [
        {"role": "user", "content": "go", "tags": ["tool_output"]},
        {**TALK[1], "keep_output": True},
        {**TALK[2], "tags": ["logs"]},
        {"role": "user", "content": "a page", "observation.type": "tool_output"},
        {"role": "user", "content": "thanks"},
    ]
    (run,), problems = read(make_document(talk))
    assert not problems
    assert [message.text for message in run.head.messages] == ["go"]
    assert [(seen.text, seen.role, sorted(seen.tags)) for seen in run.turns[0].observations] == [
        ("r", "tool", ["keep_output", "logs"]),
        ("a page", "user", ["tool_output"]),
    ]
    assert [message.text for message in run.turns[0].interjections] == ["thanks"]
