"""The columns of a study on their page are those that the script writes."""

from __future__ import annotations

from docs.update_study_columns import PAGE, build_table, fill_page


def test_the_page_is_current() -> None:
    """`python docs/update_study_columns.py` would change nothing."""
    text = PAGE.read_text(encoding="utf-8")
    assert fill_page(text) == text
    assert build_table() in text
