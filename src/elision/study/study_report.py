"""The report of a study: DuckDB sums the rows up within a fixed memory, and the lab's report shows what it finds."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import duckdb

from elision.errors import FormatError, SpecError
from elision.lab.candidates import RECOMMENDED
from elision.lab.ratios import divide_or_none
from elision.lab.report import figures, wording
from elision.lab.report.names import is_hindsight, is_raw, is_sent, neutralize_text, shorten_strategies
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
from elision.study.row_schema import CALLS, COLUMNS, PROBLEMS, ROWS, SAME, SENT, decode_row
from elision.study.shard_work import FAILED, PROBLEMS_FOLDER, ROWS_FOLDER
from elision.study.study_folder import MANIFEST_FILE, StudyFolder, StudyPlan
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
_MEANS: Final = ("late_usd",)
_LARGEST: Final = ("peak", "worst_ratio")
#: Columns that a sum lacks as soon as one of its rows does.
_ALL_OR_NONE: Final = ("recorded_usd", "hindsight_usd", "least_turns_usd", "most_turns_usd")
_PAID: Final = "coalesce(recorded_usd, raw_usd)"
_COMPOSITION: Final = ("observations", "reasoning", "actions", "user", "head")
#: Columns that are asked for again and again, in a table of their own on disk; the others are summed up once.
_COMPARED: Final = (
    *("run", "reader", "strategy", "model", "day", "tag", "turns", "usd", "raw_usd", "recorded_usd", "prompt_usd"),
    *("evidence_items", "evidence_found", "billed_runs", "noise", "noise_filtered"),
    *("floor_window", "floor_items", "floor_found"),
    *(f"context_{turn}" for turn in GROWTH_TURNS),
    *(f"tokens_{name}" for name in _COMPOSITION),
)
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
        self.finished = 0
        self._parts: list[str] = []

    def __enter__(self) -> StudyTables:
        done = self.folder.list_names(ROWS_FOLDER)
        # Named by the manifest: what another plan or an older content left behind is not counted.
        parts = [part for shard in self.shards if (part := shard.name_part(self.plan.digest)) in done]
        self.finished = len(parts)
        self._parts = [f"{ROWS_FOLDER}/{part}" for part in parts]
        self._create_view("measured_rows", self._parts, ROWS)
        self._database.execute("create view rows as select * from measured_rows")
        if self.plan.options.get("calls"):
            self._create_view("calls", [f"calls/{part}" for part in parts], CALLS)
        known = {shard.name_part(self.plan.digest) for shard in self.shards}
        failed = sorted(self.folder.list_names(PROBLEMS_FOLDER) & known)
        self._create_view(PROBLEMS_FOLDER, [f"{PROBLEMS_FOLDER}/{part}" for part in failed], PROBLEMS)
        self._create_view("manifest", [MANIFEST_FILE], None)
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._spill.cleanup()

    def _create_view(self, name: str, files: Sequence[str], schema: Any) -> None:
        if not files:
            self._database.register("_empty_" + name, schema.empty_table())
            self._database.execute(f"create view {name} as select * from _empty_{name}")
            return
        self._database.execute(f"create or replace view {name} as select * from {self._scan(files)}")

    def _scan(self, files: Sequence[str], options: str = "") -> str:
        listed = ", ".join(quote_text(self.folder.locate(file)) for file in files)
        return f"read_parquet([{listed}]{options})"

    @contextmanager
    def limit_parts(self, condition: str) -> Iterator[None]:
        """Let `rows` read only the parts that hold a row with `condition`: of thousands, few hold the worst runs."""
        sql = f"select distinct filename from {self._scan(self._parts, ', filename = true')} where {condition}"
        names = {row["filename"].rpartition("/")[2] for row in self.ask(sql)}
        self._create_view("measured_rows", [part for part in self._parts if part.rpartition("/")[2] in names], ROWS)
        try:
            yield
        finally:
            self._create_view("measured_rows", self._parts, ROWS)

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


def quote_text(text: str) -> str:
    """Return `text` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def open_study(url: str) -> Iterator[StudyTables]:
    """Give the tables of the study at `url`. Raises FormatError where none is."""
    with StudyTables(StudyFolder(url.rstrip("/"))) as tables:
        yield tables


def build_study(tables: StudyTables, settings: StudySettings) -> Study:
    """Return what a report shows of the study: sums of all runs, and the worst runs one by one."""
    sent, formats = _sum_sent(tables)
    labels = list_labels(settings, sent)
    if sent.condensed_runs:
        _add_rows_on_top(tables, settings)
    totals = _sum_totals(tables, labels)
    # Opening thousands of parts takes longer than most queries: what several ask for is read once.
    tables.ask(f"create table compared as select {', '.join(_COMPARED)} from rows")
    recommended = parse_strategy(RECOMMENDED)
    missing = len(tables.shards) - tables.finished
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
            missing=f"{figures.format_count(tables.finished)} of {figures.format_plural(len(tables.shards), 'shard')}"
            " are finished; run the command again for the rest."
            if missing
            else "",
        ),
    )
    return _add_worst_runs(tables, study) if totals else study


def _add_worst_runs(tables: StudyTables, study: Study) -> Study:
    featured = wording.find_featured(study)
    label = featured.strategy if featured is not None else RECORDED
    listed = tables.ask(
        f"select run from compared where strategy = $label order by usd / nullif({_PAID}, 0) desc nulls last, run"
        f" limit {LISTED_RUNS}",
        label=label,
    )
    runs = {found["run"]: place for place, found in enumerate(listed)}
    columns = ", ".join(name for name, _, _ in COLUMNS)
    among = f"run in ({', '.join(map(str, runs)) or 'null'})"
    with tables.limit_parts(among):
        found = tables.ask(f"select {columns} from rows where {among}")
    order = {name: place for place, name in enumerate(study.strategies)}
    found.sort(key=lambda row: (runs[row["run"]], order.get(row["strategy"], len(order))))
    rows = tuple(decode_row(row) for row in found)
    series = {}
    if tables.plan.options.get("calls"):
        names = {row["run"]: (row["file"], row["trajectory"]) for row in found}
        for row in tables.ask(f"select * from calls where {among}"):
            file, name = names[row["run"]]
            series[file, name, row["strategy"]] = Series(
                tokens=tuple(row["tokens"]), rewrites=tuple(row["rewrites"]), summaries=tuple(row["summaries"])
            )
    study = replace(study, rows=rows, series=series)
    assert study.sums is not None
    summary = (
        _tabulate_spread(tables, study),
        *_tabulate_winners(tables, study),
        *_tabulate_groups(tables, study, label),
        _tabulate_worst(study, label),
    )
    return replace(study, sums=replace(study.sums, tables=summary))


def _add_rows_on_top(tables: StudyTables, settings: StudySettings) -> None:
    """Let `rows` have what strategies do on top of agents' condensing for every run: without any, it is the same."""
    labels = ", ".join(map(quote_text, settings.on_top_labels)) or "''"
    changed = {
        "strategy": f"strategy::varchar || ', {ON_TOP}'",
        **dict.fromkeys(("hindsight_usd", "least_turns_usd", "most_turns_usd"), "null"),
    }
    listed = ", ".join(f"{changed.get(name, name)} as {name}" for name, _, _ in COLUMNS)
    tables.ask(
        "create or replace view rows as select * from measured_rows union all"
        f" select {listed} from measured_rows where cuts = 0 and strategy::varchar in ({labels})"
    )


def _sum_totals(tables: StudyTables, labels: Sequence[str]) -> tuple[Row, ...]:
    bills = [name for name, _, _ in COLUMNS if name.startswith("summary_") or name in _BILL_COLUMNS]
    summed = [name for name in SAME if name not in (*_MEANS, *_LARGEST, *_ALL_OR_NONE)]
    parts = [f"sum({name}) as {name}" for name in (*summed, *bills)]
    parts += [f"avg({name}) as {name}" for name in _MEANS]
    parts += [f"max({name}) as {name}" for name in _LARGEST]
    parts += [f"case when count({name}) = count(*) then sum({name}) end as {name}" for name in _ALL_OR_NONE]
    found = tables.ask(
        f"select strategy::varchar as strategy, count(*) as runs, {', '.join(parts)} from rows group by 1"
    )
    rows = {row["strategy"]: decode_row(row) for row in found}
    return tuple(rows[label] for label in labels if label in rows)


_BILL_COLUMNS: Final = ("input", "cache_write", "cache_write_1h", "cache_read", "output", "prompt_usd")


def _sum_sent(tables: StudyTables) -> tuple[SentSummary, list[str]]:
    """Return how the runs were sent, and their formats."""
    sums = ", ".join(f"sum({name}) as {name}" for name in SENT if name != "own_prices")
    (row,) = tables.ask(
        f"select count(*) as runs, {sums}, coalesce(min(own_prices), 1) = 1 as own_prices,"
        " list(distinct reader::varchar) as formats from rows where strategy = $label",
        label=RECORDED,
    )
    formats = sorted(row.pop("formats") or [])
    is_own = row.pop("own_prices")
    return SentSummary(**{name: int(value or 0) for name, value in row.items()}, own_prices=is_own), formats


def list_uses(tables: StudyTables) -> list[ModelUse]:
    """Return which models the runs were recorded with, by day."""
    found = tables.ask(
        "select model::varchar as model, day::varchar as day, count(*) as runs, sum(turns) as calls from compared"
        " where strategy = $label group by all order by all",
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
        "select model::varchar as model, count_if(strategy = $recorded) as runs,"
        " count_if(strategy = $billed) as billed, sum(prompt_usd) filter (strategy = $billed) as usd from compared"
        " where strategy in ($recorded, $billed) group by 1 order by runs desc, 1",
        recorded=RECORDED,
        billed=BILLED,
    )
    return [(row["model"], row["runs"], row["usd"] if row["billed"] == row["runs"] else None) for row in found]


def _sum_controls(tables: StudyTables) -> tuple[Control, ...]:
    found = tables.ask(
        "select reader::varchar as reader, count(*) as runs, avg(noise) as noise, avg(noise_filtered) as noise_filtered"
        ", sum(floor_found) / nullif(sum(floor_items), 0) as floor, min(floor_window) as floor_window"
        " from compared where strategy = $label group by 1 order by 1",
        label=RECORDED,
    )
    return tuple(Control(**row) for row in found)


def _sum_compositions(tables: StudyTables) -> tuple[Composition, ...]:
    sums = ", ".join(f"sum(tokens_{name}) as {name}" for name in _COMPOSITION)
    found = tables.ask(
        f"select reader::varchar as reader, count(*) as runs, {sums}"
        " from compared where strategy = $label group by 1 order by 1",
        label=RECORDED,
    )
    return tuple(Composition(**row) for row in found)


def _measure_growth(tables: StudyTables, labels: Sequence[str], *, only_billed: bool) -> tuple[ContextSize, ...]:
    """Return the context at each turn of `GROWTH_TURNS`. only_billed: the runs that have a row of their bill, too."""
    parts = [f"avg(context_{turn}) as mean_{turn}, count(context_{turn}) as runs_{turn}" for turn in GROWTH_TURNS]
    condition = "where billed_runs = 1" if only_billed else ""
    found = {
        row["strategy"]: row
        for row in tables.ask(
            f"select strategy::varchar as strategy, {', '.join(parts)} from compared {condition} group by 1"
        )
    }
    sizes = []
    for turn in GROWTH_TURNS:
        if labels and all(label in found and found[label][f"runs_{turn}"] for label in labels):
            means = {label: round(found[label][f"mean_{turn}"]) for label in labels}
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


def _list_live_labels(study: Study) -> list[str]:
    return [
        row.strategy
        for row in study.totals
        if not (is_raw(row.strategy) or is_sent(row.strategy) or is_hindsight(row.strategy))
    ]


def _tabulate_spread(tables: StudyTables, study: Study) -> SummaryTable:
    """Return the median and the spread of each strategy's cost, and how sure its total is."""
    found = {
        row["strategy"]: row
        for row in tables.ask(
            f"select strategy::varchar as strategy,"
            f" quantile_cont(usd / nullif({_PAID}, 0), [0.05, 0.5, 0.95]) as spread,"
            f" count(*) as n, sum(usd) as u, sum({_PAID}) as p, sum(usd * usd) as uu, sum(usd * {_PAID}) as up,"
            f" sum({_PAID} * {_PAID}) as pp, avg((usd < {_PAID})::int) as cheaper from compared group by 1"
        )
    }
    names = shorten_strategies(study.strategies)
    rows = []
    for label in study.strategies:
        row = found.get(label)
        if row is None or is_sent(label) or row["spread"] is None:
            continue
        low, median, high = row["spread"]
        rows.append(
            (
                names[label],
                figures.format_change(median),
                figures.format_change_range(low, high),
                _format_interval(row),
                figures.format_share(row["cheaper"]),
            )
        )
    return SummaryTable(
        title="Run by run: the change of the cost vs recorded",
        text="Of 20 runs, 18 are within the middle range. The interval is of the change of the total: with other"
        " runs of the same kind it would be in there 95 times of 100.",
        headings=("strategy", "median run", "90 % of runs", "total, 95 % interval", "runs that cost less"),
        rows=tuple(rows),
    )


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
    labels = [RECORDED, *_list_live_labels(study)]
    if len(labels) < 3:
        return
    live = ", ".join(map(quote_text, labels))
    places = " ".join(f"when {quote_text(label)} then {place}" for place, label in enumerate(labels))
    found = tables.ask(
        f"select best.place as place, count(*) as runs, sum(best.usd) as usd from (select min(struct_pack(usd := usd,"
        f" place := case strategy::varchar {places} end)) as best from compared"
        f" where strategy::varchar in ({live}) group by run) group by 1 order by 2 desc, 1"
    )
    runs = sum(row["runs"] for row in found)
    names = shorten_strategies(study.strategies)
    total = figures.format_usd(sum(row["usd"] for row in found))
    yield SummaryTable(
        title="Which strategy costs least, run by run",
        text=f"With the cheapest for each run, which nobody knows before: {total}.",
        headings=("strategy", "runs", "share", "cost of these"),
        rows=tuple(
            (
                names[labels[row["place"]]],
                figures.format_count(row["runs"]),
                figures.format_share(row["runs"] / runs),
                figures.format_usd(row["usd"]),
            )
            for row in found
        ),
    )


def _tabulate_groups(tables: StudyTables, study: Study, label: str) -> Iterator[SummaryTable]:
    """Yield the cost of the strategy `label` by model, format, day and tag, where there is more than one of these."""
    sets = ", ".join(f"({column})" for column, _ in _GROUPS)
    columns = ", ".join(f"{column}::varchar as {column}" for column, _ in _GROUPS)
    found = tables.ask(
        f"select grouping({', '.join(column for column, _ in _GROUPS)}) as kind, {', '.join(c for c, _ in _GROUPS)},"
        f" count(*) as runs, sum({_PAID}) as paid, sum(usd) as usd, sum(evidence_found) as found,"
        f" sum(evidence_items) as items from (select * replace ({columns}) from compared where strategy = $label)"
        f" group by grouping sets ({sets})",
        label=label,
    )
    name = shorten_strategies(study.strategies)[label]
    whole = (1 << len(_GROUPS)) - 1
    for place, (column, title) in enumerate(_GROUPS):
        own = [row for row in found if row["kind"] == whole ^ (1 << (len(_GROUPS) - 1 - place))]
        if len(own) < 2:
            continue
        own.sort(key=lambda row: (-row["paid"], row[column]))
        shown = own[:LISTED_GROUPS]
        if column == "day":
            shown.sort(key=lambda row: row["day"])
        rest = f" The {figures.format_count(len(shown))} that cost most, of {figures.format_count(len(own))}."
        yield SummaryTable(
            title=f"{wording.capitalize_word(name)} by {title}",
            text=f"Runs by {title}, with their cost as recorded and under {name}."
            + (rest if len(own) > len(shown) else ""),
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
