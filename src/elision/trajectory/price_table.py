"""The dated table of what models cost, read from `prices.toml`: an entry per model and price period, with its sources.

Nothing is read before the first call of `load_price_table`. docs/concepts/schedules.md says how to add an entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final, Literal

from elision.errors import PriceError
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import OURS, Tokenizer

FILE: Final = "prices.toml"

# H: vendor page or vendor SDK, read in November 2026. M: vendor page in a dated copy or quote, or two price tables
# that agree. L: one third-party source.
Trust = Literal["H", "M", "L"]

#: The source of `regional_factor`, a key of `[sources]`.
_REGIONAL_SOURCE: Final = "aws-global"


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceProvider:
    """Who sets a price, and how its cache behaves where a model says nothing else.

    hosts: prefixes of a model name under which the list price holds ("anthropic/claude-…"). Open weights are served
           by many at their own prices, so those providers list only themselves.
    cache_with_write_price: the rules of models with a write price, where those differ.
    flagship: the newest of its largest models, as which a run is billed whose own model is not known; "" for none.
    doubt: what of `cache` is assumed, not known.
    """

    hosts: frozenset[str]
    cache: CacheRules
    cache_with_write_price: CacheRules
    doubt: str = ""
    flagship: str = ""

    def cache_rules(self, rates: Rates) -> CacheRules:
        """Return the cache rules of a model with these rates."""
        return self.cache if rates.cache_write is None else self.cache_with_write_price


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceEntry:
    """What one model costs from one day on.

    names:    as the vendor writes them, lower case, without date and host.
    prices:   the list price; its name is the first of `names`.
    regional_prices: where a region-bound Bedrock profile serves the model.
    since:    the first day of this price; None = as far back as is known.
    """

    provider: str
    names: tuple[str, ...]
    prices: Prices
    regional_prices: Prices
    trust: Trust
    since: date | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTable:
    """The whole of `prices.toml`.

    entries: by provider, for printing. A model whose price changed has one entry per period.
    sets: named price lists, one per way of billing, for when the model does not matter or is not known.
    periods: the entries of each folded model name, oldest first.
    tokenizers: how families of models count tokens.
    """

    dated: date
    providers: Mapping[str, PriceProvider]
    entries: tuple[PriceEntry, ...]
    sets: Mapping[str, Prices]
    periods: Mapping[str, tuple[PriceEntry, ...]]
    tokenizers: tuple[Tokenizer, ...] = ()

    def find_tokenizer(self, name: str) -> Tokenizer:
        """Return how a model counts tokens, by its bare name; as we do where no family has it."""
        folded = fold_model_name(name)
        best = max(self.tokenizers, key=lambda each: each.measure_fit(folded), default=OURS)
        return best if best.measure_fit(folded) else OURS

    def find_entry(self, name: str, on: date) -> PriceEntry | None:
        """Return the entry of a model on a day, by its bare name: the oldest one if the day precedes all of them."""
        entries = self.periods.get(fold_model_name(name), ())
        for entry in reversed(entries):
            if entry.since is None or entry.since <= on:
                return entry
        return entries[0] if entries else None


_SEPARATORS: Final = str.maketrans("._ ", "---")


def fold_model_name(name: str) -> str:
    """Return a name as the table compares it: vendors and routers write claude-opus-4-5, claude-opus-4.5 and
    claude_opus_4_5."""
    return name.lower().translate(_SEPARATORS)


@cache
def load_price_table() -> PriceTable:
    """Return the table that ships with Elision. The file is read at the first call."""
    return parse_price_table(files("elision.trajectory").joinpath(FILE).read_text(encoding="utf-8"))


def parse_price_table(text: str) -> PriceTable:
    """Return the table that `text` is. Raises PriceError, which names the file, the entry and what to write instead."""
    try:
        document = _Fields(tomllib.loads(text), FILE)
    except tomllib.TOMLDecodeError as error:
        raise PriceError(f"{FILE} is not valid TOML: {error}") from None
    dated = document.take_date("dated")
    sources = document.take_table("sources")
    addresses = {key: sources.take(key, str) for key in tuple(sources.values)}
    provider_tables = document.take_table("providers")
    providers = {
        key: _read_provider(provider_tables.take_table(key), addresses) for key in tuple(provider_tables.values)
    }
    entries = tuple(
        _read_entry(fields, providers, addresses, dated) for fields in document.take_tables("model", "names")
    )
    sets: dict[str, Prices] = {}
    for fields in document.take_tables("set", "name"):
        prices = _read_set(fields, dated, addresses)
        if prices.name in sets:
            raise fields.error("name", "another set has it", "give each set its own name")
        sets[prices.name] = prices
    tokenizers = tuple(_read_tokenizer(fields, addresses) for fields in document.take_tables("tokenizer", "name"))
    document.refuse_rest()
    return PriceTable(
        tokenizers=tokenizers,
        dated=dated,
        providers=MappingProxyType(providers),
        entries=entries,
        sets=MappingProxyType(sets),
        periods=_group_periods(entries),
    )


def _group_periods(entries: tuple[PriceEntry, ...]) -> Mapping[str, tuple[PriceEntry, ...]]:
    index: dict[str, list[PriceEntry]] = {}
    for entry in entries:
        for name in entry.names:
            periods = index.setdefault(fold_model_name(name), [])
            if any(other.since == entry.since for other in periods):
                raise PriceError(f"{FILE}, model {name}: two entries begin on one day; give each period its `since`")
            periods.append(entry)
    return {name: tuple(sorted(periods, key=lambda entry: entry.since or date.min)) for name, periods in index.items()}


def _read_provider(fields: _Fields, addresses: Mapping[str, str]) -> PriceProvider:
    rules = _read_cache_rules(fields.take_table("cache"), CacheRules(), addresses)
    with_write_price = fields.take_table("cache_with_write_price", optional=True)
    provider = PriceProvider(
        hosts=frozenset(fields.take_strings("hosts")),
        cache=rules,
        cache_with_write_price=_read_cache_rules(with_write_price, rules, addresses),
        doubt=fields.take("doubt", str, ""),
        flagship=fields.take("flagship", str, ""),
    )
    fields.refuse_rest()
    return provider


def _read_entry(
    fields: _Fields, providers: Mapping[str, PriceProvider], addresses: Mapping[str, str], dated: date
) -> PriceEntry:
    names = fields.take_strings("names")
    provider = fields.take_choice("provider", providers)
    tiers = _read_tiers(fields)
    cache_rules = providers[provider].cache_rules(tiers[0][1])
    sources = [fields.choose("sources", key, addresses) for key in fields.take_strings("sources")]
    factor = fields.take("regional_factor", float, 1.0)
    prices = Prices(
        name=names[0],
        tiers=tiers,
        cache=_read_cache_rules(fields.take_table("cache", optional=True), cache_rules, addresses),
        window=fields.take("window", int, None),
        source="; ".join(addresses[key] for key in sources),
        dated=dated.isoformat(),
    )
    regional_prices = prices
    if factor != 1.0:
        source = addresses[fields.choose("sources", _REGIONAL_SOURCE, addresses)]
        regional_prices = replace(
            prices,
            # Rounded, so that 0.1 x 1.1 prints as 0.11.
            tiers=tuple((start, rates.convert(lambda price: round(price * factor, 9))) for start, rates in tiers),
            source=f"{prices.source}; {source}",
        )
    entry = PriceEntry(
        provider=provider,
        names=names,
        prices=prices,
        regional_prices=regional_prices,
        trust=fields.take_choice("trust", ("H", "M", "L")),
        since=fields.take_date("since", optional=True),
        note=fields.take("note", str, ""),
    )
    fields.refuse_rest()
    return entry


def _read_set(fields: _Fields, dated: date, addresses: Mapping[str, str]) -> Prices:
    prices = Prices(
        name=fields.take("name", str),
        tiers=_read_tiers(fields),
        cache=_read_cache_rules(fields.take_table("cache"), CacheRules(), addresses),
        source=fields.take("source", str),
        dated=dated.isoformat(),
    )
    fields.refuse_rest()
    return prices


def _read_tokenizer(fields: _Fields, addresses: Mapping[str, str]) -> Tokenizer:
    sources = [fields.choose("sources", key, addresses) for key in fields.take_strings("sources")]
    tokenizer = Tokenizer(
        name=fields.take("name", str),
        models=tuple(map(fold_model_name, fields.take_strings("models"))),
        tokens_per_counted=fields.take("tokens_per_counted", float),
        output_sent_again=fields.take("output_sent_again", bool),
        source="; ".join(addresses[key] for key in sources),
        dated=fields.take_date("dated").isoformat(),
        note=fields.take("note", str, ""),
    )
    fields.refuse_rest()
    return tokenizer


def _read_tiers(fields: _Fields) -> tuple[tuple[int, Rates], ...]:
    tiers = [(0, _read_rates(fields.take_table("prices")))]
    for tier in fields.take_tables("dearer", "above"):
        start = tier.take("above", int)
        if start <= tiers[-1][0]:
            raise tier.error("above", f"{start} does not ascend", "list the tiers by their size, all above 0")
        tiers.append((start, _read_rates(tier)))
    return tuple(tiers)


def _read_rates(fields: _Fields) -> Rates:
    prices = {name: fields.take(name, float) for name in ("input", "output")}
    prices |= {name: fields.take(name, float, None) for name in ("cache_read", "cache_write", "cache_write_1h")}
    fields.refuse_rest()
    try:
        return Rates(**prices)
    except PriceError as error:
        raise PriceError(f"{fields.place}: {error}") from None


def _read_cache_rules(fields: _Fields, base: CacheRules, addresses: Mapping[str, str]) -> CacheRules:
    """Return `base` with the rules that `fields` gives in place of its own."""
    kind = fields.take_choice("kind", ("prefix", "breakpoints", "none"), base.kind)
    if kind == "none":
        fields.refuse_rest()
        return CacheRules(kind="none")
    values = {key: fields.take(key, int, getattr(base, key)) for key in ("ttl", "minimum", "step")}
    # Sources that disagree are all named; the dearest reading is billed, which is the shortest look-back.
    figures = fields.take_table("look_back", optional=True)
    look_backs = [figures.take(figures.choose("source", key, addresses), int) for key in tuple(figures.values)]
    fields.refuse_rest()
    try:
        return CacheRules(kind=kind, look_back=min(look_backs, default=base.look_back), **values)
    except PriceError as error:
        raise PriceError(f"{fields.place}: {error}") from None


_REQUIRED: Final = object()
_TYPE_NAMES: Final = {
    str: "a text in quotes",
    bool: "true or false",
    int: "a whole number",
    float: "a number, USD per million tokens",
}


class _Fields:
    """The keys of one table of the file, taken one by one; `refuse_rest` reports those that nothing has taken.

    place: the file and the entry, for messages.
    """

    def __init__(self, values: Mapping[str, Any], place: str) -> None:
        self.values = dict(values)
        self.place = place
        self._known: list[str] = []

    def error(self, key: str, problem: str, remedy: str) -> PriceError:
        return PriceError(f"{self.place}: `{key}`: {problem}; {remedy}")

    def take(self, key: str, kind: type, default: Any = _REQUIRED) -> Any:
        """Return the value of `key`, which must be of type `kind`: a whole number serves as a float."""
        self._known.append(key)
        value = self.values.pop(key, default)
        if value is _REQUIRED:
            raise self.error(key, "it is missing", f"give {_TYPE_NAMES[kind]}")
        if value is default:
            return value
        wanted = (int, float) if kind is float else kind
        if isinstance(value, bool) != (kind is bool) or not isinstance(value, wanted):
            raise self.error(key, f"{value!r} is of the wrong type", f"give {_TYPE_NAMES[kind]}")
        return kind(value)

    def take_strings(self, key: str) -> tuple[str, ...]:
        self._known.append(key)
        values = self.values.pop(key, None)
        if not isinstance(values, list) or not values or not all(isinstance(value, str) for value in values):
            raise self.error(key, f"{values!r} is not a list of texts", 'give at least one: ["…"]')
        return tuple(values)

    def take_date(self, key: str, *, optional: bool = False) -> Any:
        self._known.append(key)
        value = self.values.pop(key, None)
        if value is None and optional:
            return None
        if not isinstance(value, date) or isinstance(value, datetime):
            raise self.error(key, f"{value!r} is no date", "give a day without quotes: 2026-11-20")
        return value

    def take_choice(self, key: str, choices: Mapping[str, Any] | tuple[str, ...], default: Any = _REQUIRED) -> Any:
        return self.choose(key, self.take(key, str, default), choices)

    def choose(self, key: str, value: str, choices: Mapping[str, Any] | tuple[str, ...]) -> str:
        """Return `value` if it is one of `choices`."""
        if value not in choices:
            raise self.error(key, f"{value!r} is not known", f"give one of {', '.join(choices)}")
        return value

    def take_table(self, key: str, *, optional: bool = False) -> _Fields:
        self._known.append(key)
        value = self.values.pop(key, {} if optional else None)
        if not isinstance(value, dict):
            raise self.error(key, f"{value!r} is no table", f"give `{key} = {{ … }}`")
        return _Fields(value, f"{self.place}, {key}")

    def take_tables(self, key: str, label: str) -> list[_Fields]:
        """Return the tables of a list. label: the key whose value names one in messages."""
        self._known.append(key)
        tables = self.values.pop(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise self.error(key, f"{tables!r} is not a list of tables", f"give `[[{key}]]`")
        fields = []
        for number, table in enumerate(tables, start=1):
            name = table.get(label, f"number {number}")
            if isinstance(name, list):
                name = ", ".join(map(str, name))
            fields.append(_Fields(table, f"{self.place}, {key} {name}"))
        return fields

    def refuse_rest(self) -> None:
        for key in self.values:
            raise self.error(key, "nothing has this name", f"there are: {', '.join(self._known)}")
