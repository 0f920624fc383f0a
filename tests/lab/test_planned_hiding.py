"""The best hiding as a strategy."""

from __future__ import annotations

import pytest

from elision.engine import Log
from elision.errors import SpecError
from elision.lab.candidates import Candidate, add_best_hiding, parse_candidates
from elision.lab.evidence import collect_evidence
from elision.lab.hiding_yardstick import measure_hiding
from elision.lab.planned_hiding import has_best_hiding, make_planned_hiding
from elision.lab.replay import replay_run
from elision.lab.study import run_study
from elision.lab.study_settings import StudySettings
from elision.strategies.spec import parse_strategy
from elision.trajectory.plan import Key
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from tests.lab.tuning.recorded import make_run, make_runs

SIZER = Sizer(make_counter())
#: Without a cache it pays to hide in short runs.
PRICES = find_price_set("uncached")


def find_first_hidden(strategy_plan: tuple[tuple[Key, int], ...]) -> dict[Key, int]:
    """Return by result the first call whose view hides it."""
    first: dict[Key, int] = {}

    def look(session: Log) -> None:
        for key in session.state.hidden:
            first.setdefault(key, len(session.state.turns) + 1)

    replay_run(make_run(1), make_planned_hiding(parse_strategy("masking"), strategy_plan), PRICES, SIZER, watch=look)
    return first


def test_it_hides_what_the_plan_says() -> None:
    """Each result at its own call, and no other; without a plan nothing."""
    plan = (((1, 1), 9), ((2, 1), 4), ((5, 1), 9))
    assert find_first_hidden(plan) == dict(plan)
    assert find_first_hidden(()) == {}


def test_a_plan_of_the_search_is_carried_out() -> None:
    """What the yardstick finds for a run hides exactly the results that it names, when it says."""
    run = make_run(1)
    found = measure_hiding(run, parse_strategy("masking(window=3)"), PRICES, SIZER, collect_evidence(run))
    assert found is not None
    assert found.plan
    assert find_first_hidden(found.plan) == dict(found.plan)


@pytest.mark.parametrize(
    ("text", "has_one"),
    [
        ("masking", True),
        ("masking(which=reuse, schedule=batched(5))", True),
        ("supersede", True),
        ("raw", False),
        ("masking(schedule=every-turn)", False),
        ("masking(schedule=hindsight)", False),
        ("masking(fold=5)", False),
        ("hybrid", False),
    ],
)
def test_who_has_one(text: str, has_one: bool) -> None:
    """Strategies that choose when to hide, and hide results alone."""
    assert has_best_hiding(parse_strategy(text)) is has_one


def test_one_row_for_all_schedules() -> None:
    """Strategies that differ in when they hide are compared with one yardstick; without any the user is told."""
    both = parse_candidates(["raw", "masking", "masking(schedule=batched(5))"])
    assert [each.label for each in add_best_hiding(both)][3:] == ["masking, best hiding"]
    with pytest.raises(SpecError, match="such as masking"):
        add_best_hiding([Candidate("raw", parse_strategy("raw"))])


def test_a_study_adds_up_the_yardstick() -> None:
    """The row is the replay of the plan; its figures are those of the search, of both runs."""
    candidates = add_best_hiding(parse_candidates(["masking(window=3)"]))
    shares: list[float] = []
    settings = StudySettings(prices=PRICES, candidates=candidates)
    whole = run_study(make_runs(2), settings, progress=lambda found: shares.append(found.share))
    base, best = whole.totals
    assert best.hiding is not None
    assert best.hiding.usd == pytest.approx(base.usd)
    assert best.hiding.bound_usd <= best.hiding.best_usd
    assert best.hindsight_usd == base.hindsight_usd
    assert best.masked > 0
    assert shares == sorted(shares)
    # The search, a half of the second candidate's work, reports within itself.
    assert len({share for share in shares if 0.25 < share < 0.375}) > 5


def test_where_there_is_none_the_row_says_so() -> None:
    """With a budget that matters no choice is free: the row hides nothing, and a problem says so."""
    candidates = add_best_hiding(parse_candidates(["masking(window=3, budget=budget(tokens=9000))"]))
    whole = run_study(make_runs(1), StudySettings(prices=PRICES, candidates=candidates))
    assert whole.totals[1].hiding is None
    assert any("best hiding" in problem.reason for problem in whole.problems)
