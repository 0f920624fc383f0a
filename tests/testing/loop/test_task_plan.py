"""Plans: how far back the facts of a step are."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from elision.testing.loop.task_plan import FACTS_PER_DOCUMENT, Knobs, TaskFact, TaskPlan, load_distances, make_plan


def plan(reuse: str, seed: int = 1, steps: int = 60) -> TaskPlan:
    documents = [
        [
            TaskFact(label=f"{number}-{letter}", document=str(number), value="1")
            for letter in "abcd"[:FACTS_PER_DOCUMENT]
        ]
        for number in range(steps)
    ]
    return make_plan(random.Random(seed), documents, Knobs(reuse=reuse), 3.0)  # type: ignore[arg-type]


def distances(reuse: str) -> list[int]:
    found: list[int] = []
    for seed in range(20):
        for number, labels in enumerate(plan(reuse, seed).steps):
            found += [number - int(label.split("-")[0]) for label in labels[1:]]
    return found


def test_recorded_distances() -> None:
    """The shares that the page names: of 2,707 first uses 18.5 % are more than 10 turns back, 5.8 % more than 40."""
    turns, counts = load_distances()
    uses = sum(counts)
    shares = [sum(n for turn, n in zip(turns, counts, strict=True) if turn > limit) / uses for limit in (10, 20, 40)]
    assert uses == 2707
    assert shares == pytest.approx([0.185, 0.109, 0.058], abs=0.0006)


def test_steps_use_facts_as_far_back_as_was_recorded() -> None:
    """About as many facts lie more than 10 turns back as in the recordings; the heavy distribution has twice that."""
    far = {reuse: fmean(back * 3 > 10 for back in distances(reuse)) for reuse in ("recorded", "heavy")}
    assert 0.10 < far["recorded"] < 0.25
    assert far["heavy"] > 2 * far["recorded"]


def test_every_step_has_a_fact_of_its_own_document() -> None:
    """The first fact of a step is of the document that it opens; none is asked for twice, and the report asks for
    facts that were used."""
    made = plan("recorded")
    used = {label for labels in made.steps for label in labels}
    for number, labels in enumerate(made.steps):
        assert labels[0].startswith(f"{number}-")
        assert len(labels) == len(set(labels))
    assert set(made.report) <= used
