"""Shell commands taken apart."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.extractors.command import _split_words, parse_command


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
