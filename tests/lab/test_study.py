"""Studies: what is loaded, how it is spread, summed, interrupted and written down."""

from __future__ import annotations

import json
import signal
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elision.errors import FormatError, SpecError
from elision.lab.replay_workers import StudyProgress
from elision.lab.report.charts import FOLDED, select_columns
from elision.lab.results import Row, Study, total
from elision.lab.run_loading import StudySettings, default_candidates, load_runs, parse_candidates
from elision.lab.study import run_study
from elision.strategies.spec import describe_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Bill

RUNS = Path(__file__).parents[2] / "examples" / "runs"
SWE_AGENT = RUNS / "swe-agent-sympy-20801.traj.gz"
SPECS = ("raw", "masking", "hybrid(schedule=hindsight)")


def _study(*paths: Path, specs: tuple[str, ...] = SPECS, jobs: int = 1) -> Study:
    settings = StudySettings(prices=find_price_set("anthropic"), candidates=parse_candidates(specs))
    return run_study(load_runs(paths), settings, jobs=jobs)


@pytest.fixture(scope="module")
def one() -> Study:
    return _study(SWE_AGENT)


def test_json_shape(one: Study) -> None:
    """It holds every key that was promised, and is plain JSON without NaN."""
    data = json.loads(json.dumps(one.json(), allow_nan=False))
    assert set(data) >= {"prices", "runs", "totals", "controls", "problems"}
    promised = {
        *("file", "trajectory", "reader", "turns", "tool_turns", "strategy", "calls", "tokens", "usd"),
        *("usd_summarizer", "usd_raw", "usd_hindsight", "peak_tokens", "epochs", "summaries", "evidence_items"),
        *("evidence_recall", "regret_turns"),
    }
    tokens = {"sent", "input", "cache_write", "cache_read", "output", "summarizer_input", "summarizer_output"}
    for row in (*data["runs"], *data["totals"]):
        assert promised <= set(row)
        assert set(row["tokens"]) == tokens


def test_tokens_add_up(one: Study) -> None:
    """What was sent was billed once, at one of the three rates, and the bill is what the rates say."""
    rates = one.prices.find_rates(0)
    for row in one.rows:
        bill = row.bill
        assert bill.prompt_tokens == bill.input + bill.cache_write + bill.cache_read
        usd = bill.input * rates.input + bill.cache_write * rates.write_price + bill.cache_read * rates.read_price
        assert row.bill.usd == pytest.approx((usd + bill.output * rates.output) / 1e6)


def test_what_is_folded_is_counted_once() -> None:
    """At the first request of each result; without rewrites that is what the last views are shorter."""
    study = _study(SWE_AGENT, specs=("raw", "raw(fold=true)", "masking(fold=true)"))
    _, raw, folded, masked = study.rows
    assert (raw.folded, raw.folded_tokens) == (0, 0)
    assert raw.peak - folded.peak == folded.folded_tokens > 10_000
    assert folded.folded >= masked.folded > 0
    assert study.json()["totals"][2]["folded_tokens"] == folded.folded_tokens
    headings = [column.heading for column in select_columns(study)]
    assert FOLDED in headings
    assert FOLDED not in [column.heading for column in select_columns(_study(SWE_AGENT, specs=("raw",)))]


def test_a_strategy_costs_the_same_beside_others() -> None:
    """Strategies that write the same placeholders at a call share them, and nothing follows from that."""
    specs = ("masking", "hybrid", "masking(gist=20)", "masking(window=5)", "masking(handles=false)")
    settings = {
        each: StudySettings(prices=find_price_set("anthropic"), candidates=parse_candidates(own), hindsight=False)
        for each, own in [("all", specs), *((spec, (spec,)) for spec in specs)]
    }
    together = run_study(load_runs([SWE_AGENT]), settings["all"])
    for spec in specs:
        alone = run_study(load_runs([SWE_AGENT]), settings[spec])
        (label,) = (each.label for each in settings[spec].candidates)
        assert alone.rows[-1].masked > 0
        assert [alone.rows[-1]] == [row for row in together.rows if row.strategy == label]


def test_raw_costs_raw(one: Study) -> None:
    """The strategy `raw` is billed what every other row calls raw."""
    raw = one.of("raw")[0]
    assert {row.raw_usd for row in one.rows} == {raw.raw_usd}
    assert raw.usd == pytest.approx(raw.raw_usd)
    assert raw.epochs == 1
    assert raw.evidence_recall == 1.0


def test_hindsight_is_the_plan_replayed(one: Study) -> None:
    """The row of the hindsight schedule costs about what the yardstick says: digests are a little shorter."""
    row = one.of("hybrid(schedule=hindsight)")[0]
    assert row.to_hindsight == pytest.approx(1.0, abs=0.01)


def test_jobs_change_nothing() -> None:
    """Two processes find what one finds, in the same order."""
    paths = (SWE_AGENT, RUNS / "openhands-pylint.tar.gz")
    alone, together = _study(*paths, specs=("raw", "masking")), _study(*paths, specs=("raw", "masking"), jobs=2)
    assert alone.json() == together.json()
    assert alone.series == together.series


def test_interrupted_keeps_what_is_finished() -> None:
    """Ctrl-C leaves the finished runs in the report, marked as unfinished."""

    def interrupt(progress: StudyProgress) -> None:
        if progress.finished:
            raise KeyboardInterrupt

    settings = StudySettings(prices=find_price_set("anthropic"), candidates=parse_candidates(("raw",)))
    found = run_study(load_runs([RUNS]), settings, progress=interrupt)
    assert not found.finished
    assert {row.strategy for row in found.rows} == {"as billed", "as recorded", "raw"}
    assert len({(row.file, row.trajectory) for row in found.rows}) == 1
    assert found.json()["finished"] is False


def test_an_interrupt_while_workers_start_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops what is raised within the hooks of a fork, so Ctrl-C comes when all workers are there."""
    submit = ProcessPoolExecutor.submit

    def interrupted(pool: ProcessPoolExecutor, *work: Any) -> Future[Any]:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return submit(pool, *work)

    monkeypatch.setattr(ProcessPoolExecutor, "submit", interrupted)
    assert not _study(SWE_AGENT, RUNS / "openhands-pylint.tar.gz", specs=("raw",), jobs=2).finished


def test_progress_moves_within_a_run() -> None:
    """The share of the work rises in small steps while no run is finished, in this process and in workers."""
    for jobs, paths in ((1, [SWE_AGENT]), (2, [SWE_AGENT, RUNS / "openhands-pylint.tar.gz"])):
        seen: list[StudyProgress] = []
        settings = StudySettings(prices=find_price_set("anthropic"), candidates=parse_candidates(SPECS))
        run_study(load_runs(paths), settings, jobs=jobs, progress=seen.append)
        shares = [progress.share for progress in seen]
        assert shares == sorted(shares)
        every = 3 * len(paths)
        assert (seen[0].finished, seen[0].every, seen[0].share) == (0, every, 0.0)
        assert (seen[-1].finished, seen[-1].every, seen[-1].share) == (every, every, 1.0)
        if jobs == 1:
            # Each pass of each replay, and each call of the search. Workers are looked at from time to time.
            assert sum(0 < progress.share < 1 and not progress.finished for progress in seen) > 3 * 84


def test_hindsight_can_be_left_out() -> None:
    """No cheapest schedule is worked out, everything else is the same, and the JSON says so."""
    settings = StudySettings(
        prices=find_price_set("anthropic"),
        candidates=parse_candidates(("raw", "masking"), hindsight=False),
        hindsight=False,
    )
    found, whole = run_study(load_runs([SWE_AGENT]), settings), _study(SWE_AGENT, specs=("raw", "masking"))
    assert [replace(row, hindsight_usd=None) for row in whole.rows] == list(found.rows)
    assert (found.json()["hindsight"], whole.json()["hindsight"]) == (False, True)


def test_without_hindsight_no_schedule_of_it_is_compared() -> None:
    """The defaults lose theirs; one that is asked for is refused."""
    assert [each.label for each in parse_candidates((), hindsight=False)] == [
        each.label for each in default_candidates()
    ][:-1]
    with pytest.raises(SpecError, match="--no-hindsight"):
        parse_candidates(["masking(schedule=hindsight)"], hindsight=False)


def test_a_bad_file_among_good_ones_is_a_problem(tmp_path: Path) -> None:
    """Nothing else is lost."""
    bad = tmp_path / "bad.json"
    bad.write_text('{"no": "trajectory"}')
    loaded = load_runs([bad, SWE_AGENT])
    assert len(loaded.runs) == 1
    assert any("bad.json" in str(problem) for problem in loaded.problems)


def test_nothing_but_bad_files_is_an_error(tmp_path: Path) -> None:
    """It names the formats known."""
    bad = tmp_path / "bad.json"
    bad.write_text('{"no": "trajectory"}')
    with pytest.raises(FormatError, match="swe-agent"):
        load_runs([bad])


def test_the_same_path_twice_is_one_run() -> None:
    """A path counts once."""
    assert len(load_runs([SWE_AGENT, SWE_AGENT]).runs) == 1


def test_defaults_are_what_the_report_compares() -> None:
    """Raw, three published, three of ours and hindsight."""
    found = {item.label: describe_strategy(item.strategy) for item in default_candidates()}
    assert list(found) == [
        *("raw", "masking, every turn", "summarization, every turn", "hybrid, every turn"),
        *("masking", "summarization", "hybrid", "hybrid, hindsight"),
    ]


def test_hindsight_of_a_strategy_that_has_none_is_an_error() -> None:
    """A token trigger makes the path matter."""
    with pytest.raises(SpecError, match="no hindsight"):
        parse_candidates(["two-tier(schedule=hindsight)"])


def test_where_a_budget_matters_hindsight_is_replaced_and_said_so() -> None:
    """The run is replayed all the same, so that totals compare."""
    found = _study(SWE_AGENT, specs=("masking(budget=20000, schedule=hindsight)",))
    assert found.rows[0].hindsight_usd is None
    assert any("no hindsight" in problem.reason for problem in found.problems)


def test_totals_are_sums() -> None:
    """And have no hindsight unless every run has one."""
    rows = [
        Row(strategy="s", turns=3, bill=Bill(usd=1.0), raw_usd=2.0, hindsight_usd=0.9, late_usd=0.1, peak=5),
        Row(strategy="s", turns=4, bill=Bill(usd=3.0), raw_usd=4.0, hindsight_usd=None, late_usd=0.3, peak=7),
    ]
    whole = total(rows)
    assert (whole.turns, whole.usd, whole.raw_usd, whole.peak, whole.hindsight_usd) == (7, 4.0, 6.0, 7, None)
    assert whole.allowance == pytest.approx(2.0 / 0.2)


def test_nothing_saved_has_no_allowance() -> None:
    """A strategy dearer than raw has nothing to eat up."""
    assert Row(bill=Bill(usd=3.0), raw_usd=2.0, late_usd=0.1).allowance is None


@pytest.mark.parametrize("strategy", ["raw(budget=4000)", "raw(fold=true, budget=4000)"])
def test_a_budget_that_would_not_hold_is_refused(strategy: str) -> None:
    """A strategy that hides nothing sends any length, so a budget for it is a mistake."""
    with pytest.raises(SpecError, match="hides nothing, so a budget has no effect"):
        parse_candidates([strategy])
