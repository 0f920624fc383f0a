"""How a change is written, everywhere that people read one: a sign, and a space before the per cent sign."""

from __future__ import annotations

from typing import Final

#: The typographic minus, as wide as a plus.
MINUS: Final = "−"


def format_signed_percent(share: float, digits: int = 1) -> str:
    """Return a share with its sign: `−74.6 %`, `+1.2 %`."""
    return f"{format_signed(100 * share, digits)} %"


def format_signed(value: float, digits: int = 1) -> str:
    """Return a number with its sign: `−74.6`, `+1.2`."""
    # What is nothing once it is rounded has no minus.
    return f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", MINUS)
