"""Codex rollouts: items, token counts in each order of recording, rollbacks, and what is broken."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elision.formats.codex import CodexReader
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Observation, Opaque
from elision.trajectory.usage import Usage
from tests.formats.found import encode_lines, read_by_id

DATA = Path(__file__).parents[1] / "data" / "codex"
read = partial(read_by_id, CodexReader(), "rollout.jsonl")


def rollout() -> Trajectory:
    return read((DATA / "rollout.jsonl").read_bytes())[0]["0199-abc"]


def record(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-02-03T08:00:00Z", "type": kind, "payload": payload}


def item(**payload: Any) -> dict[str, Any]:
    return record("response_item", **payload)


def message(role: str, text: str) -> dict[str, Any]:
    return item(type="message", role=role, content=[{"type": "output_text", "text": text}])


def call(name: str) -> dict[str, Any]:
    return item(type="function_call", name="shell", arguments="{}", call_id=name)


def output(name: str, value: Any = "ok") -> dict[str, Any]:
    return item(type="function_call_output", call_id=name, output=value)


def count(number: int) -> dict[str, Any]:
    """The token count of a call of `number` prompt tokens."""
    info = {
        "last_token_usage": {"input_tokens": number, "output_tokens": 1},
        "total_token_usage": {"input_tokens": number},
    }
    return record("event_msg", type="token_count", info=info)


def prompts(run: Trajectory) -> list[int | None]:
    return [turn.usage.prompt if turn.usage else None for turn in run.turns]


def test_the_head_has_instructions_and_surroundings() -> None:
    """System prompt, permissions, environment and task belong to the head."""
    messages = rollout().head.messages
    assert [message.role for message in messages] == ["system", "system", "developer", "user", "user"]
    assert messages[0].text == "You are Codex."
    assert messages[-1].text == "Fix the test."


def test_items_up_to_the_results_are_one_message() -> None:
    """Reasoning, text and parallel calls are one turn; events that tell the same are not counted again."""
    first = rollout().turns[0]
    assert (first.reasoning, first.text) == ("**Looking**", "Let me look.")
    assert [action.id for action in first.actions] == ["c1", "c2"]
    assert len(rollout().turns) == 4


def test_results_say_whether_they_failed() -> None:
    """Exit codes are read out of each wrapping that versions of Codex used."""
    results = {result.action_id: result for turn in rollout().turns for result in turn.observations}
    assert {name: result.error for name, result in results.items()} == {"c1": False, "c2": True, "c3": True, "c4": None}
    assert results["c1"].text == "a.py\nb.py\n"
    assert results["c3"].text == "bad patch"
    assert isinstance(results["c4"].content[1], Opaque)


@pytest.mark.parametrize(
    ("value", "text", "error"),
    [
        ('{"output": "mine", "n": 1}', '{"output": "mine", "n": 1}', None),
        ("{not json", "{not json", None),
        ("Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code 2\nOutput:\nx", None, True),
        ("said: Exit code: 3", None, None),
        ({"content": "fine", "success": True}, "fine", False),
    ],
)
def test_output_that_only_looks_wrapped_is_left_alone(value: Any, text: str | None, error: bool | None) -> None:
    """A command's own JSON is not taken for a wrapping, and an exit code counts only in the place Codex writes it."""
    (result,) = result_of(value)
    assert result.text == (value if text is None else text)
    assert result.error is error


def result_of(value: Any) -> tuple[Observation, ...]:
    return read(encode_lines(call("c"), output("c", value)))[0]["main"].turns[0].observations


def test_usage_is_the_last_calls_or_what_was_added() -> None:
    """`last_token_usage` where recorded, else the difference of the totals; a repeated event counts once."""
    assert [turn.usage for turn in rollout().turns] == [
        Usage(input=400, cache_read=600, output=40),
        Usage(input=300, cache_read=900, output=50),
        Usage(input=50, cache_read=1400, cache_write=50, output=20),
        Usage(input=700, output=5),
    ]


def test_counts_belong_to_the_call_they_follow() -> None:
    """A count behind the results is the newest message's; so is one between call and result."""
    behind, _ = read(encode_lines(call("a"), output("a"), count(1), call("b"), output("b"), count(2)))
    between, _ = read(encode_lines(call("a"), count(1), output("a"), call("b"), count(2), output("b")))
    assert prompts(behind["main"]) == prompts(between["main"]) == [1, 2]


def test_counts_announced_before_their_items() -> None:
    """Older versions wrote the count first: it is the next message's."""
    runs, _ = read(
        encode_lines(
            count(1), call("a"), output("a"), count(2), call("b"), output("b"), count(3), message("assistant", "x")
        )
    )
    assert prompts(runs["main"]) == [1, 2, 3]


def test_a_count_that_is_nobodys_does_not_shift_the_rest() -> None:
    """The count of a call without items (a compaction, say) is corrected by the next message's own."""
    runs, _ = read(encode_lines(call("a"), count(1), output("a"), count(99), call("b"), count(2), output("b")))
    assert prompts(runs["main"]) == [1, 2]


def test_records_of_each_call_replace_the_events() -> None:
    """Newer versions record usage on its own line; the event that repeats it is not counted."""
    own = record("token_usage_record", response_id="r", usage={"input_tokens": 10, "output_tokens": 1})
    runs, _ = read(encode_lines(call("a"), own, count(10), output("a"), message("assistant", "x")))
    assert prompts(runs["main"]) == [10, None]


def test_a_count_ends_a_message() -> None:
    """Two calls that only speak are two turns, though nothing stands between their texts but the count."""
    runs, _ = read(encode_lines(message("assistant", "one"), count(1), message("assistant", "two"), count(2)))
    assert [turn.text for turn in runs["main"].turns] == ["one", "two"]


def test_the_model_and_time_of_a_turn() -> None:
    """The model is the turn context's; the request started when its newest input was there."""
    first, second = rollout().turns[:2]
    assert first.model == "gpt-5.2-codex"
    assert first.at is not None
    assert second.at is not None
    assert second.at - first.at == 12


def test_compactions_keep_the_raw_turns() -> None:
    """A compaction stands between the turns; its rewritten history is not read twice."""
    assert [(item.before, item.summary) for item in rollout().compactions] == [(4, "Test fixed, two files.")]


def test_calls_that_the_server_ran_are_opaque() -> None:
    """A web search has no result of its own to mask."""
    last = rollout().turns[-1]
    assert isinstance(last.content[0], Opaque)
    assert (last.content[0].kind, last.actions, last.text) == ("web_search_call", (), "Fixed.")


def test_turns_rolled_back_are_not_in_the_main_run() -> None:
    """After a rollback the run goes on from before; what was dropped and is mostly its own is a run of its own."""
    runs, problems = read(
        encode_lines(
            message("user", "Go."),
            message("assistant", "one"),
            message("user", "Left."),
            call("a"),
            output("a"),
            message("assistant", "left"),
            record("event_msg", type="thread_rolled_back", num_turns=1),
            message("user", "Right."),
            message("assistant", "right"),
        )
    )
    assert [turn.text for turn in runs["main"].turns] == ["one", "right"]
    assert [turn.text for turn in runs["main fork 1"].turns] == ["one", "", "left"]
    assert problems == []


def test_a_sub_agent_names_its_parent() -> None:
    """A spawned thread's rollout refers to the thread that spawned it."""
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "p1", "depth": 1}}}
    runs, _ = read(encode_lines(record("session_meta", id="c1", source=spawn), message("assistant", "x")))
    assert runs["c1"].parent == "p1"


def test_broken_lines_are_reported_and_the_rest_is_read() -> None:
    """A cut line and a result without call are problems with their numbers."""
    runs, problems = read((DATA / "rollout.jsonl").read_bytes())
    assert [problem.line for problem in problems] == [25, 31]
    assert runs["0199-abc"].turns[-1].interjections[0].text == "Thanks."
