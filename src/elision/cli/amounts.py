"""Sizes and spans of time, as people read and write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from elision.errors import SettingError

_SIZES: Final[Mapping[str, int]] = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SPANS: Final[Mapping[str, float]] = {"s": 1, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_AMOUNT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)


def parse_size(text: str, option: str) -> int:
    """Bytes: 2GB, 500 MB, 1GiB. Raises SettingError."""
    return int(_parse_amount(text, option, _SIZES, "2GB, 500MB, 1GiB"))


def parse_duration(text: str, option: str) -> float:
    """Seconds: 30d, 12h, 2w. Raises SettingError."""
    return _parse_amount(text, option, _SPANS, "30d, 12h, 2w")


def _parse_amount(text: str, option: str, units: Mapping[str, float], examples: str) -> float:
    found = _AMOUNT.fullmatch(text)
    if not found or found[2].lower() not in units:
        raise SettingError(f"{option} {text!r}: give a number with a unit, as in {examples}")
    return float(found[1]) * units[found[2].lower()]


def format_size(count: int) -> str:
    """12 B, 3.4 kB, 56 MB."""
    value = float(count)
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value = value / 1_000
        unit = larger
    if unit == "B" or value >= 9.95:
        return f"{value:.0f} {unit}"
    return f"{value:.1f} {unit}"


def format_duration(seconds: float) -> str:
    """The largest unit that fits at least once: 3 d, 5 h, 40 s."""
    for unit in ("w", "d", "h", "min"):
        if seconds >= _SPANS[unit] * (8 if unit == "w" else 1):
            return f"{seconds / _SPANS[unit]:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
