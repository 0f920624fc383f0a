"""The number of turns that a study assumes: the measured table, what a user may give, and what it costs."""

from __future__ import annotations

import math
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.lab.elongation import (
    LATE,
    OPENHANDS,
    SWE_AGENT,
    assume_turns,
    find_factor,
    find_scaffolds,
    load_measured_turns,
    price_late_turn,
    price_turns,
)
from elision.lab.results import Study
from elision.lab.run_loading import StudySettings, default_candidates, load_runs, parse_candidates
from elision.lab.study import run_study
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from tests.corpus import CORPUS, reproduces
from tests.docs.blocks import ROOT

STRATEGIES = {each.label: each.strategy for each in default_candidates()}
COSTS = st.lists(st.floats(0, 10), min_size=1, max_size=60)


def test_five_models_were_measured() -> None:
    """Summaries against masking, paired: longer with two models, about the same with one, shorter with two."""
    effects = [f"{100 * (factor - 1):+.1f}" for _, factor in load_measured_turns().list_summary_effects()]
    assert effects == ["+17.9", "+15.2", "+1.4", "-16.5", "-17.5"]


def test_one_model_ran_every_strategy() -> None:
    """On 50 instances: 69.1 turns raw, 65.5 masking, 76.8 summarization, 63.5 and 80.7 hybrid."""
    shared = [each for each in load_measured_turns().measurements if each.shared and each.scaffold == SWE_AGENT]
    assert {each.raw_turns for each in shared} == {69.1}
    assert {each.instances for each in shared} == {50}
    turns = {(each.strategy, each.every): round(each.turns, 1) for each in shared}
    assert turns == {("masking", 0): 65.5, ("summarization", 21): 76.8, ("hybrid", 43): 63.5, ("hybrid", 21): 80.7}


@pytest.mark.parametrize(
    ("spec", "turns"),
    [
        ("masking", 65.5),
        ("masking(window=20)", 65.5),
        ("masking(window=5, schedule=every-turn)", 65.5),
        ("summarization", 76.8),
        ("summarization(every=42)", 76.8),
        # The paper fires at N + tail, then every N; ours at summarize_at, then every summarize_at - tail.
        ("hybrid(summarize_at=53)", 63.5),
        ("hybrid(summarize_at=43)", 63.5),
        ("hybrid(summarize_at=31)", 80.7),
        ("hybrid(summarize_at=21)", 80.7),
    ],
)
def test_the_nearest_measured_strategy(spec: str, turns: float) -> None:
    """Of the same kind, with at most twice or half as many turns."""
    factor = find_factor(parse_strategy(spec), one_model=True)
    assert factor is not None
    assert round(factor.low * 69.1, 1) == round(factor.high * 69.1, 1) == turns


@pytest.mark.parametrize(
    "spec",
    [
        *("raw", "two-tier", "masking(window=58)", "masking(window=4)"),
        *("summarization(every=5)", "hybrid(summarize_at=200)", "openhands"),
    ],
)
def test_what_was_not_measured_has_no_factor(spec: str) -> None:
    assert find_factor(parse_strategy(spec)) is None


def test_the_band_is_over_the_models() -> None:
    """Five models for masking and summarization, one for hybrid."""
    band = assume_turns("", STRATEGIES)
    assert band.mode == "band"
    assert "arXiv" in band.source
    ranges = {label: (round(each.low, 3), round(each.high, 3)) for label, each in band.factors.items()}
    assert ranges["masking"] == ranges["masking, every turn"] == (0.892, 1.151)
    assert ranges["summarization"] == (0.863, 1.199)
    assert ranges["hybrid"] == (0.920, 0.920)
    assert "raw" not in ranges
    measured = assume_turns("measured", STRATEGIES)
    assert all(each.low == each.high for each in measured.factors.values())
    assert assume_turns("none", STRATEGIES).factors == {}


def test_factors_by_kind_and_by_label() -> None:
    """A label comes before a kind, and may have commas and parentheses."""
    text = "masking=1.0, summarization=1.15,hybrid, every turn=0.98"
    given_ = assume_turns(text, STRATEGIES)
    assert {label: each.low for label, each in given_.factors.items()} == {
        "masking": 1.0,
        "masking, every turn": 1.0,
        "summarization": 1.15,
        "summarization, every turn": 1.15,
        "hybrid, every turn": 0.98,
    }
    own = {spec: parse_strategy(spec) for spec in ("masking(window=5, gist=0)", "masking(window=9)")}
    by_label = assume_turns("masking(window=5, gist=0)=1.2,masking=0.9", own)
    assert [each.low for each in by_label.factors.values()] == [1.2, 0.9]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("measure", ["measured", "none", "NAME=FACTOR"]),
        ("masking=", ["masking=", "0.5", "10"]),
        ("masking=often", ["often"]),
        ("masking=nan", ["nan"]),
        ("masking=0.1", ["0.5"]),
        ("=1.2", ["=1.2"]),
        ("masks=1.2", ["masks", "masking", "hybrid, hindsight"]),
        ("raw=1.2", ["raw"]),
        ("masking=1,masking=2", ["twice"]),
    ],
)
def test_errors_name_the_mend(text: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        assume_turns(text, STRATEGIES)
    assert all(word in str(error.value) for word in ("--elongation", *words))


def test_more_and_fewer_turns() -> None:
    """More turns cost what the last ten did; of fewer the last ones are not paid."""
    costs = [float(number) for number in range(1, 21)]
    assert price_late_turn(costs) == 15.5
    assert price_turns(costs, 1.0) == 210
    assert price_turns(costs, 1.1) == 210 + 2 * 15.5
    assert price_turns(costs, 0.9) == 210 - 20 - 19
    assert price_turns(costs, 0.925) == 210 - 20 - 19 / 2
    assert price_turns([], 1.5) == price_late_turn([]) == 0.0


@given(COSTS, st.floats(0.5, 3), st.floats(0.5, 3))
def test_more_turns_never_cost_less(costs: list[float], one: float, other: float) -> None:
    few, many = (price_turns(costs, factor) for factor in sorted((one, other)))
    assert 0 <= few <= many + 1e-9
    assert math.isclose(price_turns(costs, 1.0), sum(costs), abs_tol=1e-9)
    assert many <= sum(costs) + max(0.0, 3 - 1) * len(costs) * max(costs[-LATE:]) + 1e-9


#: As the paper's code runs hybrids: a first summary at N + 10 turns, then every N.
HYBRIDS = {
    43: "hybrid(window=10, summarize_at=53, tail=10, schedule=every-turn, gist=0)",
    21: "hybrid(window=10, summarize_at=31, tail=10, schedule=every-turn, gist=0)",
}


def _replay_hybrids(path: str, tokens: str) -> tuple[Study, list[float]]:
    settings = StudySettings(
        prices=find_price_set("uncached"),
        candidates=parse_candidates(list(HYBRIDS.values())),
        tokens=tokens,
        hindsight=False,
        elongation="measured",
    )
    found = run_study(load_runs([ROOT / path]), settings)
    extended = [row.extended_usd[0] for row in found.totals if row.extended_usd is not None]
    return found, extended


@cache
def _replay_sample() -> tuple[Study, list[float]]:
    return _replay_hybrids("examples/runs/swe-agent-sympy-20801.traj.gz", "o200k")


def test_a_summary_every_43_turns_beats_every_21_as_it_did_live() -> None:
    """As recorded 21 is cheaper; with the turns that agents took live it is not: 63.5 against 80.7 on 50 instances."""
    found, (rare, frequent) = _replay_sample()
    assert found.totals[1].usd < found.totals[0].usd
    assert rare < 0.8 * frequent


def test_the_assumption_is_written_down() -> None:
    """In JSON: the mode, the source, a factor and its basis by strategy, and what each row costs then."""
    found, (rare, _) = _replay_sample()
    data = found.json()
    assert data["elongation"]["mode"] == "measured"
    assert "MIT" in data["elongation"]["source"]
    factor = data["elongation"]["factors"][HYBRIDS[43]]
    assert factor["low"] == factor["high"] == pytest.approx(63.54 / 69.1)
    assert factor["basis"] == "hybrid, N=43: SWE-agent, Qwen3-Coder 480B, 50 instances"
    for rows in (data["totals"], data["runs"]):
        priced = [row["usd_with_assumed_turns"] for row in rows if row["strategy"] == HYBRIDS[43]]
        assert priced == [[rare, rare]]


@reproduces("hybrids with rare and frequent summaries under the measured turns")
def test_every_43_turns_beats_every_21_on_the_corpus() -> None:
    _, (rare, frequent) = _replay_hybrids(str(CORPUS / "swe-agent-traj"), "estimate")
    assert rare < 0.8 * frequent


def test_folding_is_left_aside() -> None:
    """What was run live did not fold; a strategy is like it with folding and without."""
    found = find_factor(parse_strategy("masking"))
    assert found is not None
    assert found == find_factor(parse_strategy("masking(fold=false)"))


@pytest.mark.parametrize(
    ("spec", "factor", "instances"),
    [
        # M counts events, two a turn: M=10 is 5 turns and M=72 is 36. N and M of summaries are turns.
        ("masking(window=5)", 177.636 / 78.32, 500),
        ("masking(window=36)", 85.94 / 78.32, 500),
        ("summarization(every=21, tail=10)", 105.832 / 78.32, 500),
        ("masking(window=10)", 124.06 / 78.7, 50),
        ("masking(window=29)", 74.26 / 78.7, 50),
    ],
)
def test_openhands_has_factors_of_its_own(spec: str, factor: float, instances: int) -> None:
    """In turns, of all 500 instances where that window ran on them, and else of the 50."""
    found = find_factor(parse_strategy(spec), scaffold=OPENHANDS)
    assert found is not None
    assert found.low == found.high == pytest.approx(factor, abs=1e-3)
    assert found.basis.endswith(f"OpenHands, Gemini 2.5 Flash, {instances} instances")


def test_nobody_measured_hybrids_with_openhands() -> None:
    assert find_factor(parse_strategy("hybrid"), scaffold=OPENHANDS) is None


def test_factors_are_of_the_recordings_scaffold() -> None:
    """OpenHands' for its three formats, SWE-agent's for all others and for none."""
    assert find_scaffolds(()) == find_scaffolds(["claude-code", "swe-agent", "mini-swe-agent"]) == (SWE_AGENT,)
    assert find_scaffolds(["openhands-events", "openhands-output", "openhands-session"]) == (OPENHANDS,)
    assert find_scaffolds(["swe-agent", "openhands-events"]) == (OPENHANDS, SWE_AGENT)


def test_of_two_scaffolds_the_range_counts() -> None:
    """From the lowest to the highest of both; none where only one has a factor."""
    one, other, both = (
        assume_turns("", STRATEGIES, scaffolds) for scaffolds in ((SWE_AGENT,), (OPENHANDS,), (OPENHANDS, SWE_AGENT))
    )
    assert both.factors["masking"].low == one.factors["masking"].low
    assert both.factors["masking"].high == other.factors["masking"].high
    assert "hybrid" in one.factors
    assert "hybrid" not in both.factors
    assert "OpenHands and SWE-agent on SWE-bench" in both.source


def test_a_run_of_openhands_is_priced_with_its_own_factor() -> None:
    """Beside a run of SWE-agent each keeps the factor of its scaffold."""
    settings = StudySettings(
        prices=find_price_set("uncached"),
        candidates=parse_candidates(["masking"]),
        tokens="estimate",
        hindsight=False,
        elongation="measured",
    )
    paths = [ROOT / f"examples/runs/{name}.gz" for name in ("openhands-pylint.tar", "swe-agent-sympy-20801.traj")]
    alone = [run_study(load_runs([path]), settings) for path in paths]
    together = run_study(load_runs(paths), settings)
    assert [each.turns.scaffolds for each in (*alone, together)] == [(OPENHANDS,), (SWE_AGENT,), (OPENHANDS, SWE_AGENT)]
    priced = [[row.extended_usd for row in each.rows if row.strategy == "masking"] for each in (*alone, together)]
    assert priced[2] == [*priced[0], *priced[1]]
    assert None not in priced[2]
