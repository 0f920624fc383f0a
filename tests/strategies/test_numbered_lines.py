"""Lines with their line numbers kept apart."""

from __future__ import annotations

import pytest

from elision.strategies.repeated_lines import LineNumber, split_lines
from tests.strategies.unfolding import cut_number

CODE = ("def run(self):", "    return 1", "", "class Other:")


@pytest.mark.parametrize("form", ["{}:{}", "{:6}\t{}", "{:6}→{}", "{}|{}", "src/app.py:{}:{}", "Line {}:{}", "{:4}:{}"])
def test_numbers_are_kept_apart(form: str) -> None:
    """The bodies are the code, and number and body make the line again."""
    lines = [form.format(number, line) for number, line in enumerate(CODE, 98)]
    found = split_lines("\n".join(lines))
    assert tuple(found.bodies) == CODE
    gutter = found.find_gutter(0, len(lines))
    assert gutter is not None
    assert (gutter.first, gutter.last) == (98, 101)
    for number, line in enumerate(lines, 98):
        assert cut_number(gutter, line) == (number, CODE[number - 98])


def test_only_newlines_end_lines() -> None:
    """Form feeds, carriage returns and Unicode's own separators are text."""
    assert list(split_lines("a\fb\rc\u2028d\r\ne\x85f\n").bodies) == ["a\fb\rc\u2028d\r", "e\x85f", ""]


def test_numbers_that_cannot_be_written_again_are_text() -> None:
    """Leading zeros and digits without end belong to the line."""
    lines = ["0012:a", "9" * 5_000 + ":b", "12:c"]
    found = split_lines("\n".join(lines))
    assert found.bodies[0] == "0012:a"
    assert found.bodies[1] is not None
    assert found.numbers == {2: LineNumber("", 12, ":")}
    assert found.find_gutter(0) is None


def test_long_lines_are_hashed() -> None:
    """A line of a megabyte takes little memory, and equals itself alone."""
    one, same, other = split_lines("\n".join(["x" * 10**6, "x" * 10**6, "x" * 10**6 + "y"])).bodies
    assert one == same != other
    assert isinstance(one, bytes)
    assert len(one) == 16
