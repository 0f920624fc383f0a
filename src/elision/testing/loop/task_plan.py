"""What a task asks: documents with facts, steps that each need some of them, and a report at the end."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from elision.testing.loop.knobs import Knobs

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
