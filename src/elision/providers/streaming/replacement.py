"""Find what replaces one assistant message that the client was shown, in requests to the provider."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from elision.providers.streaming.rounds import AnswerRound, Json, RecallCall, Replacement

_RenderResults: TypeAlias = Callable[[Sequence[tuple[RecallCall, str]]], tuple[Json, ...]]
_DropCalls: TypeAlias = Callable[[Json, Sequence[RecallCall]], tuple[Json, ...]]


def find_message_replacement(
    rounds: Sequence[AnswerRound],
    visible: Json,
    render_messages: _RenderResults,
    render_parts: _RenderResults,
    drop_calls: _DropCalls,
) -> tuple[Replacement, ...]:
    """Return the messages and results of all rounds up to the last message; () where the client saw all of it.

    render_messages: renders results between two rounds. render_parts: renders results after the last round, which join
    the client's next message. drop_calls: removes calls without a result from a message.
    """
    if not any(round_.recall_calls for round_ in rounds):
        return ()
    messages: list[Json] = []
    pending: Sequence[tuple[RecallCall, str]] = ()
    for round_ in rounds:
        said = _drop_unanswered(round_, drop_calls)
        if not said:
            continue
        if messages:
            messages += render_messages(pending)
        messages += said
        pending = round_.results
    if not messages:
        return ()
    results = render_parts(pending)
    if tuple(messages) == (visible,) and not results:
        return ()
    return (Replacement(index=0, visible=visible, messages=tuple(messages), results=results),)


def _drop_unanswered(round_: AnswerRound, drop_calls: _DropCalls) -> tuple[Json, ...]:
    """Return the round's messages without calls that got no result."""
    if not round_.recall_calls or round_.results:
        return round_.messages
    kept: list[Json] = []
    for message in round_.messages:
        kept += drop_calls(message, round_.recall_calls)
    return tuple(kept)
