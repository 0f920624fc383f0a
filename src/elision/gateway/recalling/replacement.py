"""What stands upstream in place of one assistant message that the client was shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from elision.gateway.recalling.rounds import AnswerRound, Json, RecallCall, Replacement

_RenderResults: TypeAlias = Callable[[Sequence[tuple[RecallCall, str]]], tuple[Json, ...]]
_DropCalls: TypeAlias = Callable[[Json, Sequence[RecallCall]], tuple[Json, ...]]


def find_message_replacement(
    rounds: Sequence[AnswerRound],
    visible: Json,
    render_messages: _RenderResults,
    render_parts: _RenderResults,
    drop_calls: _DropCalls,
) -> tuple[Replacement, ...]:
    """What was said and answered, up to the last thing said; the results behind that join what the client says next.

    as_messages, as_parts: results between two rounds, and behind the last. drop_calls: a message without calls that
    nobody answered.
    """
    spoken = [each for each in (_drop_unanswered(each, drop_calls) for each in rounds) if each.messages]
    if not spoken or not any(each.recall_calls for each in rounds):
        return ()
    messages: list[Json] = []
    for each in spoken[:-1]:
        messages += [*each.messages, *render_messages(each.results)]
    last = spoken[-1]
    found = Replacement(
        index=0, visible=visible, messages=(*messages, *last.messages), results=render_parts(last.results)
    )
    if found.messages == (visible,) and not found.results:
        return ()
    return (found,)


def _drop_unanswered(round_: AnswerRound, drop_calls: _DropCalls) -> AnswerRound:
    if not round_.recall_calls or round_.results:
        return round_
    return replace(
        round_, messages=tuple(left for message in round_.messages for left in drop_calls(message, round_.recall_calls))
    )
