"""The runs of a replay as page.js reads them: as many rows and lines as keep the page under 2.5 MB."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from elision.lab.report import figures, sent_wording, wording
from elision.lab.report.columns import HINDSIGHT
from elision.lab.report.names import name_runs
from elision.lab.report.palette import assign_looks
from elision.lab.report.report import Explorer
from elision.lab.results import Row, Study

#: What a page holds at most: letters of the runs' table, and points of lines.
_ROW_LETTERS: Final = 700_000
_POINTS: Final = 120_000
#: Key, title, how page.js writes its numbers, and whether it waits until the reader asks for more.
_COLUMNS: Final = (
    ("run", "run", "word", False),
    ("strategy", "strategy", "word", False),
    ("reader", "format", "word", True),
    ("calls", "calls", "count", False),
    ("usd", "cost", "usd", False),
    ("to_recorded", "vs recorded", "change", False),
    ("to_hindsight", HINDSIGHT, "times", True),
    ("peak", "peak context", "tokens", False),
    ("rewrites", "cache rewrites", "count", True),
    ("summaries", "summaries", "count", True),
    ("evidence", "facts still visible", "percent", False),
    ("regret", "turns missing a fact", "count", True),
)


def build_explorer(study: Study) -> Explorer:
    """Return every run under every strategy; of very many, those that cost most."""
    names = sent_wording.name_rows(study)
    looks = assign_looks(study.strategies)
    rows, series = _choose_rows(study), _choose_series(study)
    shown = wording.select_lines(study)
    context = "A dot is a cache rewrite, a diamond a summary. Point at a call to read its sizes."
    if len(series) < len({key[:2] for key in study.series}):
        context += f" The {figures.format_count(len(series))} longest runs."
    table = "Click a heading to sort, a run to see its context."
    if study.sums is not None:
        runs = figures.format_plural(len({(row.file, row.trajectory) for row in study.rows}), "run")
        table += f" The {runs} with the highest cost vs recorded, of {figures.format_count(study.run_count)}."
    elif len(rows) < len(study.rows):
        every = figures.format_count(len(study.rows))
        table += f" The {figures.format_count(len(rows))} rows of the most expensive runs, of {every}."
    return Explorer(
        data=_collect_data(study, names, rows, series),
        lines=[(names[label], looks[label].slot, looks[label].dash, label in shown) for label in study.strategies],
        about=(context, table),
    )


def _collect_data(
    study: Study, names: dict[str, str], rows: list[Row], series: list[tuple[str, str]]
) -> dict[str, Any]:
    places = {label: place for place, label in enumerate(study.strategies)}
    keys = dict.fromkeys([*((row.file, row.trajectory) for row in rows), *series])
    runs = {key: place for place, key in enumerate(keys)}
    called = name_runs(study.rows)
    first = {(row.file, row.trajectory): row for row in study.rows}
    best = wording.find_featured(study)
    columns = [column for column in _COLUMNS if study.hindsight or column[1] != HINDSIGHT]
    return {
        "strategies": list(names.values()),
        "looks": [[look.slot, list(look.dash)] for look in assign_looks(study.strategies).values()],
        "featured": names[best.strategy] if best else "",
        "columns": [{"key": key, "title": title, "kind": kind, "extra": extra} for key, title, kind, extra in columns],
        "runs": [{"name": called[key], "reader": first[key].reader, "calls": first[key].calls} for key in runs],
        "rows": [
            [runs[row.file, row.trajectory], places[row.strategy], *_list_numbers(row, [each[0] for each in columns])]
            for row in rows
        ],
        "series": [
            [runs[key], place, list(found.tokens), list(found.rewrites), list(found.summaries)]
            for key in series
            for label, place in places.items()
            if (found := study.series.get((*key, label))) is not None
        ],
        "first": runs[series[0]] if series else None,
    }


def _list_numbers(row: Row, keys: list[str]) -> list[float | None]:
    """Return a row's cells after run, strategy and format, in the order of `keys`."""
    values = {
        "calls": row.calls,
        "usd": row.usd,
        "to_recorded": row.to_recorded,
        "to_hindsight": row.to_hindsight,
        "peak": row.peak,
        "rewrites": row.cache_rewrites,
        "summaries": row.summaries,
        "evidence": row.evidence_recall,
        "regret": row.regret_turns,
    }
    return [_round_number(values[key]) for key in keys if key in values]


def _round_number(value: float | None) -> float | None:
    # JSON knows no infinity.
    found = value if value is not None and math.isfinite(value) else None
    return found if found is None or isinstance(found, int) else float(f"{found:.6g}")


def _choose_rows(study: Study) -> list[Row]:
    """Return all rows, or those of the most expensive runs if they are too many."""
    names = name_runs(study.rows)
    rows_of = Counter((row.file, row.trajectory) for row in study.rows)
    dearest = dict.fromkeys((row.file, row.trajectory) for row in sorted(study.rows, key=lambda row: -row.paid_usd))
    # A letter that is no ASCII takes six in JSON.
    sizes = ((key, len(names[key]) + 5 * sum(not each.isascii() for each in names[key])) for key in dearest)
    kept = set(_take_while_fitting(_ROW_LETTERS, ((key, size + 60 + 75 * rows_of[key]) for key, size in sizes)))
    return [row for row in study.rows if (row.file, row.trajectory) in kept]


def _choose_series(study: Study) -> list[tuple[str, str]]:
    """Return the runs whose lines are drawn: the longest first, as many as there is room for."""
    sizes: Counter[tuple[str, str]] = Counter()
    for (file, run, _), series in study.series.items():
        sizes[file, run] += len(series.tokens) + len(series.rewrites)
    listed = {(row.file, row.trajectory) for row in _choose_rows(study)}
    return _take_while_fitting(_POINTS, ((key, size) for key, size in sizes.most_common() if key in listed))


def _take_while_fitting(room: int, sized: Iterable[tuple[tuple[str, str], int]]) -> list[tuple[str, str]]:
    """Return the first of `sized` that fit into `room`, and at least one."""
    kept: list[tuple[str, str]] = []
    for key, size in sized:
        room -= size
        if room < 0 and kept:
            break
        kept.append(key)
    return kept
