"""Evaluations on disk: found again, told apart, and safe from what an interruption leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elision.errors import OutputError, SpecError
from elision.lab.results import Row
from elision.lab.run_loading import StudySettings
from elision.lab.tuning.evaluations import Evaluation, Evaluations, digest_run, open_evaluations
from elision.strategies.strategy import Masking
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.prices import Bill
from tests.lab.tuning.recorded import make_run

SETTINGS = StudySettings(prices=find_price_set("anthropic"), candidates=())
RUNS = (make_run(1, 4), make_run(2, 4))
STRATEGY = Masking(window=3)
ROW = Row(bill=Bill(input=1, usd=0.1), summarizer=Bill(output=2, usd=0.30000000000000004), raw_usd=1 / 3, peak=9)


def _open(path: Path | None, runs: tuple = RUNS, **changes: object) -> Evaluations:  # type: ignore[type-arg]
    return open_evaluations(runs, replace(SETTINGS, **changes), "0.1.0", path)  # type: ignore[arg-type]


def test_what_was_written_is_found_again(tmp_path: Path) -> None:
    """To the last digit; what does not fit keeps its reason."""
    path = tmp_path / "study.jsonl"
    first = _open(path)
    first.add(0, STRATEGY, Evaluation(row=ROW))
    first.add(1, STRATEGY, Evaluation(row=None, problem="too large"))
    again = _open(path)
    assert again.find(0, STRATEGY) == Evaluation(row=ROW)
    assert again.find(1, STRATEGY) == Evaluation(row=None, problem="too large")
    assert again.find(0, Masking(window=4)) is None
    assert (again.reused, again.added, again.gone) == (2, 0, 0)


def test_a_run_is_known_by_its_content(tmp_path: Path) -> None:
    """Not by its path; a changed run is another one."""
    path = tmp_path / "study.jsonl"
    _open(path).add(0, STRATEGY, Evaluation(row=ROW))
    moved = replace(RUNS[0], file="elsewhere/run.json", id="renamed")
    assert digest_run(moved) == digest_run(RUNS[0])
    changed = replace(RUNS[0], turns=RUNS[0].turns[:3])
    assert _open(path, (moved,)).find(0, STRATEGY) is not None
    found = _open(path, (changed,))
    assert found.find(0, STRATEGY) is None
    assert (found.reused, found.added, found.gone) == (0, 1, 1)


def test_other_options_are_refused(tmp_path: Path) -> None:
    """Evaluations at other prices cannot be compared: the error names what differs, and the mend."""
    path = tmp_path / "study.jsonl"
    _open(path)
    with pytest.raises(SpecError, match=r"other settings: prices \(anthropic\); give the same options"):
        _open(path, prices=find_price_set("openai"))
    with pytest.raises(SpecError, match=r"other settings: tokens \(o200k\)"):
        _open(path, tokens="estimate")
    with pytest.raises(SpecError, match=r"other settings: version \(Elision 0\.1\.0\)"):
        open_evaluations(RUNS, SETTINGS, "0.2.0", path)


@pytest.mark.parametrize("line", ['{"run": "a"}', "[1]", '{"run": "a", "strategy": "raw", "row": {"raw_usd": 1}}'])
def test_a_line_of_another_version_is_named(tmp_path: Path, line: str) -> None:
    """File, line and mend, instead of figures that lack something."""
    path = tmp_path / "study.jsonl"
    _open(path)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
    with pytest.raises(SpecError, match=r"study.jsonl, line 2: no evaluation .*; name another file"):
        _open(path)


def test_a_torn_last_line_is_cut_off(tmp_path: Path) -> None:
    """What a killed process was writing is made anew; all before it stays."""
    path = tmp_path / "study.jsonl"
    first = _open(path)
    first.add(0, STRATEGY, Evaluation(row=ROW))
    whole = path.read_bytes()
    for length in range(len(whole.splitlines(keepends=True)[0]), len(whole), 41):
        path.write_bytes(whole[:length])
        found = _open(path)
        assert found.find(0, STRATEGY) is None
        found.add(0, STRATEGY, Evaluation(row=ROW))
        assert path.read_bytes() == whole


@pytest.mark.parametrize("content", ["notes\n", '{"format": "elision.replay/1"}\n', "[1]\n", '{"format": 1}\n{\n'])
def test_another_file_is_left_alone(tmp_path: Path, content: str) -> None:
    """It is somebody else's."""
    path = tmp_path / "notes.txt"
    path.write_text(content)
    with pytest.raises(OutputError, match="not a study of elision tune; name another file"):
        _open(path)
    assert path.read_text() == content


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """The system's refusal names the file."""
    with pytest.raises(OutputError, match=r"--study .*nowhere"):
        _open(tmp_path / "nowhere" / "study.jsonl")
