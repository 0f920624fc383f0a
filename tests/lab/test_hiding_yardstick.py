"""A strategy's bill with its recalls against the best way to hide."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.formats.registry import read_runs
from elision.lab.evidence import EvidenceTally, collect_evidence
from elision.lab.hiding_yardstick import HidingYardstick, measure_hiding
from elision.lab.replay import replay_run
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from tests.lab.tuning.recorded import make_run

ROOT = Path(__file__).parents[2]
SIZER = Sizer(make_counter())


@pytest.fixture(scope="module")
def run() -> Trajectory:
    found = next(iter(read_runs(ROOT / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz")))
    assert isinstance(found, Trajectory)
    return found


@pytest.mark.parametrize("text", ["masking", "masking(window=3, schedule=every-turn, gist=0)", "supersede"])
def test_no_strategy_is_below_the_bound(run: Trajectory, text: str) -> None:
    """Its bill is the replay's; what it recalls is priced; neither it nor the plan found is cheaper than the bound."""
    strategy, prices = parse_strategy(text), find_price_set("anthropic")
    known = collect_evidence(run)
    found = measure_hiding(run, strategy, prices, SIZER, known)
    assert found is not None
    replayed = replay_run(run, strategy, prices, SIZER, known=known, tally=EvidenceTally())
    assert found.usd == pytest.approx(replayed.usd)
    assert (found.recall_usd > 0) == (replayed.evidence.regret_turns > 0)
    assert found.bound_usd <= found.best_usd + 1e-9
    assert found.bound_usd <= found.usd + found.recall_usd


def test_a_summary_has_no_such_yardstick(run: Trajectory) -> None:
    """What a strategy that summarizes may hide depends on what it did before."""
    known = collect_evidence(run)
    assert measure_hiding(run, parse_strategy("hybrid"), find_price_set("anthropic"), SIZER, known) is None


def test_a_budget_that_matters_has_no_such_yardstick() -> None:
    """Under pressure more is hidden than the strategy allows by itself; a budget that is never reached is none."""
    run = make_run(1)
    known = collect_evidence(run)
    prices = find_price_set("anthropic")
    tight, wide = (parse_strategy(f"masking(budget=budget(tokens={tokens}))") for tokens in (9_000, 1_000_000))
    assert measure_hiding(run, tight, prices, SIZER, known) is None
    assert measure_hiding(run, wide, prices, SIZER, known) is not None


def test_exact_where_plan_and_bound_agree() -> None:
    """A hair of rounding does not matter; more does."""
    assert HidingYardstick(usd=2.0, recall_usd=0.0, best_usd=1.0, bound_usd=1.0 - 1e-12).is_exact
    assert not HidingYardstick(usd=2.0, recall_usd=0.0, best_usd=1.0, bound_usd=0.999).is_exact
