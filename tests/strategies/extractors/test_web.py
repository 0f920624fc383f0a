"""Web pages."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of_case


@pytest.mark.parametrize("case", cases("web"))
def test_outcome(case: Case) -> None:
    """A page is told by title, status and size."""
    assert outcome_of_case(case) == case.expected
