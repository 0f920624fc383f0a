"""Writes the table of settings into docs/reference/settings.md: `python docs/update_settings.py`."""

from __future__ import annotations

import re
from pathlib import Path

from elision.config.setting_keys import ALL_KEYS, Key
from elision.strategies.decision_context import Budget

PAGE = Path(__file__).parent / "reference" / "settings.md"
_TABLE = re.compile(r"(<!-- table: settings -->\n).*?(<!-- end -->)", re.DOTALL)


def fill_page(text: str) -> str:
    """Return the page's text with the table anew."""
    return _TABLE.sub(lambda found: f"{found[1]}\n{build_table()}\n{found[2]}", text)


def build_table() -> str:
    """Return a row for each setting."""
    rows = (f"| `{key.name}` | {_format_default(key)} | {key.meaning} |\n" for key in ALL_KEYS.values())
    return "| setting | default | meaning |\n|---|---|---|\n" + "".join(rows)


def _format_default(key: Key) -> str:
    default = key.default
    if key.options and key.name != "strategy":
        group, _, option = key.options.split()[0].partition(".")
        if group != "budget":
            return "the strategy's"
        default = getattr(Budget(), option)
    if default in (None, ()):
        return "none"
    if isinstance(default, str):
        return f"`{default}`"
    if isinstance(default, bool) or not key.counts:
        return str(default).lower()
    return f"{default:,}".removesuffix(".0")


if __name__ == "__main__":
    PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
