"""A fit of how a model counts: it finds what growths were made with, clipped results and all, or says nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.lab.recorded_requests import LEAST_CALLS, PromptGrowth, fit_growth
from elision.trajectory.tokens import Tokenizer


def grow(count: int, per_output: float = 1.0, per_counted: float = 1.25) -> list[PromptGrowth]:
    """Growths of calls of many sizes."""
    sizes = [(50 + 37 * number % 400, 20 + 911 * number % 5_000) for number in range(count)]
    return [PromptGrowth(round(per_output * out + per_counted * read), out, read) for out, read in sizes]


@given(st.floats(0.1, 2.0), st.floats(0.5, 3.0), st.integers(LEAST_CALLS, 200))
def test_the_numbers_are_found(per_output: float, per_counted: float, count: int) -> None:
    """Growths that were made with two numbers give those numbers."""
    found = fit_growth(grow(count, per_output, per_counted))
    assert found is not None
    assert found.per_output == pytest.approx(per_output, abs=0.02)
    assert found.per_counted == pytest.approx(per_counted, abs=0.002)
    assert found.explained > 0.999


def test_clipped_results_do_not_move_the_fit() -> None:
    """Of 60 results the agent clipped two: those calls fit worst and are left out."""
    growths = grow(60)
    growths[7] = PromptGrowth(10_000, 100, 52_000)
    growths[31] = PromptGrowth(10_000, 100, 48_000)
    found = fit_growth(growths)
    assert found is not None
    assert found.calls == 57
    assert (found.per_output, found.per_counted) == pytest.approx((1.0, 1.25), abs=0.01)


def test_too_few_calls() -> None:
    """From a few calls nothing is said."""
    assert fit_growth(grow(LEAST_CALLS - 1)) is None


def test_output_that_cannot_be_held_apart() -> None:
    """Where results are always a multiple of the output, one number cannot be told from the other."""
    assert fit_growth(PromptGrowth(3 * size, size, 2 * size) for size in range(1, 60)) is None


def test_json_shows_the_table() -> None:
    """The fit stands beside what the table of prices has."""
    found = fit_growth(grow(40))
    assert found is not None
    shown = found.to_json(Tokenizer(name="one", tokens_per_counted=1.2, output_sent_again=True))
    assert shown["tokens_per_counted"] == pytest.approx(1.25, abs=0.01)
    assert shown["table"] == {"tokenizer": "one", "tokens_per_counted": 1.2, "output_sent_again": True}
