"""A study's tables in DuckDB, within a fixed memory: rows, calls, problems and manifest, for reports and queries."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb

from elision.errors import FormatError, SpecError
from elision.study.manifest import list_parts
from elision.study.row_schema import AUDIT_ROWS, CALLS, PROBLEMS, ROWS
from elision.study.shard_work import FAILED, PROBLEMS_FOLDER, ROWS_FOLDER
from elision.study.study_folder import MANIFEST_FILE, StudyFolder, StudyPlan
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
