"""A count of what was cut is no total."""

from __future__ import annotations

import json

import pytest

from tests.strategies.extractors.cases import outcome_of

PATHS = "".join(f"src/file_{number}.py\n" for number in range(20))
MATCHES = "".join(f"src/a.py:{number}:    x = 1\n" for number in range(20))


@pytest.mark.parametrize(
    ("command", "output", "expected"),
    [
        ("find . -name '*.py' | head -20", PATHS, "first 20 paths"),
        ("find . -name '*.py' | head -n 20", PATHS, "first 20 paths"),
        ("find . -name '*.py' | head -n20", PATHS, "first 20 paths"),
        ("find . -name '*.py' | sort | tail -20", PATHS, "last 20 paths"),
        ("find . -name '*.py' | tail -n +5", PATHS, "last 20 paths"),
        ("find . -name '*.py' | head -100 | grep file", PATHS, "first 20 paths"),
        ("find . -name '*.py' | sed -n '1,20p'", PATHS, "first 20 paths"),
        ("find . -name '*.py' | sed -n '21,40p'", PATHS, "shown: 20 paths"),
        ("find . -name '*.py' | head -30", PATHS, "20 paths"),
        ("find . -name '*.py' | head -30 | sort", PATHS, "20 paths"),
        ("find . -name '*.py' | grep -v test", PATHS, "20 paths"),
        ("grep -rn 'x =' src | head -20", MATCHES, "first 20 matches in 1 file"),
        ("grep -rn -m 5 'x =' src", MATCHES, "first 20 matches in 1 file"),
        ("ls src | head", PATHS, "first 20 entries"),
        ("ls src", PATHS, "20 entries"),
        ("git log --oneline | head -2", "1234567 One\n89abcde Two\n", "first 2 commits, newest 1234567 One"),
        ("git diff | head -4", "diff --git a/x b/x\n--- a/x\n+++ b/x\n+new\n", "first 1 file, +1 -0"),
        (
            "python rows.py | head -3",
            "name,age,town\nann,31,Ulm\nbob,44,Ulm\n",
            "first 2 rows x 3 columns: name, age, town",
        ),
    ],
)
def test_a_command_that_cuts_its_output(command: str, output: str, expected: str) -> None:
    """It says which part was counted, unless there were fewer lines than it lets through."""
    assert outcome_of("bash", json.dumps({"command": command}), output).result == expected


@pytest.mark.parametrize(
    "notice",
    ["<response clipped>", "<elided_chars>\n900 characters elided\n</elided_chars>", "(Results are truncated.)"],
)
def test_a_tool_that_cuts_its_output(notice: str) -> None:
    """A tool says so in the output."""
    result = outcome_of("Grep", '{"pattern": "x"}', f"{MATCHES}{notice}\n").result
    assert result.startswith("shown: 2")
