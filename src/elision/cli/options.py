"""What several commands ask for, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elision.errors import PriceError
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices, parse_prices

Paths = Annotated[
    list[Path], typer.Argument(help="Recorded runs: files (also .gz, .tar.gz) or folders.", show_default=False)
]
Model = Annotated[
    str | None, typer.Option("--model", help="Price the runs as this model; `elision prices` lists them.")
]
RunModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Price the runs as this model; default: each as the model of its recording, or the newest flagship where "
        "that has no known price.",
    ),
]
Price = Annotated[
    str | None,
    typer.Option("--price", help="USD per million tokens: input=3,cache_write=3.75,cache_read=0.3,output=15."),
]
PriceSet = Annotated[
    str | None,
    typer.Option("--prices", help="A named set: anthropic, fable, openai, qwen3-coder, uncached."),
]
Tokens = Annotated[
    str, typer.Option("--tokens", help="How tokens are counted: o200k or cl100k (exact), estimate (fast, labelled).")
]
Dialect = Annotated[
    str,
    typer.Option("--dialect", help="Whose messages are sent: openai (chat), openai-responses, anthropic or gemini."),
]

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write everything as JSON; - for standard output.")]
HtmlFile = Annotated[Path | None, typer.Option("--html", help="Write one self-contained page.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes; 0 for one a core.", min=0)]

SessionName = Annotated[str, typer.Argument(help="Its name, or how the name begins.", show_default=False)]
StoreUrl = Annotated[
    str | None,
    typer.Option("--store", help="Its address, e.g. sqlite:///agent.db; default: as `elision config` says."),
]


def choose_prices(model: str | None, price: str | None, price_set: str | None) -> Prices | None:
    """The price list that one of the options asks for; None if none does. Raises PriceError."""
    if model is not None and not model.strip():
        raise PriceError("--model '': names no model; `elision prices` lists them")
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
