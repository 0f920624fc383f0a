"""Changes to files."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of, outcome_of_case


@pytest.mark.parametrize("case", cases("edits"))
def test_outcome(case: Case) -> None:
    """An edit is told by its path and its success, size or refusal."""
    assert outcome_of_case(case) == case.expected


def test_failure_the_environment_states_is_believed() -> None:
    """An edit whose result was marked as an error did not happen, whatever its words."""
    outcome = outcome_of("Edit", '{"file_path": "a", "old_string": "x", "new_string": "y"}', "hm, not now", error=True)
    assert outcome.result == "hm, not now"
