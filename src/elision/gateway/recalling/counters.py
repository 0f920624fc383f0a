"""Usage over several upstream answers that are one answer to the client."""

from __future__ import annotations

from typing import Any

from elision.gateway.recalling.outcome import Json


def summed(first: Any, second: Any) -> Any:
    """Two usages as one: numbers added, at any depth, lists put together; anything else as the second has it."""
    if first is None or second is None:
        if first is None:
            return second
        return first
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: summed(first.get(key), second.get(key)) for key in {**first, **second}}
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    if _counts(first) and _counts(second):
        return first + second
    return second


def overlaid(begun: Json | None, later: Json | None) -> Json | None:
    """The usage of one answer whose counts are reported again, in total, as it goes on; null says nothing new."""
    if begun is None or later is None:
        if later is None:
            return begun
        return later
    return {**begun, **{key: value for key, value in later.items() if value is not None}}


def counters(usage: Json) -> Json:
    """Without what is no count (a service tier, a region)."""
    return {key: value for key, value in usage.items() if _counts(value) or isinstance(value, dict | list)}


def _counts(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
