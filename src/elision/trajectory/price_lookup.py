"""From a model name, as recordings and routers write it, to its price list and to what a reported call cost.

Our own table comes first, then genai-prices.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from functools import cache, lru_cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from elision.errors import PriceError, install
from elision.trajectory.price_table import PriceEntry, fold_model_name, load_price_table
from elision.trajectory.prices import Bill, CacheRules, Prices, Rates
from elision.trajectory.tokens import OURS, Tokenizer
from elision.trajectory.usage import Usage

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot
    from genai_prices.types import ModelInfo, ModelPrice, Provider, TieredPrices

# Path segments of a model name that say nothing about who bills.
_NEUTRAL: Final = frozenset({"converse", "invoke", "litellm", "litellm_proxy", "models", "openhands", "responses"})
_AWS_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
# us.anthropic.claude-… on Bedrock; "global." costs the list price, a region 10 % more.
_BEDROCK: Final = re.compile(
    r"(?:(?P<area>global|us-gov|us|eu|apac|jp|au|ca)\.)?(?P<vendor>anthropic|openai)\.(?P<model>.+)"
)
_TAGS: Final = (
    re.compile(r"\[1m\]$"),  # Claude Code's mark for the long window
    re.compile(r":thinking$"),  # OpenRouter
    re.compile(r"@[\w-]+$"),  # Vertex: @20251101, @default
)
#: The end of a name that sells a model at another speed, and so at another price. Some models are called so themselves.
_SPEED: Final = re.compile(r"[-:](fast|priority|flex|batch)$")
_BEDROCK_VERSION: Final = re.compile(r"-v\d+(:\d+)*$")
_DATE: Final = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")

# Host prefixes that genai-prices knows by another name.
_GENAI_HOSTS: Final = {
    "azure_ai": "azure",
    "bedrock_converse": "aws",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "together_ai": "together",
    "xai": "x-ai",
    "z-ai": "zai",
}
# Who makes a model, by its name. Open weights have a maker, but each host caches them in its own way.
_MAKERS: Final = (
    ("claude", "anthropic"),
    ("gemini", "google"),
    ("gpt-", "openai"),
    ("glm-", "zai"),
    ("kimi", "moonshotai"),
)
_OPEN_WEIGHTS: Final = ("gpt-oss", "glm-", "kimi")


#: How alike two names are (`difflib`), at least, of which one may be a typing error of the other.
TYPING_ERROR: Final = 0.8
#: Characters of the longest name that any model may have; a Bedrock profile's are about a hundred.
LONGEST_NAME: Final = 300

_find_version: Final = cache(version)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelName:
    """A model name taken apart. hosts: who bills, outermost first; is_regional: a region-bound Bedrock profile."""

    hosts: tuple[str, ...]
    model: str
    is_regional: bool = False

    @property
    def undated(self) -> str:
        return _DATE.sub("", self.model)


def _parse_name(name: str) -> _ModelName:
    *path, last = name.strip().lower().split("/")
    hosts = tuple(host for host in map(_normalize_host, path) if host)
    for tag in _TAGS:
        last = tag.sub("", last)
    bedrock = _BEDROCK.fullmatch(last)
    if bedrock is None:
        return _ModelName(hosts=hosts, model=last)
    return _ModelName(
        hosts=(*hosts, "bedrock"),
        model=_BEDROCK_VERSION.sub("", bedrock["model"]),
        is_regional=bedrock["area"] != "global",
    )


def _normalize_host(segment: str) -> str:
    if segment in _NEUTRAL or _AWS_REGION.fullmatch(segment):
        return ""
    if segment.startswith("arn:aws"):
        return "bedrock"
    return segment


def find_prices(name: str, on: date | None = None) -> Prices:
    """The price list of a model on a day (default: today).

    `name` may carry hosts and a date: litellm_proxy/anthropic/claude-opus-4-5-20251101. Raises PriceError, which
    lists close names and says how to give a price.
    """
    if len(name) > LONGEST_NAME:
        # A longer name would cost memory and comparisons without limit.
        raise PriceError(f"no price for model {name[:60]!r}..., a name of {len(name):,} characters")
    day = on or date.today()
    listed = _find_listed_prices(name, day)
    if listed is not None:
        return listed
    parted = _parse_name(name)
    tokenizer = find_tokenizer(name)
    for host, spelling in _list_spellings(name, parted):
        found = find_genai_prices(spelling, host, day)
        if found is not None:
            return replace(found, tokenizer=tokenizer)
    raise PriceError(_describe_unknown(name, parted, _find_entry(parted, day)[1]))


@lru_cache(maxsize=256)
def find_tokenizer(name: str) -> Tokenizer:
    """Return how a model counts tokens; as we do where that is not known. `name` is as in `find_prices`.

    A name that the table does not have may end with that of a model, or be a typing error of one.
    """
    if len(name) > LONGEST_NAME:
        return OURS
    table = load_price_table()
    bare = fold_model_name(_parse_name(name).model)
    ours = tuple(table.periods)
    if bare not in ours:
        parts = bare.split("-")
        endings = ["-".join(parts[start:]) for start in range(len(parts))]
        close = _find_close_names(bare, ours, TYPING_ERROR)[:1]
        return next((found for each in (*endings, *close) if (found := table.find_tokenizer(each)) != OURS), OURS)
    return table.find_tokenizer(bare)


def is_same_model(one: str, other: str) -> bool:
    """Return whether two names, as recordings and routers write them, are of one model: hosts and dates apart."""
    return one == other or fold_model_name(_parse_name(one).undated) == fold_model_name(_parse_name(other).undated)


def count_for_model(prices: Prices, model: str) -> Prices:
    """Return `prices` with the tokenizer of `model` where they stand for no model: calls at a set's or the user's own
    prices are counted as their model counts."""
    if not model or prices.tokenizer != OURS:
        return prices
    return replace(prices, tokenizer=find_tokenizer(model))


def find_price_set(name: str) -> Prices:
    """Return the named price set. Raises PriceError, which lists the names there are."""
    sets = load_price_table().sets
    if name not in sets:
        if name in list_models():
            raise PriceError(f"{name!r} is a model and no price set: give --model {name}; sets: {', '.join(sets)}")
        raise PriceError(f"no price set {name!r}; there are: {', '.join(sets)}")
    return sets[name]


@lru_cache(maxsize=256)
def _find_listed_prices(name: str, day: date) -> Prices | None:
    """Our own table's. Held, since every session of a gateway asks for its own."""
    parted = _parse_name(name)
    bare, entry = _find_entry(parted, day)
    if entry is None or not load_price_table().providers[entry.provider].hosts.issuperset(parted.hosts):
        return None
    prices = entry.regional_prices if parted.is_regional else entry.prices
    return replace(prices, name=bare, tokenizer=load_price_table().find_tokenizer(bare))


def _find_entry(parted: _ModelName, day: date) -> tuple[str, PriceEntry | None]:
    """Return the name that our table has for a model, and its entry there."""
    table = load_price_table()
    entry = table.find_entry(parted.model, day)
    if entry is not None:
        return parted.model, entry
    return parted.undated, table.find_entry(parted.undated, day)


def list_models() -> tuple[str, ...]:
    """Names that `find_prices` takes, sorted: our table's, and genai-prices' where that is installed."""
    return _list_models_on(date.today(), _load_genai() is None)


@lru_cache(maxsize=4)
def _list_models_on(day: date, alone: bool) -> tuple[str, ...]:
    """alone: whether genai-prices is not there. Held, since a gateway meets unknown models by the thousand."""
    ours = {name for entry in load_price_table().entries for name in entry.names}
    snapshot = None if alone else _load_genai()
    if snapshot is None:
        return tuple(sorted(ours))
    known_providers = _map_genai_providers()
    listed = (provider for provider in snapshot.providers if provider.id in known_providers)
    # Some of its ids are titles that its own matching does not know.
    models = ((provider, model) for provider in listed for model in provider.models if model.is_match(model.id))
    theirs = {model.id.lower() for provider, model in models if _convert_genai_model(provider, model, day)}
    return tuple(sorted(ours | theirs))


def _describe_unknown(name: str, parted: _ModelName, row: PriceEntry | None) -> str:
    searched = f"our table of {load_price_table().dated}" + ("" if _load_genai() is None else " and genai-prices")
    found = "; ".join([f"no price for model {name!r} in {searched}", *_list_hints(name, parted, row)])
    example = "--price input=3,cache_write=3.75,cache_read=0.3,output=15 (USD per million tokens)"
    return f"{found}. Give it with {example}, or a set with --prices: {', '.join(load_price_table().sets)}"


def _list_hints(name: str, parted: _ModelName, row: PriceEntry | None) -> Iterator[str]:
    if row is not None:
        seller = "/".join(parted.hosts)
        yield f"{parted.undated} is known, but not as sold by {seller!r}: give the bare name if you pay the list price"
    if close := find_close_models(name):
        yield f"close names: {', '.join(close)}"
    if _load_genai() is None:
        yield f"genai-prices, which is not installed, knows more: {install('lab')}"


def find_close_models(name: str) -> list[str]:
    """Return the known models whose names are most like `name`, however either is punctuated."""
    return _find_close_names(_parse_name(name).undated, list_models())


@lru_cache(maxsize=256)
def _find_close_names(name: str, known: tuple[str, ...], cutoff: float = 0.6) -> list[str]:
    folded = {fold_model_name(each): each for each in known}
    return [folded[each] for each in difflib.get_close_matches(fold_model_name(name), folded, n=5, cutoff=cutoff)]


@cache
def _map_genai_providers() -> Mapping[str, str]:
    """What the provider ids of genai-prices are called in our table; a host that serves others' models is not in it."""
    return {**{name: name for name in load_price_table().providers}, "zhipuai": "zai"}


def _load_genai() -> DataSnapshot | None:
    """The offline data of genai-prices, None where it is not installed. The only place that imports it."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return None
    return get_snapshot()


def find_genai_prices(model: str, provider: str | None, on: date) -> Prices | None:
    """What genai-prices alone says of a model on a day; None where it is not installed or does not know.

    provider: its name there; None leaves the choice to it.
    """
    snapshot = _load_genai()
    if snapshot is None:
        return None
    try:
        found, info = snapshot.find_provider_model(model, None, provider, None)
    except LookupError:
        return None
    # It matches by prefix: claude-sonnet-4-51 would pass for claude-sonnet-4-5, and a typing error be priced.
    if model.startswith(info.id) and model[len(info.id) :][:1].isalnum():
        return None
    # A name at another speed would pass for the usual one, and be billed at a fraction of its price.
    speed = _SPEED.search(model)
    if speed is not None and speed[1] not in info.id:
        return None
    return _convert_genai_model(found, info, on)


def _list_spellings(name: str, parted: _ModelName) -> Iterator[tuple[str | None, str]]:
    """How genai-prices may write the model: (host, name), the fullest spelling first."""
    path = [segment for segment in name.strip().lower().split("/") if _normalize_host(segment)]
    if not path:
        return
    if parted.hosts:
        host = _GENAI_HOSTS.get(parted.hosts[0], parted.hosts[0])
        yield host, "/".join(path[1:] if len(path) > 1 else path)
        yield host, path[-1]
        yield host, parted.model
        return
    for maker in (find_maker(parted.model), None, *_map_genai_providers()):
        yield maker, path[-1]
        yield maker, parted.model


def find_maker(model: str) -> str | None:
    return next((maker for mark, maker in _MAKERS if mark in model.lower()), None)


def find_flagship_prices(name: str) -> Prices:
    """Return the prices of the newest flagship of the family that `name` tells, or else of Anthropic's."""
    providers = load_price_table().providers
    maker = find_maker(name)
    return find_prices((providers[maker].flagship if maker else "") or providers["anthropic"].flagship)


def _convert_genai_model(provider: Provider, info: ModelInfo, on: date) -> Prices | None:
    """A model of genai-prices as a price list; None where it is not sold by the token (images, speech, embeddings)."""
    price = _find_price_in_force(info, on)
    if price.input_mtok is None or price.output_mtok is None:
        return None
    prices = (price.input_mtok, price.output_mtok, price.cache_write_mtok, price.cache_read_mtok)
    starts = sorted({0} | {tier.start for value in prices for tier in getattr(value, "tiers", ())})
    tiers = tuple((start, _convert_rates(price, start)) for start in starts)
    cache = _choose_cache_rules(provider.id, info.id, tiers)
    if cache.kind == "breakpoints":
        # It lists the price of five-minute entries alone; Anthropic writes those of an hour at 2 x input.
        tiers = tuple((start, replace(rates, cache_write_1h=2 * rates.input)) for start, rates in tiers)
    return Prices(
        name=info.id,
        tiers=tiers,
        cache=cache,
        window=info.context_window,
        source=f"genai-prices {_find_version('genai-prices')}: {provider.id}/{info.id}",
        dated=on.isoformat(),
    )


def _find_price_in_force(info: ModelInfo, on: date) -> ModelPrice:
    """Return the price in force on a day; of prices by the hour the most expensive, since no hour is known."""
    if not isinstance(info.prices, list):
        return info.prices
    standing = [info.prices[0].prices]
    for conditional in info.prices:
        since = getattr(conditional.constraint, "start_date", None)
        if hasattr(conditional.constraint, "start_time"):
            standing.append(conditional.prices)
        elif since is None or since <= on:
            standing = [conditional.prices]
    return max(standing, key=lambda price: _find_tier_price(price.input_mtok, 0) or 0.0)


def _convert_rates(price: ModelPrice, start: int) -> Rates:
    return Rates(
        input=_find_tier_price(price.input_mtok, start) or 0.0,
        output=_find_tier_price(price.output_mtok, start) or 0.0,
        cache_write=_find_tier_price(price.cache_write_mtok, start),
        cache_read=_find_tier_price(price.cache_read_mtok, start),
    )


def _find_tier_price(value: Decimal | TieredPrices | None, start: int) -> float | None:
    """A price of the tier that begins above `start` prompt tokens; USD per million tokens."""
    if value is None or isinstance(value, Decimal):
        if value is None:
            return None
        return float(value)
    return float(next((tier.price for tier in reversed(value.tiers) if 0 < tier.start <= start), value.base))


def _choose_cache_rules(provider: str, model: str, tiers: tuple[tuple[int, Rates], ...]) -> CacheRules:
    """Return the cache rules of the maker of the model; genai-prices has none."""
    if all(rates.cache_read is None for _, rates in tiers):
        return CacheRules(kind="none")
    if any(mark in model.lower() for mark in _OPEN_WEIGHTS):
        hosted = None
    else:
        hosted = find_maker(model)
    maker = _map_genai_providers().get(provider, hosted)
    if maker:
        return load_price_table().providers[maker].cache_rules(tiers[0][1])
    return CacheRules()


def cost_reported_usage(usage: Usage, prices: Prices) -> float:
    """Return what a reported call cost, in USD: as the provider stated it, else its tokens at list prices.

    prices: of the model that was asked. What another model did for it is billed at that model's own list, or at
    `prices` if no list is known.
    """
    if usage.usd is not None:
        return usage.usd
    usd = prices.cost_usage(usage)
    for other in usage.others:
        usd += _find_model_prices(other.model, prices).cost_usage(other.usage) - prices.cost_usage(other.usage)
    return usd


def bill_reported_usage(usage: Usage, prices: Prices) -> Bill:
    """Return the bill of a reported call. prices: of the model that was asked."""
    return Bill(
        input=usage.input,
        cache_write=usage.cache_write,
        cache_read=usage.cache_read,
        output=usage.output,
        usd=cost_reported_usage(usage, prices),
        cache_write_1h=usage.cache_write_1h,
    )


def _find_model_prices(model: str, usual: Prices) -> Prices:
    try:
        return find_prices(model)
    except PriceError:
        return usual
