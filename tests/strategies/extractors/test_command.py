"""Shell commands taken apart."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.extractors.command import _UNQUOTED, parse_command


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


@given(st.text("ab$#=!{}*|-/ \t\n\x0b\x0c\x1c\x7f\xa0\"'\\", max_size=20))
def test_words_without_quotes(text: str) -> None:
    """Where nothing is quoted, words are what `shlex` would find."""
    assert not _UNQUOTED.fullmatch(text) or text.split() == shlex.split(text)
