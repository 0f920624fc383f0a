"""opencode sessions, exported and as they are stored."""

from __future__ import annotations

import json
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from elision.formats.document import Document
from elision.formats.opencode import OpenCodeReader
from elision.trajectory.trajectory import Problem, Trajectory
from elision.trajectory.turn import IMAGE_TOKENS, Opaque
from elision.trajectory.usage import Usage
from tests.formats.found import read_path, separate

DATA = Path(__file__).parents[1] / "data" / "opencode"


def exported() -> Trajectory:
    (run,), problems = read_path(DATA / "export.json")
    assert problems == []
    return run


def of(value: Any) -> tuple[list[Trajectory], list[Problem]]:
    return separate(OpenCodeReader().read(Document("x.json", json.dumps(value).encode())))


def assistant(*parts: Any, **info: Any) -> dict[str, Any]:
    return {"info": {"id": "msg_1", "role": "assistant", **info}, "parts": list(parts)}


def test_each_step_is_a_turn() -> None:
    """The steps of a message are turns, with thoughts, parallel calls, results and errors; what a request that failed
    did not say is no turn."""
    run = exported()
    assert (run.format, run.id, run.model) == ("opencode", "ses_01parent", "claude-sonnet-4-5")
    assert [turn.text for turn in run.turns] == ["I look.", "", "I run it.", "There is one."]
    assert run.turns[0].reasoning == "I need a list."
    assert [[action.name for action in turn.actions] for turn in run.turns] == [
        ["bash", "read"],
        ["task"],
        ["bash"],
        [],
    ]
    assert run.turns[0].actions[0].decoded_arguments == {"command": "ls"}


def test_results_as_they_were_sent() -> None:
    """A result that was cleared later is whole; a call that failed is an error, and one that never ended gets what
    opencode sends in its place."""
    assert [[(o.text, o.error) for o in turn.observations] for turn in exported().turns] == [
        [("a.py b.txt", False), ("File not found", True)],
        [("Done.", False)],
        [("[Tool execution was interrupted]", True)],
        [],
    ]


def test_what_the_user_says() -> None:
    """Texts that opencode added are sent too, ignored ones and files that are sent as text are not; pictures are
    opaque."""
    run = exported()
    (asked,) = run.head.messages
    assert [part.text for part in asked.content if not isinstance(part, Opaque)] == [
        "Count the files.",
        "Called the Read tool: a.py",
    ]
    assert [part.tokens for part in asked.content if isinstance(part, Opaque)] == [IMAGE_TOKENS]
    assert [[message.text for message in turn.interjections] for turn in run.turns] == [
        [],
        ["Only Python."],
        ["Continue if you have next steps"],
        [],
    ]


def test_usage_cost_and_time() -> None:
    """A step states its own tokens, whose total tells whether output holds the reasoning; 0 USD says nothing; a later
    step left when the results before it were there; a message without steps states its own."""
    run = exported()
    assert [turn.usage for turn in run.turns] == [
        Usage(input=10, cache_write=5000, output=60, usd=0.02),
        Usage(input=8, cache_read=5000, cache_write=200, output=39),
        Usage(input=1, output=1, usd=0.02),
        Usage(input=700, output=4, usd=0.02),
    ]
    assert [(turn.at or 0) - (run.turns[0].at or 0) for turn in run.turns[:2]] == pytest.approx([0, 1.6])


def step(**tokens: Any) -> dict[str, Any]:
    cache = {"read": tokens.pop("read", 0), "write": tokens.pop("write", 0)}
    return {"type": "step-finish", "cost": 0, "tokens": {**tokens, "cache": cache}}


def test_old_versions_count_what_the_cache_served_as_input() -> None:
    """Where no call reads more than its input, the input holds what was read; a total, or one call that reads more,
    tells otherwise. Reasoning beyond the output is not in it."""
    said = {"type": "text", "text": "hi"}
    first, second = step(input=9640, output=12, reasoning=266, read=9600), step(input=10, output=5, read=9000)
    ((run,), _) = of({"messages": [assistant(said, first)]})
    assert run.turns[0].usage == Usage(input=40, cache_read=9600, output=278)
    ((run,), _) = of(
        {"messages": [assistant(said, first), {"info": {"role": "user"}, "parts": [said]}, assistant(said, second)]}
    )
    assert [turn.usage.input for turn in run.turns if turn.usage] == [9640, 10]
    ((run,), _) = of({"messages": [assistant(said, step(input=9640, output=12, reasoning=0, read=9600, total=19252))]})
    assert run.turns[0].usage == Usage(input=9640, cache_read=9600, output=12)


def test_a_compaction_is_no_turn() -> None:
    """The answer to a compaction is its summary, and its prompt the tokens before."""
    ((before, tokens, summary),) = [(c.before, c.tokens_before, c.summary) for c in exported().compactions]
    assert (before, tokens, summary) == (4, 5700, "There is one Python file.")


def as_folder(at: Path) -> Path:
    return Path(shutil.copytree(DATA / "storage", at / "opencode" / "storage")).parent


def as_tar(at: Path) -> Path:
    with tarfile.open(at / "storage.tar", "w") as archive:
        archive.add(DATA / "storage", "storage")
    return at / "storage.tar"


def as_zip(at: Path) -> Path:
    with zipfile.ZipFile(at / "storage.zip", "w") as archive:
        for path in sorted((DATA / "storage").rglob("*.json")):
            archive.write(path, path.relative_to(DATA).as_posix())
    return at / "storage.zip"


def as_before(at: Path) -> Path:
    """The first layout: everything below `session`, parts below their session too."""
    for path in (DATA / "storage").rglob("*.json"):
        folder, *rest = path.relative_to(DATA / "storage").parts
        session = json.loads(path.read_text()).get("sessionID", "") if folder == "part" else ""
        names = {"message": ["message", *rest], "part": ["part", session, *rest], "session": ["info", rest[-1]]}
        if folder in names:
            to = at.joinpath("storage", "session", *names[folder])
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, to)
    return at


@pytest.mark.parametrize("layout", [as_folder, as_tar, as_zip, as_before])
def test_the_storage_holds_every_session(tmp_path: Path, layout: Any) -> None:
    """A storage folder, packed or not, of either layout, gives each session as its export does, with its parent."""
    runs, problems = read_path(layout(tmp_path))
    assert problems == []
    assert [(run.id, run.parent) for run in runs] == [("ses_01parent", None), ("ses_02child", "ses_01parent")]
    assert runs[0].turns == exported().turns
    assert runs[0].head == exported().head


def test_broken_files_cost_themselves_alone(tmp_path: Path) -> None:
    """A part or message that cannot be read is a Problem that names it; the rest of the session is read."""
    at = as_folder(tmp_path)
    next(iter(sorted((at / "storage/part/msg_02").iterdir()))).write_text("{")
    (at / "storage/message/ses_01parent/msg_09.json").write_text("[")
    runs, problems = read_path(at)
    assert len(problems) == 2
    assert all(".json" in problem.reason for problem in problems)
    assert [len(run.turns) for run in runs] == [3, 1]


def test_old_messages_hold_the_system_prompt() -> None:
    """Old versions keep the system prompt with each message of the assistant."""
    (run,), _ = of({"messages": [assistant({"type": "text", "text": "hi"}, system=["Be brief.", "Be kind."])]})
    assert [message.text for message in run.head.messages] == ["Be brief.\nBe kind."]


def test_an_export_without_an_answer_is_reported() -> None:
    """There is no run in it."""
    runs, problems = of({"info": {"id": "ses_1"}, "messages": [5]})
    assert (runs, len(problems)) == ([], 2)
