"""Usage over several upstream answers that are one answer to the client."""

from __future__ import annotations

from typing import Any

from elision.gateway.recalling.rounds import Json


def add_usage(first: Any, second: Any) -> Any:
    """Two usages as one: numbers added, at any depth, lists put together; anything else as the second has it."""
    if first is None or second is None:
        if first is None:
            return second
        return first
    if isinstance(first, dict) and isinstance(second, dict):
        return {key: add_usage(first.get(key), second.get(key)) for key in {**first, **second}}
    if isinstance(first, list) and isinstance(second, list):
        return [*first, *second]
    if _is_count(first) and _is_count(second):
        return first + second
    return second


def overlay_usage(begun: Json | None, later: Json | None) -> Json | None:
    """The usage of one answer whose counts are reported again, in total, as it goes on; null says nothing new."""
    if begun is None or later is None:
        if later is None:
            return begun
        return later
    return {**begun, **{key: value for key, value in later.items() if value is not None}}


def select_counts(usage: Json) -> Json:
    """Without what is no count (a service tier, a region)."""
    return {key: value for key, value in usage.items() if _is_count(value) or isinstance(value, dict | list)}


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
