"""The invariants of design 2 over recorded runs: a few in every test run, all of them in a soak."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

from elision.formats.registry import read_runs
from elision.lab.run_as_recorded import add_recorded_head
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_table import load_price_table
from elision.trajectory.trajectory import Trajectory
from tests.corpus import CORPUS, needs_corpus
from tests.properties import invariants
from tests.properties.cases import CASES, SIZER, PlayedRun, find_worst_ratio, play_run, write_summary
from tests.soak import SOAK, pair_cases

SETS = load_price_table().sets

#: Recordings of every shape, short enough for every test run.
SAMPLE = (
    "claude-code/drm-python-to-rust-port.jsonl.gz",
    "openhands-output/oh-multi-swe-bench-examples-output.jsonl.gz",
    "openhands-v1-events/61322748c69f.tar.gz",
    "swe-agent-traj/sa-ctf-web-i-got-id-demo.traj.gz",
)
#: Their longest view, and what every strategy is held against; quadratic work is for soaks.
MOST_TURNS = 40
FORMATS = (
    "claude-code",
    "cline",
    "inspect-ai",
    "mini-swe-agent",
    "openai-messages",
    "openhands-output",
    "openhands-v1-events",
    "pi-session",
    "swe-agent-traj",
    "tau2-bench",
)

pytestmark = needs_corpus("the invariants over recorded runs")


@cache
def recorded(path: str) -> tuple[Trajectory, ...]:
    """The runs of a recording that have turns, with the heads that replays give them."""
    runs = (found for found in read_runs(CORPUS / path) if isinstance(found, Trajectory))
    return tuple(add_recorded_head(run, SIZER) for run in runs if run.turns)


def recordings() -> list[str]:
    """Every recording, in a soak."""
    files = (file for name in FORMATS if SOAK for file in sorted((CORPUS / name).glob("*")))
    return [str(file.relative_to(CORPUS)) for file in files]


def first_turns(run: Trajectory) -> Trajectory:
    return Trajectory(id=run.id, head=run.head, turns=run.turns[:MOST_TURNS])


def hold_all(run: PlayedRun, before: str) -> None:
    """Every invariant, of one run."""
    invariants.check_raw_is_untouched(run, before)
    invariants.check_coverage_and_pairs(run)
    invariants.check_folds_are_lossless(run)
    invariants.check_protected_is_whole(run)
    invariants.check_newest_is_verbatim(run)
    invariants.check_events_give_the_views(run)
    invariants.check_masked_stays_masked(run)
    invariants.check_covered_stays_covered(run)
    invariants.check_epochs_are_rewrites(run)
    invariants.check_one_decision_a_call(run)
    invariants.check_protected_stays(run)
    invariants.check_users_words_stay(run)
    invariants.check_placeholders_are_short(run)


@pytest.mark.parametrize(("case", "path"), pair_cases([case for case in CASES if "plan" not in case], SAMPLE))
def test_recorded_sample(case: str, path: str) -> None:
    """I1-I6 hold on the beginning of a recorded run: each case has one of them."""
    run = first_turns(recorded(path)[0])
    hold_all(play_run(run, CASES[case], SETS["anthropic"]), repr(run))


@pytest.mark.parametrize(("case", "path"), list(product(CASES, recordings())))
def test_recorded(case: str, path: str) -> None:
    """I1-I6 hold on every call of every recorded run, for every strategy x schedule."""
    for run in recorded(path):
        hold_all(play_run(run, CASES[case], SETS["anthropic"]), repr(run))


CAPPED = ("masking(window=10)", "hybrid(window=10, summarize_at=43, tail=10)", "summarization")


@pytest.mark.parametrize("prices", sorted(SETS))
@pytest.mark.parametrize("strategy", CAPPED)
def test_recorded_sample_never_over_the_cap(strategy: str, prices: str) -> None:
    """Cache-aware stays within 1.10 x sending everything, at every call of a recorded run."""
    path = SAMPLE[(CAPPED.index(strategy) + sorted(SETS).index(prices)) % len(SAMPLE)]
    assert find_worst_ratio(parse_strategy(strategy), SETS[prices], recorded(path)[0], write_summary) <= 1.10 + 1e-9


@pytest.mark.parametrize(("strategy", "prices", "path"), list(product(CAPPED, sorted(SETS), recordings())))
def test_recorded_never_over_the_cap(strategy: str, prices: str, path: str) -> None:
    """The same on every recorded run."""
    for run in recorded(path):
        assert find_worst_ratio(parse_strategy(strategy), SETS[prices], run, write_summary) <= 1.10 + 1e-9


@pytest.mark.parametrize("path", SAMPLE)
def test_recorded_uncached_decides_as_every_turn(path: str) -> None:
    """Without a cache, cache-aware masking of a recorded run is every-turn masking."""
    run = recorded(path)[0]
    ours, theirs = (
        play_run(run, parse_strategy(f"masking(window=10, fold=false, schedule={schedule})"), SETS["uncached"])
        for schedule in ("cache-aware", "every-turn")
    )
    assert [seen.decided.masks for seen in ours.views] == [seen.decided.masks for seen in theirs.views]
