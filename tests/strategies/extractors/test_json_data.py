"""JSON and tables."""

from __future__ import annotations

import json
from typing import Any

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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        # The shapes that a published placeholder describes as "15 results" and "schema with 20 fields".
        ({"results": [{"id": 1}] * 15}, "results: 15 items"),
        ({"schema": {"fields": ["id"] * 20}}, "schema.fields: 20 items"),
        ({"data": {"rows": [[1]] * 40}, "status": "ok"}, "status ok; data.rows: 40 items"),
        ({"data": {"rows": [[1]] * 40}, "took": 0.3}, "data.rows: 40 items; 2 keys: data, took"),
        ({"a": {"b": {"c": [1, 2]}}}, "a.b.c: 2 items"),
        ({"a": {"b": {"c": {"d": [1, 2]}}}}, "a: 1 key: b"),
        ({"columns": ["id", "n"], "rows": [[1, 2]] * 40}, "columns: 2 items, rows: 40 items"),
        ({"errors": [], "results": [1, 2]}, "results: 2 items"),
        ({"results": []}, "results: 0 items"),
        ({"total": 15}, "total 15"),
        ({"tests": {"passed": 10, "failed": 2}}, "tests: passed 10, failed 2"),
        ({"id": 123456789}, "1 key: id"),
        ({"users": {"Ann": {"age": "30"}}}, "users: 1 key: Ann"),
        ({"error": "no such table", "rows": []}, "error: no such table"),
    ],
)
def test_first_list_or_counts(value: Any, expected: str) -> None:
    """An object is told by its first lists and tables of counts, at most three levels down."""
    assert outcome_of("query", "{}", json.dumps(value)).result == expected


def test_record_of_many_fields() -> None:
    """A record is told by its fields; a list that is longer than the record has fields comes first."""
    record: dict[str, Any] = {f"field_{number}": f"value {number}" for number in range(9)}
    assert outcome_of("get", "{}", json.dumps(record | {"tags": ["a", "b"]})).result.startswith("10 keys: field_0")
    assert outcome_of("get", "{}", json.dumps(record | {"rows": [1] * 50})).result.startswith("rows: 50 items; 10 keys")


@pytest.mark.parametrize("depth", [2, 100, 900])
def test_deep_and_wide_objects(depth: int) -> None:
    """Objects inside objects are looked at three levels down; a wide one is looked at in part."""
    value: Any = [1]
    for _ in range(depth):
        value = {"inner": value}
    assert outcome_of("get", "{}", json.dumps(value)).result
    wide = {f"key {number}": {f"key {other}": {"n": 0.5} for other in range(60)} for number in range(60)}
    assert outcome_of("get", "{}", json.dumps(wide)).result.startswith("60 keys")
