"""What each model's API takes and checks, as one dated table: what decides how a history may be edited there.

Prices, windows and the shortest prefix that is cached are in `trajectory/prices.toml`. What a row means for an
edit is in `bound_thinking.py`, `native.py` and `breakpoints.py`; sources and doubts are in docs/reference/providers.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

DATED: Final = "2026-11-21"

#: H: vendor page or vendor SDK, read in November 2026. M: vendor page in a dated copy or quote, or several users'
#: reports that agree. L: one third party. "-": assumed, for want of any.
Trust = Literal["H", "M", "L", "-"]
#: no: the model does not think, or not visibly. manual: only where a request gives a budget. adaptive: by itself where
#: a request says so. default: by itself unless a request says no. always: a request cannot say no.
Thinking = Literal["no", "manual", "adaptive", "default", "always"]
#: The field by which a request marks a block as the end of a prefix to keep; "" where it cannot.
Mark = Literal["", "cache_control", "prompt_cache_breakpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """One row: what holds for every model whose name begins with `model`.

    model:         beginning of the bare name, as `bare` writes it; "" fits all.
    bound:         thinking is valid only behind the very prefix that it was thought behind (prefix-bound thinking).
    drop_block:    a request may ask for invalid thinking to be dropped instead of being refused.
    clears:        the server clears old tool results itself (`clear_tool_uses_20250919`).
    mark:          how a cache breakpoint is set.
    breakpoints:   how many a request may set, automatic ones included; 0 where there are none.
    look_back:     content blocks that a breakpoint looks back for an entry; 0: no limit.
    automatic:     prefixes are cached without being marked, or where the request asks for it as a whole.
    choice_splits: another `tool_choice` loses the cache of the messages.
    temperature:   a `temperature` of one's own is taken.
    audio:         a message may hold audio; True where it is not known.
    prefill:       a request may end with the beginning of the answer; True where it is not known.
    thinking:      whether it thinks; what it thinks behind is what `bound` is about.
    trust, source: of the row as a whole; the weakest of its facts.
    """

    model: str
    bound: bool = False
    drop_block: bool = False
    clears: bool = False
    mark: Mark = ""
    breakpoints: int = 0
    look_back: int = 0
    automatic: bool = True
    choice_splits: bool = False
    temperature: bool = True
    audio: bool = True
    prefill: bool = True
    thinking: Thinking = "no"
    trust: Trust = "M"
    source: str = ""


_BOUND = "preserved-thinking (Nov 2026), context-editing (copy of Sept 2026), models overview: platform.claude.com/docs"
_CLAUDE = "context-editing, prompt-caching, thinking: platform.claude.com/docs (copies of Sept-Nov 2026)"
_OPENAI = "developers.openai.com/api/docs/guides/prompt-caching; openai 3.54"


def _claude(
    model: str,
    thinking: Thinking,
    *,
    bound: bool = False,
    clears: bool = True,
    temperature: bool = False,
    trust: Trust = "M",
    source: str = _CLAUDE,
) -> Capabilities:
    return Capabilities(
        model=model,
        bound=bound,
        drop_block=bound,
        clears=clears,
        mark="cache_control",
        breakpoints=4,
        look_back=20,
        choice_splits=True,
        temperature=temperature,
        # The models that think without a budget begin their answers themselves (release notes of Opus 4.6, reports).
        prefill=thinking in ("no", "manual"),
        thinking=thinking,
        trust=trust,
        source=source,
    )


def _openai(
    model: str,
    *,
    marked: bool = False,
    temperature: bool = False,
    audio: bool = False,
    thinking: Thinking = "default",
) -> Capabilities:
    return Capabilities(
        model=model,
        mark="prompt_cache_breakpoint" if marked else "",
        breakpoints=4 if marked else 0,
        temperature=temperature,
        audio=audio,
        thinking=thinking,
        source=_OPENAI,
    )


def _other(model: str, source: str, *, thinking: Thinking = "default", trust: Trust = "M") -> Capabilities:
    return Capabilities(model=model, thinking=thinking, source=source, trust=trust)


#: The longest fitting beginning wins. Fable 5.2's clearing is inferred from 5.1's: the list that was read is older.
TABLE: Final[Sequence[Capabilities]] = (
    _claude("claude-fable-5-2", "always", bound=True, source=_BOUND),
    _claude("claude-fable-5-1", "always", bound=True, trust="H", source=_BOUND),
    _claude("claude-fable-5", "always"),
    _claude("claude-mythos-5-2", "always", bound=True, source=_BOUND),
    # Two pages disagree about Mythos 5.1; the newer one says that it checks.
    _claude("claude-mythos-5-1", "always", bound=True, trust="L", source=_BOUND),
    _claude("claude-mythos-5", "always"),
    _claude("claude-opus-5-5", "always", bound=True, trust="H", source=_BOUND),
    _claude("claude-sonnet-5-5", "default", bound=True, source=_BOUND),
    _claude("claude-haiku-5-5", "default", bound=True, source=_BOUND),
    _claude("claude-opus-5", "default"),
    _claude("claude-sonnet-5", "default"),
    _claude("claude-opus-4-8", "adaptive"),
    _claude("claude-opus-4-7", "adaptive"),
    _claude("claude-opus-4-6", "adaptive", temperature=True),
    # One project saw temperatures refused, another (live) did not: it is not sent.
    _claude("claude-sonnet-4-6", "adaptive", trust="L"),
    _claude("claude-opus-4-5", "manual", temperature=True),
    _claude("claude-sonnet-4-5", "manual", temperature=True),
    _claude("claude-haiku-4-5", "manual", temperature=True),
    # Context editing is documented down to 4.5.
    *(_claude(f"claude-opus-4{minor}", "manual", clears=False, temperature=True) for minor in ("", "-0", "-1")),
    *(_claude(f"claude-sonnet-4{minor}", "manual", clears=False, temperature=True) for minor in ("", "-0")),
    _claude("claude-3-7", "manual", clears=False, temperature=True),
    _claude("claude-3-5", "no", clears=False, temperature=True),
    _claude("claude-3", "no", clears=False, temperature=True),
    # A Claude that this table does not know is newer than it: taken for as strict as the newest, with nothing asked of
    # it that it might not know.
    Capabilities(
        model="claude",
        bound=True,
        mark="cache_control",
        breakpoints=4,
        look_back=20,
        choice_splits=True,
        temperature=False,
        prefill=False,
        thinking="default",
        trust="-",
    ),
    *(_openai(name, marked=True) for name in ("gpt-6-1", "gpt-6", "gpt-5-6")),
    *(_openai(name) for name in ("gpt-5-5", "gpt-5-4", "gpt-5-3", "gpt-5-2", "gpt-5-1", "gpt-5")),
    _openai("gpt-5-chat", temperature=True, thinking="no"),
    *(_openai(name, temperature=True, thinking="no") for name in ("gpt-4-1", "gpt-4o", "gpt-4")),
    *(_openai(name, temperature=True, audio=True, thinking="no") for name in ("gpt-4o-audio", "gpt-4o-mini-audio")),
    *(_openai(name) for name in ("o1", "o3", "o4")),
    # Whatever else OpenAI makes caches by itself; nothing more is asked of it.
    _openai("gpt", audio=True),
    _other("gemini", "ai.google.dev/gemini-api/docs/caching"),
    _other("deepseek", "api-docs.deepseek.com/guides/kv_cache"),
    # Explicit marks exist beside the automatic cache and exclude it; the automatic one is left in force.
    _other("qwen", "alibabacloud.com/help/en/model-studio/context-cache"),
    _other("grok", "docs.x.ai/developers/advanced-api-usage/prompt-caching"),
    _other("mistral", "docs.mistral.ai prompt-caching", thinking="no"),
    _other("kimi", "price tables", trust="L"),
    _other("glm", "price tables", trust="L"),
)
#: A model behind a name that says nothing may be any: nothing is asked of it, and signed thinking is taken for bound,
#: which costs nothing where there is none.
UNKNOWN: Final = Capabilities(model="", bound=True, temperature=False, thinking="default", automatic=False, trust="-")

# What behind a name that ends with a digit makes it another version: a digit, or one or two behind a dash.
_OTHER = re.compile(r"[\da-z]|-\d{1,2}(?!\w)")
# What routers, clouds and Bedrock put around a name.
_FRAME = re.compile(r"(?:[a-z-]+\.)?(?:anthropic|openai)\.")
_TAGS = re.compile(r"(?:\[1m\]|:[\w.:]+|@[\w-]+)$")


@lru_cache(maxsize=256)
def of(model: str) -> Capabilities:
    """What is known of `model`, whatever hosts, regions and tags stand around its name; `UNKNOWN` for any other."""
    name = bare(model)
    fitting = (row for row in TABLE if _fits(name, row.model))
    row = max(fitting, key=lambda row: len(row.model), default=UNKNOWN)
    if "openrouter" in model.lower().split("/")[:-1]:
        return _unchecked(row)
    return row


def _unchecked(row: Capabilities) -> Capabilities:
    """As sold by a router that says it does not enforce the check; whether it passes betas on is not known."""
    return replace(row, bound=False, drop_block=False, clears=False, trust="L")


def _fits(name: str, model: str) -> bool:
    """Whether `name` is `model`, dated or of a variant; `claude-opus-5-6` is another model than `claude-opus-5`."""
    rest = name[len(model) :]
    if not name.startswith(model) or not rest:
        return name == model
    if model[-1].isdigit():
        return not _OTHER.match(rest)
    return not rest[0].isalpha()


def bare(model: str) -> str:
    """`us.anthropic.claude-opus-4.5-v1:0` as `claude-opus-4-5-v1`: the last part of the path, dashes for dots."""
    name = _TAGS.sub("", model.strip().lower().rsplit("/", 1)[-1])
    return _TAGS.sub("", _FRAME.sub("", name, count=1)).replace(".", "-")
