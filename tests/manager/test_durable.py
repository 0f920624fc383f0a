"""What the library door acknowledged is there after its process was killed, and the run goes on as if it had not."""

from __future__ import annotations

from functools import cache
from itertools import pairwise, product
from pathlib import Path

import pytest
from msgspec.structs import replace

from elision.formats.registry import read_runs
from elision.lab.views import list_views
from elision.providers.provider_table import find_provider
from elision.stores.store_urls import open_store
from elision.strategies.strategy import Raw
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn, make_content
from tests.figures import ReportFigures
from tests.manager.kill_trials import STRATEGIES, Run, run_kill_trials
from tests.soak import SOAK
from tests.stores.implementations import STORES

RUNS = Path(__file__).parents[2] / "examples" / "runs"
#: Kills for each durable store: a few in every test run, 500 each in a soak.
TRIALS = {"sqlite": 5, "linear-hash": 5, "postgresql": 3}
#: The stores on which each strategy is tried, unless each is on all of them.
PAIRS = [*((name, "hybrid") for name in TRIALS), ("sqlite", "fold"), ("sqlite", "hybrid-fold")]
#: Turns of the recorded run that are played.
TURNS = 40


def repeat_results(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """The turns, every other one with the result of the turn before at the end of its own."""
    made = list(turns)
    for place in range(2, len(turns), 2):
        before, own = turns[place - 1].observations, turns[place].observations
        if before and own:
            content = make_content(f"{own[0].text}\n{before[0].text}")
            made[place] = replace(turns[place], observations=(replace(own[0], content=content), *own[1:]))
    return tuple(made)


@cache
def recorded(strategy: str) -> Run:
    """A recorded run as a chat client sends it, call by call, and what an undisturbed session makes of it."""
    found = next(each for each in read_runs(RUNS / "swe-agent-sympy-20801.traj.gz") if isinstance(each, Trajectory))
    turns = found.turns[:TURNS]
    if "fold" in STRATEGIES[strategy]:
        turns = repeat_results(turns)
    run = Trajectory(id=found.id, head=found.head, turns=turns, observations=found.observations)
    sent = [
        each.plain
        for each in list_views(
            run, Raw(), find_price_set("anthropic"), Sizer(make_counter()), find_provider("openai").make_renderer()
        )
    ]
    assert all(after[: len(before)] == before for before, after in pairwise(sent))
    return Run.record_undisturbed(STRATEGIES[strategy], [*map(dict, sent[-1])], [len(each) for each in sent])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_run_is_worth_it(strategy: str) -> None:
    """Nearly every call of the undisturbed run hides something; several summarize, or fold."""
    acks = recorded(strategy).acks
    edits = [name for ack in acks for name, _ in ack.edits]
    assert sum(name.startswith("summary") for name in edits) >= (0 if strategy == "fold" else 2)
    assert sum(name.startswith("fold of") for name in edits) >= (0 if strategy == "hybrid" else 3)
    assert sum(bool(ack.edits) for ack in acks) > TURNS // 2


@pytest.mark.parametrize(("name", "strategy"), list(product(TRIALS, STRATEGIES)) if SOAK else PAIRS)
def test_no_kill_loses_a_call(name: str, strategy: str, tmp_path: Path, report_figures: ReportFigures) -> None:
    """Every acknowledged turn and edit is there, the same messages give the same bytes, and the run goes on."""
    url = STORES[name](tmp_path)
    trials = 500 if SOAK else TRIALS[name]
    toll = run_kill_trials(url, recorded(strategy), trials=trials)
    report_figures(f"context manager on {name}, {strategy}: {toll}")
    assert toll.lost == []
    assert toll.other == []
    assert toll.acknowledged >= 2 * trials
    store = open_store(url)
    assert store.check() == []
    store.close()
