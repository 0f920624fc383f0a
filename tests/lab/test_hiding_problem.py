"""A run as a problem: its bills against those of replays, and what counts as missed."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log
from elision.lab.evidence import Evidence, Use
from elision.lab.hiding_problem import LinearRates, build_problem, price_recall
from elision.lab.hindsight import observe_run
from elision.lab.replay import replay_run
from elision.strategies.mask_candidates import MaskCandidate
from elision.strategies.masking import Masking
from elision.strategies.schedules import FixedSchedule
from elision.trajectory.plan import Key
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head
from tests.lab.test_hindsight import SIZER, price_lists, runs
from tests.properties.builders import call, long_text, result, turn

NOTHING = Evidence(uses={}, repeats={}, echoes={}, written={}, seen={}, fresh=frozenset(), observed=frozenset())
PLAIN = Prices(
    name="plain",
    tiers=((0, Rates(input=3, output=15, cache_write=3.75, cache_read=0.3)),),
    cache=CacheRules(kind="prefix", minimum=0),
)


def bill_both(run: Trajectory, window: int, calls: frozenset[int], prices: Prices) -> tuple[float, float]:
    """What a replay that masks at `calls` costs, and what the problem says of the same plan."""
    strategy = Masking(window=window, gist=0, placeholder="[gone]", handles=False)
    figures, found = observe_run(run, strategy, prices, SIZER)
    problem = build_problem(figures, found, NOTHING)
    first_hidden: dict[Key, int] = {}

    def watch(session: Log) -> None:
        for key in session.state.hidden:
            first_hidden.setdefault(key, len(session.state.turns) + 1)

    replayed = replay_run(run, replace(strategy, schedule=FixedSchedule(mask_calls=calls)), prices, SIZER, watch=watch)
    plan = np.array([first_hidden.get(candidate.key, 0) for candidate in found], dtype=int)
    return replayed.usd, problem.bill_plan(plan)


@settings(deadline=None)
@given(runs(), st.integers(1, 4), st.frozensets(st.integers(2, 12)))
def test_it_bills_as_a_replay_does(run: Trajectory, window: int, calls: frozenset[int]) -> None:
    """Where a cache reads any prefix and there is one price tier, to the cent."""
    run = replace(run, head=msgspec.structs.replace(run.head, warm_tokens=0))
    replayed, billed = bill_both(run, window, calls, PLAIN)
    assert billed == pytest.approx(replayed)


@settings(deadline=None)
@given(runs(), st.integers(1, 4), st.frozensets(st.integers(2, 12)), price_lists)
def test_it_never_bills_more(run: Trajectory, window: int, calls: frozenset[int], prices: Prices) -> None:
    """Minimum sizes, steps and tiers only make the real bill larger."""
    replayed, billed = bill_both(run, window, calls, prices)
    assert billed <= replayed * (1 + 1e-9)


def use_items(run: Trajectory, *uses: Use) -> tuple[list[MaskCandidate], dict[int, list[tuple[int, ...]]]]:
    """What may be hidden of `run`, and by call the results that have to be hidden for one of `uses` to be missed."""
    figures, found = observe_run(run, Masking(window=1, gist=20), PLAIN, SIZER)
    by_turn: dict[int, tuple[Use, ...]] = {}
    for use in uses:
        by_turn[use.turn] = (*by_turn.get(use.turn, ()), use)
    problem = build_problem(figures, found, replace(NOTHING, uses=by_turn))
    return found, {call: [use.seen for use in own] for call, own in problem.uses.items()}


@pytest.fixture
def long_run() -> Trajectory:
    """Six turns with a long result each, whose names are in its middle; the fourth's is short."""
    texts = [long_text(number) if number != 4 else "ok" for number in range(1, 7)]
    turns = [turn(number, (call(command=f"cat {number}"), result(text))) for number, text in enumerate(texts, start=1)]
    return Trajectory(id="six", head=Head(), turns=tuple(turns))


def test_a_use_is_missed_if_all_that_shows_it_is_hidden(long_run: Trajectory) -> None:
    """A result that is never hidden, or a placeholder that names the item, keeps it."""
    found, missed = use_items(
        long_run,
        Use(6, "unheard_of", ((1, 1), (2, 1))),
        Use(6, "unheard_of", ((1, 1), (4, 1))),
        Use(5, "src/part_1.py", ((1, 1),)),
    )
    assert "src/part_1.py" in found[0].text
    assert [candidate.key for candidate in found] == [(1, 1), (2, 1), (3, 1)]
    assert missed == {6: [(0, 1)]}


def test_the_price_of_a_recall() -> None:
    """One more call on the view, the words that ask for it, and the result: written once, and read for ten turns."""
    rates = LinearRates(read=0.1, write=1.0, output=5.0)
    assert price_recall(rates, view_tokens=1_000, result_tokens=50) == pytest.approx(100 + 300 + 50 + 50)
