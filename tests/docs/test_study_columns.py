"""The page on the columns of a study is the one that its script writes."""

from __future__ import annotations

from docs.update_study_columns import PAGE, build_page


def test_the_page_is_current() -> None:
    """`python docs/update_study_columns.py` would change nothing."""
    assert PAGE.read_text(encoding="utf-8") == build_page()
