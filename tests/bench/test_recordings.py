"""The runs that benchmarks replay."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks import recordings
from benchmarks.recordings import EVERY, load_recordings, thin_out

from elision.testing import builders


def test_a_small_form_has_a_run_without_the_shared_recordings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(recordings, "CORPUS", tmp_path / "none")
    assert len(load_recordings()) == 4
    assert len(load_recordings(small=True)) == 1


def test_a_small_form_has_runs_of_every_length() -> None:
    """One in `EVERY`, from the shortest to the longest."""
    runs = [builders.trajectory(*(builders.step(turn) for turn in range(1, length + 1))) for length in range(1, 25)]
    assert [len(run.turns) for run in thin_out(runs[::-1])] == [5, 13, 21]
    assert [len(run.turns) for run in thin_out(runs[:EVERY])] == [5]
    assert [len(run.turns) for run in thin_out(runs[:1])] == [1]
    assert thin_out([]) == ()
