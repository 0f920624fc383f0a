"""A summary with what its writing used: the answer of a summarizer that knows its own bill."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A candidate.

    input, cached, output: tokens of all calls that it took (cached is part of input); 0 where they are not known.
    usd:      their cost, None where the price is not known.
    route:    "fresh" or "extend", as the request was really sent; "model-free".
    attempts: calls that it took. redacted: secrets that were taken out on the way.
    covers:   turns 1 ... covers, where it was written for fewer than are asked for now; 0 for all.
    seconds:  it took, 0 where nobody looked.
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
