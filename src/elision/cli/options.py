"""What several commands ask for, and how it is read."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from elision.cli.declarations import Argument, Option
from elision.errors import MissingExtra, PriceError, SpecError

if TYPE_CHECKING:
    from rich.console import Console

    from elision.lab.report.report import Block, Report
    from elision.stores.store import Store
    from elision.trajectory.prices import Prices
    from elision.trajectory.trajectory import Problem

Paths = Annotated[list[Path], Argument(help="Recorded runs: files (also .gz, .tar.gz) or folders.")]
RunPaths = Annotated[
    list[str] | None,
    Argument(
        help="Recorded runs: files (also .gz, .tar.gz) or folders. With --out also patterns, Parquet data sets, and "
        "s3://, gs:// and the like.",
    ),
]
StudyReport = Annotated[str | None, Option("--report", help="Report the study in this folder, finished or not.")]
SqlText = Annotated[
    str | None,
    Option("--sql", help="With --report: query the tables rows, problems and manifest; CSV in a pipe.", rare=True),
]
Tokens = Annotated[
    str,
    Option("--tokens", help="How tokens are counted: o200k or cl100k (exact), or estimate (fast).", rare=True),
]
Dialect = Annotated[
    str,
    Option("--dialect", help="Shape of the messages: openai (chat), openai-responses, anthropic or gemini.", rare=True),
]

HtmlFile = Annotated[Path | None, Option("--html", help="Write one self-contained page.")]
Jobs = Annotated[int, Option("--jobs", "-j", help="Number of processes; 0 means one per core.", min=0)]

SessionName = Annotated[str, Argument(help="The session's name or its beginning.")]
StoreUrl = Annotated[
    str | None,
    Option("--store", help="Address of the store, such as sqlite:///agent.db; default: from the settings."),
]


def count_processes(jobs: int = 0) -> int:
    """Return `jobs`, or one for each core if it is 0."""
    return jobs or os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Pricing:
    """The options that say what tokens cost; at most one of them may be given."""

    model: Annotated[
        str | None,
        Option(
            "--model",
            help="Price the runs as this model; default: each as its recorded model, or as the newest "
            "flagship if that has no known price.",
        ),
    ] = None
    price: Annotated[
        str | None,
        Option("--price", help="USD per million tokens: input=3,cache_write=3.75,cache_read=0.3,output=15.", rare=True),
    ] = None
    price_set: Annotated[
        str | None,
        Option("--prices", help="A price set: anthropic, fable, openai, qwen3-coder, uncached.", rare=True),
    ] = None

    def choose(self) -> Prices | None:
        """Return the price list that one of the options asks for; None if none does. Raises PriceError."""
        from elision.trajectory.price_lookup import find_price_set, find_prices
        from elision.trajectory.prices import parse_prices

        if self.model is not None and not self.model.strip():
            raise PriceError("--model '': names no model; `elision doctor --prices` lists them")
        options = {"--model": self.model, "--price": self.price, "--prices": self.price_set}
        given = [name for name, value in options.items() if value]
        if len(given) > 1:
            raise PriceError(f"{' and '.join(given)} contradict each other; give one")
        if self.model:
            return find_prices(self.model)
        if self.price:
            return parse_prices(self.price)
        return find_price_set(self.price_set) if self.price_set else None


@dataclass(frozen=True, slots=True)
class StudyRequest:
    """The options of a study: where it is kept, in how many processes, and which part of it. "" for the usual."""

    out: Annotated[
        str,
        Option(
            "--out",
            help="Keep the results, of any number of files, in this folder or object store; run again to continue.",
        ),
    ] = ""
    workers: Annotated[
        str,
        Option(
            "--workers",
            help="For a study: number of processes (default: one per core), 0 to only prepare it, ray for "
            "a Ray cluster, or ray://HOST:PORT.",
            rare=True,
        ),
    ] = ""
    shard: Annotated[
        str, Option("--shard", help="For a study: only part I of N, such as 17/400, for array jobs.", rare=True)
    ] = ""


@dataclass(frozen=True, slots=True)
class Output:
    """How a command answers: the result on standard output, notes on standard error."""

    json: Annotated[bool, Option("--json", help="Print one JSON object (elision/1) instead of text.")] = False
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only the result and errors.")] = False

    @property
    def notes(self) -> Console:
        """Return the console on standard error, for progress and notes; with --quiet it prints nothing."""
        from elision.cli.outputs import open_console

        return open_console(is_stderr=True, quiet=self.quiet)

    def note(self, text: str, style: str = "") -> None:
        """Print `text` on standard error, in which nothing is markup, unless --quiet is given."""
        self.notes.print(text, style=style, markup=False, highlight=False, soft_wrap=True)

    def show(
        self,
        report: Report,
        files: Mapping[str, Path | None] | None = None,
        *,
        render: Callable[[str], bytes] | None = None,
        problems: Iterable[Problem] = (),
        finished: bool = True,
    ) -> None:
        """Write `report` to each of `files` (kind -> path, None for none), print it, and exit where that is due.

        render: makes what is neither a page nor a picture. The exit code is 130 unless `finished`, and 70 for a bug in
        a reader among `problems`. Raises OutputError for the first file that could not be written, when all is shown.
        """
        from elision.cli.outputs import show_report

        show_report(
            report,
            files or {},
            as_json=self.json,
            note=self.note,
            render=render,
            problems=problems,
            finished=finished,
        )

    def answer(self, command: str, data: Mapping[str, Any], *blocks: Block, problems: Iterable[Problem] = ()) -> None:
        """Print a result of a few lines: `blocks`, or `data` as JSON. Exits as `show`."""
        from elision.lab.report.report import Report, Section

        report = Report(command=command, headline="", sections=[Section("", blocks)], data=data, has_page=False)
        self.show(report, problems=problems)

    def open_store(self, url: str | None) -> closing[Store]:
        """Open the store at `url`, or that of the settings. Raises MissingStore, StoreError."""
        from elision.stores.store_urls import open_existing

        return closing(open_existing(self.name_store(url)))

    def name_store(self, url: str | None) -> str:
        """Print on standard error which store is opened; return its address, that of the default with its path."""
        from elision.config import load_settings
        from elision.config.setting_readers import conceal_password
        from elision.stores.store_urls import locate_store
        from elision.trajectory.foreign_text import escape_controls

        located = locate_store(url or load_settings().store)
        self.note(f"store: {escape_controls(conceal_password(located))}", "dim")
        return located


def check_study_extra(option: str) -> None:
    """Raise MissingExtra where what a study needs is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("pyarrow", "duckdb", "fsspec")):
        raise MissingExtra(option, "study")


def check_memory_paths(paths: Sequence[str]) -> list[Path]:
    """Return paths of runs that are replayed in memory. Raises SpecError for those that only a study reads."""
    for path in paths:
        if "://" in path:
            raise SpecError(f"{path}: runs in an object store are read into a study; add --out FOLDER")
    return [Path(path) for path in paths]


def parse_call_number(call: str, last: int) -> int:
    """Return the number of a call; `last` for "last", and 0 for what is no number."""
    if call == "last":
        return last
    return int(call) if call.isdecimal() else 0
