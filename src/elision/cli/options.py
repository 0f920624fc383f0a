"""What several commands ask for, and how it is read."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from elision.cli.declarations import Argument, Option
from elision.errors import MissingExtra, PriceError, SpecError

if TYPE_CHECKING:
    from elision.trajectory.prices import Prices

Json = Annotated[bool, Option("--json", help="Print one JSON object (elision/1) instead of text.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print only the result and errors.")]

Paths = Annotated[list[Path], Argument(help="Recorded runs: files (also .gz, .tar.gz) or folders.")]
RunPaths = Annotated[
    list[str] | None,
    Argument(
        help="Recorded runs: files (also .gz, .tar.gz) or folders. With --out also patterns, Parquet data sets, and "
        "s3://, gs:// and the like.",
    ),
]
StudyUrl = Annotated[
    str | None,
    Option(
        "--out", help="Keep the results, of any number of files, in this folder or object store; run again to continue."
    ),
]
StudyWorkers = Annotated[
    str | None,
    Option(
        "--workers",
        help="For a study: number of processes (default: one per core), 0 to only prepare it, ray for "
        "a Ray cluster, or ray://HOST:PORT.",
        rare=True,
    ),
]
StudyShard = Annotated[
    str | None, Option("--shard", help="For a study: only part I of N, such as 17/400, for array jobs.", rare=True)
]
StudyReport = Annotated[str | None, Option("--report", help="Report the study in this folder, finished or not.")]
SqlText = Annotated[
    str | None,
    Option("--sql", help="With --report: query the tables rows, problems and manifest; CSV in a pipe.", rare=True),
]
Model = Annotated[
    str | None, Option("--model", help="Price the runs as this model; `elision doctor --prices` lists them.")
]
RunModel = Annotated[
    str | None,
    Option(
        "--model",
        help="Price the runs as this model; default: each as its recorded model, or as the newest "
        "flagship if that has no known price.",
    ),
]
Price = Annotated[
    str | None,
    Option("--price", help="USD per million tokens: input=3,cache_write=3.75,cache_read=0.3,output=15.", rare=True),
]
PriceSet = Annotated[
    str | None,
    Option("--prices", help="A price set: anthropic, fable, openai, qwen3-coder, uncached.", rare=True),
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


def choose_prices(model: str | None, price: str | None, price_set: str | None) -> Prices | None:
    """The price list that one of the options asks for; None if none does. Raises PriceError."""
    from elision.trajectory.price_lookup import find_price_set, find_prices
    from elision.trajectory.prices import parse_prices

    if model is not None and not model.strip():
        raise PriceError("--model '': names no model; `elision doctor --prices` lists them")
    given = [name for name, value in (("--model", model), ("--price", price), ("--prices", price_set)) if value]
    if len(given) > 1:
        raise PriceError(f"{' and '.join(given)} contradict each other; give one")
    if model:
        return find_prices(model)
    if price:
        return parse_prices(price)
    return find_price_set(price_set) if price_set else None


def parse_call_number(call: str, last: int) -> int:
    """Return the number of a call; `last` for "last", and 0 for what is no number."""
    if call == "last":
        return last
    return int(call) if call.isdecimal() else 0
