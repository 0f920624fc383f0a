"""The invariants of design 2 under a budget: what the user said stays as far as a quarter of the view reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup
from elision.errors import BudgetError
from elision.lab.run_as_recorded import calls
from elision.strategies.decision_context import Budget
from elision.strategies.strategy import Strategy
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory
from tests.properties import invariants
from tests.properties.builders import begin_session, call, long_text, result, turn, user
from tests.properties.cases import CASES, SIZER, SMALL, PlayedRun, make_call
from tests.properties.test_invariants import PATIENCE
from tests.properties.trajectories import trajectories


def play_under_budget(run: Trajectory, strategy: Strategy, prices: Prices, tokens: int) -> PlayedRun:
    """The session of `run` up to the first call whose view cannot be made to fit."""
    budget = Budget(tokens=tokens, max_context_pct=1, reserved=0)
    session = Log.fold((), LogSetup(replace(strategy, budget=budget), prices, SIZER))
    session.set_head(run.head)
    seen = []
    for item, (now, model) in zip(run.turns, calls(run), strict=True):
        try:
            seen.append(make_call(session, now, model))
        except BudgetError:
            break
        session.add_turn(item)
    played = Trajectory(id=run.id, head=run.head, turns=tuple(session.state.turns))
    # That of the log: under a budget it keeps fewer of the user's words beside a summary.
    return PlayedRun(played, session.strategy, session, tuple(seen))


@pytest.mark.parametrize("tokens", [900, 1_500, 4_000])
@settings(max_examples=PATIENCE * 4)
@given(run=trajectories(most=30), case=st.sampled_from(sorted(CASES)), prices=st.sampled_from(sorted(SMALL)))
def test_every_view_under_a_budget_keeps_the_invariants(tokens: int, run: Trajectory, case: str, prices: str) -> None:
    """Nothing is absent: what a summary under pressure covers is in it, or follows it, as without pressure."""
    played = play_under_budget(run, CASES[case], SMALL[prices], tokens)
    if not played.views:
        return
    invariants.check_coverage_and_pairs(played)
    invariants.check_folds_are_lossless(played)
    invariants.check_events_give_the_views(played)
    invariants.check_masked_stays_masked(played)
    invariants.check_covered_stays_covered(played)
    invariants.check_epochs_are_rewrites(played)
    invariants.check_one_decision_a_call(played)
    invariants.check_protected_stays(played)
    invariants.check_users_words_stay(played)


def test_a_quarter_of_the_view_is_kept_for_the_user_s_words() -> None:
    """Under a budget words that would be kept without one are quoted inside the summary, the newest first."""
    words = [f"Say {index}: " + "word " * 60 for index in range(1, 9)]
    turns = [
        turn(index, (call(command="cat"), result(long_text(index, 30))), said=[user(words[index - 1])])
        for index in range(1, 9)
    ]
    strategy = "hybrid(window=1, summarize_at=30, tail=2, keep_user_tokens=20000, summary_max_tokens=60)"
    budget = "budget=budget(tokens=1200, max_context_pct=1, reserved=0)"
    session = begin_session(strategy.replace("summary_max", f"{budget}, summary_max"))
    for item in turns:
        make_call(session, None, "")
        session.add_turn(item)
    view = make_call(session, None, "")
    assert session.strategy.keep_user_tokens == 300
    assert view.covered
    covered = words[: view.covered]
    shown = [segment.source for segment in view.segments if segment.kind == "interjection"]
    assert sum(segment.tokens for segment in view.segments if segment.kind == "interjection") <= 300 + 2 * 70
    kept = [item.interjections[0] in shown for item in turns[: len(covered)]]
    assert kept == sorted(kept)
    assert not all(kept)
