"""The search and its bound against every plan there is, on small random problems."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.lab.best_hiding import find_best_hiding
from elision.lab.hiding_bound import BoundSearch
from elision.lab.hiding_problem import HidingProblem, PricedUse

CALLS = 5


@st.composite
def problems(draw: st.DrawFn, most: int = 3) -> HidingProblem:
    """Up to three results in five calls, with uses of one result or of any of several, cold calls, and all prices."""
    count = draw(st.integers(1, most))
    born = sorted(draw(st.lists(st.integers(1, 3), min_size=count, max_size=count)))
    since = [each + draw(st.integers(1, 2)) for each in born]
    size = draw(st.lists(st.integers(3, 16), min_size=count, max_size=count))
    saves = [draw(st.integers(1, each)) for each in size]
    gaps = np.zeros((count, CALLS + 1), dtype=int)
    for place in range(count):
        grown = 0
        for call in range(born[place] + 1, CALLS + 1):
            # Nothing comes between two results once the second is there.
            if place + 1 == count or call <= born[place + 1] + 1:
                grown += draw(st.integers(0, 6))
            gaps[place, call] = grown
    read = draw(st.sampled_from([0.1, 0.5, 1.0]))
    cold = np.array([False, True, *(draw(st.booleans()) and draw(st.booleans()) for _ in range(CALLS - 1))])
    uses: dict[int, tuple[PricedUse, ...]] = {}
    for call in draw(st.sets(st.integers(2, CALLS), max_size=3)):
        shown = [place for place in range(count) if born[place] < call]
        if shown:
            seen = st.sets(st.sampled_from(shown), min_size=1)
            uses[call] = tuple(
                PricedUse(call, tuple(sorted(draw(seen))), draw(st.floats(0.5, 30.0)))
                for _ in range(draw(st.integers(1, 2)))
            )
    return HidingProblem(
        last=CALLS,
        fixed_usd=100.0,
        keep_usd=np.where(cold, 1.25, read),
        rewrite_usd=np.where(cold, 0.0, 1.25 - read),
        since=np.array(since),
        born=np.array(born),
        size=np.array(size),
        saves=np.array(saves),
        gaps=gaps,
        uses=uses,
    )


Token: TypeAlias = tuple[int, str, int]


def show_view(problem: HidingProblem, call: int, hidden_from: Sequence[int]) -> list[Token]:
    """The tokens that call `call` sends, each with a name of its own."""
    view: list[Token] = []
    for place in range(problem.count):
        if problem.born[place] > call:
            continue
        is_hidden = 0 < hidden_from[place] <= call
        length = problem.size[place] - (problem.saves[place] if is_hidden else 0)
        view += [(place, "hidden" if is_hidden else "shown", number) for number in range(length)]
        view += [(place, "gap", number) for number in range(problem.gaps[place, min(call + 1, problem.last)])]
    return view


def bill_views(problem: HidingProblem, hidden_from: Sequence[int]) -> float:
    """Every call reads what begins as the last one did, and writes the rest; a cold call writes all of it."""
    usd = 0.0
    before: list[Token] = []
    for call in range(1, problem.last + 1):
        view = show_view(problem, call, hidden_from)
        common = next((n for n, (old, new) in enumerate(zip(before, view, strict=False)) if old != new), None)
        common = min(len(before), len(view)) if common is None else common
        write = problem.keep_usd[call] + problem.rewrite_usd[call]
        usd += problem.keep_usd[call] * common + write * (len(view) - common)
        before = view
    return float(usd)


def bill_literally(problem: HidingProblem, hidden_from: Sequence[int]) -> float:
    """The bill of a plan, token by token, and what it recalls."""
    usd = problem.fixed_usd + bill_views(problem, hidden_from) - bill_views(problem, [0] * problem.count)
    for call, uses in problem.uses.items():
        usd += max((use.usd for use in uses if all(0 < hidden_from[place] <= call for place in use.seen)), default=0.0)
    return usd


def list_plans(problem: HidingProblem) -> list[tuple[int, ...]]:
    """Every plan: each result is hidden at some call from which on it may be, or never."""
    return list(product(*([0, *range(since, problem.last + 1)] for since in problem.since)))


@settings(max_examples=60, deadline=None)
@given(problems())
def test_the_best_plan_of_all(problem: HidingProblem) -> None:
    """No plan is cheaper than the one found where it claims so; the bound is below every plan; bills are right."""
    bills = {plan: bill_literally(problem, plan) for plan in list_plans(problem)}
    cheapest = min(bills.values())
    found = find_best_hiding(problem)
    assert found.is_exact
    assert np.isclose(found.usd, cheapest)
    assert np.isclose(bills[found.hidden_from], found.usd)
    for plan, usd in bills.items():
        assert np.isclose(problem.bill_plan(np.array(plan)), usd)


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(0, 60))
def test_no_plan_is_below_the_bound(problem: HidingProblem, steps: int) -> None:
    """However long the ascent takes, and in what it says of the calls that are left."""
    cheapest = min(bill_literally(problem, plan) for plan in list_plans(problem))
    bound = BoundSearch(problem).solve(cheapest, steps)
    assert bound.usd <= cheapest + 1e-6


@settings(max_examples=30, deadline=None)
@given(problems())
def test_a_narrow_search_says_that_it_is_one(problem: HidingProblem) -> None:
    """With one set kept at each call the plan is a plan, and the bound is below it and below the best."""
    cheapest = min(bill_literally(problem, plan) for plan in list_plans(problem))
    found = find_best_hiding(problem, width=1)
    assert found.hidden_from in list_plans(problem)
    assert found.bound_usd - 1e-6 <= cheapest <= found.usd + 1e-6
    if found.is_exact:
        assert np.isclose(found.usd, cheapest)
