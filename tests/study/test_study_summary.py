"""Sums of a study's batches: a report adds them to those of the rows that are in no finished batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="the extra `study` is not installed")

from benchmarks.synthetic_study import SETTINGS, write_synthetic_study

from elision.study import study_tables
from elision.study.study_tables import find_worst_runs, load_summary, open_study, summarize_batches

_Tables = tuple[list[dict[str, Any]], list[dict[str, Any]], list[tuple[int, str]]]


def read_summary(study: Path) -> tuple[_Tables, int]:
    """Return sums and spread by strategy with the rows of the worst runs, and how many runs' rows were read."""
    with open_study(str(study), "replay") as tables:
        load_summary(tables, SETTINGS.on_top_labels)
        sums = tables.ask(
            "select strategy, sum(runs) as runs, round(sum(usd), 6) as usd, max(peak) as peak, sum(n_noise) as noise"
            " from sums group by 1 order by 1"
        )
        spread = tables.ask("select strategy, permille, sum(runs) as runs from spread group by all order by all")
        worst = sorted((row["rank"], row["strategy"]) for row in find_worst_runs(tables, "masking"))
        (read,) = tables.ask("select coalesce(sum(runs), 0) as runs from new_sums where strategy = 'raw'")
        return (sums, spread, worst), int(read["runs"])


def test_finished_batches_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report is the same, reads the rows of unfinished batches only, and a part that is lost is not in it."""
    monkeypatch.setattr(study_tables, "BATCH", 3)
    monkeypatch.setattr(study_tables, "LISTED_RUNS", 7)
    write_synthetic_study(tmp_path, 80, 10)
    parts = sorted((tmp_path / "rows").iterdir())
    parts[6].rename(tmp_path / "later")
    plain, read = read_summary(tmp_path)
    assert read == 70
    assert {row["runs"] for row in plain[0]} == {70}
    assert len(plain[2]) == 7 * 8
    summarize_batches(str(tmp_path))
    kept, read = read_summary(tmp_path)
    assert kept == plain
    assert read == 10
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "summary").iterdir()}
    (tmp_path / "later").rename(parts[6])
    summarize_batches(str(tmp_path))
    whole, read = read_summary(tmp_path)
    assert read == 0
    assert {row["runs"] for row in whole[0]} == {80}
    assert before.items() <= {file: file.stat().st_mtime_ns for file in (tmp_path / "summary").iterdir()}.items()
    parts[0].unlink()
    lost, read = read_summary(tmp_path)
    assert read == 20
    assert {row["runs"] for row in lost[0]} == {70}
