"""Line numbers in front of lines are told from other numbers."""

from __future__ import annotations

import pytest

from elision.trajectory.items import find_items, strip_gutters

CODE = ("def run_it(self):", "    return self.result_of", "", "class Other:")


def numbered(form: str, start: int = 3451) -> str:
    return "\n".join(form.format(number, line) for number, line in enumerate(CODE, start))


@pytest.mark.parametrize(
    "form",
    ["{}:{}", "{:6}\t{}", "{:6}→{}", "{}→{}", "{}|{}", "{}-{}", "{}: {}", "src/app.py:{}:{}", "Line {}:{}", "  {}:{}"],
)
def test_gutters_are_no_items(form: str) -> None:
    """Whoever numbered the lines, the numbers go and the code stays."""
    text = numbered(form)
    assert any("345" in item for item in find_items(text))
    left = find_items(strip_gutters(text))
    assert not any("345" in item for item in left)
    assert {"run_it", "self.result_of"} <= set(left)
    assert ("src/app.py" in left) == ("src/app.py" in form)


@pytest.mark.parametrize(
    "line",
    [
        "3451:def run_it(self):",
        "3451:    return",
        "src/app.py:3451:x = 1",
        "Line 3451:x",
        "  3451\tx",
        "3451→x",
        "3451:    12: x",
    ],
)
def test_a_single_line_is_enough_where_its_form_says_it(line: str) -> None:
    """One hit of a search, one line of a view."""
    assert "3451" not in strip_gutters(line)


@pytest.mark.parametrize(
    "text",
    [
        "404: Not Found",
        "src/app.py:3451: AssertionError",
        "src/app.py:3451:17: error: no such name",
        '  File "src/app.py", line 3451, in run_it',
        "2026-11-22 10:15:00 started\n2026-11-23 10:15:00 ended",
        "4096\t./src\n4100\t./tests",
        " 3451 | Ada\n 3452 | Grace",
        "3451\tAda\n3452\tGrace",
        "user:3451:name\nuser:3452:name",
        "8080:80",
        "@@ -3451,7 +3451,6 @@",
        "500: Internal Server Error\n501: Not Implemented",
        "3451 3452\n3453 3454",
    ],
)
def test_other_numbers_stay(text: str) -> None:
    """Places of errors, codes, times, sizes, rows of a table."""
    assert strip_gutters(text) is text


def test_a_number_that_is_said_too_stays() -> None:
    """Only the gutter goes: the same number within a line is evidence."""
    assert "3451" in find_items(strip_gutters("3451:port = 3451"))


def test_numbers_as_long_as_a_blob() -> None:
    """Digits without end are a number like any other."""
    text = "9" * 10_000 + ":x\n" + "9" * 10_000 + ":y"
    assert strip_gutters(text).split() == ["x", "y"]
