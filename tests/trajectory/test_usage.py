"""Recorded usage in one normal form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.trajectory.usage import ModelUsage, Usage

counts = st.integers(0, 10**9)


@given(input=counts, read=counts, write=counts, output=counts)
def test_both_ways_of_counting_meet(input: int, read: int, write: int, output: int) -> None:
    """A prompt total that includes cache reads and writes says the same as one that excludes them."""
    exclusive = Usage(input=input, cache_read=read, cache_write=write, output=output)
    inclusive = Usage.from_inclusive(prompt=input + read + write, output=output, cache_read=read, cache_write=write)
    assert inclusive == exclusive
    assert exclusive.prompt == input + read + write


def test_a_total_below_its_parts() -> None:
    """A provider's total smaller than its cache read leaves no negative input."""
    assert Usage.from_inclusive(prompt=5, cache_read=9, output=1).input == 0


def test_an_hour_is_part_of_what_was_written() -> None:
    """More cannot be kept for an hour than was written at all."""
    with pytest.raises(ValueError, match="cache_write_1h"):
        Usage(cache_write=5, cache_write_1h=6)
    assert Usage.from_inclusive(prompt=9, cache_write=5, cache_write_1h=6, output=0).cache_write_1h == 5


def test_a_sum_is_of_all_that_is_billed() -> None:
    """Tiers and the parts of other models add up as well; no single prompt was sent for both."""
    one = Usage(input=1, cache_write=9, cache_write_1h=4, first_prompt=3, others=(ModelUsage("m", Usage(input=1)),))
    both = one + one
    assert (both.prompt, both.cache_write_1h, both.first_prompt, len(both.others)) == (20, 8, 0, 2)
    assert (one.sent_prompt, both.sent_prompt) == (3, 20)


@pytest.mark.parametrize("name", ["input", "cache_read", "cache_write", "output"])
def test_negative_counts(name: str) -> None:
    """A negative count is refused by name."""
    with pytest.raises(ValueError, match=f"{name} is negative"):
        Usage(**{name: -1})
