"""What became of one upstream answer, and what it stands for in the conversation."""

from __future__ import annotations

from collections.abc import Mapping
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
class Round:
    """What the model said in one upstream answer.

    said:    as request messages (Responses: items), recall calls included; () where it said nothing.
    kept:    what of it the client is shown: content blocks, one message, or items.
    hides:   whether a recall call was left out of `kept`.
    calls:   the recall calls that want an answer. others: whether tools of the client were called as well.
    results: what the calls were answered with, in their order; () until they were.
    """

    said: tuple[Json, ...]
    kept: tuple[Json, ...]
    hides: bool = False
    calls: tuple[RecallCall, ...] = ()
    others: bool = False
    results: tuple[tuple[RecallCall, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What stands upstream in place of one message (Responses: item) that the client was shown.

    place:    where `shown` stands in `Outcome.shown`.
    messages: what stands in its place; the last one is what corresponds to it.
    results:  what joins the front of the client's next message: tool_result blocks (Anthropic), tool messages (chat),
              items (Responses; calls that were hidden behind the last shown item are among them).
    """

    place: int
    shown: Json
    messages: tuple[Json, ...]
    results: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is to be done behind one upstream answer.

    out:    bytes for the client now.
    calls:  recall calls to answer. With `others`, or `done`, their results join the client's next request; without,
            the conversation goes on upstream, or `finish_without_recall` ends the answer.
    said:   what the model said, as request messages (Responses: items).
    shown:  what the client was shown over all rounds, as it will send it back: one message (Responses: items). ()
            unless `done`, and where the answer failed.
    done:   whether the client's answer is complete, be it with an error of the provider.
    cut:    whether the upstream ended before its answer did; what was held is dropped, and the client must be told.
    passed: with `cut`: nothing was held, the client has all that came, as if nobody stood between.
    """

    out: bytes = b""
    calls: tuple[RecallCall, ...] = ()
    others: bool = False
    said: tuple[Json, ...] = ()
    shown: tuple[Json, ...] = ()
    done: bool = False
    cut: bool = False
    passed: bool = False
