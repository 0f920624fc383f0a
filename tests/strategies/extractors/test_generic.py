"""Anything else."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of, outcome_of_case


@pytest.mark.parametrize("case", cases("generic"))
def test_outcome(case: Case) -> None:
    """Any other answer is told by its first words."""
    assert outcome_of_case(case) == case.expected


def test_words_of_a_failure_come_first() -> None:
    """An observation marked as an error is told by its error line."""
    assert outcome_of("f", "{}", "started\nValueError: bad x\n", error=True).result == "ValueError: bad x"
