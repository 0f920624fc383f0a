"""A provider's usage, whichever provider's."""

from __future__ import annotations

from typing import Any

from elision.errors import DialectError
from elision.providers.live.client_messages import convert_to_json
from elision.providers.provider_table import PROVIDERS
from elision.trajectory.usage import Usage


def find_usage(value: Any) -> Usage | None:
    """Return the usage that `value` is or has: ours, JSON, or an object of a provider's package; None if it has none.

    Chunks and events of a stream may have one too. Raises DialectError for what can have none: a text, a stream.
    """
    if value is None or isinstance(value, Usage):
        return value
    counts = convert_to_json(value)
    if not isinstance(counts, dict):
        raise DialectError(
            f"record: {type(value).__name__} reports no usage; give the response or its usage, and of a stream the "
            'last chunk (OpenAI chat: with stream_options={"include_usage": True}) or the final message'
        )
    if isinstance(counts.get("response"), dict):
        # The last event of a stream of the Responses API.
        counts = counts["response"]
    for provider in PROVIDERS.values():
        for name in provider.usage_fields:
            if isinstance(counts.get(name), dict):
                return find_usage(counts[name])
    for provider in PROVIDERS.values():
        if not provider.usage_signs.isdisjoint(counts):
            return provider.parse_usage(counts)
    return None
