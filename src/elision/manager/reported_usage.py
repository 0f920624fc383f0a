"""A provider's usage, whichever provider's, and as agent frameworks report it."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from elision.errors import DialectError
from elision.providers.live.client_messages import convert_to_json
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.json_reading import Json, count_in, mapping_in
from elision.trajectory.usage import Usage


def find_usage(value: Any) -> Usage | None:
    """Return the usage that `value` is or has: ours, JSON, or an object of a provider's package; None if it has none.

    It may also be LangChain's `usage_metadata`, or Pydantic AI's `RequestUsage`, or a message that has it.
    Chunks and events of a stream may have one too. Raises DialectError for what can have none: a text, a stream.
    """
    if value is None or isinstance(value, Usage):
        return value
    counts = convert_to_json(_convert_dataclass(value))
    if not isinstance(counts, dict):
        raise DialectError(
            f"record: {type(value).__name__} reports no usage; give the response or its usage, and of a stream the "
            'last chunk (OpenAI chat: with stream_options={"include_usage": True}) or the final message'
        )
    negative = next((name for name, count in counts.items() if isinstance(count, int) and count < 0), None)
    if negative is not None:
        raise DialectError(f"record: {negative} is {counts[negative]}; give the usage as the provider reported it")
    if isinstance(counts.get("response"), dict):
        # The last event of a stream of the Responses API.
        counts = counts["response"]
    for provider in PROVIDERS.values():
        for name in provider.usage_fields:
            if isinstance(counts.get(name), dict):
                return find_usage(counts[name])
    if "input_tokens" in counts:
        if "cache_read_tokens" in counts:
            return _parse_pydantic_ai(counts)
        if "input_token_details" in counts or ("total_tokens" in counts and "input_tokens_details" not in counts):
            return _parse_langchain(counts)
    for provider in PROVIDERS.values():
        if not provider.usage_signs.isdisjoint(counts):
            return provider.parse_usage(counts)
    return None


def _convert_dataclass(value: Any) -> Any:
    """Return a dataclass, and those in its fields, as mappings; anything else as it is."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    return {field.name: _convert_dataclass(getattr(value, field.name, None)) for field in fields(value)}


def _parse_langchain(counts: Json) -> Usage:
    """Read LangChain's `usage_metadata`, whose `input_tokens` include the cache whichever the provider.

    Writes are in `cache_creation`, or, where the time that entries live is known, in a field for each of the times.
    Anthropic's own usage has no total. Source: langchain-anthropic 1.7 and langchain-core 1.7.
    """
    details = mapping_in(counts.get("input_token_details"))
    hour = count_in(details.get("ephemeral_1h_input_tokens"))
    by_time = hour + count_in(details.get("ephemeral_5m_input_tokens"))
    return Usage.from_inclusive(
        prompt=count_in(counts.get("input_tokens")),
        output=count_in(counts.get("output_tokens")),
        cache_read=count_in(details.get("cache_read")),
        cache_write=max(by_time, count_in(details.get("cache_creation"))),
        cache_write_1h=hour,
    )


def _parse_pydantic_ai(counts: Json) -> Usage | None:
    """Read Pydantic AI's `RequestUsage`, whose `input_tokens` include the cache whichever the provider.

    Returns None where the response had none. Source: pydantic-ai 2.68.
    """
    if count_in(counts.get("unmeasured_requests")):
        return None
    return Usage.from_inclusive(
        prompt=count_in(counts.get("input_tokens")),
        output=count_in(counts.get("output_tokens")),
        cache_read=count_in(counts.get("cache_read_tokens")),
        cache_write=count_in(counts.get("cache_write_tokens")),
        cache_write_1h=count_in(counts.get("cache_write_1h_tokens")),
    )
