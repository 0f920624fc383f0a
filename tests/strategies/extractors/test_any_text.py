"""Properties that hold for any text at all."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.strategies.extractors import LABEL_CHARS, RESULT_CHARS
from tests.strategies.extractors.cases import Case, every_case, outcome_of, outcome_of_case
from tests.work import assert_linear

_TOOLS = (
    "bash",
    "Read",
    "Edit",
    "Grep",
    "Glob",
    "str_replace_editor",
    "browser_get_state",
    "python",
    "list_dir",
    "f",
    "",
)
_COMMANDS = (
    "pytest",
    "cat a",
    "grep -rn a .",
    "find .",
    "ls -l",
    "git status",
    "git log",
    "git diff",
    "curl x",
    "sed -i s/a/b/ f",
)
_PIECES = (
    "<returncode>1</returncode>",
    "<output>\n",
    "</output>",
    "Traceback (most recent call last):\n",
    "ValueError: x\n",
    "[File: a.py (9 lines total)]\n",
    "(3 more lines above)\n",
    "    1\tx\n",
    "diff --git a/x b/x\n",
    "+++ b/x\n",
    "3 passed in 0.1s",
    "Ran 2 tests in 0.1s\n",
    "{",
    "}",
    '"a":',
    "[",
    "]",
    "\n",
    "|",
    "---",
    "a:1:b\n",
    "<title>",
    "HTTP/1.1 404 ",
    "<system-reminder>",
    "Found 3 matches for",
    "exit code 1]",
    "\x1b[",
    "\u2028",
    "\x00",
    "…",
    "'",
    '"',
    "<<EOF\n",
)
_texts = st.one_of(
    st.text(max_size=200), st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=8)), max_size=30).map("".join)
)
_arguments = st.one_of(
    _texts,
    st.sampled_from(_COMMANDS).map(lambda command: json.dumps({"command": command})),
    st.dictionaries(
        st.sampled_from(
            ("command", "path", "file_path", "pattern", "url", "old_str", "new_str", "patch", "code", "view_range")
        ),
        st.one_of(
            _texts,
            st.integers(),
            st.none(),
            st.booleans(),
            st.lists(st.integers(), max_size=3),
            st.lists(_texts, max_size=3),
        ),
        max_size=4,
    ).map(json.dumps),
)


@settings(max_examples=max(120, settings().max_examples))
@given(
    tool=st.sampled_from(_TOOLS),
    arguments=_arguments,
    text=_texts,
    as_user=st.booleans(),
    error=st.sampled_from((None, True, False)),
)
def test_any_text_gives_one_short_line(tool: str, arguments: str, text: str, as_user: bool, error: bool | None) -> None:
    """Whatever an agent and its environment say, the outcome is two printable lines within their limits."""
    outcome = outcome_of(tool, arguments, text, role="user" if as_user else "tool", error=error)
    assert outcome.label.isprintable()
    assert outcome.result.isprintable()
    assert len(outcome.label) <= LABEL_CHARS
    assert 0 < len(outcome.result) <= RESULT_CHARS


def test_lone_surrogates_can_be_encoded() -> None:
    """Half a character, as JSON may hold it, does not reach a placeholder."""
    outcome = outcome_of("f", '{"x": "\\ud800 a"}', "\ud800 b\ud800")
    assert (outcome.label.encode(), outcome.result.encode()) == (b"a", b"b")


_HOSTILE = (
    "a",
    "(",
    "1",
    " ",
    "[",
    "{",
    '{"a":',
    '"',
    "\n",
    "\t",
    "_",
    "- ",
    "a:1:",
    "a\n",
    "1:\n",
    "| a | b |\n|--|--|\n",
    "A.",
    "Traceback (most recent call last)\n",
    "\x1b[",
    "Error: ",
    "=== 1 passed ",
    "<output>",
    "<title",
    "a,b\n",
    "+++ b/x\n",
    "[File: ",
    "Tests: 1 failed ",
    "\r",
    "<system-reminder>",
    "-1-",
    "a/",
    "> ",
)


@pytest.mark.parametrize("piece", _HOSTILE)
def test_hostile_text_is_read_in_linear_time(piece: str) -> None:
    """No long text holds an extractor up, neither as a result nor as a command."""

    def extract(size: int) -> None:
        text = piece * (size // len(piece))
        for command in ("pytest", "grep -rn a .", "git show"):
            outcome_of("bash", json.dumps({"command": command}), text)
        for tool in ("Read", "Edit", "browser_get_state", "f"):
            outcome_of(tool, '{"path": "a", "old_str": "b", "url": "c"}', text)
        outcome_of("bash", json.dumps({"command": text}), "x")
        outcome_of("bash", text, "x", role="user")

    assert_linear(extract, 4_000)


#: The words an outcome may hold that stand in neither call nor result.
_FIXED = frozenset(
    (
        "exit",
        "last",
        "first",
        "line",
        "lines",
        "match",
        "matches",
        "file",
        "files",
        "path",
        "paths",
        "entry",
        "entries",
        "empty",
        "output",
        "edited",
        "written",
        "created",
        "rejected",
        "undone",
        "edits",
        "item",
        "items",
        "keys",
        "key",
        "error",
        "commit",
        "commits",
        "newest",
        "changes",
        "clean",
        "modified",
        "untracked",
        "deleted",
        "added",
        "passed",
        "failed",
        "tests",
        "test",
        "package",
        "packages",
        "node",
        "nodes",
        "heading",
        "page",
        "column",
        "columns",
        "row",
        "rows",
        "element",
        "elements",
        "status",
        "message",
        "HTTP",
    )
)


def test_nothing_is_made_up() -> None:
    """Every word of an outcome stands in the call or in its result, or is one of a few fixed words."""
    for case in every_case():
        assert list_made_up(case) == set(), f"{case.kind}-{case.tool}-{case.source}"


def list_made_up(case: Case) -> set[str]:
    outcome = outcome_of_case(case)
    said = (
        json.dumps(json.loads(case.arguments), ensure_ascii=False) if case.arguments.startswith("{") else case.arguments
    )
    known = f"{said}\n{case.observation}".lower().replace("\\n", " ").replace("\\", "")
    words = set(re.findall(r"[^\W\d_]{3,}", f"{outcome.label} {outcome.result}"))
    return {word for word in words if word not in _FIXED and word.lower() not in known}
