"""Vega, which draws pictures and pages without a browser: the one place that needs vl-convert."""

from __future__ import annotations

from typing import Any

from elision.errors import MissingExtra


def load_vega() -> Any:
    """The module vl_convert. Raises MissingExtra without it."""
    try:
        import vl_convert
    except ImportError:
        raise MissingExtra("a chart", "report") from None
    return vl_convert
