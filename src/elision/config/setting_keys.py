"""The table of settings: name, type, default, meaning. Options of `ContextManager` take their meaning from it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from elision.config import setting_readers
from elision.config.setting_readers import Reader, optional, whole
from elision.providers.anthropic.bound_thinking import AUTO_POLICY, THINKING_POLICIES
from elision.providers.provider_table import PROVIDERS
from elision.stores.store_urls import DEFAULT_STORE, FORMS

#: Before a setting's name in capitals: the variable of the environment.
PREFIX: Final = "ELISION_"
#: The prefix that the specification has. A variable with it means the same.
SPECIFIED_PREFIX: Final = "AGENT_CONTEXT_"

Group: TypeAlias = Literal["strategy", "budget", "guards", "summaries", "session", "gateway"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting.

    default: used unless the setting is given; what refines the strategy has the strategy's own default.
    options: of the strategy, which of them the setting stands for: the first one that the strategy has.
    used_if: what a strategy must do to have a use for it.
    secret:  its value is shown nowhere. counts: whether a whole number is a count, which is shown in groups of digits.
    """

    name: str
    group: Group
    read: Reader
    meaning: str
    default: Any = None
    options: tuple[str, ...] = ()
    used_if: str = "hides anything"
    secret: bool = False
    counts: bool = True

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


#: What a strategy must do to have a use for a setting.
_MASKS: Final = "masks by turns, as masking and hybrid do"
_SUMMARIZES: Final = "makes summaries by turns, as summarization and hybrid do"
_TWO_TIER: Final = "is two-tier"


def _make_key(
    name: str,
    group: Group,
    read: Reader,
    meaning: str,
    *options: str,
    default: Any = None,
    used_if: str = "hides anything",
) -> Key:
    return Key(
        name=name,
        group=group,
        read=read,
        meaning=meaning,
        default=default,
        options=options,
        used_if=used_if,
    )


_turns = whole(1, "turns")
_tokens = whole(1, "tokens")

_STRATEGY: Final = (
    _make_key(
        "strategy",
        "strategy",
        setting_readers.text,
        "what may be hidden: a strategy, with or without options, or a preset, in any letter case",
        default="masking",
    ),
    _make_key(
        "schedule",
        "strategy",
        setting_readers.schedule,
        "when to act: cache-aware or every-turn",
        "schedule",
    ),
    _make_key(
        "placeholder",
        "strategy",
        setting_readers.placeholder,
        "your own placeholder text; by default Elision's, which describes the result",
        "placeholder",
    ),
    _make_key(
        "gist", "strategy", whole(0, "tokens"), "tokens of names and numbers in each placeholder; 0 is none", "gist"
    ),
    _make_key("masking_window", "strategy", _turns, "newest turns whose tool results stay", "window", used_if=_MASKS),
    _make_key(
        "summary_turns",
        "strategy",
        _turns,
        "turns at which a summary is due: every of summarization, summarize_at of hybrid",
        "every",
        "summarize_at",
        used_if=_SUMMARIZES,
    ),
    _make_key(
        "summary_tail",
        "strategy",
        _turns,
        "newest turns that a summary leaves out",
        "tail",
        used_if=_SUMMARIZES,
    ),
    _make_key(
        "summary_tokens",
        "strategy",
        optional(_tokens),
        "also summarize when the turns to cover exceed this many tokens; with two-tier the same as hard_tokens",
        "summarize_tokens",
        "hard",
        used_if="makes summaries",
    ),
    _make_key(
        "summary_max_tokens", "strategy", whole(50, "tokens"), "tokens that a summary may have", "summary_max_tokens"
    ),
    _make_key(
        "keep_recent",
        "strategy",
        whole(1, "tool results"),
        "two-tier: newest tool results that stay",
        "keep_recent",
        used_if=_TWO_TIER,
    ),
    _make_key(
        "soft_tokens",
        "strategy",
        _tokens,
        "two-tier: tokens above which a summary is due late in a run",
        "soft",
        used_if=_TWO_TIER,
    ),
    _make_key(
        "hard_tokens",
        "strategy",
        _tokens,
        "two-tier: tokens above which a summary is due at once",
        "hard",
        used_if=_TWO_TIER,
    ),
    _make_key(
        "after_steps",
        "strategy",
        whole(0, "calls"),
        "two-tier: calls after which soft_tokens counts",
        "after_steps",
        used_if=_TWO_TIER,
    ),
)

_BUDGET: Final = (
    _make_key(
        "token_budget",
        "budget",
        optional(_tokens),
        "largest view in tokens; by default the strategy's budget, else the model's window or its next price step",
        "budget.tokens",
    ),
    _make_key(
        "max_context_pct",
        "budget",
        setting_readers.share,
        "share of the budget that may be used",
        "budget.max_context_pct",
    ),
    _make_key("reserved", "budget", whole(0, "tokens"), "tokens kept for the response", "budget.reserved"),
    _make_key(
        "soft",
        "budget",
        optional(setting_readers.share),
        "share above which everything that may be masked is masked",
        "budget.soft",
    ),
    _make_key("low", "budget", setting_readers.share, "share to which an oversized view is reduced", "budget.low"),
    _make_key("min_window", "budget", _turns, "turns that stay unmasked under pressure", "budget.min_window"),
)

_GUARDS: Final = (
    _make_key(
        "max_turns",
        "guards",
        optional(_turns),
        "turns after which a run should stop; also limits the gateway's sessions; 120 in the preset code",
    ),
    _make_key(
        "max_cost_usd",
        "guards",
        optional(setting_readers.usd),
        "USD at which a run should stop, summaries included; also limits the gateway's sessions",
    ),
    _make_key(
        "plateau_window",
        "guards",
        optional(whole(2, "turns")),
        "turns without progress that give a hint; begin with 5",
    ),
)

_SUMMARIES: Final = (
    _make_key(
        "summarizer",
        "summaries",
        setting_readers.summarizer,
        "who writes summaries: digest needs no model; else anthropic:MODEL, openai:MODEL, "
        "openai-responses:MODEL, litellm:MODEL, or in Python a function of a SummaryRequest",
        default="digest",
    ),
    _make_key(
        "summarizer_base_url",
        "summaries",
        optional(setting_readers.address),
        "address of the summarizer's model; none is the provider's own",
    ),
    _make_key(
        "summary_prompt",
        "summaries",
        optional(setting_readers.text),
        "file with your own prompt for summaries; none is the built-in one",
    ),
    _make_key(
        "summary_example",
        "summaries",
        setting_readers.example,
        "an example in that prompt: off, on, or a file with one",
        default="off",
    ),
    _make_key(
        "summary_temperature",
        "summaries",
        optional(setting_readers.temperature),
        "temperature for summaries; none is the server's own",
        default=0.0,
    ),
    _make_key(
        "summary_seconds", "summaries", setting_readers.seconds, "seconds that a summary may take", default=120.0
    ),
    _make_key(
        "background",
        "summaries",
        setting_readers.flag,
        "whether the agent continues while a summary is written; above hard it waits",
        default=False,
    ),
)

_SESSION: Final = (
    _make_key(
        "store",
        "session",
        setting_readers.store,
        f"where sessions are kept: {', '.join(FORMS)}; sqlite: is sessions.db in your state folder",
        default=DEFAULT_STORE,
    ),
    _make_key(
        "session", "session", optional(setting_readers.text), "the session's name; by default a new one for each run"
    ),
    _make_key(
        "model",
        "session",
        optional(setting_readers.text),
        "the agent's model: its prices, window and rules",
    ),
    _make_key(
        "prices",
        "session",
        optional(setting_readers.prices),
        "a price set, or another model's prices; by default the model's own",
    ),
    _make_key(
        "dialect",
        "session",
        setting_readers.choice(("auto", *PROVIDERS)),
        f"shape of the messages: {', '.join(PROVIDERS)}; auto detects it",
        default="auto",
    ),
    _make_key(
        "observations",
        "session",
        setting_readers.choice(("auto", "tools", "user")),
        "which messages are tool results: tools, or user for agents that act in plain text; auto detects them",
        default="auto",
    ),
    _make_key(
        "thinking",
        "session",
        setting_readers.choice((AUTO_POLICY, *THINKING_POLICIES)),
        "how to treat bound thinking: defer, native, drop_block or ignore; auto chooses by model",
        default=AUTO_POLICY,
    ),
    _make_key(
        "cache_control",
        "session",
        setting_readers.choice(("auto", "client")),
        "auto sets cache breakpoints; client leaves them to the agent",
        default="auto",
    ),
    _make_key(
        "cache_ttl",
        "session",
        setting_readers.choice(("client", "1h")),
        "lifetime of cache entries at Elision's breakpoints: the client's, or 1h",
        default="client",
    ),
    _make_key(
        "recall",
        "session",
        setting_readers.choice(("auto", "caller", "never")),
        "who offers the recall tools: auto adds them to requests; caller offers its own; never turns recall off",
        default="auto",
    ),
    _make_key(
        "tools",
        "session",
        setting_readers.choice(("send", "defer")),
        "send sends all definitions of tools; defer leaves those beyond 2,000 tokens out until the model asks for them",
        default="send",
    ),
    _make_key(
        "tokens",
        "session",
        setting_readers.choice(("o200k", "cl100k", "estimate")),
        "how tokens are counted: o200k or cl100k, or a fast estimate",
        default="o200k",
    ),
    _make_key(
        "redact",
        "session",
        setting_readers.flag,
        "whether secrets are removed from summaries, logs and exports",
        default=True,
    ),
    _make_key(
        "redact_without",
        "session",
        setting_readers.names,
        "kinds of secrets to keep: names separated by commas, or a list",
        default=(),
    ),
    _make_key(
        "redact_patterns",
        "session",
        setting_readers.patterns,
        "your own secrets: a table of names and patterns, or lines name=pattern",
        default=(),
    ),
    _make_key(
        "log",
        "session",
        setting_readers.choice(("none", "text", "json")),
        "one line for each call on the logger elision.context: text (key=value) or json",
        default="none",
    ),
    _make_key(
        "metrics",
        "session",
        setting_readers.choice(("none", "prometheus", "opentelemetry")),
        "metrics of each call: prometheus or opentelemetry",
        default="none",
    ),
)

KEYS: Final[dict[str, Key]] = {key.name: key for key in (*_STRATEGY, *_BUDGET, *_GUARDS, *_SUMMARIES, *_SESSION)}
#: Names the file; only in the environment.
CONFIG: Final = "config"

#: Names that the specification has for settings, and what they are called here.
ALIASES: Final[dict[str, str]] = {
    "reserved_for_response": "reserved",
    "summarization_turn_threshold": "summary_turns",
    "summarization_token_threshold": "summary_tokens",
}
_CAPITAL: Final = re.compile(r"(?<=[a-z])[A-Z]")


def resolve_name(name: str) -> str:
    """Return what the setting `name` is called here. The specification writes `summarizationTurnThreshold`."""
    name = _CAPITAL.sub(lambda letter: f"_{letter[0].lower()}", name)
    return ALIASES.get(name, name)
