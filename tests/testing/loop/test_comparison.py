"""Paired comparisons of variants."""

from __future__ import annotations

import pytest

from elision.errors import SettingError
from elision.testing.loop.closed_loop import TaskOutcome
from elision.testing.loop.comparison import compare_variants, count_pairs, count_pairs_for_margin, format_comparisons


def outcome(variant: str, seed: int, *, solved: bool = True, usd: float = 1.0, calls: int = 10) -> TaskOutcome:
    return TaskOutcome(
        family="logs",
        seed=seed,
        variant=variant,
        prices="anthropic",
        solved=solved,
        ending="done",
        calls=calls,
        usd=usd,
        prompt_tokens=1,
        peak=1,
        recalls=0,
        rereads=0,
        wrong=0,
        rewrites=0,
    )


def test_a_variant_beside_the_baseline() -> None:
    """Shares, ratios of sums and dollars per solved task, over the tasks that both did."""
    base = [outcome("raw", seed) for seed in range(11)]
    own = [outcome("masking", seed, solved=seed > 0, usd=0.5 + 0.1 * seed, calls=11) for seed in range(10)]
    raw, masking = compare_variants([*base, *own])
    assert (raw.solved_change, raw.usd_ratio, raw.not_inferior) == (0.0, 1.0, True)
    assert masking.tasks == 10
    assert masking.solved == pytest.approx(0.9)
    assert masking.solved_change == pytest.approx(-0.1)
    assert masking.solved_interval.low < -0.1 <= masking.solved_interval.high <= 0
    assert not masking.not_inferior
    assert masking.usd_ratio == pytest.approx(0.95)
    assert masking.usd_interval.low < 0.95 < masking.usd_interval.high
    assert masking.usd_per_solved == pytest.approx(9.5 / 9)
    assert masking.calls_ratio == pytest.approx(1.1)
    assert "masking" in format_comparisons([raw, masking])


def test_nothing_to_compare_with() -> None:
    """A variant whose tasks the baseline did not do is an error that names it."""
    with pytest.raises(SettingError, match="'masking'"):
        compare_variants([outcome("raw", 1), outcome("masking", 2)])


def test_no_task_solved() -> None:
    """Without a solved task there is no price of one."""
    runs = [outcome("raw", 1, solved=False)]
    (found,) = compare_variants(runs)
    assert found.usd_per_solved is None
    assert "–" in format_comparisons([found])


@pytest.mark.parametrize(
    ("difference", "discordant", "pairs"), [(0.05, 0.11, 343), (0.05, 0.21, 657), (0.05, 0.28, 877), (0.10, 0.28, 218)]
)
def test_pairs_that_show_a_difference(difference: float, discordant: float, pairs: int) -> None:
    """The normal approximation for McNemar's test, worked out by hand."""
    assert count_pairs(difference, discordant) == pairs


def test_pairs_that_show_no_loss() -> None:
    """For a margin of 5 points at 20 % discordant pairs: 0.2 × (2.80 / 0.05)²."""
    assert count_pairs_for_margin(0.05, 0.2) == 628
    with pytest.raises(SettingError, match="at least that share"):
        count_pairs(0.3, 0.2)
