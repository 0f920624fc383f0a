"""Runs joined with outcomes: the published figures, and everything that has no partner."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import FormatError
from elision.lab.outcomes import InstanceOutcome, InstanceRun, OutcomeSet, OutcomeStudy, join_outcomes
from elision.lab.outcomes_runs import load_table_runs
from tests.lab.outcome_files import TABLE


def run(instance: str, strategy: str = "raw", usd: float | None = 1.0, **more: object) -> InstanceRun:
    given = {"place": f"{strategy}/{instance}.traj", "turns": 10, "source": "stated", **more}
    return InstanceRun(instance=instance, strategy=strategy, usd=usd, **given)  # type: ignore[arg-type]


def outcome(instance: str, solved: bool, strategy: str = "") -> InstanceOutcome:
    return InstanceOutcome(instance=instance, solved=solved, place=f"{strategy or 'any'}.json", strategy=strategy)


def publish() -> OutcomeStudy:
    runs = load_table_runs(TABLE, "")
    assert runs is not None
    return join_outcomes(runs, OutcomeSet())


def test_the_published_figures() -> None:
    """Four strategies on the same 50 instances: $2.17, $0.637, $0.751, $0.571, and 28 solved by each."""
    study = publish()
    assert [row.strategy for row in study.strategies] == ["raw", "masking", "summarization", "hybrid"]
    assert [round(row.mean_usd or 0, 3) for row in study.strategies] == [2.169, 0.637, 0.751, 0.571]
    assert [row.solved for row in study.strategies] == [28] * 4
    assert [round(row.mean_turns, 1) for row in study.strategies] == [69.1, 65.5, 76.8, 63.5]
    assert study.is_same_set
    assert study.strategies[3].usd_per_solved == pytest.approx(0.5714 * 50 / 28, abs=1e-3)


def test_differences_within_pairs() -> None:
    """Hybrid less masking: −10.3 %; less the summary strategy: −23.9 %; the intervals come with a seed."""
    runs = load_table_runs(TABLE, "") or []
    for baseline, share in (("masking", -0.103), ("summarization", -0.239)):
        study = join_outcomes(runs, OutcomeSet(), baseline=baseline)
        found = next(each for each in study.differences if each.strategy == "hybrid")
        assert found.baseline == baseline
        assert found.usd_share == pytest.approx(share, abs=5e-4)
        assert found.rate == 0
        assert found.gained == found.lost > 0
        assert found.usd_interval is not None
        assert found.usd is not None
        assert found.usd_interval.low < found.usd < found.usd_interval.high
    assert join_outcomes(runs, OutcomeSet(), seed=3) == join_outcomes(runs, OutcomeSet(), seed=3)
    assert join_outcomes(runs, OutcomeSet(), seed=3) != join_outcomes(runs, OutcomeSet(), seed=4)


def test_what_has_no_partner_is_listed() -> None:
    runs = [run("a"), run("b"), run("c", "masking")]
    study = join_outcomes(runs, OutcomeSet(outcomes=(outcome("a", True, "raw"), outcome("z", False, "raw"))))
    assert [each.instance for each in study.strategies[0].joined] == ["a"]
    assert [each.instance for each in study.no_outcome] == ["b", "c"]
    assert [each.instance for each in study.no_run] == ["z"]
    assert study.shared == study.differences == ()


def test_nothing_handed_in_is_not_solved() -> None:
    """Of a whole benchmark only instances that were run count."""
    absent = (outcome("b", False, "raw"), outcome("never run", False, "raw"))
    study = join_outcomes([run("a"), run("b")], OutcomeSet(outcomes=(outcome("a", True, "raw"),), absent=absent))
    assert [(each.instance, each.solved) for each in study.strategies[0].joined] == [("a", True), ("b", False)]
    assert study.no_run == ()


def test_an_outcome_of_no_strategy() -> None:
    """It belongs to whichever strategy ran the instance; where several did, the file has to be named."""
    runs = [run("a"), run("b", "masking")]
    study = join_outcomes(runs, OutcomeSet(outcomes=(outcome("a", True), outcome("b", False))))
    assert [(row.strategy, row.solved) for row in study.strategies] == [("raw", 1), ("masking", 0)]
    with pytest.raises(FormatError, match=r"any\.json: a was run by raw, masking.*--outcomes 'raw=any\.json'"):
        join_outcomes([run("a"), run("a", "masking")], OutcomeSet(outcomes=(outcome("a", True),)))


def test_two_runs_of_an_instance() -> None:
    """Both files are named."""
    runs = [run("a", place="one.traj"), run("a", place="two.traj")]
    with pytest.raises(FormatError, match=r"a: two runs of raw, in one\.traj and in two\.traj; leave one out"):
        join_outcomes(runs, OutcomeSet(outcomes=(outcome("a", True),)))


def test_two_outcomes_of_an_instance() -> None:
    both = (outcome("a", True, "raw"), outcome("a", False))
    with pytest.raises(FormatError, match=r"a: two outcomes, in raw\.json and in any\.json"):
        join_outcomes([run("a")], OutcomeSet(outcomes=both))


def test_an_unknown_cost() -> None:
    """It is in no mean, and nothing is a cost by solution then."""
    outcomes = OutcomeSet(outcomes=(outcome("a", True), outcome("b", True)))
    (row,) = join_outcomes([run("a", usd=3.0), run("b", usd=None, source="unknown")], outcomes).strategies
    assert (row.mean_usd, row.usd_per_solved) == (3.0, None)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        (OutcomeSet(), "give the harness's report: --outcomes REPORT.json"),
        (OutcomeSet(outcomes=(outcome("b", True),)), "the runs are called a, the outcomes b; .*--tasks"),
        (OutcomeSet(patches={("", "a"): "preds.json"}), r"predictions are not graded; evaluate them first"),
    ],
)
def test_nothing_meets(outcomes: OutcomeSet, expected: str) -> None:
    with pytest.raises(FormatError, match=expected):
        join_outcomes([run("a")], outcomes)


def test_an_unknown_baseline() -> None:
    with pytest.raises(FormatError, match="--baseline mask: there is no such strategy; there are raw"):
        join_outcomes([run("a")], OutcomeSet(outcomes=(outcome("a", True),)), baseline="mask")


@given(
    st.dictionaries(st.tuples(st.sampled_from("rmh"), st.sampled_from("abcdefgh")), st.booleans(), min_size=1),
    st.dictionaries(st.tuples(st.sampled_from("rmh"), st.sampled_from("abcdefgh")), st.booleans(), min_size=1),
)
def test_nothing_is_dropped(held: dict[tuple[str, str], bool], graded: dict[tuple[str, str], bool]) -> None:
    """Every run is joined or listed, every outcome is joined or listed."""
    runs = [run(instance, strategy) for strategy, instance in held]
    outcomes = OutcomeSet(outcomes=tuple(outcome(id, solved, strategy) for (strategy, id), solved in graded.items()))
    if not held.keys() & graded.keys():
        with pytest.raises(FormatError):
            join_outcomes(runs, outcomes)
        return
    study = join_outcomes(runs, outcomes)
    joined = {(row.strategy, each.instance): each.solved for row in study.strategies for each in row.joined}
    assert joined == {key: graded[key] for key in held.keys() & graded.keys()}
    assert {(each.strategy, each.instance) for each in study.no_outcome} == held.keys() - graded.keys()
    assert {(each.strategy, each.instance) for each in study.no_run} == graded.keys() - held.keys()
    for each in study.differences:
        assert each.rate * each.instances == pytest.approx(each.gained - each.lost)
