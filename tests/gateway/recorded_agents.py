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

import msgspec

from elision.formats.registry import read_runs
from elision.providers.provider import Api
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Observation, Text, Turn

RUNS: Final = Path(__file__).parents[2] / "examples" / "runs"
#: Beginnings of sample files, and turns of each that are worked through in a long trial.
RUN_LENGTHS: Final = (("pi", 100), ("openhands", 90), ("pi", 100), ("swe-agent", 60), ("mini-swe", 60))
APIS: Final[tuple[Api, ...]] = ("openai", "anthropic", "openai-responses")
KEYS: Final = 7
#: Agents that follow each other are twins in pairs, so far apart that both are under way at once.
TWIN_COUNT: Final = 2
#: The turn from which on twins see different things.
PARTING_TURN: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedAgent:
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


def make_agents(count: int, longest: int = 1_000) -> list[RecordedAgent]:
    """So many agents; always the same ones. longest: turns of any."""
    return [_make_agent(number, longest) for number in range(count)]


def name_owner(number: int, turn: int) -> str:
    """What observations of that turn are marked with."""
    return f"pair-{number // TWIN_COUNT:04d}" if turn < PARTING_TURN else f"agent-{number:04d}"


def load_runs() -> list[Trajectory]:
    """The runs that are played."""
    return [_load_run(name) for name in dict.fromkeys(name for name, _ in RUN_LENGTHS)]


def _make_agent(number: int, longest: int) -> RecordedAgent:
    pair = number // TWIN_COUNT
    name, turns = RUN_LENGTHS[pair % len(RUN_LENGTHS)]
    run = _load_run(name)
    marked = tuple(_mark_turn(turn, number) for turn in run.turns[: min(turns, longest)])
    return RecordedAgent(
        number=number,
        run=replace(run, turns=marked),
        api=APIS[pair % len(APIS)],
        # Twins of a pair read their answers in different ways.
        stream=number % 2 == 1,
        key=f"sk-trial-{pair % KEYS}",
    )


@cache
def _load_run(name: str) -> Trajectory:
    path = next(RUNS.glob(f"{name}*.gz"))
    return next(each for each in read_runs(path) if isinstance(each, Trajectory))


def _mark_turn(turn: Turn, number: int) -> Turn:
    who = name_owner(number, turn.index)
    seen = tuple(_mark_observation(each, f"[{who} turn {turn.index}]") for each in turn.observations)
    return msgspec.structs.replace(turn, observations=seen)


def _mark_observation(seen: Observation, mark: str) -> Observation:
    return msgspec.structs.replace(seen, content=(Text(f"{mark}\n{seen.text}\n{mark}"),))


def list_marks(turns: int, number: int) -> Iterator[str]:
    """What may stand in a request behind so many turns."""
    return (f"[{name_owner(number, turn)} turn {turn}]" for turn in range(1, turns + 1))
