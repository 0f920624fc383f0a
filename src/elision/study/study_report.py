"""The report of a study: DuckDB sums the rows up within a fixed memory, and the lab's report shows what it finds."""

from __future__ import annotations

import os
import re
import tempfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from itertools import accumulate
from math import ceil, floor
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import duckdb

from elision.errors import FormatError, SpecError
from elision.lab.candidates import RECOMMENDED
from elision.lab.ratios import divide_or_none
from elision.lab.report import figures, wording
from elision.lab.report.names import is_sent, neutralize_text, shorten_strategies
from elision.lab.results import (
    BILLED,
    GROWTH_TURNS,
    ON_TOP,
    RECORDED,
    ContextSize,
    Control,
    Row,
    SentSummary,
    Series,
    Study,
    StudySums,
    SummaryTable,
)
from elision.lab.run_prices import ModelUse, sum_up_prices
from elision.lab.study import list_labels
from elision.lab.study_settings import StudySettings
from elision.lab.token_composition import Composition
from elision.strategies.spec import parse_strategy
from elision.study.manifest import Shard, decode_manifest
from elision.study.row_schema import AUDIT_ROWS, CALLS, COLUMNS, PROBLEMS, ROWS, SAME, SENT, decode_row, is_choice
from elision.study.shard_work import FAILED, PROBLEMS_FOLDER, ROWS_FOLDER
from elision.study.study_folder import MANIFEST_FILE, StudyFolder, StudyPlan, digest_bytes
from elision.trajectory.trajectory import Problem

#: What DuckDB may hold; what does not fit goes to a temporary folder.
MEMORY: Final = "300MB"
#: Runs that are listed, the worst first; groups that a table has at most.
LISTED_RUNS: Final = 200
LISTED_GROUPS: Final = 20
#: Problems that are read; a report counts the rest.
_LISTED_PROBLEMS: Final = 10_000
#: Runs below which an interval says nothing.
_FEWEST_RUNS: Final = 20
_PAID: Final = "coalesce(recorded_usd, raw_usd)"
_LARGEST: Final = ("peak", "worst_ratio")
#: Of columns that are not summed up.
_AGGREGATES: Final = {**dict.fromkeys(_LARGEST, "max"), "floor_window": "min"}
#: What a strategy on top of an agent's own condensing lacks.
_NOT_ON_TOP: Final = ("hindsight_usd", "least_turns_usd", "most_turns_usd")
#: Columns that a sum lacks as soon as one of its rows does.
_ALL_OR_NONE: Final = ("recorded_usd", *_NOT_ON_TOP)
#: Columns that a row may lack; the table `sums` counts those that have them.
_COUNTED: Final = (*_ALL_OR_NONE, "noise", "noise_filtered", *(f"context_{turn}" for turn in GROWTH_TURNS))
_COMPOSITION: Final = ("observations", "reasoning", "actions", "user", "head")
#: What the report is made of, once the study is finished: read in place of the rows.
SUMMARY_FOLDER: Final = "summary"
_SUMMARY: Final = ("sums", "spread", "worst")
_GROUPS: Final = (("model", "model"), ("reader", "format"), ("day", "day"), ("tag", "tag"))


class StudyTables:
    """A study's tables in DuckDB: the views rows, calls, problems and manifest. Use it in a `with` statement."""

    def __init__(self, folder: StudyFolder) -> None:
        plan = folder.load_plan()
        if plan is None:
            raise FormatError(f"{folder.url}: there is no study; `elision replay PATH --out {folder.url}` makes one")
        self.folder = folder
        self.plan: StudyPlan = plan
        self.shards: list[Shard] = decode_manifest(folder.read(MANIFEST_FILE))
        self._spill = tempfile.TemporaryDirectory(prefix="elision-duckdb-")
        self._database = duckdb.connect(
            f"{self._spill.name}/study.duckdb",
            config={
                "memory_limit": MEMORY,
                "temp_directory": self._spill.name,
                "autoinstall_known_extensions": "false",
                "preserve_insertion_order": "false",
                "threads": str(min(4, os.cpu_count() or 1)),
            },
        )
        # It would be drawn on standard output, among the CSV or JSON that goes there.
        self._database.execute("set enable_progress_bar = false")
        if not folder.is_local:
            self._database.register_filesystem(folder.file_system)
        done = folder.list_names(ROWS_FOLDER)
        # Named by the manifest: what another plan or an older content left behind is not counted.
        names = [shard.name_part(plan.digest) for shard in self.shards]
        self.parts = [name for name in names if name in done]
        failed = sorted(folder.list_names(PROBLEMS_FOLDER).intersection(names))
        self._create_view(
            "rows",
            [f"{ROWS_FOLDER}/{part}" for part in self.parts],
            AUDIT_ROWS if plan.options["kind"] == "audit" else ROWS,
        )
        if plan.options.get("calls"):
            self._create_view("calls", [f"calls/{part}" for part in self.parts], CALLS)
        self._create_view(PROBLEMS_FOLDER, [f"{PROBLEMS_FOLDER}/{part}" for part in failed], PROBLEMS)
        self._create_view("manifest", [MANIFEST_FILE], None)

    def __enter__(self) -> StudyTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._spill.cleanup()

    def _create_view(self, name: str, files: Sequence[str], schema: Any) -> None:
        if files:
            source = f"(select * exclude (filename) from {self.scan(files)})"
        else:
            source = f"no_{name}"
            self._database.register(source, schema.empty_table())
        self._database.execute(f"create view {name} as from {source}")

    def scan(self, files: Sequence[str]) -> str:
        """Return what stands for the rows of `files` in a query; `filename` is the address of each row's file."""
        return f"read_parquet([{', '.join(quote_text(self.folder.locate(file)) for file in files)}], filename = true)"

    def ask(self, sql: str, **values: Any) -> list[dict[str, Any]]:
        """Return the rows that a query of ours finds."""
        found = self._database.execute(sql, values or None)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def run_query(self, sql: str) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the columns and the rows that the user's own query finds. Raises SpecError for one that fails."""
        try:
            found = self._database.execute(sql)
            names = [str(column[0]) for column in found.description or ()]
        except duckdb.Error as error:
            raise SpecError(f"--sql: {error}") from error
        return names, iter(found.fetchone, None)

    def _list_summary(self) -> dict[str, str]:
        """Return the files of a finished study's summary by table: other rows or another version have other names."""
        digest = digest_bytes("\n".join((version("elision"), *self.parts)).encode())
        return {name: f"{SUMMARY_FOLDER}/{name}-{digest}.parquet" for name in _SUMMARY}

    def load_summary(self) -> bool:
        """Make the tables of the summary out of its files; return whether they are there."""
        files = self._list_summary()
        stored = {f"{SUMMARY_FOLDER}/{name}" for name in self.folder.list_names(SUMMARY_FOLDER)}
        if not stored.issuperset(files.values()):
            return False
        for name, file in files.items():
            self._database.execute(f"create table {name} as select * exclude (filename) from {self.scan([file])}")
        return True

    def store_summary(self) -> None:
        """Keep the tables of the summary with the study, so that a report need not read its rows.

        Raises OutputError where the study cannot be written.
        """
        for name, file in self._list_summary().items():
            local = f"{self._spill.name}/{name}.parquet"
            self._database.execute(f"copy {name} to {quote_text(local)} (format parquet, compression zstd)")
            self.folder.write(file, Path(local).read_bytes())


def quote_text(text: str) -> str:
    """Return `text` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def open_study(url: str, kind: str = "") -> Iterator[StudyTables]:
    """Give the tables of the study at `url`. kind: which it must be. Raises FormatError where none is."""
    with StudyTables(StudyFolder(url.rstrip("/"))) as tables:
        found = tables.plan.options["kind"]
        if kind and found != kind:
            raise FormatError(f"{url}: is a study of `elision {found}`, not of `elision {kind}`; give another folder")
        yield tables


def summarize_study(url: str, settings: StudySettings) -> None:
    """Write the summary of the finished study at `url`, once. Raises OutputError where it cannot be written."""
    with open_study(url, "replay") as tables:
        if not tables.load_summary():
            build_study(tables, settings)
            tables.store_summary()


def build_study(tables: StudyTables, settings: StudySettings) -> Study:
    """Return what a report shows of the study: sums of all runs, and the worst runs one by one."""
    is_stored = tables.load_summary()
    if not is_stored:
        _sum_rows(tables, settings)
    sent, formats = _sum_sent(tables)
    labels = list_labels(settings, sent)
    totals = _sum_totals(tables, labels)
    recommended = parse_strategy(RECOMMENDED)
    missing = len(tables.shards) - len(tables.parts)
    uses = list_uses(tables) or [ModelUse("", None, 0, 0)]
    study = Study(
        prices=settings.prices or sum_up_prices(uses),
        counter=settings.tokens,
        strategies=labels,
        rows=(),
        controls=_sum_controls(tables),
        problems=list_problems(tables),
        finished=not missing,
        hindsight=settings.hindsight,
        recommended=next((each.label for each in settings.candidates if each.strategy == recommended), ""),
        turns=settings.assume_turns(formats),
        compositions=_sum_compositions(tables),
        sent=sent,
        look_back=any((settings.prices or use.find_prices()).cache.look_back for use in uses),
        sums=StudySums(
            runs=sent.runs,
            totals=totals,
            growth=_measure_growth(tables, labels, only_billed=bool(sent.billed_runs)),
            missing=f"{figures.format_count(len(tables.parts))} of"
            f" {figures.format_plural(len(tables.shards), 'shard')} are finished; run the command again for the rest."
            if missing
            else "",
        ),
    )
    featured = wording.find_featured(study)
    label = featured.strategy if featured is not None else RECORDED
    if not is_stored:
        _find_worst_runs(tables, label)
    return _add_worst_runs(tables, study, label) if totals else study


def _sum_rows(tables: StudyTables, settings: StudySettings) -> None:
    """Make the tables `sums` and `spread`, which reports are made of: rows are read once for each.

    sums: every column by strategy and by what a report groups runs by. spread: how many runs a strategy changed by how
    much, to a tenth of a percent of what was paid; so memory does not grow with the runs.
    """
    keys = ", ".join(f"{key}::varchar as {key}" for key in ("strategy", *(key for key, _ in _GROUPS)))
    parts = [
        f"{_AGGREGATES.get(name, 'sum')}({name}){'::bigint' if kind == 'count' else ''} as {name}"
        for name, kind, _ in COLUMNS
        if kind in ("count", "usd", "share")
    ]
    parts += [f"count({name}) as n_{name}" for name in _COUNTED]
    tables.ask(
        f"create table sums as select {keys}, billed_runs = 1 as is_billed, cuts > 0 as is_cut, count(*) as runs,"
        f" {', '.join(parts)}, sum({_PAID}) as paid, sum(usd * usd) as usd_usd, sum(usd * {_PAID}) as usd_paid,"
        f" sum({_PAID} * {_PAID}) as paid_paid, count_if(usd < {_PAID}) as cheaper,"
        " sum(usd) filter (is_cheapest = 1) as cheapest_usd from rows group by all"
    )
    tables.ask(
        "create table spread as select strategy::varchar as strategy, cuts > 0 as is_cut,"
        f" least(round(1000 * usd / nullif({_PAID}, 0)), 1e12)::bigint as permille, count(*) as runs"
        " from rows group by all having permille is not null"
    )
    (found,) = tables.ask("select coalesce(sum(condensed_runs), 0) as condensed from sums")
    if found["condensed"] and settings.on_top_labels:
        # Where an agent condensed nothing, a strategy does on top of that what it does without.
        among = f"not is_cut and strategy in ({', '.join(map(quote_text, settings.on_top_labels))})"
        changed = f"strategy || ', {ON_TOP}' as strategy"
        lacking = ", ".join(
            f"0 as {name}" for name in ("is_cheapest", "cheapest_usd", *map("n_{}".format, _NOT_ON_TOP))
        )
        tables.ask(f"insert into sums select * replace ({changed}, {lacking}) from sums where {among}")
        tables.ask(f"insert into spread select * replace ({changed}) from spread where {among}")


def _find_worst_runs(tables: StudyTables, label: str) -> None:
    """Make the table `worst`: all rows of the runs that the strategy `label` suits least."""
    tables.ask("create table worst as select * from rows limit 0")
    if not tables.parts:
        return
    plain = label.removesuffix(f", {ON_TOP}")
    among = "strategy = $label" if plain == label else "(strategy = $label or strategy = $plain and cuts = 0)"
    listed = tables.ask(
        f"select run, filename from {tables.scan([f'{ROWS_FOLDER}/{part}' for part in tables.parts])} where {among}"
        f" order by usd / nullif({_PAID}, 0) desc nulls last, run limit {LISTED_RUNS}",
        **({"label": label} if plain == label else {"label": label, "plain": plain}),
    )
    names = {row["filename"].rpartition("/")[2] for row in listed}
    # Of thousands of parts, few hold the worst runs.
    own = [f"{ROWS_FOLDER}/{part}" for part in tables.parts if part in names]
    runs = ", ".join(str(row["run"]) for row in listed)
    tables.ask(f"insert into worst select * exclude (filename) from {tables.scan(own)} where run in ({runs})")


def _add_worst_runs(tables: StudyTables, study: Study, label: str) -> Study:
    found = tables.ask("select * from worst")
    tops = {name: name.removesuffix(f", {ON_TOP}") for name in study.strategies if name.endswith(f", {ON_TOP}")}
    for row in [row for row in found if not row["cuts"]]:
        lacking = dict.fromkeys(_NOT_ON_TOP)
        found += [row | lacking | {"strategy": top} for top, plain in tops.items() if row["strategy"] == plain]
    ratios = {
        row["run"]: (-(divide_or_none(row["usd"], _find_paid(row)) or 0.0), row["run"])
        for row in found
        if row["strategy"] == label
    }
    order = {name: place for place, name in enumerate(study.strategies)}
    found.sort(key=lambda row: (ratios[row["run"]], order[row["strategy"]]))
    series = {}
    if tables.plan.options.get("calls"):
        names = {row["run"]: (row["file"], row["trajectory"]) for row in found}
        for row in tables.ask("select * from calls where run in (select run from worst)"):
            file, name = names[row["run"]]
            series[file, name, row["strategy"]] = Series(
                tokens=tuple(row["tokens"]), rewrites=tuple(row["rewrites"]), summaries=tuple(row["summaries"])
            )
    study = replace(study, rows=tuple(map(decode_row, found)), series=series)
    assert study.sums is not None
    summary = (
        _tabulate_spread(tables, study),
        *_tabulate_winners(tables, study),
        *_tabulate_groups(tables, study, label),
        _tabulate_worst(study, label),
    )
    return replace(study, sums=replace(study.sums, tables=summary))


def _find_paid(row: Mapping[str, Any]) -> float:
    return float(row["raw_usd"] if row["recorded_usd"] is None else row["recorded_usd"])


def _sum_totals(tables: StudyTables, labels: Sequence[str]) -> tuple[Row, ...]:
    bills = [name for name, _, _ in COLUMNS if name.startswith("summary_") or name in _BILL_COLUMNS]
    summed = [name for name in SAME if name not in ("late_usd", *_LARGEST, *_ALL_OR_NONE)]
    parts = [f"sum({name}) as {name}" for name in (*summed, *bills)]
    parts += [f"max({name}) as {name}" for name in _LARGEST]
    parts += [f"case when sum(n_{name}) = sum(runs) then sum({name}) end as {name}" for name in _ALL_OR_NONE]
    found = tables.ask(
        f"select strategy, sum(runs) as runs, sum(late_usd) / sum(runs) as late_usd, {', '.join(parts)}"
        " from sums group by 1"
    )
    rows = {row["strategy"]: decode_row(row) for row in found}
    return tuple(rows[label] for label in labels if label in rows)


_BILL_COLUMNS: Final = ("input", "cache_write", "cache_write_1h", "cache_read", "output", "prompt_usd")


def _sum_sent(tables: StudyTables) -> tuple[SentSummary, list[str]]:
    """Return how the runs were sent, and their formats."""
    sums = ", ".join(f"sum({name}) as {name}" for name in SENT)
    (row,) = tables.ask(
        f"select sum(runs) as runs, {sums}, list(distinct reader) as formats from sums where strategy = $label",
        label=RECORDED,
    )
    formats = sorted(row.pop("formats") or [])
    counts = {name: int(value or 0) for name, value in row.items()}
    at_own_prices = counts.pop("own_prices") == counts["runs"]
    return SentSummary(**counts, own_prices=at_own_prices), formats


def list_uses(tables: StudyTables) -> list[ModelUse]:
    """Return which models the runs were recorded with, by day."""
    found = tables.ask(
        "select model, day, sum(runs) as runs, sum(turns) as calls from sums where strategy = $label"
        " group by all order by all",
        label=RECORDED,
    )
    return [ModelUse(row["model"], _parse_day(row["day"]), row["runs"], row["calls"]) for row in found]


def _parse_day(text: str) -> date | None:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None


def list_billed_models(tables: StudyTables) -> list[tuple[str, int, float | None]]:
    """Return the recorded models with their runs and bill, those of most runs first; None where a run states none."""
    found = tables.ask(
        "select model, coalesce(sum(runs) filter (strategy = $recorded), 0) as runs,"
        " coalesce(sum(runs) filter (strategy = $billed), 0) as billed, sum(prompt_usd) filter (strategy = $billed)"
        " as usd from sums where strategy in ($recorded, $billed) group by 1 order by 2 desc, 1",
        recorded=RECORDED,
        billed=BILLED,
    )
    return [(row["model"], row["runs"], row["usd"] if row["billed"] == row["runs"] else None) for row in found]


def _sum_controls(tables: StudyTables) -> tuple[Control, ...]:
    found = tables.ask(
        "select reader, sum(runs) as runs, sum(noise) / nullif(sum(n_noise), 0) as noise,"
        " sum(noise_filtered) / nullif(sum(n_noise_filtered), 0) as noise_filtered,"
        " sum(floor_found) / nullif(sum(floor_items), 0) as floor, min(floor_window) as floor_window"
        " from sums where strategy = $label group by 1 order by 1",
        label=RECORDED,
    )
    return tuple(Control(**row) for row in found)


def _sum_compositions(tables: StudyTables) -> tuple[Composition, ...]:
    sums = ", ".join(f"sum(tokens_{name}) as {name}" for name in _COMPOSITION)
    found = tables.ask(
        f"select reader, sum(runs) as runs, {sums} from sums where strategy = $label group by 1 order by 1",
        label=RECORDED,
    )
    return tuple(Composition(**row) for row in found)


def _measure_growth(tables: StudyTables, labels: Sequence[str], *, only_billed: bool) -> tuple[ContextSize, ...]:
    """Return the context at each turn of `GROWTH_TURNS`. only_billed: the runs that have a row of their bill, too."""
    parts = [f"sum(context_{turn}) as sum_{turn}, sum(n_context_{turn}) as runs_{turn}" for turn in GROWTH_TURNS]
    condition = "where is_billed" if only_billed else ""
    rows = tables.ask(f"select strategy, {', '.join(parts)} from sums {condition} group by 1")
    found = {row["strategy"]: row for row in rows}
    sizes = []
    for turn in GROWTH_TURNS:
        if labels and all(label in found and found[label][f"runs_{turn}"] for label in labels):
            means = {label: round(found[label][f"sum_{turn}"] / found[label][f"runs_{turn}"]) for label in labels}
            runs = min(found[label][f"runs_{turn}"] for label in labels)
            sizes.append(ContextSize(turn=turn, runs=runs, tokens=means))
    return tuple(sizes)


def list_problems(tables: StudyTables) -> tuple[Problem, ...]:
    """Return what could not be read, failed shards first."""
    found = tables.ask(
        f"select file, line, reason, kind from problems order by kind != '{FAILED}', file, line nulls first, reason"
        f" limit {_LISTED_PROBLEMS}"
    )
    return tuple(
        Problem(
            file=row["file"], line=row["line"], reason=row["reason"], kind="bug" if row["kind"] == "bug" else "input"
        )
        for row in found
    )


def _tabulate_spread(tables: StudyTables, study: Study) -> SummaryTable:
    """Return the median and the spread of each strategy's cost, and how sure its total is."""
    found = tables.ask(
        "select strategy, sum(runs) as n, sum(usd) as u, sum(paid) as p, sum(usd_usd) as uu, sum(usd_paid) as up,"
        " sum(paid_paid) as pp, sum(cheaper) / sum(runs) as cheaper from sums group by 1"
    )
    sums = {row["strategy"]: row for row in found}
    bins: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in tables.ask("select strategy, permille, sum(runs) as runs from spread group by all order by permille"):
        bins[row["strategy"]].append((row["permille"], row["runs"]))
    names = shorten_strategies(study.strategies)
    rows = []
    for label in study.strategies:
        if is_sent(label) or label not in bins:
            continue
        low, median, high = (find_quantile(bins[label], share) / 1000 for share in (0.05, 0.5, 0.95))
        rows.append(
            (
                names[label],
                figures.format_change(median),
                figures.format_change_range(low, high),
                _format_interval(sums[label]),
                figures.format_share(sums[label]["cheaper"]),
            )
        )
    return SummaryTable(
        title="Run by run: the change of the cost vs recorded",
        text="Of 20 runs, 18 are within the middle range. The interval is of the change of the total: with other"
        " runs of the same kind it would be in there 95 times of 100.",
        headings=("strategy", "median run", "90 % of runs", "total, 95 % interval", "runs that cost less"),
        rows=tuple(rows),
    )


def find_quantile(bins: Sequence[tuple[int, int]], share: float) -> float:
    """Return the quantile of values, interpolated between two. bins: each value with how often it is there, sorted."""
    ends = list(accumulate(count for _, count in bins))
    place = share * (ends[-1] - 1)
    low, high = (bins[bisect_right(ends, index)][0] for index in (floor(place), ceil(place)))
    return low + (high - low) * (place - floor(place))


def _format_interval(row: Mapping[str, Any]) -> str:
    """Return the interval of a ratio of two sums, from their moments."""
    runs, ratio = row["n"], divide_or_none(row["u"], row["p"])
    if ratio is None or runs < _FEWEST_RUNS:
        return figures.NOTHING
    squares = max(0.0, row["uu"] - 2 * ratio * row["up"] + ratio * ratio * row["pp"])
    error = (squares * runs / (runs - 1)) ** 0.5 / row["p"]
    return figures.format_change_range(ratio - 1.96 * error, ratio + 1.96 * error)


def _tabulate_winners(tables: StudyTables, study: Study) -> Iterator[SummaryTable]:
    """Yield for how many runs each strategy costs least, what was sent included."""
    labels = [label for label in study.strategies if is_choice(label)]
    if len(labels) < 3:
        return
    found = tables.ask(
        "select strategy, sum(is_cheapest) as runs, sum(cheapest_usd) as usd from sums where is_cheapest > 0 group by 1"
    )
    found.sort(key=lambda row: (-row["runs"], labels.index(row["strategy"])))
    runs = sum(row["runs"] for row in found)
    names = shorten_strategies(study.strategies)
    total = figures.format_usd(sum(row["usd"] for row in found))
    yield SummaryTable(
        title="Which strategy costs least, run by run",
        text=f"With the cheapest for each run, which nobody knows before: {total}.",
        headings=("strategy", "runs", "share", "cost of these"),
        rows=tuple(
            (
                names[row["strategy"]],
                figures.format_count(row["runs"]),
                figures.format_share(row["runs"] / runs),
                figures.format_usd(row["usd"]),
            )
            for row in found
        ),
    )


def _tabulate_groups(tables: StudyTables, study: Study, label: str) -> Iterator[SummaryTable]:
    """Yield the cost of the strategy `label` by model, format, day and tag, where there is more than one of these."""
    name = shorten_strategies(study.strategies)[label]
    for column, title in _GROUPS:
        own = tables.ask(
            f"select {column}, sum(runs) as runs, sum(paid) as paid, sum(usd) as usd, sum(evidence_found) as found,"
            " sum(evidence_items) as items from sums where strategy = $label group by 1",
            label=label,
        )
        if len(own) < 2:
            continue
        own.sort(key=lambda row: (-row["paid"], row[column]))
        shown, rest = list_groups(own, column)
        yield SummaryTable(
            title=f"{wording.capitalize_word(name)} by {title}",
            text=f"Runs by {title}, with their cost as recorded and under {name}.{rest}",
            headings=(title, "runs", "as recorded", "cost", "vs recorded", "facts still visible"),
            rows=tuple(
                (
                    neutralize_text(row[column] or figures.NOTHING),
                    figures.format_count(row["runs"]),
                    figures.format_usd(row["paid"]),
                    figures.format_usd(row["usd"]),
                    figures.format_change(divide_or_none(row["usd"], row["paid"])),
                    figures.format_share(divide_or_none(row["found"], row["items"])),
                )
                for row in shown
            ),
        )


def list_groups(found: Sequence[dict[str, Any]], column: str) -> tuple[list[dict[str, Any]], str]:
    """Return the groups that a table lists, of those that cost most first, and a sentence if it leaves some out.

    Days are listed in their order.
    """
    shown = list(found[:LISTED_GROUPS])
    if column == "day":
        shown.sort(key=lambda row: row["day"])
    if len(shown) == len(found):
        return shown, ""
    return shown, f" The {figures.format_count(len(shown))} that cost most, of {figures.format_count(len(found))}."


def _tabulate_worst(study: Study, label: str) -> SummaryTable:
    """Return the listed runs with links to where they were read from."""
    rows = study.of(label)
    name = shorten_strategies(study.strategies)[label]
    return SummaryTable(
        title=f"The {figures.format_plural(len(rows), 'run')} that {name} suits least",
        text="The highest cost vs recorded first. The link leads to the recording.",
        headings=("run", "calls", "as recorded", "cost", "vs recorded", "turns missing a fact"),
        rows=tuple(
            (
                neutralize_text(f"{row.file} {row.trajectory}"),
                figures.format_count(row.calls),
                figures.format_usd(row.paid_usd),
                figures.format_usd(row.usd),
                figures.format_change(row.to_recorded),
                figures.format_count(row.regret_turns),
            )
            for row in rows
        ),
        links=tuple(link_file(row.file) for row in rows),
    )


def link_file(file: str) -> str:
    """Return the address that a page links a recording with; "" for what is no address."""
    path = file.partition("!")[0]
    if re.match(r"[a-z0-9+]+://", path):
        scheme, _, rest = path.partition("://")
        return f"{scheme}://{quote(rest)}"
    return Path(path).as_uri() if os.path.isabs(path) else ""
