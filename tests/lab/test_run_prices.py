"""Each run at the prices of the model that was recorded: on its day, and what has no price is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elision.errors import PriceError
from elision.lab.candidates import Candidate
from elision.lab.run_loading import Loaded
from elision.lab.run_prices import find_recorded_prices, leave_out_unpriced, sum_up_prices
from elision.lab.study import run_study
from elision.lab.study_settings import StudySettings
from elision.strategies.spec import parse_strategy
from elision.trajectory.content import make_content
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Message, Turn

#: 2026-10-01 and a week later, in seconds.
BEFORE, AFTER = 1_790_812_800.0, 1_791_417_600.0


def make_run(model: str, calls: int = 3, at: float | None = None) -> Trajectory:
    turns = tuple(
        Turn(index=index, content=make_content("It works. " * 9), at=at, model=model) for index in range(1, calls + 1)
    )
    head = Head(messages=(Message(role="user", content=make_content("Mend it.")),))
    return Trajectory(id=model or "nameless", file=f"{model}.json", model=model, head=head, turns=turns)


def test_prices_of_the_day() -> None:
    """A model whose price changed is billed as on the day of the run."""
    early, late = (find_recorded_prices(make_run("claude-sonnet-5-5", at=at)) for at in (BEFORE, AFTER))
    assert early.find_rates(0).cache_read == 2 * (late.find_rates(0).cache_read or 0)


def test_what_is_unknown_is_named() -> None:
    """Runs without a known price are left out, each with the model and what to give instead."""
    runs = [make_run("claude-opus-4-5"), make_run("nobody-knows-1"), make_run("")]
    priced, problems = leave_out_unpriced(runs)
    assert priced == runs[:1]
    assert ["'nobody-knows-1'" in problem.reason for problem in problems] == [True, False]
    assert all("give --model NAME or --prices SET" in problem.reason for problem in problems)


def test_no_run_has_a_price() -> None:
    """Where no run is left, that is an error."""
    with pytest.raises(PriceError, match="no run has a model with a known price"):
        leave_out_unpriced([make_run("nobody-knows-1")])


def test_heading_of_one_model() -> None:
    """Runs of one model have its list as their heading."""
    runs = [make_run("claude-opus-4-5"), make_run("anthropic/claude-opus-4-5-20251101")]
    assert sum_up_prices(runs).name == "claude-opus-4-5"


def test_heading_of_several_models() -> None:
    """Of several models the heading names all, and shows the rates of the one with the most calls."""
    found = sum_up_prices([make_run("gpt-5"), make_run("claude-opus-4-5", calls=9)])
    assert found.name == "the recorded models"
    assert found.source.startswith(
        "claude-opus-4-5, gpt-5, each run at its own model's; the rates of claude-opus-4-5: "
    )
    assert found.find_rates(0).input == 5


def test_a_study_at_recorded_prices() -> None:
    """Each run costs what it costs at its own model's prices alone."""
    runs = (make_run("gpt-5"), make_run("claude-opus-4-5"), make_run("nobody-knows-1"))
    asked = StudySettings(prices=None, candidates=(Candidate("raw", parse_strategy("raw")),), hindsight=False)
    found = run_study(Loaded(runs, ()), asked)
    costs = {row.trajectory: row.usd for row in found.rows}
    for run in runs[:2]:
        alone = run_study(Loaded((run,), ()), replace(asked, prices=find_recorded_prices(run)))
        assert costs[run.id] == pytest.approx(alone.rows[0].usd)
    assert set(costs) == {"gpt-5", "claude-opus-4-5"}
    assert [problem.file for problem in found.problems] == ["nobody-knows-1.json"]
    assert found.prices.name == "the recorded models"
