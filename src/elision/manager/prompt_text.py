"""A prepared context as one text, for agents that send a single prompt string."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from elision.manager.history import History
from elision.providers.detect import recognize_provider
from elision.providers.live.client_messages import convert_to_json
from elision.providers.provider_table import find_provider
from elision.providers.shared.render_text import render_text
from elision.trajectory.turn import Message, Turn
from elision.trajectory.view import Segment, View


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSource:
    """What a prepared context shows. view: its segments. covers: the newest turn that its summary covers, 0 for none.

    unanswered: messages of the client after the newest turn: the beginning of an answer.
    """

    view: View
    covers: int = 0
    unanswered: Sequence[Any] = ()


def render_prompt(source: PromptSource, dialect: str) -> str:
    """Return a prepared context as one text. Raises DialectError."""
    segments = source.view.segments
    if source.unanswered:
        segments = [*segments, *_read_segments(source.unanswered, None, dialect, first=source.view.call)]
    return render_text(segments, source.covers)


def render_messages(messages: Sequence[Any], system: Any, dialect: str) -> str:
    """Return messages that were passed on unread as one text. dialect: if the messages show none.

    Raises DialectError for what are no messages.
    """
    found = recognize_provider(messages, system, None, "")
    if found is not None:
        dialect = found.name
    return render_text(_read_segments(messages, system, dialect, first=1))


def _read_segments(messages: Sequence[Any], system: Any, dialect: str, *, first: int) -> Iterator[Segment]:
    """Yield the segments of `messages` with nothing hidden and nothing counted. first: index of their first turn."""
    live = find_provider(dialect).live
    history = History(live, b"")
    history.extend(messages)
    head: list[Message] = list(history.turns.head)
    if system is not None:
        head = [*live.parse_system(convert_to_json(system)), *head]
    for message in head:
        yield Segment(kind="head", tokens=0, source=message)
    for number in range(1, history.turns.turn_count + 1):
        turn, _ = history.turns.build_turn(number)
        yield from _split_turn(turn, first + number - 1)


def _split_turn(turn: Turn, index: int) -> Iterator[Segment]:
    yield Segment(kind="assistant", tokens=0, turn=index, source=replace(turn, index=index))
    for position, observation in enumerate(turn.observations, start=1):
        yield Segment(kind="observation", tokens=0, turn=index, index=position, source=observation)
    for position, message in enumerate(turn.interjections, start=1):
        yield Segment(kind="interjection", tokens=0, turn=index, index=position, source=message)
