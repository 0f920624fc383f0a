"""What a task asks, and what its agent is like.

A task has documents with facts, steps that each need some of them, and a report at the end.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

import msgspec

from elision.errors import SettingError

#: How far back the facts of a step are: as in recorded runs, or half of them anywhere in the run so far.
Reuse: TypeAlias = Literal["recorded", "heavy"]
#: The form of tool results: each family's own, a JSON object, or lines of text.
ResultForm: TypeAlias = Literal["own", "json", "text"]


class Knobs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a task and of the scripted agent. Shares are between 0 and 1.

    calls:      requests that the task takes where nothing is hidden or overlooked, 10 or more.
    reuse:      how far back facts are. needs: facts that a step uses.
    size:       factor on the length of documents.
    results:    form of tool results.
    parallel:   share of steps at which the agent asks for everything that it misses at once.
    notes:      share of the facts of a new result that the agent writes down in its own words.
    careless:   share of hidden facts that it guesses.
    noticed:    share of steps at which a wrong value is rejected; elsewhere it goes through.
    rot:        chance to overlook or confuse a visible fact, per 100,000 tokens between it and the end of the prompt.
    looks_again: share of accepted steps after which it looks at what it changed.
    recalls:    whether it uses the recall tools that a request has.
    pauses:     share of calls before which the user pauses for more than five minutes.
    """

    calls: int = 80
    reuse: Reuse = "recorded"
    needs: int = 4
    size: float = 1.0
    results: ResultForm = "own"
    parallel: float = 0.3
    notes: float = 0.1
    careless: float = 0.05
    noticed: float = 0.5
    rot: float = 0.02
    looks_again: float = 0.2
    recalls: bool = True
    pauses: float = 0.0

    def __post_init__(self) -> None:
        for name in ("parallel", "notes", "careless", "noticed", "rot", "looks_again", "pauses"):
            if not 0 <= getattr(self, name) <= 1:
                raise SettingError(f"{name} is a share between 0 and 1, not {getattr(self, name)}")
        for name, least in (("calls", 10), ("needs", 1), ("size", 0.1)):
            if getattr(self, name) < least:
                raise SettingError(f"{name} is {least} or more, not {getattr(self, name)}")


def draw_share(*key: object) -> float:
    """Return a number from 0 up to 1 that depends on `key` only, so that all strategies meet the same chances."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big") / 2**64


#: Facts that the report at the end asks for.
REPORTED = 5
#: Facts of one document.
FACTS_PER_DOCUMENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFact:
    """A value that a document shows. label: what it is asked for by, the only one of that name."""

    label: str
    document: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """The steps of a task. Each reads the document of its number, and uses facts of it and of earlier ones.

    facts: by their labels. steps, report: labels.
    """

    facts: Mapping[str, TaskFact]
    steps: Sequence[Sequence[str]]
    report: Sequence[str]


@cache
def load_distances() -> tuple[Sequence[int], Sequence[int]]:
    """Return the recorded distances in turns, and how often each occurred."""
    table = json.loads(files(__package__).joinpath("distances.json").read_text(encoding="utf-8"))
    counts = Counter({int(distance): count for distance, count in table["counts"].items()})
    return tuple(counts), tuple(counts.values())


def make_plan(
    chance: random.Random, documents: Sequence[Sequence[TaskFact]], knobs: Knobs, calls_per_step: float
) -> TaskPlan:
    """Return a plan over `documents`, the facts of each in the order in which the steps read them.

    A step's facts lie as many turns back as a distance that is drawn, so one of less than a step is a new fact.
    """
    fresh = [list(each) for each in documents]
    for facts in fresh:
        chance.shuffle(facts)
    steps: list[list[str]] = []
    for number in range(len(documents)):
        needed = [fresh[number].pop().label]
        for _ in range(knobs.needs - 1):
            back = _draw_steps_back(chance, number, knobs, calls_per_step)
            # What was used already stands in the agent's own words, so a fact that was not is taken where one is left.
            left = fresh[number - back] or documents[number - back]
            label = left[-1].label
            if left is fresh[number - back]:
                left.pop()
            if label not in needed:
                needed.append(label)
        steps.append(needed)
    used = sorted({label for step in steps for label in step})
    return TaskPlan(
        facts={fact.label: fact for each in documents for fact in each},
        steps=steps,
        report=chance.sample(used, min(REPORTED, len(used))),
    )


def _draw_steps_back(chance: random.Random, number: int, knobs: Knobs, calls_per_step: float) -> int:
    """Return how many steps back a fact of step `number` is, at most `number`."""
    if knobs.reuse == "heavy" and chance.random() < 0.5:
        return chance.randint(0, number)
    distances, counts = load_distances()
    while True:
        back = int(chance.choices(distances, counts)[0] / calls_per_step)
        # A recorded distance that is longer than the run so far is drawn again.
        if back <= number:
            return back
