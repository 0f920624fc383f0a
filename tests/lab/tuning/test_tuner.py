"""A tuning whole: split, search, choice and judgement; the same for a seed, and by the same replay as everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from elision.errors import FormatError, SpecError
from elision.lab.run_loading import Loaded, StudySettings, parse_candidates
from elision.lab.study import run_study
from elision.lab.tuning.search_space import parse_space
from elision.lab.tuning.tuner import TuneProgress, TuneSettings, tune_runs
from elision.lab.tuning.tuning_result import Tuning
from elision.strategies.strategy import Masking
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Prices
from tests.lab.tuning.recorded import make_run, make_runs

PRICES = find_price_set("anthropic")
RUNS = make_runs(5)
#: Twelve points: searched whole.
SMALL = (
    "family=masking",
    "window=3,5,10",
    "gist=0,50",
    "schedule=cache-aware,every-turn",
    "rules=none",
)


def _settings(*space: str, **changes: object) -> TuneSettings:
    return replace(TuneSettings(prices=PRICES, space=parse_space(space)), **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def small() -> Tuning:
    return tune_runs(RUNS, _settings(*SMALL))


def test_a_small_space_is_replayed_whole(small: Tuning) -> None:
    """Both parts have figures, every reference and every point of the frontier is judged."""
    assert (small.method, small.size, small.searched) == ("exhaustive", 12, 12)
    assert len(small.fit_runs) + len(small.judge_runs) == 5
    assert {name for point in small.references for name in point.names} >= {"nothing hidden", "default"}
    assert all(point.judge is not None for point in (*small.references, *small.frontier, small.best))
    assert small.is_confirmed() is not None


def test_a_figure_is_what_replay_computes(small: Tuning) -> None:
    """Every field of every sum: there is one way to evaluate."""
    for part in ("fit", "judge"):
        keys = small.fit_runs if part == "fit" else small.judge_runs
        runs = Loaded(tuple(run for run in RUNS.runs if (run.file, run.id) in keys), ())
        texts = [point.text for point in small.frontier]
        settings = StudySettings(prices=PRICES, candidates=parse_candidates(texts), hindsight=False)
        for row in run_study(runs, settings).totals:
            if row.strategy not in texts:
                continue  # What happened, which is no point.
            found = small.find_point(row.strategy).json()[part]
            assert len(found) > 15
            assert found == {name: row.json()[name] for name in found}


def test_json_is_plain(small: Tuning) -> None:
    """It holds what is promised."""
    data = json.loads(json.dumps(small.json(), allow_nan=False))
    assert data["recommended"] in {point["strategy"] for point in data["points"]}
    assert {"fit", "judge", "names", "on_frontier", "strategy"} == set(data["points"][0])


def test_a_seed_decides_whatever_jobs_are() -> None:
    """A sampled search in two processes finds what one finds."""
    pytest.importorskip("optuna", reason="the extra `tune` is not installed")
    settings = _settings("family=masking", trials=18, seed=4)
    runs = make_runs(2, turns=12)
    alone = tune_runs(runs, settings)
    assert alone.method == "optuna"
    assert alone.searched == 18
    assert tune_runs(runs, settings, jobs=2).json() == alone.json()


def test_an_interrupted_search_continues(tmp_path: Path, small: Tuning) -> None:
    """Ctrl-C keeps what is finished, in result and file; the second run makes the rest and finds the same."""
    path = tmp_path / "study.jsonl"

    def interrupt(progress: TuneProgress) -> None:
        if progress.finished == 40:
            raise KeyboardInterrupt

    broken = tune_runs(RUNS, _settings(*SMALL), study=path, progress=interrupt)
    assert not broken.finished
    assert 0 < broken.searched < 12
    assert len(path.read_text().splitlines()) == 41
    made: list[TuneProgress] = []
    whole = tune_runs(RUNS, _settings(*SMALL), study=path, progress=made.append)
    assert whole.reused == 40
    assert whole.json() == small.json()
    again = tune_runs(RUNS, _settings(*SMALL), study=path, progress=made.clear)  # type: ignore[arg-type]
    assert made
    assert again.json() == small.json()


def test_a_changed_corpus_is_noticed(tmp_path: Path) -> None:
    """A run more is replayed; those that the file knows are not."""
    path = tmp_path / "study.jsonl"
    tune_runs(make_runs(2), _settings("family=masking", "window=3", "gist=50", "rules=none"), study=path)
    more = tune_runs(make_runs(3), _settings("family=masking", "window=3", "gist=50", "rules=none"), study=path)
    assert (more.added, more.gone) == (1, 0)
    assert more.reused > 0


def test_an_interruption_before_the_first_point() -> None:
    """There is nothing to report then."""

    def interrupt(progress: TuneProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_runs(RUNS, _settings(*SMALL), progress=interrupt)


def test_one_run_and_short_runs() -> None:
    """Each error names its mend."""
    with pytest.raises(SpecError, match="--judge-share 0"):
        tune_runs(make_runs(1), _settings(*SMALL))
    with pytest.raises(FormatError, match=r"longest has 4 calls, and the smallest window searched keeps 3"):
        tune_runs(make_runs(3, turns=4), _settings(*SMALL))
    alone = tune_runs(make_runs(1), _settings(*SMALL, judge_share=0.0))
    assert alone.judge_runs == ()
    assert alone.is_confirmed() is None
    assert alone.best.judge is None


@pytest.mark.parametrize("changes", [{"objective": "speed"}, {"min_evidence": 1.5}, {"min_evidence": float("nan")}])
def test_senseless_settings(changes: dict[str, object]) -> None:
    """Refused before the work."""
    with pytest.raises(SpecError, match=r"--objective|--min-evidence"):
        tune_runs(RUNS, _settings(*SMALL, **changes))


def test_a_run_that_fits_no_budget_is_left_out() -> None:
    """With its reason; the others are tuned on."""
    large = replace(make_run(9, 12), head=msgspec.structs.replace(make_run(9, 12).head, hidden_tokens=50_000))
    runs = Loaded((*make_runs(3).runs, large), ())
    small_window = replace(PRICES, window=20_000)
    assert isinstance(small_window, Prices)
    found = tune_runs(runs, replace(_settings(*SMALL), prices=small_window))
    assert len(found.fit_runs) + len(found.judge_runs) == 3
    assert any("run-9" in problem.reason for problem in found.problems)
    with pytest.raises(FormatError, match="no run is left"):
        tune_runs(Loaded((large,), ()), replace(_settings(*SMALL, judge_share=0.0), prices=small_window))


def test_the_rule_of_the_scaffold_is_named() -> None:
    """Runs of SWE-agent are shown beside SWE-agent's rule, others beside none."""
    runs = Loaded(tuple(make_run(number, 14, format="swe-agent") for number in range(1, 4)), ())
    assert tune_runs(runs, _settings(*SMALL)).rule_of_thumb == "published for SWE-agent"
    assert tune_runs(make_runs(3, turns=14), _settings(*SMALL)).rule_of_thumb == ""


def test_the_default_is_always_replayed(small: Tuning) -> None:
    """Whatever the space: everything is compared with it."""
    assert small.baseline.text == "masking"
    assert Masking() not in parse_space(["window=3", "family=masking"]).list_strategies()
    assert tune_runs(make_runs(3, turns=14), _settings("window=3", "family=masking", "rules=none")).baseline


def test_nothing_outside_the_space_is_recommended() -> None:
    """The references are shown beside it; a space of masking alone recommends masking."""
    found = tune_runs(make_runs(3, turns=20), _settings("family=masking", "window=15", "gist=50", "rules=none"))
    assert {found.recommended, *(point.text for point in found.frontier)} <= {
        "masking",
        "masking(window=15)",
        "masking(schedule=every-turn, window=15)",
    }
    assert any("preset swe-agent" in point.names for point in found.references)
