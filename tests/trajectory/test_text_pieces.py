"""Large texts are gone through in pieces, with the same result as in one call."""

from __future__ import annotations

import re
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.extractors import command
from elision.trajectory import foreign_text
from elision.trajectory.foreign_text import digest_text, encode_pieces, iter_line_matches, search_pieces, split_text

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
