"""A fit of how a model counts tokens: what prompts grew by, from what it wrote and from what we count of what it read.

Growth from one call to the next = `per_output` x reported output + `per_counted` x our count of tool results and of the
user's words. Both numbers are found by least squares, once over all calls and once more without those that fit worst:
an agent that clips a result, or changes its settings, sends something else than what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.trajectory.tokenizer import Tokenizer

#: Calls that a fit needs at least.
LEAST_CALLS: Final = 20
#: Share of the calls that are left out as those that fit worst.
LEFT_OUT: Final = 0.05


@dataclass(frozen=True, slots=True)
class PromptGrowth:
    """What one call added to the prompt of the call before, in tokens.

    billed: as the provider counts. output: the reported output of the call before. counted: of what was read, by our
    count.
    """

    billed: int
    output: int
    counted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenFit:
    """The two numbers, from how many calls they are, and the share of the variation that they explain."""

    per_output: float
    per_counted: float
    calls: int
    explained: float

    def to_json(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the fit beside what the table of prices has."""
        return {
            "tokens_per_counted": self.per_counted,
            "tokens_per_output": self.per_output,
            "explained": self.explained,
            "calls": self.calls,
            "table": {
                "tokenizer": tokenizer.name,
                "tokens_per_counted": tokenizer.tokens_per_counted,
                "output_sent_again": tokenizer.output_sent_again,
            },
        }


def fit_growth(growths: Iterable[PromptGrowth]) -> TokenFit | None:
    """Return the fit; None for fewer than `LEAST_CALLS` calls, or where output and results cannot be held apart."""
    known = [growth for growth in growths if growth.counted > 0 and growth.billed > 0]
    if len(known) < LEAST_CALLS:
        return None
    # The first time every call weighs the same, or one clipped result of 50,000 tokens would decide.
    rough = _fit_least_squares(known, [1 / (growth.output + growth.counted) for growth in known])
    if rough is None:
        return None
    known.sort(key=lambda growth: abs(growth.billed - rough[0] * growth.output - rough[1] * growth.counted))
    kept = known[: len(known) - round(LEFT_OUT * len(known))]
    found = _fit_least_squares(kept, [1.0] * len(kept))
    if found is None:
        return None
    return TokenFit(
        per_output=found[0], per_counted=found[1], calls=len(kept), explained=_measure_explained(kept, *found)
    )


def _fit_least_squares(growths: Sequence[PromptGrowth], weights: Sequence[float]) -> tuple[float, float] | None:
    """Solve the normal equations of two unknowns, without a constant. weights: of each growth, before it is squared."""
    output_squares = counted_squares = mixed = by_output = by_counted = 0.0
    for growth, weight in zip(growths, weights, strict=True):
        billed, output, counted = growth.billed * weight, growth.output * weight, growth.counted * weight
        output_squares += output * output
        counted_squares += counted * counted
        mixed += output * counted
        by_output += output * billed
        by_counted += counted * billed
    determinant = output_squares * counted_squares - mixed * mixed
    if determinant <= 1e-9 * output_squares * counted_squares:
        return None
    per_output = (by_output * counted_squares - by_counted * mixed) / determinant
    per_counted = (by_counted * output_squares - by_output * mixed) / determinant
    return per_output, per_counted


def _measure_explained(growths: Sequence[PromptGrowth], per_output: float, per_counted: float) -> float:
    mean = sum(growth.billed for growth in growths) / len(growths)
    spread = sum((growth.billed - mean) ** 2 for growth in growths)
    missed = sum((growth.billed - per_output * growth.output - per_counted * growth.counted) ** 2 for growth in growths)
    return 1 - missed / spread if spread else 1.0
