"""pi sessions: lists and trees of entries, commands of the user, compactions, and what is broken."""

from __future__ import annotations

import gzip
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from elision.formats.document import Document
from elision.formats.pi_session import STAND_IN_RESULT, PiSessionReader
from elision.trajectory.trajectory import Problem, PromptChange, Trajectory
from elision.trajectory.turn import IMAGE_TOKENS, Opaque
from elision.trajectory.usage import Usage
from tests.corpus import CORPUS, needs_corpus
from tests.formats.found import encode_lines, read_by_id

DATA = Path(__file__).parents[1] / "data" / "pi_session"
read = partial(read_by_id, PiSessionReader(), "s.jsonl")


def tree() -> tuple[dict[str, Trajectory], list[Problem]]:
    return read((DATA / "tree_v3.jsonl").read_bytes())


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "message",
        "timestamp": "2026-01-01T00:00:00Z",
        "message": {"role": role, "content": content, **more},
    }


@needs_corpus("recordings of pi")
@pytest.mark.parametrize(("name", "turns"), [("pi-compact", 432), ("pi-session", 178)])
def test_recordings_load_whole(name: str, turns: int) -> None:
    """A real session has the tool turns that the manifest counts, and no problems."""
    path = CORPUS / "pi-session" / f"{name}.jsonl.gz"
    runs, problems = read(gzip.decompress(path.read_bytes()))
    assert max(run.tool_turns for run in runs.values()) == turns
    assert problems == []


def test_a_session_is_recognized_without_its_header() -> None:
    """Its first line may be missing."""
    whole = (DATA / "excerpt_v1.jsonl").read_bytes()
    assert PiSessionReader().sniff(Document("x", whole.split(b"\n", 1)[1]))


def test_a_list_of_entries_is_one_run() -> None:
    """Version 1 has no ids: the entries follow each other; two objects on a line are both read."""
    runs, problems = read((DATA / "excerpt_v1.jsonl").read_bytes())
    (main,) = runs.values()
    assert (len(main.turns), main.tool_turns) == (7, 6)
    assert main.turns[-1].text.startswith("Done. Removed")
    assert [compaction.before for compaction in main.compactions] == [8]
    assert main.compactions[0].tokens_before == 131140
    assert problems == []


def test_usage_excludes_the_cache_and_carries_the_cost() -> None:
    """pi's `input` is neither read from nor written to the cache."""
    first = read((DATA / "excerpt_v1.jsonl").read_bytes())[0]["main"].turns[0]
    assert first.usage == Usage(input=3008, output=74, usd=0.016890000000000002)
    assert first.at == 1766536349.362
    assert first.model == "claude-opus-4-5"


def test_the_main_run_is_the_path_to_the_last_entry() -> None:
    """Nothing of the branch left behind is in the main run but its summary."""
    runs, _ = tree()
    assert [turn.text for turn in runs["main"].turns] == ["Looking.", "", "Done."]
    assert [turn.text for turn in runs["fork 1"].turns] == ["Looking.", "A first way."]


def test_a_short_branch_left_behind_is_reported() -> None:
    """A branch that shares more than it adds is no run: its shared calls would count twice. Its line is reported."""
    entries = [
        said("user", "Go.") | {"id": "1", "parentId": None},
        said("assistant", "one") | {"id": "2", "parentId": "1"},
        said("assistant", "two") | {"id": "3", "parentId": "2"},
        said("assistant", "old") | {"id": "4", "parentId": "3"},
        said("assistant", "new") | {"id": "5", "parentId": "3"},
    ]
    runs, problems = read(encode_lines(*entries))
    assert {name: [turn.text for turn in run.turns] for name, run in runs.items()} == {"main": ["one", "two", "new"]}
    assert [(problem.line, "abandoned" in problem.reason) for problem in problems] == [(4, True)]


def test_a_branch_that_is_mostly_its_own_is_a_run() -> None:
    """What was rewound and shares no more than it adds is read as a run of its own."""
    entries = [
        said("user", "Go.") | {"id": "1", "parentId": None},
        said("assistant", "old") | {"id": "2", "parentId": "1"},
        said("user", "Otherwise.") | {"id": "3", "parentId": "1"},
        said("assistant", "new") | {"id": "4", "parentId": "3"},
    ]
    runs, problems = read(encode_lines(*entries))
    assert {name: [turn.text for turn in run.turns] for name, run in runs.items()} == {
        "main": ["new"],
        "fork 1": ["old"],
    }
    assert runs["fork 1"].parent == "main"
    assert problems == []


def test_the_head_has_system_prompt_tools_and_task() -> None:
    """A recorded system message opens the head, the tools it adds are the head's."""
    head = tree()[0]["main"].head
    assert [(message.role, message.text) for message in head.messages] == [
        ("system", "You are pi."),
        ("user", "Draw the plan."),
    ]
    assert [tool["name"] for tool in head.tools] == ["read"]


def test_results_keep_images_and_errors() -> None:
    """Results of parallel calls join their turn in recorded order; images are opaque parts."""
    notes, plan = tree()[0]["main"].turns[0].observations
    assert (notes.tool, notes.error, notes.text) == ("read", True, "ENOENT: notes.md")
    assert plan.error is False
    assert isinstance(plan.content[1], Opaque)
    assert plan.content[1].tokens == IMAGE_TOKENS


def test_withheld_thinking_is_opaque() -> None:
    """Thinking without text is kept as a signed part and counted."""
    part = tree()[0]["main"].turns[0].content[0]
    assert isinstance(part, Opaque)
    assert (part.kind, part.tokens) == ("thinking", 50)


def test_what_the_user_ran_is_an_interjection() -> None:
    """Commands of the user, branch summaries and custom messages are sent to the model; excluded ones are not."""
    interjections = [message.text for message in tree()[0]["main"].turns[0].interjections]
    assert interjections == [
        "A first way was tried and dropped.",
        "Ran `make plan`\n(no output)\nCommand exited with code 2",
        "Lint is clean.",
    ]


def test_compactions_keep_the_raw_turns() -> None:
    """A compaction stands between the turns and takes none away."""
    main = tree()[0]["main"]
    assert [(item.before, item.tokens_before, item.summary) for item in main.compactions] == [
        (3, 90_000, "Plan drawn so far."),
        (3, None, ""),
    ]
    assert [item.kind for item in main.compactions] == ["summary", "cleared"]
    assert main.compactions[0].kept_from == 2


def test_aborted_requests_are_no_turns() -> None:
    """A request broken off before anything came back is left out."""
    runs, problems = read(
        encode_lines(said("user", "Go."), said("assistant", [], usage={"input": 0}, stopReason="aborted"))
    )
    assert runs == {}
    assert len(problems) == 1


def test_a_call_broken_off_is_answered_as_pi_answers_it() -> None:
    """A call without result gets pi's stand-in once the conversation goes on, and none at its end."""
    call = [{"type": "toolCall", "id": "c", "name": "edit", "arguments": {}}]
    going = read(
        encode_lines(said("user", "Go."), said("assistant", call), said("user", "Wait."), said("assistant", "Yes."))
    )
    ended = read(encode_lines(said("user", "Go."), said("assistant", call)))
    (answer,) = going[0]["main"].turns[0].observations
    assert (answer.text, answer.error) == (STAND_IN_RESULT, True)
    assert ended[0]["main"].turns[0].observations == ()
    assert going[1] == ended[1] == []


def test_broken_lines_are_reported_and_the_rest_is_read() -> None:
    """A cut line is a problem with its number; an entry whose parent is lost follows the one before."""
    runs, problems = tree()
    assert [problem.line for problem in problems] == [10]
    assert runs["main"].turns[-1].interjections[0].text == "42"


def test_parents_in_a_circle_end() -> None:
    """Entries that are each other's parents are read once and reported."""
    entries = [
        said("user", "Go.") | {"id": "1", "parentId": "2"},
        said("assistant", "On.") | {"id": "2", "parentId": "1"},
    ]
    runs, problems = read(encode_lines(*entries))
    assert [turn.text for turn in runs["main"].turns] == ["On."]
    assert [problem.line for problem in problems] == [1]


def test_a_cost_of_zero_is_not_stated() -> None:
    """pi records 0 for a model whose price it does not know: the tokens were billed all the same."""
    data = (DATA / "excerpt_v1.jsonl").read_bytes()
    assert b'"total":0.016890000000000002' in data
    runs, _ = read(data.replace(b'"total":0.016890000000000002', b'"total":0'))
    first = next(iter(runs.values())).turns[0]
    assert first.usage == Usage(input=3008, output=74)


def test_a_thinking_level_that_changed() -> None:
    """The cache goes by it, so the call after it writes the prompt again."""
    answers = [said("assistant", [{"type": "text", "text": text}]) for text in "ab"]
    level = {"type": "thinking_level_change", "thinkingLevel": "high"}
    runs, _ = read(encode_lines(said("user", "Look."), answers[0], level, said("user", "More."), answers[1]))
    assert runs["main"].changes == (PromptChange(before=2, what="the thinking level"),)
