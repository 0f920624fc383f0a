"""Event logs of Anthropic's managed agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elision.formats.document import Document
from elision.formats.managed_agents import ManagedAgentsReader
from elision.formats.registry import read_runs as read_path
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.usage import Usage
from tests.formats.found import encode_lines, separate

DATA = Path(__file__).parents[1] / "data" / "managed_agents"


def read(*events: Any, name: str = "log.jsonl") -> tuple[list[Trajectory], list[Problem]]:
    return separate(ManagedAgentsReader().read(Document(name, encode_lines(*events))))


def log() -> Trajectory:
    (run,) = read_path(DATA / "log.jsonl")
    assert isinstance(run, Trajectory)
    return run


def event(type: str, **more: Any) -> dict[str, Any]:
    return {"id": more.pop("id", "e"), "type": type, "processed_at": "2026-09-01T10:00:00Z", **more}


def said(words: str, **more: Any) -> dict[str, Any]:
    return event("agent.message", content=[{"type": "text", "text": words}], **more)


def test_each_request_is_a_turn() -> None:
    """What the agent says and calls between two requests is one turn, with parallel calls, their results and errors."""
    run = log()
    assert (run.format, run.id) == ("managed-agents", "log")
    assert [[action.name for action in turn.actions] for turn in run.turns] == [["bash", "count"], ["ask", "bash"], []]
    assert [(o.text, o.error) for o in run.turns[0].observations] == [("a.py b.txt", None), ("no such tool", True)]
    assert [turn.text for turn in run.turns] == ["I look.", "", "There is one."]
    assert run.head.messages[0].text == "Count the files."


@pytest.mark.parametrize("is_list", [False, True])
def test_events_that_a_recorder_wrapped(tmp_path: Path, is_list: bool) -> None:
    """Each event below `raw`, beside the recorder's own fields, is the event: the run is the same."""
    events = [json.loads(line) for line in (DATA / "log.jsonl").read_text().splitlines()]
    wrapped = [{"seq": number, "kind": each["type"], "raw": each} for number, each in enumerate(events)]
    text = json.dumps(wrapped) if is_list else "\n".join(map(json.dumps, wrapped))
    (tmp_path / "log.jsonl").write_text(text)
    (run,) = read_path(tmp_path / "log.jsonl")
    assert isinstance(run, Trajectory)
    assert (run.format, run.turns, run.head) == ("managed-agents", log().turns, log().head)


def test_usage_is_that_of_the_request() -> None:
    """The end of a request holds its usage, whether it comes before the response's messages or after them; a request
    that failed is no turn; a turn starts when its request did."""
    run = log()
    assert [turn.usage for turn in run.turns] == [
        Usage(input=12, cache_write=2000, output=90),
        Usage(input=5, cache_write=100, cache_read=2012, output=40),
        Usage(input=9, cache_write=700, output=12),
    ]
    assert [(turn.at or 0) - (run.turns[0].at or 0) for turn in run.turns] == [0, 12, 22]


def test_words_go_with_the_next_request() -> None:
    """What the user says while a request is under way is sent with the next one."""
    assert [[message.text for message in turn.interjections] for turn in log().turns] == [
        ["Only Python files."],
        ["Hurry."],
        [],
    ]


def test_results_of_the_client_and_denied_calls() -> None:
    """A result of the client answers its call; a denied call is answered with the reason."""
    assert [(o.text, o.error) for o in log().turns[1].observations] == [("yes", None), ("Leave it there.", True)]


def test_compactions() -> None:
    """A compaction stands before the request that was sent the summary."""
    assert [compaction.before for compaction in log().compactions] == [3]


def test_a_session_with_its_events() -> None:
    """A session that holds its events, newest first, tells model, system prompt and tools too."""
    (run,) = read_path(DATA / "session.json")
    assert isinstance(run, Trajectory)
    assert run.model == "claude-opus-4-6"
    assert [message.text for message in run.head.messages] == ["Be brief.", "Count the files."]
    assert [tool["type"] for tool in run.head.tools] == ["agent_toolset_20260401", "custom"]
    assert [turn.usage for turn in run.turns] == [turn.usage for turn in log().turns]


def test_pages_are_joined() -> None:
    """Pages as the API lists them are one log, as lines or in one list."""
    events = [json.loads(line) for line in (DATA / "log.jsonl").read_text().splitlines()]
    pages = [{"data": events[:10], "next_page": "p"}, {"data": events[10:], "next_page": None}]
    assert [len(run.turns) for run in read(*pages)[0]] == [3]
    assert [len(run.turns) for run in read(pages)[0]] == [3]
    assert [len(run.turns) for run in read(events)[0]] == [3]


def test_a_log_without_requests() -> None:
    """Where the log was filtered to what is said, a turn ends with a result or a word of the user."""
    use = event("agent.tool_use", id="u", name="bash", input={})
    result = event("agent.tool_result", tool_use_id="u", content=[])
    end = event("span.model_request_end", model_usage={"input_tokens": 1, "output_tokens": 2})
    (run,), problems = read(event("user.message", content="go"), said("I look."), use, end, result, said("Done."))
    assert problems == []
    assert [(turn.text, len(turn.actions)) for turn in run.turns] == [
        ("I look.", 1),
        ("Done.", 0),
    ]
    assert run.turns[0].usage == Usage(input=1, output=2)


def test_a_billed_response_without_words_is_a_turn() -> None:
    """A request that was billed and said nothing is a turn; just before a compaction it was the summary's."""
    start, end = (
        event("span.model_request_start", id="r"),
        event("span.model_request_end", model_usage={"input_tokens": 9}),
    )
    assert [
        len(run.turns) for run in read(start, end, event("span.model_request_start", id="s"), said("Done."))[0]
    ] == [2]
    (run,), _ = read(said("Hi."), start, end, event("agent.thread_context_compacted"), said("Done."))
    assert [turn.text for turn in run.turns] == ["Hi.", "Done."]


def test_threads_that_name_themselves() -> None:
    """Where every event names its thread, each thread is a run of its own."""
    runs, _ = read(said("a", session_thread_id="one"), said("b", session_thread_id="two"))
    assert sorted((run.id, run.turns[0].text) for run in runs) == [("one", "a"), ("two", "b")]


def test_broken_lines_are_problems() -> None:
    """A broken line, and one that is no event, are Problems with their lines; the rest is read."""
    data = b'{"type": "agent.mess\n' + json.dumps(said("Hi.")).encode() + b'\n{"data": [5]}\n'
    found = list(ManagedAgentsReader().read(Document("x.jsonl", data)))
    assert [item.line for item in found if isinstance(item, Problem)] == [1, 3]
    assert [len(item.turns) for item in found if isinstance(item, Trajectory)] == [1]
