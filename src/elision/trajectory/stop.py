"""Why a run should end: what guards say, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A guard says that the run must end: "max_turns" or "max_cost_usd", the limit and the value that reached it."""

    guard: str
    limit: float
    value: float

    def __str__(self) -> str:
        return f"{self.guard}: {self.value:g} of {self.limit:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopHint:
    """The run seems to make no progress. turns: for how many; why: a sentence."""

    turns: int
    why: str

    def __str__(self) -> str:
        return f"no progress for {self.turns} turns: {self.why}"
