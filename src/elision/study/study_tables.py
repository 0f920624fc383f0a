"""A study's tables in DuckDB, within a fixed memory: rows, calls, problems and manifest, for reports and queries.

Reports are made of sums. A report reads the rows of unfinished batches only, while the study runs as well as later.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, Final

import duckdb

from elision.errors import FormatError, SpecError
from elision.lab.results import GROWTH_TURNS, ON_TOP
from elision.study.manifest import list_parts
from elision.study.row_schema import AUDIT_ROWS, CALLS, COLUMNS, PROBLEMS, ROWS
from elision.study.shard_runner import FAILED, PROBLEMS_FOLDER, ROWS_FOLDER
from elision.study.study_folder import MANIFEST_FILE, StudyFolder, StudyPlan, digest_bytes
from elision.trajectory.trajectory import Problem

#: What DuckDB may hold; what does not fit goes to a temporary folder.
MEMORY: Final = "300MB"
#: Problems that are read; a report counts the rest.
_LISTED_PROBLEMS: Final = 10_000


class StudyTables:
    """The views rows, calls, problems and manifest. Use it in a `with` statement.

    names: of the parts of all shards. parts: of those that are finished.
    """

    def __init__(self, folder: StudyFolder) -> None:
        plan = folder.load_plan()
        if plan is None:
            raise FormatError(f"{folder.url}: there is no study; `elision replay PATH --out {folder.url}` makes one")
        self.folder = folder
        self.plan: StudyPlan = plan
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
        # Named by the manifest: what another plan or an older content left behind is not counted.
        self.names = list_parts(folder.read(MANIFEST_FILE), plan.digest)
        done = folder.list_names(ROWS_FOLDER)
        self.parts = [name for name in self.names if name in done]
        rows = AUDIT_ROWS if plan.options["kind"] == "audit" else ROWS
        self.create_view("rows", [f"{ROWS_FOLDER}/{part}" for part in self.parts], rows)
        if plan.options.get("calls"):
            self.create_view("calls", [f"calls/{part}" for part in self.parts], CALLS)
        failed = sorted(folder.list_names(PROBLEMS_FOLDER).intersection(self.names))
        self.create_view(PROBLEMS_FOLDER, [f"{PROBLEMS_FOLDER}/{part}" for part in failed], PROBLEMS)
        self.create_view("manifest", [MANIFEST_FILE], None)

    def __enter__(self) -> StudyTables:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()
        self._spill.cleanup()

    def create_view(self, name: str, files: Sequence[str], schema: Any) -> None:
        """Make a view of the rows of `files`, in place of an earlier one. schema: where there are no files."""
        source = f"read_parquet([{', '.join(quote_text(self.folder.locate(file)) for file in files)}])"
        if not files:
            source = f"no_{name}"
            self._database.register(source, schema.empty_table())
        self._database.execute(f"create or replace view {name} as from {source}")

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

    def encode_rows(self, sql: str) -> bytes:
        """Return what a query of ours finds, as Parquet."""
        local = f"{self._spill.name}/rows.parquet"
        self._database.execute(f"copy ({sql}) to {quote_text(local)} (format parquet, compression zstd)")
        with open(local, "rb") as file:
            return file.read()

    def list_problems(self) -> tuple[Problem, ...]:
        """Return what could not be read, failed shards first."""
        found = self.ask(
            f"select file, line, reason, kind from problems order by kind != '{FAILED}', file, line nulls first, reason"
            f" limit {_LISTED_PROBLEMS}"
        )
        return tuple(Problem(**(row | {"kind": "bug" if row["kind"] == "bug" else "input"})) for row in found)


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


# -- sums: of a batch of shards, once all of it is finished, they are kept --------------------------------------------


SUMMARY_FOLDER: Final = "summary"
#: Shards of a batch: fewer would be more files to open, more would be more rows to read while the study runs.
BATCH: Final = 200
#: Runs that are listed, the worst first.
LISTED_RUNS: Final = 200
#: What a report groups runs by.
GROUPS: Final = (("model", "model"), ("reader", "format"), ("day", "day"), ("tag", "tag"))
#: What a run cost.
PAID: Final = "coalesce(recorded_usd, raw_usd)"
#: Columns of which the largest counts.
LARGEST: Final = ("peak", "worst_ratio")
#: What a strategy on top of an agent's own condensing lacks.
NOT_ON_TOP: Final = ("hindsight_usd", "least_turns_usd", "most_turns_usd")
#: Columns that a sum lacks as soon as one of its rows does.
ALL_OR_NONE: Final = ("recorded_usd", *NOT_ON_TOP)
_AGGREGATES: Final = {**dict.fromkeys(LARGEST, "max"), "floor_window": "min"}
#: Columns that a row may lack; `sums` counts those that have them.
_COUNTED: Final = (*ALL_OR_NONE, "noise", "noise_filtered", *(f"context_{turn}" for turn in GROWTH_TURNS))


def _build_queries() -> dict[str, str]:
    """Return each table's query over the view `batch`; those of several batches are added up by appending their rows.

    sums: every column by strategy and by what a report groups runs by. spread: how many runs a strategy changed by how
    much, to a tenth of a percent of what was paid, so memory does not grow with the runs. worst: all rows of the runs
    that some strategy suits least.
    """
    keys = ", ".join(f"{key}::varchar as {key}" for key in ("strategy", *(key for key, _ in GROUPS)))
    parts = [
        f"{_AGGREGATES.get(name, 'sum')}({name}){'::bigint' if kind == 'count' else ''} as {name}"
        for name, kind, _ in COLUMNS
        if kind in ("count", "usd", "share")
    ]
    parts += [f"count({name}) as n_{name}" for name in _COUNTED]
    return {
        "sums": f"select {keys}, billed_runs = 1 as is_billed, cuts > 0 as is_cut, count(*) as runs,"
        f" {', '.join(parts)}, sum({PAID}) as paid, sum(usd * usd) as usd_usd, sum(usd * {PAID}) as usd_paid,"
        f" sum({PAID} * {PAID}) as paid_paid, count_if(usd < {PAID}) as cheaper,"
        " sum(usd) filter (is_cheapest = 1) as cheapest_usd from batch group by all",
        "spread": "select strategy::varchar as strategy, cuts > 0 as is_cut,"
        f" least(round(1000 * usd / nullif({PAID}, 0)), 1e12)::bigint as permille, count(*) as runs"
        " from batch group by all having permille is not null",
        "worst": "select * from batch where run in (select unnest(max_by(run, row(coalesce("
        f"usd / nullif({PAID}, 0), -1), ~run), {LISTED_RUNS})) from batch group by strategy, cuts > 0)",
    }


_QUERIES: Final = _build_queries()


def summarize_batches(url: str) -> None:
    """Keep the tables of each batch that is finished, unless they are kept. Raises OutputError where they cannot be."""
    with open_study(url, "replay") as tables:
        stored = tables.folder.list_names(SUMMARY_FOLDER)
        done = set(tables.parts)
        for batch in _cut_batches(tables):
            files = _name_files(batch)
            if done.issuperset(batch) and not stored.issuperset(files.values()):
                _view_batch(tables, batch)
                for name, file in files.items():
                    tables.folder.write(f"{SUMMARY_FOLDER}/{file}", tables.encode_rows(_QUERIES[name]))


def _cut_batches(tables: StudyTables) -> list[Sequence[str]]:
    return [tables.names[start : start + BATCH] for start in range(0, len(tables.names), BATCH)]


def _name_files(batch: Sequence[str]) -> Mapping[str, str]:
    """Return the file of each table: other rows or another version have other names."""
    digest = digest_bytes("\n".join((version("elision"), *batch)).encode())
    return {name: f"{name}-{digest}.parquet" for name in _QUERIES}


def _view_batch(tables: StudyTables, parts: Sequence[str]) -> None:
    tables.create_view("batch", [f"{ROWS_FOLDER}/{part}" for part in parts], ROWS)


def load_summary(tables: StudyTables, on_top_labels: Sequence[str]) -> None:
    """Make the tables `sums`, `spread` and `worst` of all that is finished.

    on_top_labels: strategies that are reported on top of agents' own condensing as well.
    """
    stored = tables.folder.list_names(SUMMARY_FOLDER)
    done = set(tables.parts)
    kept: list[Mapping[str, str]] = []
    left: list[str] = []
    for batch in _cut_batches(tables):
        files = _name_files(batch)
        if done.issuperset(batch) and stored.issuperset(files.values()):
            kept.append(files)
        else:
            left += [part for part in batch if part in done]
    _view_batch(tables, left)
    for name, query in _QUERIES.items():
        tables.ask(f"create table new_{name} as {query}")
        source = f"from new_{name}"
        if kept:
            tables.create_view(f"kept_{name}", [f"{SUMMARY_FOLDER}/{files[name]}" for files in kept], None)
            source += f" union all from kept_{name}"
        # Of the worst runs of each batch, few are asked for.
        tables.ask(f"create {'view' if name == 'worst' else 'table'} {name} as {source}")
    (found,) = tables.ask("select coalesce(sum(condensed_runs), 0) as condensed from sums")
    if found["condensed"] and on_top_labels:
        # Where an agent condensed nothing, a strategy does on top of that what it does without.
        among = f"not is_cut and strategy in ({', '.join(map(quote_text, on_top_labels))})"
        changed = f"strategy || ', {ON_TOP}' as strategy"
        lacking = ", ".join(f"0 as {name}" for name in ("is_cheapest", "cheapest_usd", *map("n_{}".format, NOT_ON_TOP)))
        tables.ask(f"insert into sums select * replace ({changed}, {lacking}) from sums where {among}")
        tables.ask(f"insert into spread select * replace ({changed}) from spread where {among}")


def find_worst_runs(tables: StudyTables, label: str) -> list[dict[str, Any]]:
    """Return all rows of the runs that the strategy `label` suits least, with their rank."""
    plain = label.removesuffix(f", {ON_TOP}")
    return tables.ask(
        "select worst.*, rank from worst join (select run, row_number() over"
        f" (order by usd / nullif({PAID}, 0) desc nulls last, run) as rank from worst"
        f" where strategy = $label or strategy = $plain and ($label = $plain or cuts = 0)"
        f" qualify rank <= {LISTED_RUNS}) using (run)",
        label=label,
        plain=plain,
    )
