"""What a response has reported so far, and how an API's responses are read for it.

JSON values out of responses and back into them.

Usage over several upstream responses that are one response to the client.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from elision.providers.anthropic.server_clearing import ClearingReport, parse_clearing_report
from elision.providers.shared import signals
from elision.providers.shared.json_reading import mapping_in, text_in
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_text import parse_object

#: Fields in which a provider reports on cache and context; few answers have one.
_REPORTS: Final = frozenset(("context_management", "diagnostics", "input_transformations", "prompt_cache_diagnostics"))


@dataclass(slots=True)
class ResponseFindings:
    """What a response has reported so far, in the provider's words.

    is_refused: the status is an error's. usage: its counts, later ones over earlier ones. has_ended: it is complete.
    failure:    the error's body, None while there is none.
    """

    is_refused: bool
    usage: dict[str, Any] = field(default_factory=dict)
    has_ended: bool = False
    failure: Any = None
    stop_reason: str = ""
    model: str = ""
    response_id: str = ""
    cache_miss: signals.CacheMiss | None = None
    transformations: tuple[signals.Transformation, ...] = ()
    cleared: ClearingReport | None = None

    def add_counts(self, usage: object) -> None:
        """Add counts; those that a provider leaves out, or sends as null, keep their value."""
        self.usage |= {name: count for name, count in mapping_in(usage).items() if count is not None}

    def add_response(self, body: Mapping[str, Any]) -> None:
        """Add the fields that responses of every API have at the top."""
        self.add_counts(body.get("usage"))
        self.response_id = text_in(body.get("id")) or self.response_id
        self.model = text_in(body.get("model")) or self.model
        if not _REPORTS.isdisjoint(body):
            self.cache_miss = signals.parse_cache_miss(body) or self.cache_miss
            self.transformations = signals.parse_transformations(body) or self.transformations
            self.cleared = parse_clearing_report(body) or self.cleared


class ApiObserver(NamedTuple):
    """How an API's responses are read for what they report.

    is_useful_frame: returns whether a frame of a stream is worth reading, by its bytes.
    read_event:      reads an event. read_body: reads a whole response.
    """

    is_useful_frame: Callable[[ResponseFindings, bytes], bool]
    read_event: Callable[[ResponseFindings, SseFrame], None]
    read_body: Callable[[ResponseFindings, Mapping[str, Any]], None]


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a model wrote as a call's arguments, {} for nothing; None if it is none."""
    return parse_object(text.strip() or "{}")


def dump_json(value: Any) -> bytes:
    """Return compact JSON in UTF-8, with escapes where UTF-8 has no encoding."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


class UsageSum:
    """The usage of all rounds. earlier: of the rounds before this one. current: of this round, None while unknown."""

    def __init__(self) -> None:
        self.earlier: dict[str, Any] | None = None
        self.current: dict[str, Any] | None = None

    def begin_round(self) -> None:
        self.earlier = add_usage(self.earlier, self.current)
        self.current = None

    def update_round(self, usage: object) -> None:
        """Take what this round has used so far, in total."""
        if isinstance(usage, dict):
            self.current = overlay_usage(self.current, usage)

    def total(self) -> dict[str, Any] | None:
        total: dict[str, Any] | None = add_usage(self.earlier, self.current)
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


def overlay_usage(begun: dict[str, Any] | None, later: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the newest totals of one response that reports its counts repeatedly; null keeps the earlier count."""
    if begun is None:
        return later
    if later is None:
        return begun
    return {**begun, **{key: value for key, value in later.items() if value is not None}}


def select_counts(usage: dict[str, Any]) -> dict[str, Any]:
    """Return `usage` without fields that are no counts, such as a service tier or a region."""
    return {key: value for key, value in usage.items() if _is_count(value) or isinstance(value, dict | list)}


def _is_count(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
