"""Test runs."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of, outcome_of_case


@pytest.mark.parametrize("case", cases("test_runs"))
def test_outcome(case: Case) -> None:
    """A test run is told by its totals and its first failure; durations are left out."""
    assert outcome_of_case(case) == case.expected


def test_quoted_summary_is_no_test_run() -> None:
    """A file that holds a test summary is a file."""
    outcome = outcome_of("bash", '{"command": "cat log.txt"}', "==== 3 failed, 1 passed in 0.1s ====")
    assert outcome.result == "1 line"
