"""Files that were read, folders that were listed."""

from __future__ import annotations

import pytest

from tests.strategies.extractors.cases import Case, cases, outcome_of, outcome_of_case


@pytest.mark.parametrize("case", cases("files"))
def test_outcome(case: Case) -> None:
    """A view is told by path, range and number of lines; a listing by its entries."""
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
