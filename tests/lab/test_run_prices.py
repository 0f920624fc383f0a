"""Each run at the prices of the model that was recorded: on its day, or as the newest flagship."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from elision.lab.run_loading import (
    Candidate,
    Loaded,
    StudySettings,
    describe_unpriced,
    find_recorded_prices,
    list_model_uses,
    sum_up_prices,
)
from elision.lab.study import run_study
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_table import load_price_table
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Message, Turn, make_content

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


def test_what_is_unknown_is_billed_as_the_newest_flagship() -> None:
    """A run whose model has no known price is billed as the flagship of its family, and that is reported."""
    runs = [make_run("claude-opus-4-5"), make_run("claude-opus-9"), make_run("gpt-9"), make_run("nobody-knows-1")]
    runs += [make_run(""), make_run("")]
    names = [find_recorded_prices(run).name for run in runs]
    assert names == ["claude-opus-4-5", "claude-opus-5-5", "gpt-6.1-sol", *["claude-opus-5-5"] * 3]
    assert describe_unpriced(list_model_uses(runs)) == (
        "1 run of 'claude-opus-9', 1 run of 'nobody-knows-1', 2 runs without a model's name as claude-opus-5-5, the "
        "newest flagship; 1 run of 'gpt-9' as gpt-6.1-sol, the newest flagship"
    )
    assert describe_unpriced(list_model_uses(runs[:1])) == ""


def test_flagships_are_in_the_table() -> None:
    """Each family's flagship has a price of its own vendor's page or of two tables."""
    table = load_price_table()
    flagships = {key: each.flagship for key, each in table.providers.items() if each.flagship}
    assert set(flagships) == {"anthropic", "openai", "google"}
    for provider, name in flagships.items():
        entry = table.find_entry(name, on=date(2026, 11, 20))
        assert entry is not None
        assert entry.provider == provider
        assert entry.trust != "L"


def test_heading_of_one_model() -> None:
    """Runs of one model have its list as their heading."""
    runs = [make_run("claude-opus-4-5"), make_run("anthropic/claude-opus-4-5-20251101")]
    assert sum_up_prices(list_model_uses(runs)).name == "claude-opus-4-5"


def test_heading_of_several_models() -> None:
    """Of several models the heading names all, and shows the rates of the one with the most calls."""
    found = sum_up_prices(list_model_uses([make_run("gpt-5"), make_run("claude-opus-4-5", calls=9)]))
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
    for run in runs:
        alone = run_study(Loaded((run,), ()), replace(asked, prices=find_recorded_prices(run)))
        assert costs[run.id] == pytest.approx(alone.rows[0].usd)
    assert found.problems == ()
    assert found.prices.name == "the recorded models"
