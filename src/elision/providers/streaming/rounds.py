"""The outcome of one upstream response, and its part in the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

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
