"""Give the engine what is new in a history: the head where it changed, and the turns that are complete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from elision.manager.advanced_options import Pin
from elision.manager.branch import SessionBranch
from elision.manager.history import History
from elision.manager.known_tools import read_tools
from elision.providers.live.client_messages import convert_to_json, copy_structure
from elision.providers.live.live_turns import TurnSources
from elision.providers.live.pieces import Location
from elision.trajectory.events import Event, RequestSent, UsageReported
from elision.trajectory.turn import Head, Message, Turn


def ingest_turns(branch: SessionBranch, first: int, system: Any, tools: Any, pin: Pin | None) -> None:
    """Add the turns of the branch's history from `first` (1-based) on to its session, and a head that changed."""
    history = branch.history
    assert history is not None
    _ingest_head(branch, history, system, tools, pin)
    called, answered = find_newest_call(branch.log.events)
    if called is not None and called.call == len(branch.log.state.turns) + 1 <= history.turns.turn_count:
        # This turn answers the newest call: what the provider reported for that is the turn's.
        usage = answered.usage if answered is not None else None
        history.turns.set_call_facts(called.call, usage=usage, at=called.at, model=called.model)
    for index in range(max(first, 1), history.turns.turn_count + 1):
        if index <= len(branch.log.state.turns):
            history.turns.adopt_tags(branch.log.state.turns[index - 1])
        turn, sources = history.turns.build_turn(index)
        history.splice.set_turn(index, sources)
        if pin:
            turn = _pin_turn(turn, sources, history, pin)
        node = history.get_node(index)
        turns = branch.log.state.turns
        if index > len(turns):
            branch.log.add_turn(turn, node)
        else:
            known = turns[index - 1]
            # What the provider reported when the turn first came still holds.
            turn = replace(turn, usage=known.usage, at=known.at, model=known.model)
            if turn != known:
                history.turns.set_call_facts(index, usage=turn.usage, at=turn.at, model=turn.model)
                branch.amend_newest(turn, node)
        branch.nodes[index] = node


def _ingest_head(branch: SessionBranch, history: History, system: Any, tools: Any, pin: Pin | None) -> None:
    """Set the session's head, unless it is the one that it has."""
    kept = history.list_kept_head()
    if history.ingested_head == ([message for message, _ in kept], system, tools):
        return
    known = read_tools(tools)
    history.ingested_head = ([message for message, _ in kept], copy_structure(system), known.copy)
    apart: list[Message] = []
    if system is not None:
        apart = history.dialect.parse_system(convert_to_json(system))
    messages = [_pin_message(message, history, spot, pin) for message, spot in kept]
    state = branch.log.state
    head = Head(
        messages=(*apart, *messages),
        tools=known.json,
        hidden_tokens=state.head.hidden_tokens,
        warm_tokens=state.head.warm_tokens,
    )
    spots: list[Location | None] = [*(None for _ in apart), *(spot for _, spot in kept)]
    history.splice.set_head(spots)
    if head != state.head or not any(state.track.segments):
        branch.log.set_head(head)


def find_newest_call(events: Sequence[Event]) -> tuple[RequestSent | None, UsageReported | None]:
    """Return the newest request of a log, and the usage that was last reported for it; work O(events after it)."""
    reports: list[UsageReported] = []
    for event in reversed(events):
        if isinstance(event, UsageReported):
            reports.append(event)
        elif isinstance(event, RequestSent):
            # Another process may have recorded the usage of an earlier call after it.
            for report in reports:
                if report.call == event.call:
                    return event, report
            return event, None
    return None, reports[0] if reports else None


def _pin_turn(turn: Turn, sources: TurnSources, history: History, pin: Pin) -> Turn:
    observations = tuple(
        replace(observation, pinned=observation.pinned or _is_pinned(history, (spot,), pin))
        for observation, spot in zip(turn.observations, sources.observations, strict=True)
    )
    interjections = tuple(
        _pin_message(message, history, spot, pin)
        for message, spot in zip(turn.interjections, sources.interjections, strict=True)
    )
    return replace(
        turn,
        observations=observations,
        interjections=interjections,
        pinned=_is_pinned(history, sources.assistant, pin),
    )


def _pin_message(message: Message, history: History, spot: Location, pin: Pin | None) -> Message:
    return replace(message, pinned=message.pinned or _is_pinned(history, (spot,), pin))


def _is_pinned(history: History, spots: Sequence[Location], pin: Pin | None) -> bool:
    return pin is not None and any(pin(history.messages[spot.message].json) for spot in spots)
