"""A provider's usage, whichever provider's."""

from __future__ import annotations

from typing import Any

from lacuna.dialects import anthropic, mapping_in, openai_chat, openai_responses
from lacuna.dialects.live.plain import plain
from lacuna.trajectory.usage import Usage


def usage_in(value: Any) -> Usage | None:
    """The usage that `value` is or has: ours, JSON, or an object of a provider's package; None if it has none."""
    if value is None or isinstance(value, Usage):
        return value
    counts = mapping_in(plain(value))
    if isinstance(counts.get("usage"), dict):
        counts = counts["usage"]
    if "prompt_tokens" in counts:
        return openai_chat.usage(counts)
    if "input_tokens_details" in counts:
        return openai_responses.usage(counts)
    return anthropic.usage(counts)
