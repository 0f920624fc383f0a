"""Outcomes: one line, within limits, whoever builds them."""

from __future__ import annotations

from elision.strategies.extractors import LABEL_CHARS, RESULT_CHARS, Outcome
from elision.strategies.extractors.outcome import format_count, shorten_path


def test_texts_become_one_line() -> None:
    """Newlines, control characters, colours and direction marks do not reach a placeholder."""
    outcome = Outcome("a\nb\x00c\u2028d\u202ee", "\x1b[31mred\x1b[0m\r\n  two")
    assert (outcome.label, outcome.result) == ("a b c d e", "red two")


def test_texts_are_cut_to_their_limits() -> None:
    """Whatever is too long ends in an ellipsis at its limit."""
    outcome = Outcome("x" * 500, "y" * 500)
    assert (len(outcome.label), len(outcome.result)) == (LABEL_CHARS, RESULT_CHARS)
    assert outcome.label.endswith("…")
    assert outcome.result.endswith("…")


def test_a_result_is_never_empty() -> None:
    """Where nothing printable is left, the result says so."""
    assert Outcome("", "\x1b\n ").result == "no output"


def test_long_paths_keep_their_end() -> None:
    """Leading folders of a long path go first."""
    path = "/home/someone/workspaces/project/packages/agent/src/core/session.ts"
    assert shorten_path(path) == "…/project/packages/agent/src/core/session.ts"
    assert shorten_path("src/a.py") == "src/a.py"


def test_counts_agree_with_their_noun() -> None:
    """One thing is singular, more or none are plural."""
    assert [format_count(n, "line") for n in (0, 1, 2)] == ["0 lines", "1 line", "2 lines"]
    assert format_count(2, "match", "matches") == "2 matches"
