"""`elision doctor --prices`: what models cost and how their providers cache, with where each figure is from."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import groupby
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elision.cli.console import open_console, open_notes
from elision.cli.outputs import print_json
from elision.lab.report.fitting import open_table
from elision.lab.results import prices_json
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.price_table import PriceEntry, load_price_table
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokenizer import OURS, Tokenizer

#: Columns from which on the table has room for the window and other names.
WIDE: Final = 110

_TRUST: Final = {
    "H": "vendor's page or SDK, read in November 2026",
    "M": "vendor's page in a dated copy, or two price tables that agree",
    "L": "one third-party source",
}
_KINDS: Final = {
    "prefix": "any prefix shared with a recent request",
    "breakpoints": "prefixes up to a place that a recent request marked",
    "none": "no cache",
}


def show_prices(model: str, *, as_json: bool, quiet: bool) -> None:
    """Print what every model costs, or all that is known of `model`. quiet: without notes. Raises PriceError."""
    if as_json:
        print_json("doctor --prices", _encode_model(model) if model else _encode_all())
        return
    console = open_console()
    for number, part in enumerate(_render_model(model) if model else _render_all(console.width)):
        if number:
            console.print()
        console.print(part)
    if not model:
        notes = open_notes(quiet)
        notes.print()
        notes.print(_describe_columns())


# -- as JSON ----------------------------------------------------------------------------------------------------------


def _encode_all() -> dict[str, Any]:
    table = load_price_table()
    return {
        "dated": str(table.dated),
        "models": [_encode_row(each) for each in table.entries],
        "sets": {name: prices_json(each) for name, each in table.sets.items()},
    }


def _encode_model(name: str) -> dict[str, Any]:
    entry, row = _find_model(name)
    return (_encode_row(row) if row else {}) | prices_json(entry)


def _encode_row(row: PriceEntry) -> dict[str, Any]:
    return {
        "names": list(row.names),
        "provider": row.provider,
        "since": row.since.isoformat() if row.since else None,
        "trust": row.trust,
        **prices_json(row.prices),
    }


# -- the whole table --------------------------------------------------------------------------------------------------


def _render_all(width: int) -> Iterator[RenderableType]:
    wide = width >= WIDE
    yield Group(
        Text(f"USD per million tokens, as of {load_price_table().dated}", style="bold"), _build_models_table(wide=wide)
    )
    yield Group(Text("Named sets", style="bold"), _build_sets_table(wide=wide))


def _describe_columns() -> Text:
    key = "; ".join(f"{trust}: {meaning}" for trust, meaning in _TRUST.items())
    return Text(
        "above: prompt tokens from which on a whole call costs that many times as much; min: shortest cached prompt. "
        f"{key}. `elision doctor --prices MODEL` shows the rest. Models that are not listed are looked up in "
        "genai-prices.",
        style="dim",
    )


def _new_prices_table(first: str, *, wide: bool) -> Table:
    table = open_table()
    table.add_column(first, no_wrap=True)
    for head in ("input", "read", "write", "output", "above", "min", "lives"):
        table.add_column(head, justify="right", no_wrap=True)
    if wide:
        table.add_column("window", justify="right", no_wrap=True)
    return table


def _build_models_table(*, wide: bool) -> Table:
    table = _new_prices_table("model", wide=wide)
    table.add_column("trust" if wide else "T", no_wrap=True)
    if wide:
        table.add_column("also")
    for provider, group in groupby(load_price_table().entries, key=lambda entry: entry.provider):
        table.add_section()
        table.add_row(Text(provider, style="bold"))
        for entry in group:
            also = [Text(", ".join(entry.names[1:]), style="dim")] if wide else []
            table.add_row(_model_cell(entry), *_price_cells(entry.prices, wide=wide), entry.trust, *also)
    return table


def _model_cell(row: PriceEntry) -> Text:
    name = Text(row.names[0])
    if row.since:
        return name.append(f"\n from {row.since}", style="dim")
    return name


def _build_sets_table(*, wide: bool) -> Table:
    table = _new_prices_table("set", wide=wide)
    for name, entry in load_price_table().sets.items():
        table.add_row(Text(name), *_price_cells(entry, wide=wide))
    return table


def _price_cells(entry: Prices, *, wide: bool) -> list[str]:
    cache = entry.cache
    limits = ["–", "–"] if cache.kind == "none" else [f"{cache.minimum:,}", _format_lifetime(cache.ttl)]
    cells = [*_rate_cells(entry.tiers[0][1]), _format_price_step(entry), *limits]
    return [*cells, _format_tokens(entry.window)] if wide else cells


def _rate_cells(rates: Rates) -> list[str]:
    return [_format_usd(usd) for usd in (rates.input, rates.cache_read, rates.cache_write, rates.output)]


def _format_price_step(entry: Prices) -> str:
    """The first dearer tier: where it begins, and how many times the input price it asks."""
    if len(entry.tiers) == 1:
        return ""
    (_, below), (start, above) = entry.tiers[:2]
    return f"{_format_tokens(start)} ×{above.input / below.input:.3g}"


def _format_usd(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}".rstrip("0").rstrip(".")


def _format_tokens(tokens: int | None) -> str:
    if tokens is None:
        return "–"
    if tokens >= 1_000_000:
        return f"{tokens / 1e6:.3g}M"
    if tokens >= 1_000:
        return f"{tokens / 1e3:.4g}k"
    return str(tokens)


def _format_lifetime(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


# -- one model --------------------------------------------------------------------------------------------------------


def _render_model(name: str) -> Iterator[RenderableType]:
    """All that is known of a model or set today."""
    entry, row = _find_model(name)
    yield Text(entry.name, style="bold")
    yield _build_tiers_table(entry)
    yield _build_facts_table(entry, row)


def _find_model(name: str) -> tuple[Prices, PriceEntry | None]:
    """Return today's prices of a model or set, and their row of our table. Raises PriceError with close names."""
    today = date.today()
    entry = load_price_table().sets.get(name) or find_prices(name, on=today)
    return entry, _find_row(entry, today)


def _find_row(entry: Prices, on: date) -> PriceEntry | None:
    """The row of our table that `entry` was made from; None for sets and where genai-prices answered."""
    table = load_price_table()
    row = None if entry.name in table.sets else table.find_entry(entry.name, on)
    return row if row is not None and entry.source.startswith(row.prices.source) else None


def _build_tiers_table(entry: Prices) -> Table:
    table = open_table()
    table.add_column("prompt tokens", no_wrap=True)
    for head in ("input", "cache read", "cache write", "output"):
        table.add_column(head, justify="right", no_wrap=True)
    starts = [start for start, _ in entry.tiers]
    for (start, rates), end in zip(entry.tiers, [*starts[1:], None], strict=True):
        table.add_row(_format_range(start, end), *_rate_cells(rates))
    return table


def _format_range(start: int, end: int | None) -> str:
    if end is None:
        return f"above {start:,}" if start else "any"
    return f"{start + 1:,} to {end:,}" if start else f"up to {end:,}"


def _build_facts_table(entry: Prices, row: PriceEntry | None) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in _list_facts(entry, row):
        if value:
            grid.add_row(label, Text(value))
    return grid


def _list_facts(entry: Prices, row: PriceEntry | None) -> Iterator[tuple[str, str]]:
    yield "prices", "USD per million tokens; a call is billed at its tier as a whole"
    yield "cache", _describe_cache_rules(entry.cache)
    yield "window", f"{entry.window:,} tokens" if entry.window else "not known"
    yield "tokens", _describe_tokenizer(entry.tokenizer)
    if row is not None:
        yield "provider", row.provider
        yield "also", ", ".join(name for name in row.names if name != entry.name)
        yield "periods", _describe_periods(row)
        yield "note", row.note
        yield "assumed", load_price_table().providers[row.provider].doubt
        yield "trust", f"{row.trust}: {_TRUST[row.trust]}"
    yield "source", entry.source.replace("; ", "\n")
    yield "as of", entry.dated


def _describe_cache_rules(cache: CacheRules) -> str:
    if cache.kind == "none":
        return _KINDS["none"]
    step = f", in steps of {cache.step:,}" if cache.step > 1 else ""
    if cache.look_back:
        step += f", where a request ended or set a breakpoint, up to {cache.look_back} messages before the end"
    lifetime = _format_lifetime(cache.ttl)
    return f"{_KINDS[cache.kind]}, from {cache.minimum:,} tokens{step}; lives {lifetime} after its last use"


def _describe_tokenizer(tokenizer: Tokenizer) -> str:
    if tokenizer == OURS:
        return "counted as o200k"
    note = f"; {tokenizer.note}" if tokenizer.note else ""
    return f"{tokenizer.tokens_per_counted:g} for one of o200k, as of {tokenizer.dated}{note}"


def _describe_periods(row: PriceEntry) -> str:
    """When this price and the model's other ones began; "" where there is but one."""
    periods = [period for period in load_price_table().entries if period.names[0] == row.names[0]]
    if len(periods) < 2:
        return ""
    lines = []
    for period in periods:
        rates = period.prices.tiers[0][1]
        start = f"from {period.since}" if period.since else "first"
        lines.append(f"{start}: input {_format_usd(rates.input)}, cache read {_format_usd(rates.cache_read)}")
    return "; ".join(lines)
