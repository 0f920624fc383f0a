"""What a notebook shows of a view or a report."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def draw_value(value: Any) -> str:
    """Return a value as HTML: a sentence, a chart and a table.

    The lab draws, which imports what is below it. So it is loaded here by name, and only when a notebook asks.
    """
    text: str = import_module("elision.lab.report.notebook").draw_value(value)
    return text
