"""Chats that Gemini CLI recorded, and conversations that it saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.formats.document import Document
from elision.formats.gemini_cli import GeminiCliReader
from elision.formats.registry import read_runs as read_path
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import IMAGE_TOKENS, Opaque
from elision.trajectory.usage import Usage
from tests.formats.found import encode_lines, separate

DATA = Path(__file__).parents[1] / "data" / "gemini_cli"
LEGACY = DATA / "chats" / "session-2026-02-03T10-00-11111111.json"
LINES = DATA / "chats" / "session-2026-02-03T10-00-33333333.jsonl"


def only(path: Path) -> tuple[Trajectory, list[Problem]]:
    found = list(read_path(path))
    (run,) = [item for item in found if isinstance(item, Trajectory)]
    return run, [item for item in found if isinstance(item, Problem)]


def read(data: bytes) -> tuple[list[Trajectory], list[Problem]]:
    return separate(GeminiCliReader().read(Document("chats/x.jsonl", data)))


def test_messages_of_the_model_are_turns() -> None:
    """Each message of the model is a turn with its thoughts, parallel calls, results and errors; notices are none."""
    run, problems = only(LEGACY)
    assert problems == []
    assert (run.format, run.id, run.parent) == ("gemini-cli", "11111111-2222", None)
    assert [turn.text for turn in run.turns] == ["I look.", "", "There is one."]
    assert run.turns[0].reasoning == "Looking: I need a list."
    assert [[action.name for action in turn.actions] for turn in run.turns] == [
        ["list_directory", "read_file"],
        ["run_shell_command"],
        [],
    ]
    assert [(o.text, o.error) for o in run.turns[0].observations] == [("a.py b.txt", False), ("File not found", True)]
    assert run.turns[1].observations[0].error is True
    assert [message.text for message in run.turns[0].interjections] == ["Only Python files."]


def test_usage_models_and_times() -> None:
    """Input includes what was cached, thoughts are output; a request left when its newest input was there."""
    run, _ = only(LEGACY)
    assert [turn.usage for turn in run.turns] == [
        Usage(input=4000, output=50),
        Usage(input=300, cache_read=3900, output=15),
        Usage(input=100, cache_read=4200, output=5),
    ]
    assert [turn.model for turn in run.turns] == ["gemini-3-pro-preview"] * 2 + ["gemini-3-flash-preview"]
    assert [(turn.at or 0) - (run.turns[0].at or 0) for turn in run.turns] == [0, 7, 12]


def test_lines_are_read_as_they_change() -> None:
    """Of a message that was written again the last record counts, except that no result is replaced by a masked one;
    what was taken back is reported and left out."""
    run, problems = only(LINES)
    legacy, _ = only(LEGACY)
    assert run.turns[:2] == legacy.turns[:2]
    assert run.turns[2].usage == legacy.turns[2].usage
    assert [problem.reason for problem in problems] == ["the user went back here; 1 messages of the model are left out"]
    assert not any("Wrong way" in turn.text for turn in run.turns)


def test_a_compression_is_noted() -> None:
    """Where the history was compressed, the turns before stay, and the summary is kept with the place."""
    run, _ = only(LINES)
    ((before, summary),) = [(compaction.before, compaction.summary) for compaction in run.compactions]
    assert before == 4
    assert "<state_snapshot>one Python file</state_snapshot>" in summary
    assert [turn.text for turn in run.turns[3:]] == ["I look.", "a.py"]


def test_masking_is_no_compression() -> None:
    """A history in which the CLI masked a result, and which leaves out notices as every history does, loses nothing."""
    header = {"sessionId": "s", "projectHash": "p"}
    said = [{"id": "u", "type": "user", "content": "hi"}, {"id": "g", "type": "gemini", "content": "hello"}]
    masked = [said[0], {**said[1], "content": "<masked>"}]
    ((run,), problems) = read(
        encode_lines(header, *said, {"id": "i", "type": "info", "content": "n"}, {"$set": {"messages": masked}})
    )
    assert ([turn.text for turn in run.turns], run.compactions, problems) == (["hello"], (), [])


def test_calls_and_results_among_the_parts() -> None:
    """Newer versions keep calls and results as parts of messages; pictures are opaque."""
    run, _ = only(LINES)
    assert [(o.tool, o.text) for o in run.turns[3].observations] == [("list_directory", "a.py")]
    (picture,) = [part for part in run.turns[2].interjections[-1].content if isinstance(part, Opaque)]
    assert picture.tokens == IMAGE_TOKENS


def test_a_sub_agent_names_its_session() -> None:
    """The chat of a sub-agent lies in the folder of the session that started it."""
    run, _ = only(DATA / "chats" / "parent-session")
    assert (run.id, run.parent) == ("sub-1", "parent-session")


@pytest.mark.parametrize("name", ["checkpoint-mine.json", "tool-checkpoint.json"])
def test_saved_conversations(name: str) -> None:
    """Contents of the API: the CLI's own greeting is no call, thoughts are reasoning, and responses without ids answer
    the call of their name."""
    run, problems = only(DATA / name)
    assert problems == []
    assert len(run.head.messages) == 2
    assert [(turn.text, turn.reasoning) for turn in run.turns] == [("I look.", "I need a list."), ("There is one.", "")]
    assert [(o.tool, o.text, o.error) for o in run.turns[0].observations] == [
        ("read_file", "File not found", True),
        ("list_directory", "a.py", None),
    ]


def test_forks_name_the_model_otherwise() -> None:
    """What a fork of the CLI calls its model is a message of the model by its fields."""
    said = {"id": "g", "type": "bob-shell", "content": "hello", "tokens": {"input": 5, "output": 1}}
    ((run,), _) = read(
        encode_lines({"sessionId": "s", "projectHash": "p"}, {"id": "u", "type": "user", "content": "hi"}, said)
    )
    assert [turn.text for turn in run.turns] == ["hello"]


def test_broken_lines_are_problems() -> None:
    """A broken line costs itself alone."""
    header, first, answer = (
        {"sessionId": "s", "projectHash": "p"},
        {"id": "u", "type": "user", "content": "hi"},
        {"id": "g", "type": "gemini", "content": "hello"},
    )
    runs, problems = read(encode_lines(header, first) + b'\n{"id": "x", \n' + encode_lines(answer))
    assert [problem.line for problem in problems] == [3]
    assert [len(run.turns) for run in runs] == [1]
