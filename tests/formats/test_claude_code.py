"""Claude Code transcripts: fragments, sidechains, branches, compactions, and what is broken."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elision.formats.claude_code import ClaudeCodeReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import IMAGE_TOKENS, Opaque
from elision.trajectory.usage import Usage
from tests.corpus import CORPUS, needs_corpus
from tests.formats.found import encode_lines, read_by_id

DATA = Path(__file__).parents[1] / "data" / "claude_code"
read = partial(read_by_id, ClaudeCodeReader(), "t.jsonl")


def odd() -> tuple[dict[str, Trajectory], list[Problem]]:
    return read((DATA / "odd.jsonl").read_bytes())


def entry(uuid: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, "id": more.pop("id", uuid)}
    return {"uuid": uuid, "parentUuid": parent, "type": role, "sessionId": "s", "message": message, **more}


def texts(run: Trajectory) -> list[str]:
    return [turn.text for turn in run.turns]


def call(name: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": name, "name": "Bash", "input": {}}]


def result(name: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": name, "content": f"done {name}"}]


@needs_corpus("recordings of Claude Code")
@pytest.mark.parametrize(("name", "turns"), [("drm-python-to-rust-port", 31), ("drm-coverage-test-fix", 13)])
def test_recordings_load_whole(name: str, turns: int) -> None:
    """A real transcript has the tool turns that the manifest counts, and no problems."""
    path = CORPUS / "claude-code" / f"{name}.jsonl.gz"
    runs, problems = read(gzip.decompress(path.read_bytes()))
    assert max(run.tool_turns for run in runs.values()) == turns
    assert problems == []


def test_parallel_calls_of_a_recording_are_one_turn() -> None:
    """Fragments of one message are one turn, its results with it in any order, its usage counted once."""
    runs, problems = read((DATA / "excerpt.jsonl").read_bytes())
    second = runs["main"].turns[1]
    assert problems == []
    assert [action.name for action in second.actions] == ["Glob", "Bash"]
    assert {item.action_id for item in second.observations} == {action.id for action in second.actions}
    assert second.usage == Usage(input=1, cache_read=18869, cache_write=156, output=1)


def test_an_hour_is_read() -> None:
    """How long what was written lives stands in each message's usage."""
    minutes = b'"ephemeral_5m_input_tokens":156,"ephemeral_1h_input_tokens":0'
    hour = b'"ephemeral_5m_input_tokens":0,"ephemeral_1h_input_tokens":156'
    runs, _ = read((DATA / "excerpt.jsonl").read_bytes().replace(minutes, hour))
    usages = [turn.usage for turn in runs["main"].turns if turn.usage is not None]
    assert usages[1] == Usage(input=1, cache_read=18869, cache_write=156, cache_write_1h=156, output=1)
    assert not any(usage.cache_write_1h for usage in (usages[0], *usages[2:]))


def test_results_may_stand_between_fragments() -> None:
    """A result between two fragments splits nothing; the last fragment's output count is the message's."""
    turn = odd()[0]["main"].turns[0]
    assert [action.id for action in turn.actions] == ["t1", "t2"]
    assert [item.text for item in turn.observations] == ["left: 3", "right: 4"]
    assert turn.usage == Usage(input=3, cache_read=20, cache_write=10, output=77)
    assert turn.reasoning == "Two helpers will do."


def test_images_in_results_are_kept_and_counted() -> None:
    """An image block becomes an opaque part."""
    image = odd()[0]["main"].turns[0].observations[1].content[1]
    assert isinstance(image, Opaque)
    assert (image.kind, image.tokens) == ("image", IMAGE_TOKENS)


def test_sidechains_are_runs_of_their_own() -> None:
    """Interleaved sidechains are told apart and name the run that started them."""
    runs, _ = odd()
    assert set(runs) == {"main", "sidechain left1", "sidechain right1"}
    assert texts(runs["sidechain left1"])[-1] == "left: 3"
    assert texts(runs["sidechain right1"])[-1] == "right: 4"
    assert {runs[name].parent for name in runs if name != "main"} == {"main"}


def test_sidechains_without_agent_id_follow_their_parents() -> None:
    """Older transcripts have no agentId: the chain of parents tells two sidechains apart."""
    side = {"isSidechain": True}
    data = encode_lines(
        entry("s1", None, "user", "one", **side),
        entry("s2", None, "user", "two", **side),
        entry("s3", "s1", "assistant", [{"type": "text", "text": "I"}], **side),
        entry("s4", "s2", "assistant", [{"type": "text", "text": "II"}], **side),
    )
    runs, problems = read(data)
    assert {name: texts(run) for name, run in runs.items()} == {"sidechain s1": ["I"], "sidechain s2": ["II"]}
    assert runs["sidechain s1"].parent == "s"
    assert problems == []


def test_compactions_keep_the_raw_turns() -> None:
    """A compact boundary and its summary become a compaction; the summary is no message of the user's."""
    main = odd()[0]["main"]
    (compaction,) = main.compactions
    assert (compaction.before, compaction.tokens_before) == (2, 155_000)
    assert compaction.summary.startswith("This session continues")
    assert not any(turn.interjections for turn in main.turns[:2])


def test_a_summary_at_the_start_is_the_head() -> None:
    """A file that continues another one begins with its summary: part of the task, not a compaction."""
    runs, _ = read(
        encode_lines(
            entry("u", None, "user", "Earlier: x.", isCompactSummary=True), entry("a", "u", "assistant", "Go on.")
        )
    )
    assert [message.text for message in runs["main"].head.messages] == ["Earlier: x."]
    assert runs["main"].compactions == ()


def test_error_notices_are_no_turns() -> None:
    """What Claude Code says in the assistant's name after a failed request is left out."""
    assert not any("529" in text for text in texts(odd()[0]["main"]))


def test_a_failure_noted_beside_the_result_counts() -> None:
    """`toolUseResult.isError` marks a result as an error, `is_error: false` as none; silence stays None."""
    turns = odd()[0]["main"].turns
    assert turns[1].observations[0].error is True
    assert [item.error for item in turns[0].observations] == [False, None]


def test_broken_lines_are_reported_and_the_rest_is_read() -> None:
    """A cut line and a line without message are problems with their numbers; what follows them is read."""
    runs, problems = odd()
    assert [problem.line for problem in problems] == [18, 24]
    assert texts(runs["main"])[-1] == "Seven."


def test_the_request_time_is_that_of_its_newest_input() -> None:
    """A turn's time is when its input was there, not when its block was complete."""
    turns = odd()[0]["main"].turns
    assert turns[1].at is not None
    assert turns[0].at is not None
    assert turns[1].at - turns[0].at == 8


def test_what_hooks_say_is_an_interjection() -> None:
    """`isMeta` user lines were sent to the model and stay."""
    runs, _ = read(
        encode_lines(
            entry("u", None, "user", "Go."),
            entry("a", "u", "assistant", "Done."),
            entry("m", "a", "user", "Stop hook feedback", isMeta=True),
            entry("b", "m", "assistant", "Really done."),
        )
    )
    assert [message.text for message in runs["main"].turns[0].interjections] == ["Stop hook feedback"]


def forked(own: int) -> bytes:
    """Two shared turns, a branch of `own` turns left behind, then the live one."""
    old = [entry("u2", "b", "user", "first way")]
    for number in range(own):
        old.append(entry(f"o{number}", old[-1]["uuid"], "assistant", f"old {number}"))
    return encode_lines(
        entry("u", None, "user", "Go."),
        entry("a", "u", "assistant", call("c")),
        entry("r", "a", "user", result("c")),
        entry("b", "r", "assistant", "shared"),
        *old,
        entry("u3", "b", "user", "second way"),
        entry("n", "u3", "assistant", "new"),
    )


def test_the_main_run_is_the_path_to_the_newest_leaf() -> None:
    """After a rewind the branch left behind is never mixed into the main run."""
    runs, problems = read(forked(own=1))
    assert texts(runs["main"]) == ["", "shared", "new"]
    assert list(runs) == ["main"]
    assert [(problem.line, "abandoned" in problem.reason) for problem in problems] == [(5, True)]


def test_a_branch_that_is_mostly_its_own_is_a_run() -> None:
    """A long branch left behind is read as a run of its own, with the turns it shares."""
    runs, problems = read(forked(own=3))
    assert texts(runs["main fork 1"]) == ["", "shared", "old 0", "old 1", "old 2"]
    assert runs["main fork 1"].parent == "main"
    assert problems == []


def test_parents_in_a_circle_end() -> None:
    """Lines that are each other's parents are read once and reported."""
    runs, problems = read(encode_lines(entry("u", "a", "user", "Go."), entry("a", "u", "assistant", "On.")))
    assert texts(runs["main"]) == ["On."]
    assert [problem.line for problem in problems] == [1]


def test_nothing_said_is_reported() -> None:
    """A transcript without an assistant message is a problem, not silence."""
    runs, problems = read(encode_lines(entry("u", None, "user", "Anyone?")))
    assert runs == {}
    assert len(problems) == 1


def attached(uuid: str, parent: str | None, kind: str, **more: Any) -> dict[str, Any]:
    outer = {name: more.pop(name) for name in ("rendered", "version", "timestamp") if name in more}
    attachment = {"type": kind, **more}
    return {
        "uuid": uuid,
        "parentUuid": parent,
        "type": "attachment",
        "sessionId": "s",
        "attachment": attachment,
        **outer,
    }


def words(run: Trajectory) -> list[list[str]]:
    return [[message.text for message in turn.interjections] for turn in run.turns]


def test_queued_words_and_reminders_are_the_users() -> None:
    """Attachments say what the user typed meanwhile, which tasks ended, what files hold and what hooks add; each comes
    where it was sent, between the result before it and the next call."""
    held = {"type": "text", "file": {"filePath": "/a.py", "content": "1 x = 1"}}
    runs, problems = read(
        encode_lines(
            entry("u", None, "user", "go"),
            attached("m", "u", "nested_memory", path="/C.md", content={"path": "/C.md", "content": "Use tabs."}),
            entry("a", "m", "assistant", call("c1")),
            entry("r", "a", "user", result("c1")),
            attached("q", "r", "queued_command", prompt="Skip the tests.", commandMode="prompt"),
            attached("n", "q", "queued_command", prompt="<task-notification>done", commandMode="task-notification"),
            attached("f", "n", "file", filename="/a.py", content=held),
            attached("h", "f", "hook_additional_context", content=["Mind the gap.", "Twice."]),
            attached("p", "h", "command_permissions", allowedTools=["Bash"]),
            entry("b", "p", "assistant", [{"type": "text", "text": "Done."}]),
        )
    )
    run = runs["main"]
    assert problems == []
    assert [message.text for message in run.head.messages] == ["go", "/C.md\nUse tabs."]
    assert run.turns[0].observations[0].text == "done c1"
    assert words(run) == [
        ["Skip the tests.", "<task-notification>done", "/a.py\n1 x = 1", "Mind the gap.\nTwice."],
        [],
    ]


def test_attachments_of_parallel_calls_make_no_forks() -> None:
    """Each result of parallel calls may have attachments of its own; none is left behind with its branch."""
    runs, problems = read(
        encode_lines(
            entry("u", None, "user", "go"),
            entry("a1", "u", "assistant", call("c1"), id="m"),
            entry("a2", "a1", "assistant", call("c2"), id="m"),
            entry("r1", "a1", "user", result("c1")),
            attached("h1", "r1", "hook_additional_context", content=["one"]),
            entry("r2", "a2", "user", result("c2")),
            attached("h2", "r2", "hook_additional_context", content=["two"]),
            entry("b", "h2", "assistant", [{"type": "text", "text": "Done."}]),
        )
    )
    assert problems == []
    assert list(runs) == ["main"]
    assert words(runs["main"]) == [["one", "two"], []]


def test_what_was_rendered_was_sent() -> None:
    """Where a version keeps the text that it sent, that text counts, and a line without one was not sent; lines of an
    older version in the same file are read by their fields. The user's words are never left out."""
    rendered = [{"content": "<system-reminder>\nThe user said: faster\n</system-reminder>"}]
    (run,) = read(
        encode_lines(
            entry("u", None, "user", "go"),
            attached("s", "u", "prompt_snapshot", systemPrompt=["You are Claude Code."], version="2.1.291"),
            entry("a", "s", "assistant", call("c1")),
            entry("r", "a", "user", result("c1")),
            attached("q", "r", "queued_command", prompt="faster", rendered=rendered, version="2.1.291"),
            attached("h", "q", "hook_success", hookEvent="SessionStart", content="silent", version="2.1.291"),
            attached("w", "h", "queued_command", prompt="and better", version="2.1.291"),
            attached("o", "w", "edited_text_file", filename="/a", snippet="1 x", version="2.0.1"),
            entry("b", "o", "assistant", [{"type": "text", "text": "Done."}]),
        )
    )[0].values()
    assert [(message.role, message.text) for message in run.head.messages] == [
        ("user", "go"),
        ("system", "You are Claude Code."),
    ]
    assert words(run) == [[rendered[0]["content"], "and better", "/a\n1 x"], []]


def test_queued_words_that_became_a_turn_count_once() -> None:
    """Where the words are also a user's line of their own, that line is read and its copy is not."""
    (run,) = read(
        encode_lines(
            entry("u", None, "user", "go"),
            entry("a", "u", "assistant", call("c1")),
            entry("r", "a", "user", result("c1")),
            attached("q", "r", "queued_command", prompt="faster", source_uuid="v"),
            entry("v", "q", "user", "faster"),
            entry("b", "v", "assistant", [{"type": "text", "text": "Done."}]),
        )
    )[0].values()
    assert words(run) == [["faster"], []]


def test_words_that_nothing_answered_are_kept() -> None:
    """Attachments behind the last message, and those whose parent is lost, are read too."""
    (run,) = read(
        encode_lines(
            entry("u", None, "user", "go"),
            entry("a", "u", "assistant", call("c1")),
            attached("q", "lost", "queued_command", prompt="wait"),
            {
                "type": "attachment",
                "attachment": {"type": "queued_command", "prompt": [{"type": "text", "text": "stop"}]},
            },
        )
    )[0].values()
    assert words(run) == [["wait", "stop"]]


def test_pictures_of_the_user_are_opaque() -> None:
    """A picture that the user mentioned is kept and counted."""
    held = {"type": "image", "file": {"base64": "AAAA", "type": "image/png"}}
    (run,) = read(
        encode_lines(
            entry("u", None, "user", "look"),
            attached("f", "u", "file", filename="/a.png", content=held),
            entry("a", "f", "assistant", "nice"),
        )
    )[0].values()
    (picture,) = [part for part in run.head.messages[1].content if isinstance(part, Opaque)]
    assert picture.tokens == IMAGE_TOKENS
