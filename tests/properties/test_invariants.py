"""The invariants of design 2, for every strategy x schedule, over generated runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.errors import BudgetError
from elision.lab.run_as_recorded import calls
from elision.strategies.decision_context import Budget
from elision.strategies.strategy import Strategy
from elision.trajectory.events import PassDecided
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory
from tests.properties import invariants
from tests.properties.builders import begin_session, call, head, long_text, result, turn, write_brief_summary
from tests.properties.cases import CASES, SCHEDULES, SMALL, find_worst_ratio, play_run, write_summary
from tests.properties.trajectories import trajectories
from tests.properties.view_digest import digest_views
from tests.soak import pair_cases

UNCACHED = find_price_set("uncached")
#: Each case has its share of a profile's examples: there are more than a hundred.
PATIENCE = max(2, settings.default.max_examples // 8 if settings.default else 2)


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=PATIENCE)
@given(run=trajectories(), prices=st.sampled_from(sorted(SMALL)))
def test_every_view_keeps_the_invariants(case: str, run: Trajectory, prices: str) -> None:
    """A run that is played once shows all of them; the name of the check that fails says which one is broken."""
    before = repr(run)
    played = play_run(run, CASES[case], SMALL[prices])
    # I1: turns are never changed, whatever is hidden of them.
    invariants.check_raw_is_untouched(played, before)
    # I2 and I5: every observation is verbatim, folded with its source visible, a placeholder or covered.
    invariants.check_coverage_and_pairs(played)
    invariants.check_folds_are_lossless(played)
    invariants.check_protected_is_whole(played)
    invariants.check_newest_is_verbatim(played)
    # I3: the same events give the same views in a new session; what is hidden stays hidden, in the same words.
    invariants.check_events_give_the_views(played)
    invariants.check_masked_stays_masked(played)
    invariants.check_covered_stays_covered(played)
    # I4: epochs count exactly the rewrites, one a pass at most, and every pass says why.
    invariants.check_epochs_are_rewrites(played)
    invariants.check_one_decision_a_call(played)
    # I6: head, pins, protected tools and the user's words stay.
    invariants.check_protected_stays(played)
    invariants.check_users_words_stay(played)
    invariants.check_placeholders_are_short(played)


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("raw")])
def test_the_cases_act(case: str) -> None:
    """The test above sees masks and summaries: on a plain long run every case hides something."""
    again = tuple(
        turn(index, (call("read_file", path="a.py"), result(long_text(index, 40), "read_file")))
        for index in range(1, 51)
    )
    played = play_run(Trajectory(id="plain", head=head(), turns=again), CASES[case], SMALL["anthropic"])
    masks = any(seen.decided.masks for seen in played.views)
    summary = any(seen.decided.summary for seen in played.views)
    if "plan 3" in case and case.startswith(("masking", "published")):
        assert not masks
    else:
        assert masks or summary
    if case.endswith("every-turn"):
        assert summary != case.startswith(("masking", "published"))


@pytest.mark.parametrize(
    ("prices", "strategy"), pair_cases(sorted(SMALL), ["masking", "published", "raw, fold", "masking, fold"])
)
@settings(max_examples=PATIENCE * 4)
@given(run=trajectories(most=40, one_model=True))
def test_never_over_the_cap(strategy: str, prices: str, run: Trajectory) -> None:
    """Cache-aware masking never costs more than 1.10 x sending everything, at any call."""
    assert find_worst_ratio(CASES[f"{strategy} x cache-aware"], SMALL[prices], run, write_summary) <= 1.10 + 1e-9


# Quiet runs without rules: see the expected failures in tests/strategies/test_policy.py for the others.
@pytest.mark.parametrize(("prices", "strategy"), pair_cases(sorted(SMALL), ["summarization", "hybrid"]))
@settings(max_examples=PATIENCE * 4)
@given(run=trajectories(most=40, one_model=True, quiet=True))
def test_summaries_never_over_the_cap(strategy: str, prices: str, run: Trajectory) -> None:
    """Nor does cache-aware summarizing, the summarizer's own bill included."""
    plain = replace(CASES[f"{strategy} x cache-aware"], rules=())
    assert find_worst_ratio(plain, SMALL[prices], run, write_brief_summary) <= 1.10 + 1e-9


@pytest.mark.parametrize("strategy", ["masking", "published"])
@settings(max_examples=PATIENCE * 4)
@given(run=trajectories(most=40))
def test_uncached_decides_as_every_turn(strategy: str, run: Trajectory) -> None:
    """Without a cache the cache-aware schedule masks at the very calls that every-turn does."""
    ours, theirs = (
        play_run(run, CASES[f"{strategy} x {schedule}"], UNCACHED) for schedule in ("cache-aware", "every-turn")
    )
    assert [seen.decided.masks for seen in ours.views] == [seen.decided.masks for seen in theirs.views]


@pytest.mark.parametrize("strategy", ["masking", "published", "two-tier", "hybrid"])
@settings(max_examples=PATIENCE * 2)
@given(run=trajectories(most=40), prices=st.sampled_from(sorted(SMALL)))
def test_placeholders_do_not_depend_on_when(strategy: str, run: Trajectory, prices: str) -> None:
    """However late an observation is masked, its placeholder is the same."""
    texts: dict[tuple[int, int], str] = {}
    for schedule in (*SCHEDULES, "plan 1", "plan 2"):
        for seen in play_run(run, CASES[f"{strategy} x {schedule}"], SMALL[prices]).views:
            for mask in seen.decided.masks:
                assert texts.setdefault(mask.key, mask.text) == mask.text


def fits_or_says_so(strategy: Strategy, tokens: int, prices: Prices, run: Trajectory) -> None:
    budget = Budget(tokens=tokens, max_context_pct=1, reserved=0)
    session = begin_session(replace(strategy, budget=budget), prices, start=run.head)
    for item, (now, model) in zip(run.turns, calls(run), strict=True):
        too_much = _prepared(session, now, model)
        if too_much is not None:
            assert too_much.needed > too_much.usable == tokens
            return
        newest, decided = session.newest_call, session.events[-2]
        assert newest is not None
        assert isinstance(decided, PassDecided)
        assert newest.view.tokens <= tokens
        assert {clip.key[0] for clip in decided.clips} <= {newest.view.call - 1}
        session.add_turn(item)


def _prepared(session: Log, now: float | None, model: str) -> BudgetError | None:
    try:
        run_pass(decide(session, make_plain_terms(now, model)), write_brief_summary)
    except BudgetError as error:
        return error
    return None


@pytest.mark.parametrize(("tokens", "strategy"), pair_cases([400, 900, 2_500], ["masking", "masking, fold"]))
@settings(max_examples=PATIENCE * 2)
@given(run=trajectories(most=30, quiet=True), prices=st.sampled_from(sorted(SMALL)))
def test_i7_masked_view_fits_or_says_so(strategy: str, tokens: int, run: Trajectory, prices: str) -> None:
    """Under a budget a view fits, or BudgetError gives the numbers; only results of the newest turn are clipped."""
    fits_or_says_so(CASES[f"{strategy} x cache-aware"], tokens, SMALL[prices], run)


# Quiet runs without rules: see the expected failures in tests/strategies/test_budget_tiers.py for the others.
@pytest.mark.parametrize(
    ("strategy", "tokens"), pair_cases(["summarization", "hybrid", "two-tier", "hybrid, fold"], [400, 900, 2_500])
)
@settings(max_examples=PATIENCE * 4)
@given(run=trajectories(most=30, quiet=True), prices=st.sampled_from(sorted(SMALL)))
def test_i7_summarized_view_fits_or_says_so(strategy: str, tokens: int, run: Trajectory, prices: str) -> None:
    """The same with summaries."""
    fits_or_says_so(replace(CASES[f"{strategy} x cache-aware"], rules=()), tokens, SMALL[prices], run)


def test_i3_in_any_process() -> None:
    """The same run gives the same views in a process that hashes differently."""
    seed = "0" if os.environ.get("PYTHONHASHSEED") != "0" else "1"
    there = subprocess.check_output(
        [sys.executable, "-m", "tests.properties.view_digest"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONHASHSEED": seed},
        text=True,
    )
    assert there == f"{digest_views()}\n"
