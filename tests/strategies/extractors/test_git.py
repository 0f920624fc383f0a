"""Version control."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of_case


@pytest.mark.parametrize("case", cases("git"))
def test_outcome(case: Case) -> None:
    """A git command is told by what changed and which commit."""
    assert outcome_of_case(case) == case.expected
