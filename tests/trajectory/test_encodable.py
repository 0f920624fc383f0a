"""Foreign text that every later request will hold can be encoded, and steers no terminal."""

from __future__ import annotations

import pytest

from elision.trajectory.foreign_text import make_encodable, remove_controls


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("plain", "plain"),
        ("grün 😀", "grün 😀"),
        ("cut \ud83d", "cut \ufffd"),
        ("\udcffraw", "\ufffdraw"),
        ("\ud83d\ude00 in two halves", "😀 in two halves"),
        ("\ufeffwith a mark \ud800", "\ufeffwith a mark \ufffd"),
        ("", ""),
    ],
)
def test_every_text_can_be_encoded(text: str, made: str) -> None:
    """Half of a surrogate pair has no UTF-8; what has is left as it is."""
    assert make_encodable(text) == made
    made.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("a\tb\r\nc\n", "a\tb\r\nc\n"),
        ("nul\x00 bell\x07", "nul bell"),
        ("\x1b[2J\x1b[31;1mred\x1b[0m", "red"),
        ("c1 \x9b31m, delete \x7f", "c1 31m, delete "),
        ("\x1b" * 3, ""),
        ("grün\u00a0😀", "grün\u00a0😀"),
    ],
)
def test_no_control_stays(text: str, made: str) -> None:
    """Line ends and tabs do; what a terminal would obey does not."""
    assert remove_controls(text) == made
