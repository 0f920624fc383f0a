"""Fields that many recorders share: points in time, tool calls, and usage.

LiteLLM and the agents built on it all write `prompt_tokens`, but what it includes differs by version. OpenAI and
DeepSeek count cache reads and writes in it. LiteLLM proxies of 2025 count Anthropic's reads in it, and its writes
beside it. Raw Anthropic counts neither. The numbers of a run show which it is: a part cannot be larger than its whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from elision.providers.shared.json_reading import Json, count_in, dump_arguments, number_in, text_in
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage


def parse_timestamp(value: object) -> float | None:
    """Return an ISO 8601 text (UTC if it names no zone) or a number of milliseconds in seconds; else None."""
    if not isinstance(value, str):
        milliseconds = number_in(value)
        return None if milliseconds is None else milliseconds / 1000
    try:
        read = datetime.fromisoformat(value)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def read_call(call: Json, *, id: str = "id", name: str = "name", arguments: str = "arguments") -> Action:
    """Return the action of `call`. id, name, arguments: its fields."""
    return Action(id=text_in(call.get(id)), name=text_in(call.get(name)), arguments=dump_arguments(call.get(arguments)))


_PROMPT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_READ = ("cache_read_input_tokens", "cache_read_tokens", "prompt_cache_hit_tokens")
_WRITE = ("cache_creation_input_tokens", "cache_write_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")


class _Counts(NamedTuple):
    prompt: int
    output: int
    read: int
    write: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTokens:
    """What the `prompt_tokens` of one run include."""

    includes_reads: bool = True
    includes_writes: bool = True

    @classmethod
    def detect(cls, usages: Iterable[Any]) -> PromptTokens:
        """Detect what a run's counts include, from all its calls: one call alone may fit several readings."""
        calls = [_read_counts(raw) for raw in usages if isinstance(raw, Mapping)]
        reads = all(call.read <= call.prompt for call in calls)
        writes = reads and all(call.read + call.write <= call.prompt for call in calls)
        return cls(includes_reads=reads, includes_writes=writes)

    def parse_usage(self, raw: Any, *, usd: float | None = None) -> Usage | None:
        """Return the usage of one call; None if nothing was recorded."""
        if not isinstance(raw, Mapping):
            return None
        call = _read_counts(raw)
        if not call.prompt and not call.output:
            return None
        plain = call.prompt
        if self.includes_reads:
            plain -= call.read
        if self.includes_writes:
            plain -= call.write
        plain = max(0, plain)
        return Usage(input=plain, cache_read=call.read, cache_write=call.write, output=call.output, usd=usd)


def _read_counts(raw: Mapping[str, Any]) -> _Counts:
    details: Mapping[str, Any] = next((raw[name] for name in _DETAILS if isinstance(raw.get(name), Mapping)), {})
    read = find_first_count(raw, _READ) or find_first_count(details, ("cached_tokens",))
    write = find_first_count(raw, _WRITE) or find_first_count(details, ("cache_creation_tokens",))
    return _Counts(find_first_count(raw, _PROMPT), find_first_count(raw, _OUTPUT), read, write)


def find_first_count(raw: Mapping[str, Any], names: tuple[str, ...]) -> int:
    """Return the first count above 0 under one of `names`. Recorders leave 0 or null under names they do not use."""
    return next(filter(None, (count_in(raw.get(name)) for name in names)), 0)
