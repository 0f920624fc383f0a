"""What a response has reported so far, and how an API's responses are read for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from elision.providers.anthropic.server_clearing import ClearingReport, parse_clearing_report
from elision.providers.shared import signals
from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.providers.streaming.sse import SseFrame

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

    def add_response(self, body: Json) -> None:
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
    read_body: Callable[[ResponseFindings, Json], None]
