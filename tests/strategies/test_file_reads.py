"""Which file an action reads, and which part of it."""

from __future__ import annotations

import json

import pytest

from elision.strategies.file_reads import FileRead, find_file_read
from elision.trajectory.turn import Action


def act(name: str, **arguments: object) -> Action:
    return Action(id="a", name=name, arguments=json.dumps(arguments))


@pytest.mark.parametrize(
    ("action", "path"),
    [
        (act("read_file", path="a.py"), "a.py"),
        (act("Read", file_path="/x/a.py"), "/x/a.py"),
        (act("str_replace_editor", command="view", path="a.py"), "a.py"),
        (act("bash", command="cat a.py"), "a.py"),
        (act("bash", command="cd /repo && cat src/a.py"), "/repo/src/a.py"),
        (Action(id="", name="bash", arguments="cat a.py", implicit=True), "a.py"),
    ],
)
def test_reads_name_their_file(action: Action, path: str) -> None:
    """By the tool, or by the command of a shell; the folder is part of the name."""
    assert find_file_read(action) == FileRead(path)


@pytest.mark.parametrize(
    "action",
    [
        act("str_replace_editor", command="str_replace", path="a.py", old_str="x"),
        act("str_replace_editor", command="create", path="a.py"),
        act("Write", file_path="a.py"),
        act("bash", command="cat a.py | head"),
        act("bash", command="make test"),
        act("search", query="x"),
        Action(id="", name="bash", arguments="ls", implicit=True),
        Action(id="a", name="tool", arguments="{"),
    ],
)
def test_everything_else_is_no_read(action: Action) -> None:
    """Edits, commands that do more, and broken arguments."""
    assert find_file_read(action) is None


def test_parts_of_a_file_differ() -> None:
    """Another offset, the first ten lines and the last ten are parts of their own; the order of arguments is not."""
    reads = [
        act("read_file", path="a.py"),
        act("read_file", path="a.py", offset=10),
        act("read_file", path="a.py", offset=20),
        act("bash", command="head a.py"),
        act("bash", command="tail a.py"),
    ]
    assert len({find_file_read(each) for each in reads}) == len(reads)
    swapped = act("read_file", offset=10, path="a.py")
    assert find_file_read(swapped) == find_file_read(reads[1])
