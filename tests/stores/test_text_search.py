"""What a search shows of a text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.stores.store_base import WIDTH, make_excerpt, split_words


def test_words_are_runs_of_letters_digits_and_underscores() -> None:
    """Folded, in order, as often as they stand there."""
    assert split_words("Foo_bar(1), STRASSE/straße -- foo_bar 🗿") == ["foo_bar", "1", "strasse", "strasse", "foo_bar"]


def test_a_short_text_is_its_own_excerpt() -> None:
    """On one line."""
    assert make_excerpt("one\n\n  two\tthree ", ["two"]) == "one two three"


def test_an_excerpt_is_around_the_longest_word() -> None:
    """A short one stands anywhere; cut ends are marked."""
    text = "a is here " + "x" * 500 + " needle " + "y" * 500
    found = make_excerpt(text, ["a", "needle"])
    assert found.startswith("…")
    assert found.endswith("…")
    assert "needle" in found
    assert "here" not in found


@given(st.text(max_size=400), st.text(max_size=10))
def test_an_excerpt_is_one_short_line(text: str, query: str) -> None:
    """Whatever the text and the words."""
    found = make_excerpt(text, split_words(query))
    assert len(found) <= WIDTH + 2
    assert len(found.splitlines()) <= 1
