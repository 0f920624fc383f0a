"""The published results of “The Complexity Trap”, one row an agent run, read from `docs/data/complexity-trap`.

`experiments.csv` names the experiments, `instances.csv.gz` has a row for each of their runs, and
`paired_ci_diffs_vs_raw.csv` is the authors' own table of differences. Nothing is read that is not checked.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from elision.errors import FormatError

FOLDER = Path(__file__).parents[1] / "data" / "complexity-trap"
EXPERIMENTS = "experiments.csv"
INSTANCES = "instances.csv.gz"
DIFFERENCES = "paired_ci_diffs_vs_raw.csv"
DOSES = "dose.csv"

#: What to do about a file that is not whole.
MEND = "restore docs/data/complexity-trap from the repository, or write it anew with --compact"

EXPERIMENT_COLUMNS = ("key", "scaffold", "model", "strategy", "window", "every", "runs", "experiment")
INSTANCE_COLUMNS = ("experiment", "instance_id", "cost", "summary_cost", "summaries", "turns", "solved")
#: Column of the source -> column here.
COMPACTED = {
    "experiment": "experiment",
    "instance_id": "instance_id",
    "cost": "cost",
    "summary_cost": "summary_cost",
    "summary_count": "summaries",
    "turn_count": "turns",
    "outcome": "solved",
}
DOSE_COLUMNS = ("window_turns", "turns", "missing_turns", "experiment")
DIFFERENCE_COLUMNS = (
    *("group", "strategy", "experiment_other", "experiment_raw", "n_common"),
    *("solve_rate_diff", "solve_rate_lo", "solve_rate_hi", "mean_cost_diff", "mean_cost_lo", "mean_cost_hi"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRun:
    """One agent on one instance. cost: the agent's calls, USD; summary_cost: the calls that wrote summaries, USD."""

    cost: float
    summary_cost: float
    summaries: int
    turns: int
    solved: int

    @property
    def usd(self) -> float:
        """All that was paid, USD."""
        return self.cost + self.summary_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A model under a strategy. window, every: the paper's M and N, 0 where the strategy has none.

    key: a short name. name: the authors'. runs: by instance id.
    """

    key: str
    name: str
    scaffold: str
    model: str
    strategy: str
    window: int
    every: int
    runs: Mapping[str, AgentRun] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A row of the authors' own table: a strategy less raw, with the 95 % interval."""

    group: str
    strategy: str
    experiment: str
    raw: str
    common: int
    solve_rate: tuple[float, float, float]
    cost: tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """What replays of other recordings miss under the window of an experiment: turns missing a fact, of `turns`.

    window: in turns; 0 for raw.
    """

    experiment: str
    window: int
    turns: int
    missing_turns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFacts:
    """experiments: by key. differences: as published, in their order. doses: by window, the smallest first."""

    experiments: Mapping[str, Experiment]
    differences: tuple[Difference, ...]
    doses: tuple[Dose, ...] = ()

    @property
    def instances(self) -> tuple[str, ...]:
        """Every instance of the benchmark, sorted."""
        return tuple(sorted({name for each in self.experiments.values() for name in each.runs}))


def load_facts(folder: Path = FOLDER) -> PaperFacts:
    """Read the folder. Raises FormatError that names file and row of what is missing, and what to do."""
    experiments = _load_experiments(folder)
    return PaperFacts(
        experiments=experiments,
        differences=_load_differences(folder, experiments),
        doses=tuple(_load_doses(folder, experiments)),
    )


def compact_source(source: Path, folder: Path = FOLDER) -> None:
    """Write `INSTANCES` from the authors' `experiment_instance_costs_combined.csv`, gzipped or not.

    Columns that no table needs are left out, and experiments get their keys; rows are sorted. No number is changed.
    """
    keys = {row["experiment"]: row["key"] for _, row in _read_rows(folder / EXPERIMENTS, EXPERIMENT_COLUMNS)}
    rows = []
    for number, row in _read_rows(source, tuple(COMPACTED)):
        if row["experiment"] not in keys:
            raise FormatError(f"{source}, row {number}: {EXPERIMENTS} has no experiment {row['experiment']!r}; add it")
        rows.append({ours: row[theirs] for theirs, ours in COMPACTED.items()} | {"experiment": keys[row["experiment"]]})
    text = io.StringIO()
    writer = csv.DictWriter(text, INSTANCE_COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(rows, key=lambda row: (row["experiment"], row["instance_id"])))
    (folder / INSTANCES).write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def _load_experiments(folder: Path) -> dict[str, Experiment]:
    runs: dict[str, dict[str, AgentRun]] = {}
    file = folder / INSTANCES
    for number, row in _read_rows(file, INSTANCE_COLUMNS):
        known = runs.setdefault(row["experiment"], {})
        if row["instance_id"] in known:
            raise FormatError(f"{file}, row {number}: {row['instance_id']} is there twice; {MEND}")
        known[row["instance_id"]] = AgentRun(
            cost=_read_number(file, number, row, "cost"),
            summary_cost=_read_number(file, number, row, "summary_cost"),
            summaries=int(_read_number(file, number, row, "summaries")),
            turns=int(_read_number(file, number, row, "turns")),
            solved=int(_read_number(file, number, row, "solved")),
        )
    listed = folder / EXPERIMENTS
    experiments = {}
    for number, row in _read_rows(listed, EXPERIMENT_COLUMNS):
        key = row["key"]
        found = runs.pop(key, {})
        stated = int(_read_number(listed, number, row, "runs"))
        if len(found) != stated:
            raise FormatError(
                f"{file}: {key} has {len(found)} rows, and {EXPERIMENTS}, row {number}, states {stated}; {MEND}"
            )
        experiments[key] = Experiment(
            key=key,
            name=row["experiment"],
            scaffold=row["scaffold"],
            model=row["model"],
            strategy=row["strategy"],
            window=int(_read_number(listed, number, row, "window")),
            every=int(_read_number(listed, number, row, "every")),
            runs=found,
        )
    if runs:
        raise FormatError(f"{file}: {EXPERIMENTS} does not list {', '.join(sorted(runs))}; {MEND}")
    return experiments


def _load_differences(folder: Path, experiments: Mapping[str, Experiment]) -> tuple[Difference, ...]:
    file = folder / DIFFERENCES
    keys = {each.name: each.key for each in experiments.values()}
    found = []
    for number, row in _read_rows(file, DIFFERENCE_COLUMNS):
        for column in ("experiment_other", "experiment_raw"):
            if row[column] not in keys:
                raise FormatError(f"{file}, row {number}: {EXPERIMENTS} has no experiment {row[column]!r}; {MEND}")
        values = {name: _read_number(file, number, row, name) for name in DIFFERENCE_COLUMNS[4:]}
        found.append(
            Difference(
                group=row["group"].partition(") ")[2] or row["group"],
                strategy=row["strategy"],
                experiment=keys[row["experiment_other"]],
                raw=keys[row["experiment_raw"]],
                common=int(values["n_common"]),
                solve_rate=(values["solve_rate_diff"], values["solve_rate_lo"], values["solve_rate_hi"]),
                cost=(values["mean_cost_diff"], values["mean_cost_lo"], values["mean_cost_hi"]),
            )
        )
    return tuple(found)


def _load_doses(folder: Path, experiments: Mapping[str, Experiment]) -> Iterator[Dose]:
    file = folder / DOSES
    for number, row in _read_rows(file, DOSE_COLUMNS):
        if row["experiment"] not in experiments:
            raise FormatError(f"{file}, row {number}: {EXPERIMENTS} has no experiment {row['experiment']!r}; {MEND}")
        yield Dose(
            experiment=row["experiment"],
            window=int(_read_number(file, number, row, "window_turns")) if row["window_turns"] else 0,
            turns=int(_read_number(file, number, row, "turns")),
            missing_turns=int(_read_number(file, number, row, "missing_turns")),
        )


def _read_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield each row with its line number in the file. Raises FormatError."""
    text = _read_text(file)
    if not text.endswith("\n"):
        raise FormatError(f"{file}, row {text.count(chr(10)) + 1}: the file ends in the middle of a row; {MEND}")
    reader = csv.DictReader(io.StringIO(text))
    missing = [name for name in columns if name not in (reader.fieldnames or ())]
    if missing:
        raise FormatError(f"{file}, row 1: no column {', '.join(missing)}; {MEND}")
    for row in reader:
        if None in row or None in row.values():
            raise FormatError(f"{file}, row {reader.line_num}: {len(columns)} cells are expected; {MEND}")
        yield reader.line_num, row


def _read_text(file: Path) -> str:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise FormatError(f"{file}: cannot be read ({error.strerror}); {MEND}") from None
    try:
        return (gzip.decompress(data) if file.suffix == ".gz" else data).decode()
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError):
        raise FormatError(f"{file}: cut short or damaged, {len(data):,} bytes are there; {MEND}") from None


def _read_number(file: Path, number: int, row: Mapping[str, str], column: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise FormatError(f"{file}, row {number}: {column} is {row[column]!r}, no number; {MEND}")
    return value
