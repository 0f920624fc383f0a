"""Writes the columns of a study into docs/reference/json.md: `python docs/update_study_columns.py`."""

from __future__ import annotations

import re
from pathlib import Path

from elision.study.row_schema import COLUMNS

PAGE = Path(__file__).parent / "reference" / "json.md"
_TABLE = re.compile(r"(<!-- table: study-columns -->\n).*?(<!-- end -->)", re.DOTALL)
#: Types that are named; the others are integers.
_TYPES = {"text": " (text)", "word": " (text)", "usd": " (USD)", "share": " (number)"}


def fill_page(text: str) -> str:
    """Return the page's text with the table anew."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{build_table()}\n{found[2]}", text)


def build_table() -> str:
    """Return a line for each column."""
    return "".join(f"- `{name}`{_TYPES.get(kind, '')}: {meaning}\n" for name, kind, meaning in COLUMNS)


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
