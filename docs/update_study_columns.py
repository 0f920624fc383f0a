"""Writes docs/reference/study-columns.md out of the schema of a study: `python docs/update_study_columns.py`."""

from __future__ import annotations

from pathlib import Path

from elision.study.row_schema import COLUMNS

PAGE = Path(__file__).parent / "reference" / "study-columns.md"
_INTRODUCTION = """\
# Columns of a study

`docs/update_study_columns.py` writes this page from the schema. A [study](../guides/studies.md) has a row for each run
and strategy in `rows/part-*.parquet`, in the format `elision.study/1`; a change of the columns gets another number.
Costs are in USD, sizes in tokens as they are billed. `usd / coalesce(recorded_usd, raw_usd)` is the cost as a multiple
of what was sent.

| column | type | meaning |
|---|---|---|
"""
_TYPES = {
    "hash": "integer",
    "text": "text",
    "word": "text",
    "count": "integer",
    "usd": "USD",
    "share": "number",
}


def build_page() -> str:
    """Return the whole page."""
    return _INTRODUCTION + "".join(f"| `{name}` | {_TYPES[kind]} | {meaning} |\n" for name, kind, meaning in COLUMNS)


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
