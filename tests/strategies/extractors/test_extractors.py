"""What is said of each kind of result."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.strategies.extractors.cases import Case, every_case, outcome_of, outcome_of_case


@pytest.mark.parametrize(
    "case", [pytest.param(each, id=f"{each.kind}-{each.tool}-{each.source}") for each in every_case()]
)
def test_outcome(case: Case) -> None:
    """A view is told by path, range and lines, a listing by its entries, an edit by its path and success or refusal.

    A search is told by its matches and files, or by its only hit; a command by exit code and error or last line; git by
    what changed and which commit; a test run by totals and first failure, without durations; a page by title, status
    and size; data by their shape and by the error or status they state; any other answer by its first words.
    """
    assert outcome_of_case(case) == case.expected


def test_words_about_errors_inside_a_file_are_no_error() -> None:
    """A file that speaks of errors was still read."""
    source = 'raise ValueError("x")\nerror: y\nTraceback (most recent call last):\nKeyError: 1\n'
    assert outcome_of("bash", '{"command": "cat a.py"}', source).result == "4 lines"


def test_two_commands_are_not_taken_for_one_view() -> None:
    """Where several commands wrote the output, none of them alone is named."""
    outcome = outcome_of("bash", '{"command": "cat a.py; python a.py"}', "x\ny")
    assert (outcome.label, outcome.result) == ("cat a.py && python a.py", "last: y")


def test_blank_lines_at_the_end_count() -> None:
    """A range that ends in blank lines has as many lines as it shows."""
    text = "<returncode>0</returncode>\n<output>\na\n\n\n</output>"
    assert outcome_of("bash", '{"command": "sed -n 1,3p a.py"}', text).result == "3 lines"


def test_recorded_range_of_a_huge_file() -> None:
    """The range of a numbered view is read from its two ends however long it is."""
    text = "".join(f"{number:6}\tx\n" for number in range(1, 50_001))
    assert outcome_of("Read", '{"file_path": "a.txt"}', text).result == "50000 lines"


def test_failure_the_environment_states_is_believed() -> None:
    """An edit whose result was marked as an error did not happen, whatever its words."""
    outcome = outcome_of("Edit", '{"file_path": "a", "old_string": "x", "new_string": "y"}', "hm, not now", error=True)
    assert outcome.result == "hm, not now"


def test_context_lines_are_not_counted() -> None:
    """Lines around a match are no matches."""
    text = "3-a\n4:foo\n5-b\n--\n9-c\n10:foo"
    assert outcome_of("bash", '{"command": "grep -n -C1 foo a.py"}', text).result == "2 matches"


def test_unnumbered_context_is_counted_as_lines() -> None:
    """Where matches cannot be told from context, only lines are counted."""
    assert outcome_of("bash", '{"command": "grep -A1 foo a.py"}', "foo\nb\n--\nfoo\nc").result == "5 lines"


@pytest.mark.parametrize(
    "text",
    [
        "<returncode>3</returncode>\n<output>\nout\n</output>",
        "out\n[The command completed with exit code 3.]",
        "out\n[The command completed with exit code 3.]\n[Current working directory: /w]\n"
        "[Python interpreter: /p]\n[Command finished with exit code 3]",
        "out\n\nCommand exited with code 3",
        "Exit code 3\nout",
        "Error: Exit code: 3\nout",
        "out\n[exit code: 3]",
        '{"output": "out", "exit_code": 3}',
        '{"output": "out", "metadata": {"exit_code": 3}}',
        '{"stdout": "out", "stderr": "", "returncode": 3}',
        "Chunk ID: a1\nWall time: 0.1 seconds\nProcess exited with code 3\nOutput:\nout",
    ],
)
def test_exit_code_forms(text: str) -> None:
    """Every usual way of stating an exit code is understood and taken off the output."""
    assert outcome_of("bash", '{"command": "./x"}', text).result == "exit 3, out"


def test_exit_code_in_the_middle_of_an_output_is_not_believed() -> None:
    """A program that prints about exit codes does not set its own."""
    assert outcome_of("bash", '{"command": "./x"}', "first\nExit code 3\nlast words").result == "last: last words"


def test_error_words_of_a_successful_command_are_no_error() -> None:
    """With exit 0 only a traceback counts as an error."""
    text = "<returncode>0</returncode>\n<output>\nerror: none found\nall good\n</output>"
    assert outcome_of("bash", '{"command": "./x"}', text).result == "exit 0, last: all good"


def test_echo_of_the_command_is_left_out() -> None:
    """A terminal that records what was typed does not make it part of the output."""
    assert outcome_of("bash", '{"command": "./long_name.sh"}', "./long_name.sh\n42").result == "42"


def test_quoted_summary_is_no_test_run() -> None:
    """A file that holds a test summary is a file."""
    outcome = outcome_of("bash", '{"command": "cat log.txt"}', "==== 3 failed, 1 passed in 0.1s ====")
    assert outcome.result == "1 line"


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


def test_words_of_a_failure_come_first() -> None:
    """An observation marked as an error is told by its error line."""
    assert outcome_of("f", "{}", "started\nValueError: bad x\n", error=True).result == "ValueError: bad x"
