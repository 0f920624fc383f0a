"""OpenHands V0 sessions: folders with an event a file."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from elision.formats.document import Document
from elision.formats.openhands_output import OpenHandsSessionReader
from elision.trajectory.trajectory import Problem, Trajectory
from tests.formats.found import read_path

SESSION = Path(__file__).parents[1] / "data" / "openhands" / "session"
FILES = sorted(path.relative_to(SESSION).as_posix() for path in SESSION.rglob("*.json"))


def as_folder(at: Path) -> Path:
    return Path(shutil.copytree(SESSION, at / "sessions" / "abc")).parents[1]


def as_tar(at: Path) -> Path:
    with tarfile.open(at / "sessions.tar.gz", "w:gz") as archive:
        archive.add(SESSION, "sessions/abc")
    return at / "sessions.tar.gz"


def as_zip(at: Path) -> Path:
    with zipfile.ZipFile(at / "sessions.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in reversed(FILES):
            archive.write(SESSION / name, f"sessions/abc/{name}")
    return at / "sessions.zip"


@pytest.mark.parametrize("packed", [as_folder, as_tar, as_zip])
def test_a_session_is_one_run(tmp_path: Path, packed: Callable[[Path], Path]) -> None:
    """The events of a session are one run in the order of their numbers, in a folder, a tar and a zip; pages that hold
    them again are no runs of their own."""
    (run,), problems = read_path(packed(tmp_path))
    assert problems == []
    assert (run.id, run.format, run.model) == ("abc", "openhands-session", "claude-sonnet-4")
    assert (len(run.turns), run.tool_turns) == (12, 11)
    assert [action.id for action in run.turns[0].actions] == ["toolu_1", "toolu_2"]
    assert [turn.actions[0].id for turn in run.turns[1:11]] == [f"toolu_{number}" for number in range(3, 13)]
    assert run.turns[0].interjections[0].text == "Only Python files."
    assert run.turns[11].text == "There are two."


def test_the_session_folder_itself(tmp_path: Path) -> None:
    """A session that is named directly has its folder's name."""
    (run,), problems = read_path(Path(shutil.copytree(SESSION, tmp_path / "abc")))
    assert (run.id, problems) == ("abc", [])


def test_usage_is_that_of_the_response(tmp_path: Path) -> None:
    """The usage that events repeat for each call of a response is counted once."""
    (run,), _ = read_path(SESSION)
    assert [turn.usage.prompt for turn in run.turns if turn.usage] == [1200, *[1400] * 10]


def test_a_page_stands_in_for_what_is_broken(tmp_path: Path) -> None:
    """A broken event file is a problem, and a missing one is none; both events are taken from the page."""
    at = Path(shutil.copytree(SESSION, tmp_path / "abc"))
    (at / "events" / "5.json").write_text('{"id": 5, "obse')
    (at / "events" / "7.json").unlink()
    (run,), problems = read_path(at)
    assert ["5.json" in problem.reason for problem in problems] == [True]
    assert run.turns[0].observations[0].text.startswith("a.py")
    assert run.turns[0].interjections[0].text == "Only Python files."


def test_pages_alone(tmp_path: Path) -> None:
    """Where only the pages are left, they are the session as far as they go."""
    at = Path(shutil.copytree(SESSION, tmp_path / "abc"))
    shutil.rmtree(at / "events")
    (run,), problems = read_path(at)
    assert (len(run.turns), problems) == (10, [])


def test_other_folders_of_that_layout_are_read_file_by_file(tmp_path: Path) -> None:
    """Files that are laid out like a session, but are other recordings, are read one by one; nothing is passed over."""
    chat = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]}
    (tmp_path / "events").mkdir()
    for name in ("0.json", "1.json"):
        (tmp_path / "events" / name).write_text(json.dumps(chat))
    (tmp_path / "events" / "2.json").write_text("{}")
    runs, problems = read_path(tmp_path)
    assert [run.format for run in runs] == ["openai-chat", "openai-chat"]
    assert [Path(problem.file).name for problem in problems] == ["2.json"]


def test_a_thought_may_be_an_object() -> None:
    """Late versions write a thought as an object with its text."""
    event = {"id": 0, "source": "agent", "action": "run", "args": {"command": "ls", "thought": {"text": "I look."}}}
    (run,) = (item for item in read_events(event) if isinstance(item, Trajectory))
    assert run.turns[0].text == "I look."
    assert json.loads(run.turns[0].actions[0].arguments) == {"command": "ls"}


def read_events(*events: object) -> list[Trajectory | Problem]:
    members = {f"events/{number}.json": json.dumps(event).encode() for number, event in enumerate(events)}
    return list(OpenHandsSessionReader().read(Document("abc", members=members)))


def test_other_zips_in_a_folder_are_passed_over(tmp_path: Path) -> None:
    """In a folder only what is called a zip is opened, a wheel is not; a zip in a zip is a problem."""
    traj = (SESSION.parents[1] / "swe_agent" / "text.traj").read_bytes()
    for name in ("runs.zip", "some.whl"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("one.traj", traj)
            archive.writestr("metadata.json", "{}")
            archive.writestr("inner.zip", b"PK\x03\x04")
    runs, problems = read_path(tmp_path)
    assert [Path(run.file).name for run in runs] == ["runs.zip!one.traj"]
    assert [Path(problem.file).name for problem in problems] == ["runs.zip!inner.zip", "runs.zip!metadata.json"]
    assert len(read_path(tmp_path / "some.whl")[0]) == 1


def test_a_zip_of_other_recordings(tmp_path: Path) -> None:
    """A zip is opened like a tar: its files are named behind "!", compressed ones are unpacked, macOS's are left out,
    and one that cannot be unpacked is a problem."""
    traj = (SESSION.parents[1] / "swe_agent" / "text.traj").read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a/one.traj", traj)
        archive.writestr("__MACOSX/a/._one.traj", b"{")
        archive.writestr("a/broken.traj", b"x" * 100)
    (tmp_path / "runs.zip").write_bytes(buffer.getvalue().replace(b"x" * 100, b"y" * 100))
    runs, problems = read_path(tmp_path / "runs.zip")
    assert [run.file for run in runs] == [f"{tmp_path / 'runs.zip'}!a/one.traj"]
    assert [problem.file for problem in problems] == [f"{tmp_path / 'runs.zip'}!a/broken.traj"]
