"""Which file an action reads, which part of it, and whether edits must match it."""

from __future__ import annotations

import json

import pytest

from elision.strategies.folding import FileRead, edits_exactly, find_file_read, has_exact_edit_tool
from elision.testing.builders import call, result, turn
from elision.trajectory.turn import Action, Head


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


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("Edit", {"old_string": "a", "new_string": "b"}, True),
        ("MultiEdit", {"edits": [{"old_string": "a"}]}, True),
        ("edit", {"path": "a.py", "oldText": "a"}, True),
        ("apply_patch", {"input": "*** Begin Patch"}, True),
        ("edit", {"start_line": 3, "text": "the old_string of it"}, False),
        ("bash", {"command": "sed -i s/old_str/new/ a.py"}, False),
    ],
)
def test_calls_that_edit_exactly(name: str, arguments: dict[str, object], expected: bool) -> None:
    """Known by the names of arguments, wherever they are, and by patches."""
    assert edits_exactly(turn(1, (call(name, **arguments), result("done", name)))) is expected


def test_tools_that_edit_exactly() -> None:
    """Their schemas name the same arguments."""
    tool = {"name": "Edit", "input_schema": {"type": "object", "properties": {"old_string": {"type": "string"}}}}
    assert has_exact_edit_tool(Head(tools=({"name": "bash"}, tool)))
    assert not has_exact_edit_tool(Head(tools=({"name": "bash", "description": "no old_string"},)))
