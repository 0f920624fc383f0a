"""What a strategy may know: our figures on the provider's scale, and how large a view may be."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from elision.engine import make_plain_terms
from elision.errors import SpecError
from elision.strategies.decision_context import Budget, DecisionContext, apply_learned_window
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import TokenScale
from tests.properties.builders import begin_session


def make_context(scale: TokenScale | None) -> DecisionContext:
    return replace(begin_session("masking").make_context(make_plain_terms()), scale=scale)


def test_a_limit_is_the_providers() -> None:
    """Half of ours where it counts twice as much; never below a quarter, however odd its report was."""
    scale = TokenScale()
    assert make_context(None).scale_view(1_000) == 1_000
    scale.add_report(1_000, 2_000, extends=False)
    assert make_context(scale).scale_view(1_000) == 500
    scale.add_report(100, 40_000, extends=False)
    assert make_context(scale).scale_view(8_000) == 2_000


def test_a_part_is_the_providers() -> None:
    """At the rate by which prompts grow, whatever the prompt has that we do not see."""
    assert make_context(None).scale_part(130) == 130
    assert make_context(TokenScale(expected_rate=1.3)).scale_part(130) == 100
    assert make_context(TokenScale(1.3, counted_tokens=100, billed_tokens=40_000)).scale_part(131) == 101


def prices(window: int | None = None, *tiers: tuple[int, float]) -> Prices:
    rates = tuple((start, Rates(input=input, output=input)) for start, input in ((0, 1.0), *tiers))
    return Prices(name="x", tiers=rates, cache=CacheRules(), window=window)


def test_usable() -> None:
    """floor(budget x max_context_pct) - reserved."""
    assert Budget(tokens=10_001).limit_view(prices()) == 7_500
    assert Budget(tokens=10_000, max_context_pct=1, reserved=0).limit_view(prices()) == 10_000


def test_the_default_is_the_window() -> None:
    """Without a number the model's window is the budget; without a window nothing limits the view."""
    assert Budget().limit_view(prices(200_000)) == 169_000
    assert Budget().limit_view(prices()) is None


def test_the_default_stays_under_a_price_cliff() -> None:
    """Where the price jumps below the window, the budget ends there; a small step is no cliff."""
    assert Budget().limit_view(prices(1_000_000, (200_000, 2.0))) == 169_000
    assert Budget().limit_view(prices(1_000_000, (200_000, 1.5))) == 849_000
    assert Budget().limit_view(prices(None, (100_000, 2.0))) == 84_000
    assert Budget().limit_view(prices(50_000, (100_000, 2.0))) == 41_500


def test_a_number_of_one_s_own() -> None:
    """A budget that is given wins over the model's."""
    assert (
        Budget(tokens=300_000, reserved=0, max_context_pct=1).limit_view(prices(1_000_000, (200_000, 2.0))) == 300_000
    )


def test_nothing_left() -> None:
    """A budget that its reserve eats is an error with the numbers."""
    with pytest.raises(SpecError, match="a budget of 1000 tokens leaves nothing behind 1000 reserved"):
        Budget(tokens=1_000).limit_view(prices())


@pytest.mark.parametrize(
    "options",
    [
        {"tokens": 0},
        {"tokens": -5},
        {"max_context_pct": 0.0},
        {"max_context_pct": 1.1},
        {"max_context_pct": math.nan},
        {"low": 0.0},
        {"low": math.nan},
        {"low": math.inf},
        {"soft": 0.0},
        {"soft": 1.5},
        {"soft": math.nan},
        {"reserved": -1},
        {"min_window": 0},
    ],
)
def test_values_without_meaning(options: dict[str, float]) -> None:
    """A budget without meaning is refused by name."""
    with pytest.raises(SpecError, match=f"budget\\({next(iter(options))}="):
        Budget(**options)  # type: ignore[arg-type]


def test_a_learned_window() -> None:
    """What the provider stated stands in place of what the table says, in both directions, and the source tells."""
    for known in (None, 100_000, 1_000_000):
        found = apply_learned_window(prices(known, (100_000, 1.5)), 200_000)
        assert found.window == 200_000
        assert "as the provider stated it" in found.source
        assert found.tiers == prices(known, (100_000, 1.5)).tiers
        assert Budget().limit_view(found) == 169_000


def test_a_learned_window_limits_a_budget_of_one_s_own() -> None:
    """Not even a budget that was given passes the window that the provider stated."""
    budget = Budget(tokens=500_000, reserved=0, max_context_pct=1)
    assert budget.limit_view(apply_learned_window(prices(), 200_000)) == 200_000


def test_learning_what_is_known() -> None:
    """The same window again changes nothing, and a window that is none is refused."""
    once = apply_learned_window(prices(), 200_000)
    assert apply_learned_window(once, 200_000) is once
    with pytest.raises(SpecError, match="a window of 0 tokens"):
        apply_learned_window(prices(), 0)
