"""What a summarizer may answer: anything else is told as malformed, before it reaches the view or the bill."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elision.errors import SummaryError
from elision.summarizers.summary_checks import SummaryResult, has_sound_usage, parse_answer

GOOD = SummaryResult(text="They were done.", input=900, cached=100, output=20, usd=0.5, covers=3, seconds=1.5)

#: Fields of a `SummaryResult` that have no meaning, and what the error names.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no text": ({"text": None}, "text is a NoneType"),
    "bytes": ({"text": b"x"}, "text is a bytes"),
    "less than no tokens": ({"input": -5}, "input is -5"),
    "tokens in words": ({"input": "5"}, "input is '5'"),
    "half a token": ({"output": 0.5}, "output is 0.5"),
    "true tokens": ({"output": True}, "output is True"),
    "tokens without end": ({"output": 10**5_000}, "output is a int that cannot be shown"),
    "more read than sent": ({"cached": 901}, "cached"),
    "no number": ({"usd": float("nan")}, "usd is nan"),
    "endless costs": ({"usd": float("inf")}, "usd is inf"),
    "earned money": ({"usd": -1.0}, "usd is -1.0"),
    "costs in words": ({"usd": "0.5"}, "usd is '0.5'"),
    "turns before the first": ({"covers": -1}, "covers is -1"),
    "an unknown route": ({"route": "by hand"}, "route is 'by hand'"),
    "seconds that are none": ({"seconds": float("nan")}, "seconds is nan"),
    "calls in words": ({"attempts": "two"}, "attempts is 'two'"),
}


def test_what_has_a_meaning_stays_as_it_is() -> None:
    """A `SummaryResult` comes back, and a text is one whose bill nobody knows."""
    assert parse_answer(GOOD) is GOOD
    assert parse_answer("They were done.") == SummaryResult(text="They were done.")
    assert parse_answer(replace(GOOD, usd=0)).usd == 0


@pytest.mark.parametrize("answer", [None, 42, b"x", ["x"], {"text": "x"}], ids=repr)
def test_another_type_is_malformed(answer: object) -> None:
    """The error names what came instead."""
    with pytest.raises(SummaryError, match=f"a {type(answer).__name__}; give str or SummaryResult") as caught:
        parse_answer(answer)
    assert caught.value.cause == "malformed"


@pytest.mark.parametrize(("fields", "told"), WRONG.values(), ids=WRONG)
def test_a_field_without_a_meaning_is_malformed(fields: dict[str, Any], told: str) -> None:
    """The error names the field and what it is."""
    with pytest.raises(SummaryError) as caught:
        parse_answer(replace(GOOD, **fields))
    assert caught.value.cause == "malformed"
    assert told in str(caught.value)


def test_usage_of_a_failed_summary_is_looked_at_too() -> None:
    """Only figures that may be added up are sound; an object without them is not."""
    assert has_sound_usage(GOOD)
    assert not has_sound_usage(replace(GOOD, usd=float("nan")))
    assert not has_sound_usage(replace(GOOD, input=None))  # type: ignore[arg-type]
    assert not has_sound_usage(object())  # type: ignore[arg-type]
