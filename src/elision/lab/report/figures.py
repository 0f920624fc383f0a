"""How numbers look in a report: few digits, one notation, a dash for what is not known."""

from __future__ import annotations

import math
import re
from textwrap import wrap

from elision.telemetry.percent import MINUS

NOTHING = "–"
#: Blanks at which no line may break: those of `96 %` and `× raw`.
_UNBROKEN = re.compile(r"(?<=\d) (?=%)|(?<=×) ")


def bind_units(text: str) -> str:
    """Return `text` with a no-break space between a number and its unit."""
    return _UNBROKEN.sub("\xa0", text)


def wrap_text(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` letters, a number and its unit on one; blanks stay plain blanks.

    For rich, which breaks lines at no-break spaces too.
    """
    return [line.replace("\xa0", " ") for line in wrap(bind_units(text), max(1, width), break_on_hyphens=False)]


def format_usd(value: float | None) -> str:
    """`$1,234`, `$12.34`, `$0.123`, `$0.0012`: two decimals, more where they would say too little."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value >= 1000:
        return f"${value:,.0f}"
    if value >= 1 or value == 0:
        return f"${value:.2f}"
    if value < 0.0001:
        return "<$0.0001"
    if value >= 0.1:
        return f"${value:.3f}"
    return f"${value:.4f}"


def format_rate(value: float) -> str:
    """USD per million tokens: `$3`, `$3.75`, `$0.30`, `$0.025`."""
    if value == int(value):
        return f"${value:,.0f}"
    digits = 2 if round(value, 2) == round(value, 6) else 3
    return f"${value:.{digits}f}"


def format_multiple(value: float | None) -> str:
    """A multiple: `0.53`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.2f}"


def format_share(share: float | None) -> str:
    """A share, at least 0: `96 %`; one decimal where a whole number would round to all or nothing."""
    if share is None or not math.isfinite(share):
        return NOTHING
    value = share * 100
    if 0 < value < 0.05:
        return "<0.1 %"
    if 99.5 <= value < 100:
        return f"{math.floor(value * 10) / 10:.1f} %"
    if 0 < value < 0.95:
        return f"{value:.1f} %"
    return f"{value:,.0f} %"


def is_unchanged(to_raw: float) -> bool:
    """Whether a multiple is shown as `±0 %`."""
    return abs(to_raw - 1) < 0.0005


def format_change(to_raw: float | None) -> str:
    """What a multiple of the price means: `−47 %`, `+7 %`, `−0.5 %`; `±0 %` for less than a twentieth of a percent."""
    if to_raw is None or not math.isfinite(to_raw):
        return NOTHING
    share = to_raw - 1
    if is_unchanged(to_raw):
        return "±0 %"
    return f"{MINUS if share < 0 else '+'}{format_share(abs(share))}"


def format_change_range(low: float, high: float) -> str:
    """What two multiples of the price mean: `−14 to +20 %`; one change where both look the same."""
    first, last = format_change(low), format_change(high)
    return first if first == last else f"{first.removesuffix(' %')} to {last}"


def format_tokens(value: int) -> str:
    """`950`, `12.3k`, `123k`, `1.2M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= 0.9995 * size:
            scaled = value / size
            if scaled < 99.95:
                return f"{scaled:.1f}{unit}"
            return f"{scaled:,.0f}{unit}"
    return str(value)


def format_count(value: int) -> str:
    return f"{value:,}"


def format_turns(value: float) -> str:
    """A number of turns: `0.4`, `14`, `1,240`."""
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}"


def format_size(count: int) -> str:
    """Bytes: `12 B`, `3.4 kB`, `56 MB`."""
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
    """A span in the largest unit that fits at least once: `3 d`, `5 h`, `40 s`; weeks from the eighth on."""
    for unit, length, least in (("w", 604_800, 8), ("d", 86_400, 1), ("h", 3_600, 1), ("min", 60, 1)):
        if seconds >= length * least:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def format_signed_usd(usd: float) -> str:
    """USD that may be negative: `−$0.12`."""
    return f"{MINUS}{format_usd(-usd)}" if usd < 0 else format_usd(usd)


def format_plural(number: int, one: str, many: str = "") -> str:
    return f"{format_count(number)} {one if number == 1 else many or one + 's'}"


def neutralize_text(text: str) -> str:
    """`text` without what could steer a terminal or turn a line around: controls, lone surrogates, bidi marks."""
    return "".join(char if char.isprintable() or char == "\xa0" else "·" for char in text)
