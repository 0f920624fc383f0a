"""Room for reasoning: it grows to a ceiling, comes down, and counts what happens at once only once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.summarizers.model_summarizer import FIRST, ReasoningBudget


def test_it_doubles_up_to_its_ceiling() -> None:
    """From nothing to a first step, then twice what was not enough."""
    room, seen = ReasoningBudget(0), []
    for _ in range(5):
        room.grow(room.tokens, 50_000)
        seen.append(room.tokens)
    assert seen == [FIRST, 2 * FIRST, 4 * FIRST, 50_000, 50_000]


def test_what_it_comes_down_to() -> None:
    """Twice what was needed, by half at most, and never less than at first."""
    room = ReasoningBudget(1_000)
    room.grow(20_000, 50_000)
    seen = []
    for needed in (15_000, 30_000, 0, 0, 0, 0, 0, 0):
        room.shrink(needed)
        seen.append(room.tokens)
    assert seen == [30_000, 30_000, 15_000, 7_500, 3_750, 1_875, 1_000, 1_000]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 10**6)), max_size=40), st.integers(0, 10_000))
def test_it_stays_within_its_bounds(steps: list[tuple[bool, int]], least: int) -> None:
    """Whatever happens, in any order."""
    room = ReasoningBudget(least)
    for grows, tokens in steps:
        if grows:
            room.grow(min(tokens, room.tokens), 40_000)
        else:
            room.shrink(tokens)
        assert least <= room.tokens <= max(least, 40_000)
