"""Searches."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of, outcome_of_case


@pytest.mark.parametrize("case", cases("search"))
def test_outcome(case: Case) -> None:
    """A search is told by its matches and files, or by its only hit."""
    assert outcome_of_case(case) == case.expected


def test_context_lines_are_not_counted() -> None:
    """Lines around a match are no matches."""
    text = "3-a\n4:foo\n5-b\n--\n9-c\n10:foo"
    assert outcome_of("bash", '{"command": "grep -n -C1 foo a.py"}', text).result == "2 matches"


def test_unnumbered_context_is_counted_as_lines() -> None:
    """Where matches cannot be told from context, only lines are counted."""
    assert outcome_of("bash", '{"command": "grep -A1 foo a.py"}', "foo\nb\n--\nfoo\nc").result == "5 lines"
