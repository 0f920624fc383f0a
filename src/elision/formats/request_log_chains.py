"""Merge logs of requests: a record whose messages continue an earlier one's is the same run, extended.

A proxy logs a line for each request, with the whole conversation so far. Read line by line, six requests would be six
runs and be billed as twenty-one calls.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import msgspec

from elision.formats.document import RunOrProblem
from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.content import SEALED_KINDS, Content, Opaque, join_text
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Message, Turn

#: Stands for a head, some turns and the beginning of one more; equal histories have equal ones.
_Chain: TypeAlias = Hashable


def merge_continued_runs(runs_and_problems: Iterable[RunOrProblem]) -> Iterator[RunOrProblem]:
    """Yield the items without runs that a later one continues; the longer run takes over what only they record."""
    listed = list(runs_and_problems)
    runs = [item for item in listed if isinstance(item, Trajectory)]
    gone = _merge_runs(runs)
    kept = {id(run): merged for run, merged in zip(runs, gone, strict=True)}
    for item in listed:
        if not isinstance(item, Trajectory):
            yield item
        elif (merged := kept[id(item)]) is not None:
            yield merged


def _merge_runs(runs: Sequence[Trajectory]) -> list[Trajectory | None]:
    """Return each of `runs` with what it took over; None for those that another one continues."""
    ends = {_hash_run(run): place for place, run in reversed(list(enumerate(runs)))}
    result: list[Trajectory | None] = list(runs)
    for place in sorted(range(len(runs)), key=lambda place: -len(runs[place].turns)):
        current = result[place]
        if current is None:
            continue
        for index, chain in _list_prefixes(current):
            earlier = ends.get(chain, place)
            shorter = result[earlier]
            if earlier != place and shorter is not None and len(shorter.turns) == index < len(current.turns):
                current = _take_over_facts(current, shorter)
                result[earlier] = None
        result[place] = current
    return result


def _take_over_facts(longer: Trajectory, shorter: Trajectory) -> Trajectory:
    """Return `longer` with usage, time and model of the call that `shorter` ends with.

    Usage and time are taken only if `longer` has none. The model is always taken: a request names only its last call's.
    """
    known = shorter.turns[-1]
    turn = longer.turns[known.index - 1]
    completed = msgspec.structs.replace(
        turn, usage=turn.usage or known.usage, at=turn.at or known.at, model=known.model or turn.model
    )
    turns = (*longer.turns[: known.index - 1], completed, *longer.turns[known.index :])
    return replace(longer, turns=turns)


def _list_prefixes(run: Trajectory) -> Iterator[tuple[int, _Chain]]:
    """Yield (turns, chain) of every beginning of `run` that ends with an assistant message, a result or user words."""
    head = run.head
    chain: _Chain = hash((tuple(map(_describe_message, head.messages)), tuple(map(_normalize_json, head.tools))))
    for turn in run.turns:
        for piece in _list_turn_parts(turn):
            chain = hash((chain, piece))
            yield turn.index, chain


def _hash_run(run: Trajectory) -> _Chain:
    chain: _Chain = None
    for _, chain in _list_prefixes(run):  # noqa: B007 - the last one is wanted
        pass
    return chain


def _list_turn_parts(turn: Turn) -> Iterator[Hashable]:
    """Yield what a turn grows by, in the order in which it is sent."""
    calls = tuple((action.name, join_argument_text(action)) for action in turn.actions if not action.implicit)
    yield "said", turn.text, _describe_opaque(turn.content, but=SEALED_KINDS), calls
    for result in turn.observations:
        yield "result", result.text, _describe_opaque(result.content), result.error
    for message in turn.interjections:
        yield "message", _describe_message(message)


def _describe_message(message: Message) -> Hashable:
    return message.role, join_text(message.content), _describe_opaque(message.content)


def _describe_opaque(parts: Content, but: frozenset[str] = frozenset()) -> Hashable:
    """Describe images and other parts that are no text. Sealed reasoning is left out: clients may omit it."""
    found = (part for part in parts if isinstance(part, Opaque) and part.kind not in but)
    return tuple((part.kind, _normalize_json(part.data)) for part in found)


def _normalize_json(value: Any) -> str:
    """Return `value` as one text, with sorted keys, without cache markers and nulls."""
    try:
        return json.dumps(_strip_markers(value), sort_keys=True, default=str)
    except RecursionError:
        return f"nested too deeply to be compared: like nothing but itself ({id(value)})"


def _strip_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: _strip_markers(each) for name, each in value.items() if name != "cache_control" and each is not None
        }
    if isinstance(value, list):
        return [_strip_markers(each) for each in value]
    return value
