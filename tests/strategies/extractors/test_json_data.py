"""JSON and tables."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of, outcome_of_case


@pytest.mark.parametrize("case", cases("json_data"))
def test_outcome(case: Case) -> None:
    """Data are told by their shape and by the error or status they state."""
    assert outcome_of_case(case) == case.expected


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"a": ' + "9" * 10_000 + "}", "{broken", "[1,"])
def test_unreadable_json_falls_through(text: str) -> None:
    """What only looks like JSON is answered by the generic extractor."""
    assert outcome_of("fetch_record", "{}", text).result
