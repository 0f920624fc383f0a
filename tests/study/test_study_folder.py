"""A study's folder: files that are whole, and settings that must agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elision.errors import FormatError, OutputError, SpecError
from elision.lab.run_loading import parse_candidates
from elision.study.study_folder import StudyFolder
from elision.trajectory.price_lookup import find_price_set
from tests.study.made_runs import SETTINGS, prepare, write_runs


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of three runs, prepared."""
    prepare(write_runs(tmp_path / "runs", 3, turns=2), tmp_path / "study")
    return tmp_path / "study"


def change_plan(study: Path, **changes: object) -> None:
    file = study / "study.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_study_is_found_again(study: Path) -> None:
    """The same command finds manifest, sample and settings as they were, whatever was added to the runs since."""
    before = {path.name: path.read_bytes() for path in study.iterdir()}
    assert set(before) == {"study.json", "manifest.parquet", "sample.parquet"}
    write_runs(study.parent / "runs", 5, turns=2)
    plan, shards = prepare(study.parent / "runs", study)
    assert {path.name: path.read_bytes() for path in study.iterdir()} == before
    assert StudyFolder(str(study)).load_plan() == plan
    assert sum(len(shard.units) for shard in shards) == 3


def test_another_version_is_refused_and_both_are_named(study: Path) -> None:
    change_plan(study, version="0.0.9")
    with pytest.raises(SpecError, match=r'version "0\.0\.9" / "\d+\.\d+\.\d+"'):
        prepare(study.parent / "runs", study)


def test_another_price_list_is_refused_and_both_are_named(study: Path) -> None:
    with pytest.raises(SpecError, match=r'price list "\w+" / "\w+"; prices "anthropic" / "openai"'):
        prepare(study.parent / "runs", study, replace(SETTINGS, prices=find_price_set("openai")))


def test_another_sample_is_refused_and_both_are_named(study: Path) -> None:
    """A sample that is not the one the study began with does not go with its rows."""
    (study / "sample.parquet").write_bytes((study / "manifest.parquet").read_bytes())
    with pytest.raises(SpecError, match=r"not the sample .*\(\w{16} in study\.json / \w{16} here\)"):
        prepare(study.parent / "runs", study)


def test_other_strategies_are_refused_and_both_are_named(study: Path) -> None:
    other = replace(SETTINGS, candidates=parse_candidates(["raw"], hindsight=False))
    with pytest.raises(SpecError, match=r"strategies .*masking.* / .*raw"):
        prepare(study.parent / "runs", study, other)


def test_a_damaged_or_newer_study_is_refused(study: Path) -> None:
    """Neither is continued, and neither is overwritten."""
    change_plan(study, format="elision.study/9")
    with pytest.raises(FormatError, match=r"format is elision\.study/9"):
        prepare(study.parent / "runs", study)
    (study / "study.json").write_text("{")
    with pytest.raises(FormatError, match="is not a study"):
        prepare(study.parent / "runs", study)
    assert (study / "study.json").read_text() == "{"


def test_a_study_within_its_runs_is_refused(tmp_path: Path) -> None:
    """Its own files would be read as recordings."""
    runs = write_runs(tmp_path / "runs", 1)
    with pytest.raises(SpecError, match="name another folder"):
        prepare(runs, runs / "study")


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    """Nothing is left of a file that could not be written, and what a killed process left is not listed."""
    folder = StudyFolder(str(tmp_path / "study"))
    folder.write("rows/a", b"1")
    folder.write("rows/a", b"2")
    (tmp_path / "study" / "rows" / ".writing-0-b").write_bytes(b"half")
    assert folder.read("rows/a") == b"2"
    assert folder.list_names("rows") == {"a"}
    assert folder.list_names("none") == set()
    folder.remove_leftovers(("rows", "none"))
    assert [path.name for path in (tmp_path / "study" / "rows").iterdir()] == ["a"]
    (tmp_path / "study" / "taken").mkdir()
    with pytest.raises(OutputError, match="taken: cannot be written"):
        folder.write("taken", b"1")
    assert sorted(path.name for path in (tmp_path / "study").iterdir()) == ["rows", "taken"]


def test_an_address_that_nothing_opens(tmp_path: Path) -> None:
    """An unknown protocol is a sentence."""
    with pytest.raises(SpecError, match="nowhere://bucket"):
        StudyFolder("nowhere://bucket/study").exists("study.json")
