"""Figures of ours on the provider's scale."""

from __future__ import annotations

from msgspec.structs import replace

from elision.engine import make_plain_terms
from elision.strategies.decision_context import DecisionContext
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
