"""Usage over several upstream responses that are one response to the client."""

from __future__ import annotations

from typing import Any

from elision.providers.streaming.rounds import Json


class UsageSum:
    """The usage of all rounds. earlier: of the rounds before this one. current: of this round, None while unknown."""

    def __init__(self) -> None:
        self.earlier: Json | None = None
        self.current: Json | None = None

    def begin_round(self) -> None:
        self.earlier = add_usage(self.earlier, self.current)
        self.current = None

    def update_round(self, usage: object) -> None:
        """Take what this round has used so far, in total."""
        if isinstance(usage, dict):
            self.current = overlay_usage(self.current, usage)

    def total(self) -> Json | None:
        total: Json | None = add_usage(self.earlier, self.current)
        return total


def add_usage(first: Any, second: Any) -> Any:
    """Return two usages as one: numbers added at any depth, lists joined; anything else as the second has it."""
    if first is None:
        return second
    if second is None:
        return first
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: add_usage(first.get(key), second.get(key)) for key in {**first, **second}}
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    return first + second if _is_count(first) and _is_count(second) else second


def overlay_usage(begun: Json | None, later: Json | None) -> Json | None:
    """Return the newest totals of one response that reports its counts repeatedly; null keeps the earlier count."""
    if begun is None:
        return later
    if later is None:
        return begun
    return {**begun, **{key: value for key, value in later.items() if value is not None}}


def select_counts(usage: Json) -> Json:
    """Return `usage` without fields that are no counts, such as a service tier or a region."""
    return {key: value for key, value in usage.items() if _is_count(value) or isinstance(value, dict | list)}


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
