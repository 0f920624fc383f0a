"""What counts as evidence, and what its noise control is compared with."""

from __future__ import annotations

from typing import Any

import pytest

from elision.lab import evidence as measure
from elision.lab.evidence import PARTNERS, Evidence, EvidenceTally, Use, collect_evidence, measure_noise
from elision.trajectory.events import HeadSet, PassDecided, TurnAdded
from elision.trajectory.plan import Edit, Summary
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Head, Observation, Turn, make_content


def turn(index: int, command: str, result: str) -> Turn:
    action = Action(id=f"c{index}", name="bash", arguments=f'{{"command": "{command}"}}')
    return Turn(
        index=index,
        content=(),
        actions=(action,),
        observations=(Observation(action_id=f"c{index}", tool="bash", content=make_content(result)),),
    )


def used(*turns: Turn) -> set[str]:
    """The items that count as evidence in a run of `turns`."""
    known = collect_evidence(Trajectory(id="r", head=Head(), turns=turns))
    return {use.item for uses in known.uses.values() for use in uses}


def test_a_line_number_of_a_listing_is_no_evidence() -> None:
    """The name in the line is; its number in `cat -n` or `grep -n` is not."""
    listing = "\n".join(f"{number:6}\tdef method_{number}():" for number in range(340, 350))
    assert used(turn(1, "view", listing), turn(2, "edit 345 method_345", "")) == {"method_345"}
    hit = "src/app.py:345:def run_it():"
    assert used(turn(1, "search", hit), turn(2, "open src/app.py 345", "")) == {"src/app.py", "app.py"}


def test_a_number_that_stands_elsewhere_too_is_evidence() -> None:
    """The place of an error is; and only the observation that says it counts as its source."""
    listing = "\n".join(f"{number}:pass" for number in range(340, 350))
    error = 'File "app.py", line 345'
    run = Trajectory(id="r", head=Head(), turns=(turn(1, "ls", error), turn(2, "view", listing), turn(3, "go 345", "")))
    assert collect_evidence(run).uses[3] == (Use(3, "345", ((1, 1),)),)


@pytest.mark.parametrize(
    ("block", "third", "found"),
    [("", "", 0), ("They wrote plan_b.py.", "", 1), ("", "open plan_b.py", 1), ("They wrote plan_c.py.", "", 0)],
)
def test_own_words_are_lost_where_a_summary_covers_them(block: str, third: str, found: int) -> None:
    """Unless the summary, or a turn that it does not cover, has them."""
    turns = (turn(1, "write plan_b.py", ""), turn(2, "ls", "none"), turn(3, third or "pwd", ""))
    run = Trajectory(id="r", head=Head(), turns=(*turns, turn(4, "run plan_b.py", "")))
    known = collect_evidence(run)
    assert set(known.echoes[4]) == {"plan_b.py"}
    state = State(Sizer(make_counter("estimate"))).fold_events([HeadSet(run.head), *map(TurnAdded, turns)])
    state.fold_event(PassDecided(4, "x", summary=Summary(covers=2, text=block, block=block)))
    tally = EvidenceTally()
    tally.count_turn(known, 4, state)
    assert (tally.own_items, tally.own_found, tally.own_missing_turns) == (1, found, 1 - found)


def test_masking_leaves_own_words() -> None:
    """What a result shows may be hidden; what the agent wrote stays."""
    turns = (turn(1, "write plan_b.py", "plan_b.py is written"), turn(2, "ls", "none"))
    run = Trajectory(id="r", head=Head(), turns=(*turns, turn(3, "run plan_b.py", "")))
    state = State(Sizer(make_counter("estimate"))).fold_events([HeadSet(run.head), *map(TurnAdded, turns)])
    state.fold_event(PassDecided(3, "x", edits=(Edit((1, 1), "mask", "[hidden]"),)))
    tally = EvidenceTally()
    tally.count_turn(collect_evidence(run), 3, state)
    assert (tally.own_items, tally.own_found, tally.own_missing_turns) == (1, 1, 0)


class Counted(frozenset[str]):
    """A set that counts how often another one is compared with it."""

    compared = 0

    def __rand__(self, other: Any) -> Any:
        Counted.compared += 1
        return frozenset(item for item in other if item in self)


def runs(count: int) -> list[Evidence]:
    """Runs that use one item of their own each; every third one's observations hold the others' as well."""
    every = [f"item_{number}" for number in range(count)]
    return [
        Evidence(
            uses={1: (Use(1, item, ((0, 1),)),)},
            repeats={},
            echoes={},
            written={},
            seen={},
            fresh=frozenset([item]),
            observed=Counted(every if number % 3 == 0 else [item]),
        )
        for number, item in enumerate(every)
    ]


def test_noise_is_compared_with_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many runs is compared with 200 others, never with itself; the figures are near those of all, and the same
    each time."""
    many = runs(400)
    Counted.compared = 0
    found = measure_noise(many, [frozenset()] * len(many))
    assert Counted.compared == 400 * PARTNERS
    assert measure_noise(many, [frozenset()] * len(many)) == found
    monkeypatch.setattr(measure, "PARTNERS", 400)
    whole = measure_noise(many, [frozenset()] * len(many))
    for sampled, exact in zip(found, whole, strict=True):
        assert sampled == pytest.approx(exact, abs=0.12)


def test_noise_of_few_runs_is_compared_with_all() -> None:
    """Up to 201 runs there is no sample."""
    few = runs(PARTNERS + 1)
    Counted.compared = 0
    measure_noise(few, [frozenset()] * len(few))
    assert Counted.compared == len(few) * PARTNERS
    assert measure_noise(runs(1), [frozenset()]) == [None]
