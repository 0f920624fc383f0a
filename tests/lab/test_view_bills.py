"""What a run had cost by a call: the rows of a replay, up to there."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.formats.registry import read_runs
from elision.lab.results import BILLED, RECORDED
from elision.lab.run_as_recorded import add_recorded_head, size_run, sizer
from elision.lab.run_loading import find_recorded_prices, load_runs
from elision.lab.study import run_study
from elision.lab.study_settings import StudySettings, parse_candidates
from elision.lab.views import EVERYTHING, VIEW, ViewBills, bill_views
from elision.strategies.spec import parse_strategy
from elision.trajectory.trajectory import Trajectory

RUNS = Path(__file__).parents[2] / "examples/runs"


def bill(name: str, strategy: str = "masking") -> ViewBills:
    run = next(found for found in read_runs(RUNS / name) if isinstance(found, Trajectory))
    prices = find_recorded_prices(run)
    counting = size_run(run, prices, sizer("openai", "o200k"))
    return bill_views(add_recorded_head(run, counting), parse_strategy(strategy), prices, counting)


@pytest.mark.parametrize("name", ["openhands-pylint.tar.gz", "pi-session.jsonl.gz", "swe-agent-sympy-20801.traj.gz"])
def test_the_last_call_has_the_costs_of_a_replay(name: str) -> None:
    """Row by row."""
    candidates = parse_candidates(["masking", "raw"], hindsight=False, model_summaries=False)
    study = run_study(load_runs([RUNS / name]), StudySettings(prices=None, candidates=candidates, hindsight=False))
    costs = {row.strategy: row.usd for row in study.totals}
    bills = bill(name)
    assert bills.find_cost(VIEW) == pytest.approx(costs["masking"])
    assert bills.find_cost(EVERYTHING) == pytest.approx(costs["raw"])
    assert bills.find_cost(RECORDED) == pytest.approx(costs[RECORDED])
    assert bills.find_cost(BILLED) == (pytest.approx(costs[BILLED]) if BILLED in costs else None)


def test_everything_was_sent_until_the_agent_condensed() -> None:
    """From its first cut on, sending everything is a hypothesis, and larger than what was sent."""
    bills = bill("openhands-pylint.tar.gz")
    first = bills.condensed_before[0]
    assert [bills.is_never_sent(call) for call in (1, first - 1, first, first + 1)] == [False, False, True, True]
    before, after = dict(bills.list_rows(first - 1)), dict(bills.list_rows(first))
    assert before[EVERYTHING].tokens == before[RECORDED].tokens
    assert after[EVERYTHING].tokens > after[RECORDED].tokens
    assert bills.encode(first)["as_billed"]["tokens"] == after[BILLED].tokens
