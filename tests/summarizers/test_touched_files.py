from __future__ import annotations

import pytest

from elision.summarizers.touched_files import FileState, list_touches, parse_file_state, update_file_states
from elision.trajectory.turn import Action, Observation, Turn, make_content
from tests.summarizers.turns import make_turn


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"tool": "Read", "file_path": "/a/b.py", "offset": 10, "limit": 20}, "[1] read /a/b.py:10-30"),
        ({"tool": "str_replace_editor", "command": "view", "path": "b.py", "view_range": [1, 9]}, "[1] read b.py:1-9"),
        (
            {"tool": "str_replace_editor", "command": "str_replace", "path": "b.py", "new_str": "x = compute()"},
            '[1] edited b.py: "x = compute()"',
        ),
        ({"tool": "Write", "file_path": "b.py", "content": "import os\nvalue = 3"}, '[1] written b.py: "value = 3"'),
        ({"command": "sed -n '5,90p' src/a.py"}, "[1] read src/a.py:5-90"),
        ({"command": "cd /x && cat src/a.py | head -3"}, "[1] read src/a.py"),
        ({"command": "cat > t.py <<'E'\nprint(value)\nE\npython t.py"}, '[1] written t.py: "print(value)"'),
        ({"command": "sed -i 's/a/b/' src/a.py"}, "[1] edited src/a.py: sed -i 's/a/b/' src/a.py"),
    ],
)
def test_a_call_names_its_file_and_what_it_did(arguments: dict[str, object], expected: str) -> None:
    """Structured tools and shell commands both show what they did to which file, and where."""
    tool = str(arguments.pop("tool", "bash"))
    assert [str(touch) for touch in list_touches([make_turn(1, tool=tool, result="ok", **arguments)])] == [expected]


def test_a_failed_edit_changed_nothing() -> None:
    """A call that failed is no touch."""
    failed = make_turn(1, tool="Edit", result="String to replace not found", error=True, path="a.py", new_str="value")
    assert list_touches([failed]) == []


def test_an_edit_without_a_path_belongs_to_the_open_file() -> None:
    """SWE-agent's `edit 3:5` changes the file that the last prompt showed as open."""

    def said(index: int, command: str) -> Turn:
        prompt = "ok\n(Open file: /repo/a.py)\n(Current directory: /repo)\nbash-$"
        seen = Observation(action_id="", tool="bash", content=make_content(prompt), role="user")
        action = Action(id="", name="bash", arguments=command, implicit=True)
        return Turn(index=index, content=make_content(command), actions=(action,), observations=(seen,))

    found = list_touches([said(1, "open /repo/a.py"), said(2, "edit 3:5\nvalue = 1\nend_of_edit")])
    assert [str(touch) for touch in found] == ["[1] read /repo/a.py", '[2] edited /repo/a.py:3-5: "value = 1"']


def test_states_add_up_and_read_back() -> None:
    """Reads and edits of a file add up over digests, and its line reads back."""
    first = update_file_states(list_touches([make_turn(1, command="cat src/a.py", result="x")]))
    second = update_file_states(list_touches([make_turn(7, command="sed -n '5,9p' src/a.py", result="x")]), first)
    assert second == (FileState(path="src/a.py", reads=2, lines="5-9", last_turn=7),)
    assert [parse_file_state(str(state)) for state in second] == list(second)
