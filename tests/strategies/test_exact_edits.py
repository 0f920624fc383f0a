"""Whether an agent's edits must match the text of a file."""

from __future__ import annotations

import pytest

from elision.strategies.exact_edits import edits_exactly, has_exact_edit_tool
from elision.testing.builders import call, result, turn
from elision.trajectory.turn import Head


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
def test_calls(name: str, arguments: dict[str, object], expected: bool) -> None:
    """Known by the names of arguments, wherever they are, and by patches."""
    assert edits_exactly(turn(1, (call(name, **arguments), result("done", name)))) is expected


def test_tools_of_the_head() -> None:
    """Their schemas name the same arguments."""
    tool = {"name": "Edit", "input_schema": {"type": "object", "properties": {"old_string": {"type": "string"}}}}
    assert has_exact_edit_tool(Head(tools=({"name": "bash"}, tool)))
    assert not has_exact_edit_tool(Head(tools=({"name": "bash", "description": "no old_string"},)))
