"""The dated table of what models cost: one row per model and price period, each with its source and our trust in it.

How to read a row: `input` and `output` are USD per million tokens; `read` and `write` are multiples of `input`, of
every tier; `above` lists dearer tiers as (prompt tokens, input, output). How to add one: docs/concepts/prices.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from types import MappingProxyType
from typing import Final, Literal

from elision.trajectory.prices import CacheRules, Prices, Rates

DATED: Final = "2026-11-20"

# H: vendor page or vendor SDK, read in November 2026. M: vendor page in a dated copy or quote, or two price tables
# that agree. L: one third-party source.
Trust = Literal["H", "M", "L"]


SOURCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "aws-global": "docs.aws.amazon.com/bedrock/latest/userguide/global-cross-region-inference.html",
        "claude-caching": "platform.claude.com/docs/en/build-with-claude/prompt-caching (copies of Sept-Oct 2026)",
        "claude-caching-feb": "platform.claude.com/docs/en/build-with-claude/prompt-caching (quoted Feb 2026)",
        "claude-pricing": "platform.claude.com/docs/en/about-claude/pricing",
        "deepseek-cache": "api-docs.deepseek.com/guides/kv_cache",
        "deepseek-pricing": "api-docs.deepseek.com Models & Pricing (quoted 2026-10-27)",
        "fable-5-2": "platform.claude.com/docs/en/models/fable-5-2/whats-new-fable-5-2",
        "gemini-caching": "ai.google.dev/gemini-api/docs/caching",
        "gemini-pricing": "ai.google.dev/gemini-api/docs/pricing (quoted)",
        "genai-prices": "genai-prices 0.2.3",
        "haiku-5-5": "platform.claude.com/docs/zh-CN/models/haiku-5-5/overview",
        "haiku-5-5-apidog": "apidog.com/jp/blog/claude-haiku-5-5-vs-haiku-4-5",
        "litellm": "litellm 1.106.2 model_prices_and_context_window.json",
        "litellm-grok": "github.com/BerriAI/litellm/discussions/42287",
        "openai-caching": "developers.openai.com/api/docs/guides/prompt-caching",
        "opus-5": "platform.claude.com/docs/ja/about-claude/models/whats-new-opus-5",
        "opus-5-5": "platform.claude.com/docs/zh-CN/models/opus-5-5/overview",
        "promptfuel": "github.com/TheKrush/PromptFuel v1.0.23 (effective dates)",
        "qwen-caching": "alibabacloud.com/help/en/model-studio/context-cache (2026-10-11)",
        "roo-deepseek": "github.com/RooCodeInc/Roo-Code packages/types/src/providers/deepseek.ts (2025-12-09)",
        "sonnet-5-5": "platform.claude.com/docs/zh-CN/models/sonnet-5-5/migration-guide",
        "xai-caching": "docs.x.ai/developers/advanced-api-usage/prompt-caching",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Who sets a price, and how its cache behaves where a model says nothing else.

    hosts: prefixes of a model name under which the list price holds ("anthropic/claude-…"). Open weights are served
           by many at their own prices, so those providers list only themselves.
    doubt: what of `cache` is assumed, not known.
    """

    hosts: frozenset[str]
    cache: CacheRules
    doubt: str = ""


# Where a vendor names no lifetime we assume Anthropic's five minutes: the shortest that any vendor documents.
PROVIDERS: Final[Mapping[str, Provider]] = MappingProxyType(
    {
        "anthropic": Provider(
            hosts=frozenset({"anthropic", "azure_ai", "bedrock", "bedrock_converse", "openrouter", "vertex_ai"}),
            cache=CacheRules(kind="breakpoints", ttl=300, minimum=1024),
        ),
        "openai": Provider(
            hosts=frozenset({"azure", "azure_ai", "bedrock", "bedrock_converse", "openai", "openrouter"}),
            cache=CacheRules(kind="prefix", ttl=1800, minimum=1024, step=128),
            doubt="ttl before 5.6: the vendor says 5-60 minutes in memory or 24 hours, by account; minimum: 1,024 on "
            "older pages, 2,048 on one of Sept 2026",
        ),
        "google": Provider(
            hosts=frozenset({"gemini", "google", "openrouter", "vertex_ai"}),
            cache=CacheRules(kind="prefix", ttl=300, minimum=4096),
            doubt="implicit caching only, no guarantee; ttl not documented; minimum not documented from 3.5 on",
        ),
        "deepseek": Provider(
            hosts=frozenset({"deepseek"}),
            cache=CacheRules(kind="prefix", ttl=3600, minimum=64, step=64),
            doubt="64 tokens are from the vendor's old page; the current one speaks of prefix units of unnamed size. "
            "On disk, lifetime not named: an hour assumed",
        ),
        "qwen": Provider(
            hosts=frozenset({"alibaba", "dashscope", "qwen"}),
            cache=CacheRules(kind="prefix", ttl=300, minimum=1024),
            doubt="implicit cache; the explicit one reads at 0.1 and writes at 1.25. Minimum 256 in March 2026, ttl "
            "and step not documented",
        ),
        "moonshotai": Provider(
            hosts=frozenset({"moonshot", "moonshotai"}),
            cache=CacheRules(kind="prefix", ttl=300, minimum=1024),
            doubt="minimum and step from nowhere: the usual 1,024 and 1 assumed",
        ),
        "zai": Provider(
            hosts=frozenset({"z-ai", "zai"}),
            cache=CacheRules(kind="prefix", ttl=300, minimum=1024),
            doubt="nothing but prices is known: the usual rules assumed",
        ),
        "x-ai": Provider(
            hosts=frozenset({"openrouter", "x-ai", "xai"}),
            cache=CacheRules(kind="prefix", ttl=300, minimum=1024),
            doubt="entries may be evicted at any time; ttl, minimum and step not documented",
        ),
        "mistral": Provider(
            hosts=frozenset({"mistral", "mistralai"}),
            cache=CacheRules(kind="prefix", ttl=300, minimum=1024),
            doubt="ttl, minimum and step not documented",
        ),
    }
)

# From the 5.6 family on OpenAI bills writes and caches up to breakpoints that it places itself at the newest message,
# without a look-back limit and without rounding: to a client that is a prefix cache with a 30-minute minimum lifetime.
OPENAI_WITH_WRITES: Final = CacheRules(kind="prefix", ttl=1800, minimum=1024)
# gpt-5.5 has only the 24-hour retention.
_OPENAI_DAY: Final = CacheRules(kind="prefix", ttl=86_400, minimum=1024, step=128)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one model costs from one day on.

    names:    as the vendor writes them, lower case, without date and host.
    input, output: USD per million tokens of the lowest tier.
    read, write:   cache prices as multiples of `input`; write None = what is not read is plain input.
    above:    (prompt tokens above which it holds, input, output) of dearer tiers, ascending.
    regional: factor on every price where a region-bound Bedrock profile serves the model.
    since:    ISO day; "" = as far back as we know.
    refs:     keys of SOURCES.
    """

    provider: str
    names: tuple[str, ...]
    input: float
    output: float
    read: float | None
    cache: CacheRules
    trust: Trust
    refs: tuple[str, ...]
    write: float | None = None
    above: tuple[tuple[int, float, float], ...] = ()
    regional: float = 1.0
    window: int | None = None
    since: str = ""
    note: str = ""

    @property
    def prices(self) -> Prices:
        return self.priced()

    def priced(self, factor: float = 1.0) -> Prices:
        """The price list, every price times `factor`: 1, or `regional`."""
        tiers = ((0, self.input, self.output), *self.above)
        if factor == 1.0:
            refs = self.refs
        else:
            refs = (*self.refs, "aws-global")
        return Prices(
            name=self.names[0],
            tiers=tuple((start, self._rates(factor * input, factor * output)) for start, input, output in tiers),
            cache=self.cache,
            window=self.window,
            source="; ".join(SOURCES[ref] for ref in refs),
            dated=DATED,
        )

    def _rates(self, input: float, output: float) -> Rates:
        # Rounded to 1e-9 USD per million tokens, so that 0.1 x 3 prints as 0.3.
        return Rates(
            input=round(input, 9),
            output=round(output, 9),
            cache_write=None if self.write is None else round(self.write * input, 9),
            cache_read=None if self.read is None else round(self.read * input, 9),
            # Entries that live an hour are Anthropic's; every one of its models writes them at 2 x input.
            cache_write_1h=round(2 * input, 9) if self.provider == "anthropic" and self.write is not None else None,
        )


def _claude(
    names: str,
    input: float,
    *,
    minimum: int,
    trust: Trust,
    refs: str,
    read: float = 0.1,
    window: int = 1_000_000,
    note: str = "",
) -> Row:
    """A Claude model: output 5 x input, cache writes 1.25 x; from 4.5 on 10 % more in a Bedrock region [aws-global]."""
    return Row(
        provider="anthropic",
        names=tuple(names.split()),
        input=input,
        output=5 * input,
        read=read,
        write=1.25,
        cache=replace(PROVIDERS["anthropic"].cache, minimum=minimum),
        trust=trust,
        refs=tuple(refs.split()),
        regional=1.1,
        window=window,
        note=note,
    )


def _early_claude(names: str, input: float, *, minimum: int, refs: str, note: str = "") -> Row:
    """Claude up to 4.1: 200,000 tokens, the same price in every region."""
    return replace(
        _claude(names, input, minimum=minimum, trust="M", refs=refs, window=200_000, note=note), regional=1.0
    )


_CLAUDE: Final = (
    _claude(
        "claude-fable-5-2 claude-mythos-5-2",
        8,
        read=0.025,
        minimum=512,
        trust="H",
        refs="fable-5-2 genai-prices",
        note="minimum not documented: that of 5.1 assumed",
    ),
    _claude(
        "claude-fable-5-1 claude-mythos-5-1",
        10,
        read=0.025,
        minimum=512,
        trust="H",
        refs="claude-pricing claude-caching genai-prices",
    ),
    _claude(
        "claude-fable-5 claude-mythos-5",
        10,
        minimum=512,
        trust="H",
        refs="claude-pricing claude-caching genai-prices",
    ),
    _claude("claude-opus-5-5", 4, read=0.05, minimum=512, trust="H", refs="opus-5-5 claude-caching genai-prices"),
    _claude("claude-opus-5", 5, minimum=512, trust="H", refs="claude-pricing opus-5 genai-prices"),
    _claude("claude-opus-4-8", 5, minimum=1024, trust="M", refs="claude-caching genai-prices litellm"),
    _claude("claude-opus-4-7", 5, minimum=2048, trust="M", refs="claude-caching genai-prices litellm"),
    _claude(
        "claude-opus-4-6",
        5,
        minimum=4096,
        trust="M",
        refs="claude-caching genai-prices litellm",
        note="before 2026-03-13 dearer above 200,000 prompt tokens",
    ),
    _claude("claude-opus-4-5", 5, minimum=4096, trust="M", window=200_000, refs="claude-caching genai-prices litellm"),
    _early_claude("claude-opus-4-1 claude-opus-4 claude-opus-4-0", 15, minimum=1024, refs="claude-pricing"),
    replace(
        _claude(
            "claude-sonnet-5-5",
            2,
            minimum=512,
            trust="H",
            refs="sonnet-5-5 claude-caching promptfuel",
            note="launch price of cache reads, until 2026-10-06",
        ),
        since="2026-09-28",
    ),
    replace(
        _claude(
            "claude-sonnet-5-5",
            2,
            read=0.05,
            minimum=512,
            trust="H",
            refs="sonnet-5-5 claude-caching genai-prices promptfuel",
            note="cache reads halved on 2026-10-07",
        ),
        since="2026-10-07",
    ),
    _claude("claude-sonnet-5", 2, minimum=1024, trust="M", refs="claude-caching genai-prices litellm"),
    _claude(
        "claude-sonnet-4-6",
        3,
        minimum=1024,
        trust="M",
        refs="claude-pricing claude-caching-feb genai-prices",
        note="a probe saw nothing cached below 2,048; before 2026-03-13 dearer above 200,000 prompt tokens",
    ),
    replace(
        _claude(
            "claude-sonnet-4-5",
            3,
            minimum=1024,
            trust="M",
            window=200_000,
            refs="claude-pricing claude-caching genai-prices",
            note="the tier above 200,000 (long-context beta) is in genai-prices alone; retires 2026-11-30",
        ),
        above=((200_000, 6.0, 22.5),),
    ),
    _early_claude(
        "claude-sonnet-4 claude-sonnet-4-0 claude-3-7-sonnet claude-3-5-sonnet",
        3,
        minimum=1024,
        refs="claude-pricing claude-caching-feb genai-prices",
    ),
    replace(
        _claude(
            "claude-haiku-5-5",
            0.10,
            minimum=512,
            trust="H",
            refs="haiku-5-5 haiku-5-5-apidog genai-prices",
            note="five times dearer above 100,000 prompt tokens; the minimum is from a third party (L)",
        ),
        above=((100_000, 0.50, 2.50),),
    ),
    _claude("claude-haiku-4-5", 1, minimum=4096, trust="M", window=200_000, refs="claude-caching genai-prices litellm"),
    _early_claude("claude-3-5-haiku", 0.80, minimum=2048, refs="claude-pricing claude-caching-feb genai-prices"),
)


def _gpt(names: str, input: float, output: float, *, window: int, read: float = 0.1, trust: Trust = "M") -> Row:
    """An OpenAI model before the 5.6 family: no write price."""
    return Row(
        provider="openai",
        names=tuple(names.split()),
        input=input,
        output=output,
        read=read,
        cache=PROVIDERS["openai"].cache,
        trust=trust,
        refs=("genai-prices", "litellm", "openai-caching") if trust == "M" else ("genai-prices",),
        window=window,
    )


def _long(row: Row) -> Row:
    """Above 272,000 prompt tokens: input and cache prices x 2, output x 1.5."""
    return replace(row, above=((272_000, 2 * row.input, 1.5 * row.output),))


def _writing_gpt(
    names: str, input: float, output: float, *, window: int = 1_050_000, read: float = 0.1, trust: Trust = "M"
) -> Row:
    """The 5.6 family and later: cache writes cost 1.25 x input, with automatic caching too; 10 % more in a region."""
    row = _gpt(names, input, output, window=window, read=read)
    return _long(replace(row, write=1.25, cache=OPENAI_WITH_WRITES, trust=trust, regional=1.1))


_GPT: Final = (
    _gpt("gpt-5 gpt-5-codex", 1.25, 10, window=400_000),
    _gpt("gpt-5.1 gpt-5.1-codex gpt-5.1-codex-max", 1.25, 10, window=400_000),
    _gpt("gpt-5.2 gpt-5.2-codex", 1.75, 14, window=400_000),
    _gpt("gpt-5.3-codex", 1.75, 14, window=400_000),
    _gpt("gpt-5.3", 1.75, 14, window=128_000),
    _long(_gpt("gpt-5.4", 2.5, 15, window=1_050_000)),
    replace(
        _long(_gpt("gpt-5.5", 5, 30, window=1_000_000)),
        cache=_OPENAI_DAY,
        note="retention 24 h only; best effort: a probe of June 2026 missed on 5 of 14 warm prompts",
    ),
    replace(
        _writing_gpt("gpt-5.6-sol gpt-5.6", 4, 20, trust="H"),
        since="2026-08-21",
        note="reached this price on 2026-08-21; a 12-hour entry costs an unknown amount more",
    ),
    replace(_writing_gpt("gpt-5.6-terra", 2, 12), since="2026-07-30", note="reached this price on 2026-07-30"),
    replace(_writing_gpt("gpt-5.6-luna", 0.2, 1.2), since="2026-07-30", note="reached this price on 2026-07-30"),
    _writing_gpt("gpt-6-astra", 10, 50),
    _writing_gpt("gpt-6-sol", 2, 10),
    _writing_gpt("gpt-6-luna", 0.1, 0.5),
    _writing_gpt("gpt-6.1-sol", 2, 10, read=0.05),
    _writing_gpt("gpt-6.1-terra", 1, 5, read=0.05),
    _gpt("gpt-5-mini", 0.25, 2, window=400_000, trust="L"),
    _gpt("gpt-5-nano", 0.05, 0.4, window=400_000, trust="L"),
    _gpt("gpt-4.1", 2, 8, window=1_000_000, read=0.25, trust="L"),
    _gpt("gpt-4.1-mini", 0.4, 1.6, window=1_000_000, read=0.25, trust="L"),
    _gpt("gpt-4o", 2.5, 10, window=128_000, read=0.5, trust="L"),
    _gpt("gpt-4o-mini", 0.15, 0.6, window=128_000, read=0.5, trust="L"),
    replace(
        _gpt("gpt-4o-2024-05-13", 5, 15, window=128_000, trust="L"),
        read=None,
        cache=CacheRules(kind="none"),
        note="the first gpt-4o: dearer, no cache",
    ),
    _gpt("o3", 2, 8, window=200_000, read=0.25, trust="L"),
    _gpt("o4-mini", 1.1, 4.4, window=200_000, read=0.25, trust="L"),
)


def _gemini(
    names: str,
    input: float,
    output: float,
    *,
    minimum: int = 4096,
    read: float = 0.1,
    window: int | None = None,
    trust: Trust = "M",
    since: str = "",
    note: str = "",
) -> Row:
    """A Gemini model with implicit caching: 90 % off what is read, no write price, no storage fee."""
    return Row(
        provider="google",
        names=tuple(names.split()),
        input=input,
        output=output,
        read=read,
        cache=replace(PROVIDERS["google"].cache, minimum=minimum),
        trust=trust,
        refs=("gemini-pricing", "gemini-caching", "genai-prices") if trust == "M" else ("genai-prices",),
        window=window,
        since=since,
        note=note,
    )


_NO_MINIMUM: Final = "minimum not documented: the largest known, 4,096, assumed"
_MILLION: Final = 1_048_576

_GEMINI: Final = (
    _gemini("gemini-2.5-flash", 0.30, 2.50, minimum=1024, window=_MILLION),
    _gemini("gemini-2.5-flash-lite", 0.10, 0.40, window=1_000_000, trust="L", note=_NO_MINIMUM),
    replace(_gemini("gemini-2.5-pro", 1.25, 10), above=((200_000, 2.50, 15.0),)),
    _gemini("gemini-3-flash-preview gemini-3-flash", 0.50, 3, minimum=1024, window=1_000_000, trust="L"),
    replace(_gemini("gemini-3-pro-preview gemini-3-pro", 2, 12), above=((200_000, 4.0, 18.0),)),
    replace(
        _gemini("gemini-3.1-pro-preview gemini-3.1-pro", 2, 12, note=_NO_MINIMUM),
        above=((200_000, 4.0, 18.0),),
    ),
    _gemini("gemini-3.8-flash", 0.75, 3.75, window=1_000_000, note=f"until 2026-12-31; {_NO_MINIMUM}"),
    _gemini("gemini-3.8-flash", 1.50, 7.50, window=1_000_000, since="2027-01-01", note=_NO_MINIMUM),
    _gemini(
        "gemini-4-argon", 2, 10, read=0.05, window=_MILLION, note=f"until 2026-11-30 (genai-prices); {_NO_MINIMUM}"
    ),
    _gemini("gemini-4-argon", 4, 20, read=0.05, window=_MILLION, trust="L", since="2026-12-01", note=_NO_MINIMUM),
)


def _open(
    provider: str,
    names: str,
    input: float,
    output: float,
    read: float,
    refs: str,
    *,
    window: int | None = None,
    trust: Trust = "M",
    since: str = "",
    note: str = "",
) -> Row:
    """A model with an automatic prefix cache and no write price, at its own vendor."""
    return Row(
        provider=provider,
        names=tuple(names.split()),
        input=input,
        output=output,
        read=read,
        cache=PROVIDERS[provider].cache,
        trust=trust,
        refs=tuple(refs.split()),
        window=window,
        since=since,
        note=note,
    )


_PEAK: Final = "peak price (01-04 and 06-10 h UTC on Chinese working days); all prices are half of it otherwise"

_OTHERS: Final = (
    _open(
        "deepseek",
        "deepseek-chat deepseek-reasoner deepseek-v3.2",
        0.28,
        0.42,
        0.1,
        "roo-deepseek deepseek-cache",
        window=128_000,
        note="V3.2; these names were announced for retirement on 2026-07-24",
    ),
    _open(
        "deepseek",
        "deepseek-v4-flash deepseek-flash",
        0.30,
        1.20,
        0.02,
        "deepseek-pricing genai-prices deepseek-cache",
        window=1_000_000,
        since="2026-09-10",
        note=_PEAK,
    ),
    _open(
        "deepseek",
        "deepseek-v4-pro",
        1.32,
        3.96,
        1 / 30,
        "deepseek-pricing genai-prices deepseek-cache",
        window=1_000_000,
        since="2026-08-17",
        note=f"0.435 before a notice of August 2026; {_PEAK}",
    ),
    replace(
        _open(
            "qwen",
            "qwen3-coder-plus",
            1.0,
            5.0,
            0.2,
            "litellm qwen-caching",
            window=1_000_000,
            trust="L",
            note="read at the implicit rate; litellm lists the explicit one, 0.1",
        ),
        above=((32_000, 1.8, 9.0), (128_000, 3.0, 15.0), (256_000, 6.0, 60.0)),
    ),
    _open("moonshotai", "kimi-k3", 3, 15, 0.1, "genai-prices litellm", window=_MILLION),
    _open("moonshotai", "kimi-k3.1-pro", 2, 10, 0.1, "genai-prices litellm", window=_MILLION),
    _open("zai", "glm-5", 1.0, 3.2, 0.2, "genai-prices litellm"),
    _open("zai", "glm-5.1", 1.4, 4.4, 0.26 / 1.4, "genai-prices litellm"),
    _open("zai", "glm-5.2 glm-5.3", 1.4, 4.4, 0.26 / 1.4, "genai-prices litellm", window=1_000_000),
    replace(
        _open("x-ai", "grok-4.3", 1.25, 2.50, 0.16, "xai-caching genai-prices", window=1_000_000),
        above=((200_000, 2.50, 5.0),),
    ),
    replace(
        _open("x-ai", "grok-4.5", 2, 6, 0.15, "xai-caching genai-prices", window=500_000), above=((200_000, 4.0, 12.0),)
    ),
    replace(
        _open("x-ai", "grok-4.6 grok-4.7", 2, 6, 0.25, "xai-caching genai-prices litellm-grok", window=500_000),
        above=((200_000, 4.0, 12.0),),
    ),
)

_ROWS: Final = (*_CLAUDE, *_GPT, *_GEMINI, *_OTHERS)


def rows() -> tuple[Row, ...]:
    """The whole table, by provider, for printing. A model whose price changed has one row per period."""
    return _ROWS


def folded(name: str) -> str:
    """A name as the table compares it: vendors and routers write claude-opus-4-5 and claude-opus-4.5."""
    return name.lower().replace(".", "-")


def _index() -> Mapping[str, tuple[Row, ...]]:
    found: dict[str, list[Row]] = {}
    for row in _ROWS:
        for name in row.names:
            found.setdefault(folded(name), []).append(row)
    return {name: tuple(sorted(group, key=lambda row: row.since)) for name, group in found.items()}


_BY_NAME: Final = _index()


def row_of(name: str, on: date) -> Row | None:
    """The row of a model on a day, by its bare name; the oldest one where the day lies before all of them."""
    group = _BY_NAME.get(folded(name), ())
    standing = [row for row in group if row.since <= on.isoformat()]
    return next(iter([*reversed(standing), *group]), None)
