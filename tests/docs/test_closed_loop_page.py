"""The page on the closed loop has the table of what is published."""

from __future__ import annotations

from docs.update_closed_loop import CHART, PAGE, fill_page, load_results


def test_the_table_is_of_the_published_results() -> None:
    """`python docs/update_closed_loop.py` would change nothing, and the chart names every strategy."""
    results = load_results()
    text = PAGE.read_text(encoding="utf-8")
    assert fill_page(text, results) == text
    drawn = CHART.read_text(encoding="utf-8")
    assert results.comparisons
    assert all(each.variant in drawn for each in results.comparisons if each.variant != "raw")
