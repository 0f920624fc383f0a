"""One round: what an upstream response reported, how it ended, and its part in the conversation.

The usage of all rounds is that of the one response which the client sees.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from elision.providers.anthropic.server_clearing import ClearingReport, parse_clearing_report
from elision.providers.shared import signals
from elision.providers.shared.json_reading import mapping_in, text_in
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_text import parse_object

#: JSON that is only read here: a new value is made where something changes.
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallCall:
    """A call of a recall tool. arguments: {} where the model wrote what is no JSON object."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRound:
    """What the model said in one upstream response.

    messages:         as request messages (Responses: items), recall calls included; () where it said nothing.
    visible:          what the client is shown of it: content blocks, one message, or items.
    hides_calls:      whether a recall call was left out of `visible`.
    recall_calls:     the recall calls that need a result. has_client_calls: whether the client's tools were called too.
    results:          the results of the recall calls, in their order; () until they are there.
    """

    messages: tuple[Json, ...]
    visible: tuple[Json, ...]
    hides_calls: bool = False
    recall_calls: tuple[RecallCall, ...] = ()
    has_client_calls: bool = False
    results: tuple[tuple[RecallCall, str], ...] = ()


def join_visible(rounds: Iterable[AnswerRound]) -> list[Json]:
    """Return what the client is shown of all `rounds`."""
    return [each for round_ in rounds for each in round_.visible]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What replaces one message (Responses: item) of the client in requests to the provider.

    index:    the position of `visible` in `RoundOutcome.visible`.
    messages: the messages that replace it; the last one corresponds to it.
    results:  what joins the start of the client's next message: tool_result blocks (Anthropic), tool messages (chat),
              items (Responses; calls hidden after the last visible item are among them).
    """

    index: int
    visible: Json
    messages: tuple[Json, ...]
    results: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOutcome:
    """What is to be done after one upstream response.

    output:           bytes for the client now.
    recall_calls:     recall calls to answer. With `has_client_calls` or `is_done`, their results join the client's next
                      request; else the conversation continues upstream, or `finish_without_recall` ends the response.
    messages:         what the model said, as request messages (Responses: items).
    visible:          what the client saw over all rounds, as it will send it back: one message (Responses: items).
                      () unless `is_done`, and where the response failed.
    is_done:          whether the client's response is complete, possibly with the provider's error.
    is_cut:           whether the upstream response ended early; held bytes are dropped, and the client must be told.
    nothing_held:     with `is_cut`: no byte was held, so the client has everything that arrived.
    """

    output: bytes = b""
    recall_calls: tuple[RecallCall, ...] = ()
    has_client_calls: bool = False
    messages: tuple[Json, ...] = ()
    visible: tuple[Json, ...] = ()
    is_done: bool = False
    is_cut: bool = False
    nothing_held: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnd:
    """One upstream response, at its end.

    output:       bytes that the client can get at once. id: the response's own id.
    usage:        its counts, where `usage` is not the field that has them.
    content:      what the model said; None where there is none, as `has_failed` or `is_cut` explains.
    is_truncated: whether the model was stopped early, so that its last call may be incomplete.
    has_failed:   whether it is the provider's error, or ends in one: `content` is then what was said before it.
    is_cut:       whether it ended early. nothing_held: with `is_cut`, whether the client has all that arrived.
    """

    output: bytes = b""
    id: str = ""
    usage: object = None
    content: Any = None
    is_truncated: bool = False
    has_failed: bool = False
    is_cut: bool = False
    nothing_held: bool = False


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
