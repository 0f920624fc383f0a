"""`elision doctor --settings` and `--prices`: every setting with its source; what models cost and how they cache."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from itertools import groupby
from typing import Any, Final

from elision.cli.options import Output
from elision.config import Settings, load_settings
from elision.config.effective_settings import NOWHERE
from elision.lab.elongation import warn_of_window
from elision.lab.report.figures import NOTHING
from elision.lab.report.report import Block, Column, Facts, Report, Section, Sentence, Table, TableRow, Words
from elision.lab.results import prices_json
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.price_table import PriceEntry, load_price_table
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import OURS, Tokenizer

_LEGEND: Final = (
    "In the environment: ELISION_NAME or AGENT_CONTEXT_NAME. In elision.toml or [tool.elision]: name; gateway_name is "
    "name in the table [gateway]."
)


def show_settings(output: Output, *, everything: bool) -> None:
    """Print the settings in force. everything: those that have their default, too."""
    found = load_settings()
    warning = warn_of_window(found.preset, getattr(found.strategy, "window", None))
    data = encode_settings(found) | {"warning": warning}
    notes = [Sentence(warning, "warning")] if warning is not None else []
    if not output.quiet:
        notes.append(Sentence(_LEGEND, "quiet"))
    output.answer("doctor --settings", data, *list_settings(found, everything=everything, meanings=True), *notes)


def list_settings(found: Settings, *, everything: bool, meanings: bool = False) -> Iterator[Block]:
    """Yield the settings and who writes summaries; without `everything` only the settings that somebody set.

    meanings: where there is room, what each means.
    """
    entries = [entry for entry in found.entries if everything or entry.place not in (NOWHERE, "")]
    rows = []
    for entry in entries:
        # What somebody set stands out; what the strategy has not is a dash.
        mood = "quiet" if entry.place in (NOWHERE, "") else "strong"
        rows.append(TableRow([entry.key.name, entry.value or NOTHING, entry.place, entry.key.meaning], mood))
    if rows:
        columns = [Column("setting"), Column("value", 3, "wrap"), Column("from", 2, "left")]
        yield Table([*columns, Column("meaning", 1, "left")] if meanings else columns, rows)
    defaults = len(found.entries) - len(entries)
    if defaults:
        subject = f"{defaults} settings are at their defaults" if entries else "All settings are at their defaults"
        yield Sentence(f"{subject}; elision doctor --settings --all lists them.", "quiet")
    for entry in found.entries:
        if entry.note:
            yield Sentence(f"{entry.key.name}: {entry.note}", "warning")
    yield Sentence(f"Summaries: {found.describe_summarizer()}", "quiet")


def encode_settings(found: Settings) -> dict[str, object]:
    """Return every setting as JSON, with its variable and where its value is from."""
    return {
        "summaries": found.describe_summarizer(),
        "settings": [
            {
                "name": entry.key.name,
                "variable": entry.key.variable,
                "value": entry.value or None,
                "from": entry.place or None,
                "note": entry.note,
                "meaning": entry.key.meaning,
            }
            for entry in found.entries
        ],
    }


# -- prices -----------------------------------------------------------------------------------------------------------

_PRICES: Final = (
    Column("input", 9),
    Column("read", 8),
    Column("write", 6),
    Column("output", 7),
    Column("above", 5),
    Column("min", 4),
    Column("lives", 3),
    Column("window", 2),
)
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


def build_prices_report(model: str, *, has_notes: bool) -> Report:
    """Return what every model costs, or all that is known of `model`. Raises PriceError with close names."""
    if model:
        entry, row = _find_model(model)
        return Report(
            command="doctor --prices",
            headline=entry.name,
            sections=[Section("", [_build_tiers_table(entry), Facts(list(_list_facts(entry, row)))])],
            data=(_encode_row(row) if row else {}) | prices_json(entry),
            has_page=False,
        )
    table = load_price_table()
    sets = [TableRow([name, *_price_cells(entry)]) for name, entry in table.sets.items()]
    return Report(
        command="doctor --prices",
        headline=f"USD per million tokens, as of {table.dated}",
        sections=[
            Section("", [_build_models_table()]),
            Section("Named sets", [Table([Column("set"), *_PRICES], sets)]),
            Section("", [Sentence(_describe_columns(), "quiet")] if has_notes else []),
        ],
        data={
            "dated": str(table.dated),
            "models": [_encode_row(each) for each in table.entries],
            "sets": {name: prices_json(each) for name, each in table.sets.items()},
        },
        has_page=False,
    )


# -- as JSON ----------------------------------------------------------------------------------------------------------


def _encode_row(row: PriceEntry) -> dict[str, Any]:
    return {
        "names": list(row.names),
        "provider": row.provider,
        "since": row.since.isoformat() if row.since else None,
        "trust": row.trust,
        **prices_json(row.prices),
    }


# -- the whole table --------------------------------------------------------------------------------------------------


def _describe_columns() -> str:
    key = "; ".join(f"{trust}: {meaning}" for trust, meaning in _TRUST.items())
    return (
        "above: prompt tokens from which on a whole call costs that many times as much; min: shortest cached prompt. "
        f"trust: {key}. `elision doctor --prices MODEL` shows the rest. Models that are not listed are looked up in "
        "genai-prices."
    )


def _build_models_table() -> Table:
    rows: list[TableRow] = []
    for provider, group in groupby(load_price_table().entries, key=lambda entry: entry.provider):
        rows.append(TableRow([[(provider, "strong")]]))
        for entry in group:
            since: Words = [entry.names[0], (f"\n from {entry.since}", "quiet")] if entry.since else entry.names[0]
            rows.append(TableRow([since, *_price_cells(entry.prices), entry.trust, ", ".join(entry.names[1:])]))
    columns = [Column("model"), *_PRICES, Column("trust", 1, "left"), Column("also", 0, "left")]
    return Table(columns, rows)


def _price_cells(entry: Prices) -> list[str]:
    cache = entry.cache
    limits = [NOTHING, NOTHING] if cache.kind == "none" else [f"{cache.minimum:,}", _format_lifetime(cache.ttl)]
    return [*_rate_cells(entry.tiers[0][1]), _format_price_step(entry), *limits, _format_tokens(entry.window)]


def _rate_cells(rates: Rates) -> list[str]:
    return [_format_usd(usd) for usd in (rates.input, rates.cache_read, rates.cache_write, rates.output)]


def _format_price_step(entry: Prices) -> str:
    """The first dearer tier: where it begins, and how many times the input price it asks."""
    if len(entry.tiers) == 1:
        return ""
    (_, below), (start, above) = entry.tiers[:2]
    return f"{_format_tokens(start)} ×{above.input / below.input:.3g}"


def _format_usd(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4f}".rstrip("0").rstrip(".")


def _format_tokens(tokens: int | None) -> str:
    if tokens is None:
        return NOTHING
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


def _find_model(name: str) -> tuple[Prices, PriceEntry | None]:
    """Return today's prices of a model or set, and their row of our table. Raises PriceError with close names."""
    today = date.today()
    table = load_price_table()
    if name in table.sets:
        return table.sets[name], None
    entry = find_prices(name, on=today)
    row = None if entry.name in table.sets else table.find_entry(entry.name, today)
    # Where genai-prices answered, no row of ours is behind it.
    return entry, row if row is not None and entry.source.startswith(row.prices.source) else None


def _build_tiers_table(entry: Prices) -> Table:
    starts = [start for start, _ in entry.tiers]
    rows = [
        TableRow([_format_range(start, end), *_rate_cells(rates)])
        for (start, rates), end in zip(entry.tiers, [*starts[1:], None], strict=True)
    ]
    titles = ("input", "cache read", "cache write", "output")
    return Table([Column("prompt tokens"), *map(Column, titles)], rows)


def _format_range(start: int, end: int | None) -> str:
    if end is None:
        return f"above {start:,}" if start else "any"
    return f"{start + 1:,} to {end:,}" if start else f"up to {end:,}"


def _list_facts(entry: Prices, row: PriceEntry | None) -> Iterator[tuple[str, Words]]:
    facts = [
        ("prices", "USD per million tokens; a call is billed at its tier as a whole"),
        ("cache", _describe_cache_rules(entry.cache)),
        ("window", f"{entry.window:,} tokens" if entry.window else "not known"),
        ("tokens", _describe_tokenizer(entry.tokenizer)),
    ]
    if row is not None:
        facts += [
            ("provider", row.provider),
            ("also", ", ".join(name for name in row.names if name != entry.name)),
            ("periods", _describe_periods(row)),
            ("note", row.note),
            ("assumed", load_price_table().providers[row.provider].doubt),
            ("trust", f"{row.trust}: {_TRUST[row.trust]}"),
        ]
    facts += [("source", entry.source.replace("; ", "\n")), ("as of", entry.dated)]
    yield from ((name, value) for name, value in facts if value)


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
