"""The sample that makes rows independent of the rest of the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest

from elision.formats.registry import read_runs
from elision.lab.evidence import collect_evidence, common_items, measure_noise
from elision.lab.run_as_recorded import add_recorded_head
from elision.study import run_sample
from elision.study.manifest import list_units
from elision.study.run_sample import FormatSample, decode_sample, load_tuning_sample, take_sample
from elision.trajectory.trajectory import Trajectory
from tests.study.made_runs import SETTINGS, prepare, write_runs


def load(folder: Path) -> list[Trajectory]:
    found = [run for run in read_runs(folder) if isinstance(run, Trajectory)]
    return [add_recorded_head(run, SETTINGS.size_run(run)) for run in found]


def test_of_a_small_corpus_the_figures_are_those_of_a_replay_in_memory(tmp_path: Path) -> None:
    """Common items and noise are the same as where every run is compared with every other."""
    folder = write_runs(tmp_path, 12)
    runs = load(folder)
    known = [collect_evidence(run) for run in runs]
    common = common_items(known)
    sample = decode_sample(take_sample(list_units([str(folder)]), SETTINGS))["openai-chat"]
    assert len(sample.runs) == 12
    assert any(common)
    noises = measure_noise(known, common)
    for run, own, items, noise in zip(runs, known, common, noises, strict=True):
        assert sample.find_common_items(run, own) == items
        measured = sample.measure_noise(run, own, items)
        assert measured is not None
        assert noise is not None
        assert abs(measured - noise) < 1e-12


def test_a_format_that_is_not_in_the_sample(tmp_path: Path) -> None:
    """Nothing is common property of it, and its noise is unknown."""
    (run,) = load(write_runs(tmp_path, 1))
    known = collect_evidence(run)
    assert FormatSample().find_common_items(run, known) == frozenset()
    assert FormatSample().measure_noise(run, known, frozenset()) is None


def test_the_sample_ends_and_is_chosen_by_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many runs of a format are enough; the order in which files are listed does not matter."""
    monkeypatch.setattr(run_sample, "SAMPLED_RUNS", 10)
    units = list_units([str(write_runs(tmp_path, 40, turns=2))])
    read: list[int] = []
    data = take_sample(units, SETTINGS, read.append)
    assert read == list(range(10))
    assert data == take_sample(units[::-1], SETTINGS)
    files = {file for file, _ in decode_sample(data)["openai-chat"].runs}
    assert len(files) == 10
    assert files != {unit.url for unit in units[:10]}


def test_a_tuning_takes_a_seeded_share_of_every_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample has every folder in its share, is the same for the same seed, and says how it was made."""
    monkeypatch.setattr(run_sample, "TUNED_RUNS", 12)
    write_runs(tmp_path / "runs" / "large", 40, turns=2)
    write_runs(tmp_path / "runs" / "small", 20, turns=2, first=100)
    study = str(tmp_path / "study")
    prepare(tmp_path / "runs", study)
    loaded, text = load_tuning_sample(study, 1)
    folders = [Path(run.file).parent.name for run in loaded.runs]
    assert (folders.count("large"), folders.count("small")) == (8, 4)
    assert "12 runs of 12 of 60 files and archives" in text
    assert "seed 1" in text
    assert load_tuning_sample(study, 1)[0].runs == loaded.runs
    assert load_tuning_sample(study, 2)[0].runs != loaded.runs


def test_a_small_corpus_is_tuned_on_whole(tmp_path: Path) -> None:
    """Where there are no more runs than are taken, all are, and nothing is said of a sample."""
    prepare(write_runs(tmp_path / "runs", 5, turns=2), tmp_path / "study")
    loaded, text = load_tuning_sample(str(tmp_path / "study"), 0)
    assert len(loaded.runs) == 5
    assert text == ""
