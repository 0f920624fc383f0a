"""Agents that work through recorded runs, many at a time, and what a provider must get of each.

Every observation says whose it is. Some agents are twins: one run, one key, one API, and the same words up to a turn
from which on what they see differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from elision.formats.registry import read_runs
from elision.testing.parsed_request import Api
from elision.trajectory.content import Text
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Observation, Turn

RUNS: Final = Path(__file__).parents[2] / "examples" / "runs"
#: Beginnings of sample files, and turns of each that are worked through in a long trial.
LENGTHS: Final = (("pi", 100), ("openhands", 90), ("pi", 100), ("swe-agent", 60), ("mini-swe", 60))
APIS: Final[tuple[Api, ...]] = ("openai", "anthropic", "openai-responses")
KEYS: Final = 7
#: Agents that follow each other are twins in pairs, so far apart that both are under way at once.
TWINS: Final = 2
#: The turn from which on twins see different things.
PARTING: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One agent. number: says which. seconds: recorded time that it works through."""

    number: int
    run: Trajectory
    api: Api
    stream: bool
    key: str

    @property
    def seconds(self) -> float:
        times = [turn.at for turn in self.run.turns if turn.at is not None]
        return times[-1] - times[0] if times else 0.0


def trials(count: int, longest: int = 1_000) -> list[Trial]:
    """So many agents; always the same ones. longest: turns of any."""
    return [_trial(number, longest) for number in range(count)]


def owner(number: int, turn: int) -> str:
    """What observations of that turn are marked with."""
    return f"pair-{number // TWINS:04d}" if turn < PARTING else f"agent-{number:04d}"


def recorded() -> list[Trajectory]:
    """The runs that are played."""
    return [_run(name) for name in dict.fromkeys(name for name, _ in LENGTHS)]


def _trial(number: int, longest: int) -> Trial:
    pair = number // TWINS
    name, turns = LENGTHS[pair % len(LENGTHS)]
    run = _run(name)
    marked = tuple(_marked(turn, number) for turn in run.turns[: min(turns, longest)])
    return Trial(
        number=number,
        run=replace(run, turns=marked),
        api=APIS[pair % len(APIS)],
        # Twins of a pair read their answers in different ways.
        stream=number % 2 == 1,
        key=f"sk-trial-{pair % KEYS}",
    )


@cache
def _run(name: str) -> Trajectory:
    path = next(RUNS.glob(f"{name}*.gz"))
    return next(each for each in read_runs(path) if isinstance(each, Trajectory))


def _marked(turn: Turn, number: int) -> Turn:
    who = owner(number, turn.index)
    seen = tuple(_says(each, f"[{who} turn {turn.index}]") for each in turn.observations)
    return replace(turn, observations=seen)


def _says(seen: Observation, mark: str) -> Observation:
    return replace(seen, content=(Text(f"{mark}\n{seen.text}\n{mark}"),))


def marks(turns: int, number: int) -> Iterator[str]:
    """What may stand in a request behind so many turns."""
    return (f"[{owner(number, turn)} turn {turn}]" for turn in range(1, turns + 1))
