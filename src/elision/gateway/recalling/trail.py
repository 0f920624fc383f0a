"""What stands upstream in place of one assistant message that the client was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from elision.gateway.recalling.outcome import Json, RecallCall, Replacement, Round

_Results: TypeAlias = Callable[[Sequence[tuple[RecallCall, str]]], tuple[Json, ...]]
_Without: TypeAlias = Callable[[Json, Sequence[RecallCall]], tuple[Json, ...]]


def one_message(
    rounds: Sequence[Round], shown: Json, as_messages: _Results, as_parts: _Results, without: _Without
) -> tuple[Replacement, ...]:
    """What was said and answered, up to the last thing said; the results behind that join what the client says next.

    as_messages, as_parts: results between two rounds, and behind the last. without: a message without calls that
    nobody answered.
    """
    spoken = [each for each in (_answered(each, without) for each in rounds) if each.said]
    if not spoken or not any(each.calls for each in rounds):
        return ()
    messages: list[Json] = []
    for each in spoken[:-1]:
        messages += [*each.said, *as_messages(each.results)]
    last = spoken[-1]
    found = Replacement(place=0, shown=shown, messages=(*messages, *last.said), results=as_parts(last.results))
    if found.messages == (shown,) and not found.results:
        return ()
    return (found,)


def _answered(each: Round, without: _Without) -> Round:
    if not each.calls or each.results:
        return each
    return replace(each, said=tuple(left for message in each.said for left in without(message, each.calls)))
