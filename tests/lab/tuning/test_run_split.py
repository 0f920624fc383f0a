"""The split into runs to fit and runs to judge."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.lab.tuning.tuner import split_runs
from elision.testing.builders import step, trajectory
from elision.trajectory.trajectory import Trajectory


def _runs(count: int, format: str = "openai-chat") -> list[Trajectory]:
    return [
        trajectory(step(1), id=f"{format}-{number}", file=f"{format}-{number}.json", format=format)
        for number in range(count)
    ]


@given(count=st.integers(2, 40), share=st.floats(0.01, 0.99), seed=st.integers(0, 1000))
def test_each_run_is_in_one_part(count: int, share: float, seed: int) -> None:
    """Neither part is empty, and nothing is lost."""
    fit, judge = split_runs(_runs(count), share, seed)
    assert sorted([*fit, *judge]) == list(range(count))
    assert fit
    assert judge
    assert abs(len(judge) - share * count) <= 1 or len(judge) in (1, count - 1)


@given(seed=st.integers(0, 50))
def test_neither_order_nor_folder_matters(seed: int) -> None:
    """The same runs are judged wherever their files are kept."""
    runs = _runs(9)
    mixed = [replace(run, file=f"/elsewhere/{run.file}") for run in random.Random(seed).sample(runs, len(runs))]
    chosen = {runs[place].id for place in split_runs(runs, 0.3, 7)[1]}
    assert {mixed[place].id for place in split_runs(mixed, 0.3, 7)[1]} == chosen


def test_the_seed_decides() -> None:
    """Another seed makes another split."""
    assert len({tuple(split_runs(_runs(10), 0.3, seed)[1]) for seed in range(10)}) > 3


def test_every_format_is_in_both_parts() -> None:
    """Where it has enough runs."""
    runs = [*_runs(7, "swe-agent"), *_runs(6, "pi-session")]
    fit, judge = split_runs(runs, 0.3, 0)
    assert (
        {runs[place].format for place in fit}
        == {runs[place].format for place in judge}
        == {
            "swe-agent",
            "pi-session",
        }
    )


def test_one_run_cannot_be_judged() -> None:
    """The error names both mends; without judging one run is enough."""
    with pytest.raises(SpecError, match=r"two recordings or more, or --judge-share 0"):
        split_runs(_runs(1), 0.3, 0)
    assert split_runs(_runs(1), 0.0, 0) == ([0], [])


@pytest.mark.parametrize("share", [-0.1, 1.0, 2.0, float("nan")])
def test_a_share_without_meaning(share: float) -> None:
    """From 0 to below 1."""
    with pytest.raises(SpecError, match="--judge-share"):
        split_runs(_runs(3), share, 0)
