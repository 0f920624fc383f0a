"""Pauses as people and tools make them, generated: a recorded run with another clock.

Where a person pauses, the turn before is an answer without tool calls, and its results are the person's words: that is
what a pause for words looks like to whoever plans it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from elision.trajectory.content import make_content
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Message, Turn

#: When a generated run begins, in seconds since the epoch.
START: Final = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Pause:
    """What is between two calls. by_person: whether a person answers, and not a tool."""

    seconds: float
    by_person: bool = False


def _work_quickly(random_numbers: random.Random) -> Pause:
    return Pause(random_numbers.uniform(5, 40))


def _no_pauses(random_numbers: random.Random) -> Iterator[Pause]:
    """An agent on its own."""
    while True:
        yield _work_quickly(random_numbers)


def _short_bursts(random_numbers: random.Random) -> Iterator[Pause]:
    """A person who answers within minutes, with a break of half an hour to three hours after each 40 calls or so."""
    while True:
        for _ in range(random_numbers.randint(3, 9)):
            yield _work_quickly(random_numbers)
        if random_numbers.random() < 0.15:
            yield Pause(random_numbers.uniform(1_800, 10_800), by_person=True)
        else:
            yield Pause(random_numbers.lognormvariate(4.2, 0.8), by_person=True)


def _slow_person(random_numbers: random.Random) -> Iterator[Pause]:
    """A person who takes six minutes for an answer, often more."""
    while True:
        for _ in range(random_numbers.randint(1, 6)):
            yield _work_quickly(random_numbers)
        yield Pause(random_numbers.lognormvariate(5.9, 0.8), by_person=True)


def _constant_steps(random_numbers: random.Random) -> Iterator[Pause]:
    """A loop that looks every six minutes."""
    while True:
        yield Pause(360.0)


def _heavy_tails(random_numbers: random.Random) -> Iterator[Pause]:
    """Pauses of any length: most are of seconds, some of hours."""
    while True:
        seconds = min(15 * random_numbers.paretovariate(0.75), 43_200.0)
        yield Pause(seconds, by_person=seconds > 120)


def _slow_tools(random_numbers: random.Random) -> Iterator[Pause]:
    """One tool call of ten runs for five to twenty minutes."""
    while True:
        slow = random_numbers.random() < 0.1
        yield Pause(random_numbers.uniform(300, 1_200)) if slow else _work_quickly(random_numbers)


#: The patterns by name.
PATTERNS: Final[dict[str, Callable[[random.Random], Iterator[Pause]]]] = {
    "no pauses": _no_pauses,
    "short bursts": _short_bursts,
    "slow person": _slow_person,
    "six-minute steps": _constant_steps,
    "slow tools": _slow_tools,
    "heavy tails": _heavy_tails,
}


def set_pauses(run: Trajectory, pattern: str, seed: int) -> Trajectory:
    """Return `run` with the pauses of `pattern`; the same seed gives the same ones. Its usage is left out."""
    pauses = PATTERNS[pattern](random.Random(f"{pattern} {seed}"))
    now = START
    turns = []
    for turn in run.turns:
        pause = next(pauses)
        timed = msgspec.structs.replace(turn, at=now, usage=None)
        turns.append(_answer_in_words(timed) if pause.by_person else timed)
        now += pause.seconds
    return replace(run, turns=tuple(turns))


def _answer_in_words(turn: Turn) -> Turn:
    """Return `turn` without its tool calls: their results are what the person says."""
    said = tuple(Message(role="user", content=make_content(result.text)) for result in turn.observations)
    return msgspec.structs.replace(turn, actions=(), observations=(), interjections=(*turn.interjections, *said))
