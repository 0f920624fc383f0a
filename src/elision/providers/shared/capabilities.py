"""What each model's API takes and checks, as one dated table: what decides how a history may be edited there.

Prices, windows and the shortest prefix that is cached are in `trajectory/prices.toml`. What a row means for an
edit is in `bound_thinking.py`, `server_clearing.py` and `breakpoints.py`; sources and doubts are in
docs/reference/providers.md.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

#: H: vendor page or vendor SDK, read in November 2026. M: vendor page in a dated copy or quote, or several users'
#: reports that agree. L: one third party. "-": assumed, for want of any.
Trust = Literal["H", "M", "L", "-"]
#: no: the model does not think, or not visibly. manual: only where a request gives a budget. adaptive: by itself where
#: a request says so. default: by itself unless a request says no. always: a request cannot say no.
ModelThinking = Literal["no", "manual", "adaptive", "default", "always"]
#: The field by which a request marks a block as the end of a prefix to keep; "" where it cannot.
MarkField = Literal["", "cache_control", "prompt_cache_breakpoint"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """One row: what holds for every model whose name begins with `model`.

    model:         beginning of the bare name, as `normalize_model` writes it; "" fits all.
    binds_thinking: thinking is valid only after the very prefix that preceded it (prefix-bound thinking).
    can_drop_block: a request may ask for invalid thinking to be dropped instead of being refused.
    clears_results: the server clears old tool results itself (`clear_tool_uses_20250919`).
    searches_tools: it finds tools that a request marks `defer_loading`, and the server loads them.
    mark_field:    how a cache breakpoint is set.
    max_breakpoints: how many a request may set, automatic ones included; 0 where there are none.
    takes_temperature: a `temperature` of one's own is taken.
    takes_audio:   a message may hold audio; True where it is not known.
    takes_prefill: a request may end with the beginning of the answer; True where it is not known.
    thinking:      whether it thinks.
    trust:         of the row as a whole; the weakest of its facts. Their sources are in the comments.
    """

    model: str
    binds_thinking: bool = False
    can_drop_block: bool = False
    clears_results: bool = False
    searches_tools: bool = False
    mark_field: MarkField = ""
    max_breakpoints: int = 0
    takes_temperature: bool = True
    takes_audio: bool = True
    takes_prefill: bool = True
    thinking: ModelThinking = "no"
    trust: Trust = "M"


def _describe_claude(
    model: str,
    thinking: ModelThinking,
    *,
    binds_thinking: bool = False,
    clears_results: bool = True,
    takes_temperature: bool = False,
    trust: Trust = "M",
) -> Capabilities:
    return Capabilities(
        model=model,
        binds_thinking=binds_thinking,
        can_drop_block=binds_thinking,
        clears_results=clears_results,
        # Documented for the same models: 4.5 and newer.
        searches_tools=clears_results,
        mark_field="cache_control",
        max_breakpoints=4,
        takes_temperature=takes_temperature,
        # The models that think without a budget begin their answers themselves (release notes of Opus 4.6, reports).
        takes_prefill=thinking in ("no", "manual"),
        thinking=thinking,
        trust=trust,
    )


def _describe_openai(
    model: str,
    *,
    has_mark_field: bool = False,
    takes_temperature: bool = False,
    takes_audio: bool = False,
    searches_tools: bool = False,
    thinking: ModelThinking = "default",
) -> Capabilities:
    return Capabilities(
        model=model,
        searches_tools=searches_tools,
        mark_field="prompt_cache_breakpoint" if has_mark_field else "",
        max_breakpoints=4 if has_mark_field else 0,
        takes_temperature=takes_temperature,
        takes_audio=takes_audio,
        thinking=thinking,
    )


#: The longest fitting beginning wins. Fable 5.2's clearing is inferred from 5.1's: the list that was read is older.
TABLE: Final[Sequence[Capabilities]] = (
    # context-editing, prompt-caching, thinking: platform.claude.com/docs (copies of Sept-Nov 2026). Where thinking is
    # bound: preserved-thinking (Nov 2026), context-editing (copy of Sept 2026), models overview, on the same site.
    _describe_claude("claude-fable-5-2", "always", binds_thinking=True),
    _describe_claude("claude-fable-5-1", "always", binds_thinking=True, trust="H"),
    _describe_claude("claude-fable-5", "always"),
    _describe_claude("claude-mythos-5-2", "always", binds_thinking=True),
    # Two pages disagree about Mythos 5.1; the newer one says that it checks.
    _describe_claude("claude-mythos-5-1", "always", binds_thinking=True, trust="L"),
    _describe_claude("claude-mythos-5", "always"),
    _describe_claude("claude-opus-5-5", "always", binds_thinking=True, trust="H"),
    _describe_claude("claude-sonnet-5-5", "default", binds_thinking=True),
    _describe_claude("claude-haiku-5-5", "default", binds_thinking=True),
    _describe_claude("claude-opus-5", "default"),
    _describe_claude("claude-sonnet-5", "default"),
    _describe_claude("claude-opus-4-8", "adaptive"),
    _describe_claude("claude-opus-4-7", "adaptive"),
    _describe_claude("claude-opus-4-6", "adaptive", takes_temperature=True),
    # One project saw temperatures refused, another (live) did not: it is not sent.
    _describe_claude("claude-sonnet-4-6", "adaptive", trust="L"),
    _describe_claude("claude-opus-4-5", "manual", takes_temperature=True),
    _describe_claude("claude-sonnet-4-5", "manual", takes_temperature=True),
    _describe_claude("claude-haiku-4-5", "manual", takes_temperature=True),
    # Context editing is documented down to 4.5.
    *(
        _describe_claude(f"claude-opus-4{minor}", "manual", clears_results=False, takes_temperature=True)
        for minor in ("", "-0", "-1")
    ),
    *(
        _describe_claude(f"claude-sonnet-4{minor}", "manual", clears_results=False, takes_temperature=True)
        for minor in ("", "-0")
    ),
    _describe_claude("claude-3-7", "manual", clears_results=False, takes_temperature=True),
    _describe_claude("claude-3-5", "no", clears_results=False, takes_temperature=True),
    _describe_claude("claude-3", "no", clears_results=False, takes_temperature=True),
    # A Claude that this table does not know is newer than it: taken for as strict as the newest, with nothing asked of
    # it that it might not know.
    Capabilities(
        model="claude",
        binds_thinking=True,
        mark_field="cache_control",
        max_breakpoints=4,
        takes_temperature=False,
        takes_prefill=False,
        thinking="default",
        trust="-",
    ),
    # developers.openai.com/api/docs/guides/prompt-caching; openai 3.57.
    *(_describe_openai(name, has_mark_field=True, searches_tools=True) for name in ("gpt-6-1", "gpt-6", "gpt-5-6")),
    *(_describe_openai(name, searches_tools=True) for name in ("gpt-5-5", "gpt-5-4")),
    # "GPT-5.4 nano does not support tool search": OpenAI's changelog of March 2026.
    _describe_openai("gpt-5-4-nano"),
    *(_describe_openai(name) for name in ("gpt-5-3", "gpt-5-2", "gpt-5-1", "gpt-5")),
    _describe_openai("gpt-5-chat", takes_temperature=True, thinking="no"),
    *(_describe_openai(name, takes_temperature=True, thinking="no") for name in ("gpt-4-1", "gpt-4o", "gpt-4")),
    *(
        _describe_openai(name, takes_temperature=True, takes_audio=True, thinking="no")
        for name in ("gpt-4o-audio", "gpt-4o-mini-audio")
    ),
    *(_describe_openai(name) for name in ("o1", "o3", "o4")),
    # Whatever else OpenAI makes caches by itself; nothing more is asked of it.
    _describe_openai("gpt", takes_audio=True),
    # ai.google.dev/gemini-api/docs/caching.
    Capabilities(model="gemini", thinking="default"),
    # api-docs.deepseek.com/guides/kv_cache.
    Capabilities(model="deepseek", thinking="default"),
    # Explicit marks exist beside the automatic cache and exclude it; the automatic one is left in force:
    # alibabacloud.com/help/en/model-studio/context-cache.
    Capabilities(model="qwen", thinking="default"),
    # docs.x.ai/developers/advanced-api-usage/prompt-caching.
    Capabilities(model="grok", thinking="default"),
    # docs.mistral.ai prompt-caching.
    Capabilities(model="mistral"),
    # Price tables.
    Capabilities(model="kimi", thinking="default", trust="L"),
    Capabilities(model="glm", thinking="default", trust="L"),
)
#: An unknown name may be any model: nothing is asked of it, and signed thinking is taken for bound,
#: which costs nothing where there is none.
UNKNOWN: Final = Capabilities(model="", binds_thinking=True, takes_temperature=False, thinking="default", trust="-")

# What makes a name that ends with a digit another version: a further digit, or one or two after a dash.
_OTHER_VERSION = re.compile(r"[\da-z]|-\d{1,2}(?!\w)")
# What routers, clouds and Bedrock put around a name.
_CLOUD_PREFIX = re.compile(r"(?:[a-z-]+\.)?(?:anthropic|openai)\.")
_NAME_TAGS = re.compile(r"(?:\[1m\]|:[\w.:]+|@[\w-]+)$")


@lru_cache(maxsize=256)
def find_capabilities(model: str) -> Capabilities:
    """Return what is known of `model`, without hosts, regions and tags in its name; `UNKNOWN` for any other."""
    name = normalize_model(model)
    fitting = (row for row in TABLE if _is_model(name, row.model))
    row = max(fitting, key=lambda row: len(row.model), default=UNKNOWN)
    if "openrouter" in model.lower().split("/")[:-1]:
        # The router says that it does not enforce the check. Whether it passes betas on is unknown.
        return replace(
            row,
            binds_thinking=False,
            can_drop_block=False,
            clears_results=False,
            searches_tools=False,
            trust="L",
        )
    return row


def _is_model(name: str, model: str) -> bool:
    """Return whether `name` is `model`, with a date or a variant; `claude-opus-5-6` is not `claude-opus-5`."""
    rest = name[len(model) :]
    if not name.startswith(model) or not rest:
        return name == model
    if model[-1].isdigit():
        return not _OTHER_VERSION.match(rest)
    return not rest[0].isalpha()


def normalize_model(model: str) -> str:
    """Return the last part of the path, with dashes for dots: `claude-opus-4-5-v1` for
    `us.anthropic.claude-opus-4.5-v1:0`."""
    name = _NAME_TAGS.sub("", model.strip().lower().rsplit("/", 1)[-1])
    return _NAME_TAGS.sub("", _CLOUD_PREFIX.sub("", name, count=1)).replace(".", "-")


OPENAI_MODELS: Final = re.compile(r"(gpt|o\d|chatgpt|codex|computer-use)\b")
# OpenAI's models that think first: no temperature, and what they think counts as output.
_REASONING: Final = re.compile(r"(?:o\d|gpt-[5-9])(?!.*chat)")


def is_reasoning_model(model: str) -> bool:
    """Return whether `model` is one of OpenAI's that think first, by its name."""
    return bool(_REASONING.match(model))
