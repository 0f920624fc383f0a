"""Logs of requests: a record whose messages go on where an earlier one ended is the same run, told further.

A proxy logs a line a request, each with the whole conversation so far. Read line by line, six requests would be six
runs and be billed as twenty-one calls.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from elision.dialects.render import SEALED
from elision.formats.document import Found
from elision.trajectory.content import Content, Opaque, text_of
from elision.trajectory.spoken import argument_text
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Message, Turn

#: Stands for a head, some turns and the beginning of one more; equal histories have equal ones.
_Chain: TypeAlias = Hashable


def continued(found: Iterable[Found]) -> Iterator[Found]:
    """`found` without runs that a later one continues; what only they knew of a call goes to the longer one."""
    listed = list(found)
    runs = [item for item in listed if isinstance(item, Trajectory)]
    gone = _merge(runs)
    kept = {id(run): merged for run, merged in zip(runs, gone, strict=True)}
    for item in listed:
        if not isinstance(item, Trajectory):
            yield item
        elif (merged := kept[id(item)]) is not None:
            yield merged


def _merge(runs: Sequence[Trajectory]) -> list[Trajectory | None]:
    """Each of `runs` with what it took over, None for those that another one continues."""
    ends = {_ending(run): place for place, run in reversed(list(enumerate(runs)))}
    result: list[Trajectory | None] = list(runs)
    for place in sorted(range(len(runs)), key=lambda place: -len(runs[place].turns)):
        current = result[place]
        if current is None:
            continue
        for index, chain in _prefixes(current):
            earlier = ends.get(chain)
            if earlier is None or earlier == place:
                shorter = None
            else:
                shorter = result[earlier]
            if earlier is not None and shorter is not None and len(shorter.turns) == index < len(current.turns):
                current = _taking(current, shorter)
                result[earlier] = None
        result[place] = current
    return result


def _taking(longer: Trajectory, shorter: Trajectory) -> Trajectory:
    """`longer`, with usage and time of the call that `shorter` ends with where it has none itself, and its model: that
    of an earlier call of `longer` may only be taken from a later one."""
    known = shorter.turns[-1]
    turn = longer.turns[known.index - 1]
    told = replace(turn, usage=turn.usage or known.usage, at=turn.at or known.at, model=known.model or turn.model)
    turns = (*longer.turns[: known.index - 1], told, *longer.turns[known.index :])
    return replace(longer, turns=turns)


def _prefixes(run: Trajectory) -> Iterator[tuple[int, _Chain]]:
    """(turns, chain) of every beginning of `run` that ends with an assistant message, a result or a user's words."""
    chain = _start(run)
    for turn in run.turns:
        for piece in _pieces(turn):
            chain = hash((chain, piece))
            yield turn.index, chain


def _ending(run: Trajectory) -> _Chain:
    chain: _Chain = None
    for _, chain in _prefixes(run):  # noqa: B007 - the last one is wanted
        pass
    return chain


def _start(run: Trajectory) -> _Chain:
    return hash((tuple(map(_words, run.head.messages)), tuple(map(_plain, run.head.tools))))


def _pieces(turn: Turn) -> Iterator[Hashable]:
    """What a turn grows by, in the order in which it is sent."""
    yield "said", turn.text, _opaque(turn.content, but=SEALED), tuple(_calls(turn))
    for result in turn.observations:
        yield "result", result.text, _opaque(result.content), result.error
    for message in turn.interjections:
        yield "message", _words(message)


def _calls(turn: Turn) -> Iterator[Hashable]:
    return ((action.name, argument_text(action)) for action in turn.actions if not action.implicit)


def _words(message: Message) -> Hashable:
    return message.role, text_of(message.content), _opaque(message.content)


def _opaque(parts: Content, but: frozenset[str] = frozenset()) -> Hashable:
    """Images and what else is no text. Sealed reasoning is left out: clients may send it back or not."""
    found = (part for part in parts if isinstance(part, Opaque) and part.kind not in but)
    return tuple((part.kind, _plain(part.data)) for part in found)


def _plain(value: Any) -> str:
    """`value` as one text, whatever the order of its keys, without cache markers and nulls, which come and go."""
    try:
        return json.dumps(_bare(value), sort_keys=True, default=str)
    except RecursionError:
        return f"nested too deeply to be compared: like nothing but itself ({id(value)})"


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _bare(each) for name, each in value.items() if name != "cache_control" and each is not None}
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return value
