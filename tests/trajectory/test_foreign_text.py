"""Text of others: it can be encoded, steers no terminal, never raises, and is the same piece by piece."""

from __future__ import annotations

import re
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.extractors import command
from elision.trajectory import foreign_text
from elision.trajectory.foreign_text import (
    digest_text,
    encode_pieces,
    iter_line_matches,
    make_encodable,
    parse_json,
    parse_object,
    remove_controls,
    search_pieces,
    split_text,
)


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a": "\\ud800"}', {"a": "\ud800"}),
        ('{"a": Infinity}', {"a": float("inf")}),
        ("[1]", None),
        ("", None),
        (b"\xff", None),
        ("[" * 100_000, None),
        ('{"a": ' * 100_000, None),
    ],
)
def test_objects_are_read(text: str | bytes, expected: object) -> None:
    """Anything else is None."""
    assert parse_object(text) == expected


@given(st.text() | st.binary())
def test_nothing_raises(text: str | bytes) -> None:
    """Whatever it is."""
    parse_json(text)


#: Characters of a piece in these tests.
SMALL = 5
TEXTS = st.text(alphabet="ab\n é中😀\ud83d", max_size=40)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_text, "PIECE", SMALL)
    monkeypatch.setattr(split_text, "__defaults__", (SMALL,))


@given(TEXTS)
def test_pieces_are_the_whole(text: str) -> None:
    """Their bytes and their digest are those of one call, lone surrogates and all."""
    assert "".join(split_text(text, SMALL)) == text
    assert all(len(piece) <= SMALL for piece in split_text(text, SMALL))
    whole = text.encode("utf-8", "surrogatepass")
    assert b"".join(encode_pieces(text)) == whole
    assert digest_text(text) == blake2b(whole, digest_size=16).digest()


@given(TEXTS, st.sampled_from(["ab", "a{1,4}b", r"\n ?a"]))
def test_a_search_finds_what_a_search_of_the_whole_finds(text: str, expression: str) -> None:
    """Also across the edge of a piece, where a match is no longer than is said."""
    pattern = re.compile(expression)
    found = search_pieces(pattern, text, longest=5)
    whole = pattern.search(text)
    assert (found and found.span()) == (whole and whole.span())


@pytest.mark.parametrize("at", range(3 * SMALL))
def test_a_mark_of_truncation_is_found_wherever_it_stands(at: int) -> None:
    """Across the edges of pieces."""
    assert command.qualify_count("3 matches", "x" * at + "[120 lines omitted]\n" + "y" * 9) == "shown: 3 matches"
    assert command.qualify_count("3 matches", "x" * at + "[120 lines]\n" + "y" * 9) == "3 matches"


@given(TEXTS, st.integers(0, 5))
def test_matches_in_lines_are_those_of_the_whole(text: str, start: int) -> None:
    pattern = re.compile(r"\n ?(a+)(b|$)")
    found = [match.span() for match in iter_line_matches(pattern, text, start)]
    assert found == [match.span() for match in pattern.finditer(text, start)]
