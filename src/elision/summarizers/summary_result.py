"""A summary with what its writing used: the answer of a summarizer that knows its own bill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from elision.errors import Billed, SummaryError

#: Tokens, or USD, that no summary takes: a larger figure is a mistake, and sums of it would overflow.
_LARGEST: Final = 10**12
_LONGEST_NAME: Final = 400
_ROUTES: Final = ("fresh", "extend", "model-free")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """A candidate.

    input, cached, output: tokens of all calls that it took (cached is part of input); 0 where they are not known.
    usd:      their cost, None where the price is not known.
    route:    "fresh" or "extend", as the request was really sent; "model-free".
    attempts: calls that it took. redacted: secrets that were taken out.
    covers:   turns 1 ... covers, where it was written for fewer than are requested now; 0 for all.
    seconds:  that it took, 0 where not measured.
    writer:   the model that wrote it, "" for none or where it is not known.
    """

    text: str
    input: int = 0
    cached: int = 0
    output: int = 0
    usd: float | None = None
    route: str = "fresh"
    attempts: int = 1
    redacted: int = 0
    covers: int = 0
    seconds: float = 0.0
    writer: str = ""


def parse_answer(answer: object) -> SummaryResult:
    """Return what a summarizer answered as a `SummaryResult`; a plain text becomes one with an unknown bill.

    Raises SummaryError ("malformed") for any other type, and for a `SummaryResult` with an invalid field: neither the
    view nor the bill may contain it.
    """
    if isinstance(answer, str):
        return SummaryResult(text=answer)
    if not isinstance(answer, SummaryResult):
        kind = type(answer).__name__
        raise SummaryError(f"the summarizer answered with a {kind}; give str or SummaryResult", cause="malformed")
    if wrong := _find_wrong_field(answer):
        raise SummaryError(f"the summarizer answered with a SummaryResult whose {wrong}", cause="malformed")
    return answer


def has_sound_usage(billed: Billed) -> bool:
    """Return whether tokens and USD of `billed`, which a summarizer reported, are figures that may be added up."""
    return not _find_wrong_usage(billed)


def _find_wrong_field(written: SummaryResult) -> str:
    if not isinstance(written.text, str):
        return f"text is a {type(written.text).__name__}; give str"
    if not isinstance(written.writer, str) or len(written.writer) > _LONGEST_NAME:
        return f"writer is {_describe(written.writer)}; give the model's name, at most {_LONGEST_NAME} characters"
    if written.route not in _ROUTES:
        return f"route is {_describe(written.route)}; give {', '.join(_ROUTES)}"
    for name in ("attempts", "redacted", "covers"):
        if not _is_count(getattr(written, name)):
            return f"{name} is {_describe(getattr(written, name))}; give a whole number, 0 or more"
    if not _is_amount(written.seconds):
        return f"seconds is {_describe(written.seconds)}; give a number, 0 or more"
    return _find_wrong_usage(written)


def _find_wrong_usage(billed: object) -> str:
    counts = {name: getattr(billed, name, None) for name in ("input", "cached", "output")}
    for name, count in counts.items():
        if not _is_count(count):
            return f"{name} is {_describe(count)}; give tokens, 0 or more"
    if counts["cached"] > counts["input"]:  # type: ignore[operator]
        return f"cached ({counts['cached']}) is more than input ({counts['input']}), of which it is a part"
    usd = getattr(billed, "usd", None)
    if usd is not None and not _is_amount(usd):
        return f"usd is {_describe(usd)}; give USD, 0 or more, or None"
    return ""


def _describe(value: object) -> str:
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 - a value of others, or a number too long to be printed
        return f"a {type(value).__name__} that cannot be shown"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def _is_amount(value: object) -> bool:
    """Return whether `value` is a finite number of 0 or more; a comparison with NaN is never true."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LARGEST
