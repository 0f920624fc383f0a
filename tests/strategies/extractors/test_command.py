"""Shell commands taken apart, and counts of what was cut, which are no totals."""

from __future__ import annotations

import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.extractors.command import _split_words, parse_command
from tests.strategies.extractors.cases import outcome_of


@pytest.mark.parametrize(
    ("command", "label"),
    [
        ("cd /repo && pytest -q tests/", "pytest -q tests/"),
        ("pytest 2>&1 | tail -20", "pytest"),
        ("cat > f.py << 'EOF'\nimport os; os.x()\nEOF\npython f.py", "cat > f.py && python f.py"),
        ("# look first\nls src", "ls src"),
        ("cd /repo", "cd /repo"),
        ("edit 10:12\nfoo | bar\nend_of_edit", "edit 10:12"),
        ("grep 'a|b;c' f && echo done", "grep 'a|b;c' f"),
        ("echo 'it''s", "echo 'it''s"),
    ],
)
def test_label(command: str, label: str) -> None:
    """A label leaves out folders changed to, heredoc bodies, comments and pagers, and nothing else."""
    assert parse_command(command).label == label


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("FOO=1 timeout 60 python x.py", "python"),
        ("sudo -n ls", "ls"),
        ("uv run pytest", "pytest"),
        ("/usr/bin/git status", "git"),
        ("npx jest", "jest"),
    ],
)
def test_program(command: str, program: str) -> None:
    """Assignments, wrappers and folders do not hide the program."""
    assert parse_command(command).only_pipeline[0].program == program


@pytest.mark.parametrize(
    ("command", "target"),
    [
        ("echo x > a.txt", "a.txt"),
        ("echo x >> a.txt", "a.txt"),
        ("ls 2> err.txt", ""),
        ("ls > /dev/null", ""),
        ("grep '->' a.c", ""),
        ("make 2>&1", ""),
    ],
)
def test_target(command: str, target: str) -> None:
    """Only standard output sent to a file counts as writing it."""
    assert parse_command(command).only_pipeline[0].redirect_target == target


@given(st.text("ab '\"\\\t\n\r$#é\x0b\x0c\x1c\x7f\xa0-=", max_size=14))
def test_words_are_split_as_a_shell_does(text: str) -> None:
    """The quick way comes to what `shlex` comes to; an open quote is split at white space alone."""
    try:
        expected = shlex.split(text)
    except ValueError:
        expected = text.split()
    assert _split_words(text) == expected


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
