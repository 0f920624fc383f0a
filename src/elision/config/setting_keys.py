"""Every setting there is, as a table: its name, what it may be, what it is if nobody says, what it means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from elision.config import setting_readers
from elision.config.setting_readers import Reader, optional, whole
from elision.providers.anthropic.bound_thinking import AUTO_POLICY, THINKING_POLICIES
from elision.providers.provider_table import PROVIDERS

#: In front of a setting's name in capitals: the variable of the environment.
PREFIX: Final = "AGENT_CONTEXT_"

Group: TypeAlias = Literal["strategy", "budget", "guards", "summaries", "session", "gateway"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One setting.

    default: in force where nobody says otherwise; what refines the strategy has the strategy's own default.
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


def _strategy_key(
    name: str, group: Group, read: Reader, meaning: str, *options: str, used_if: str = "hides anything"
) -> Key:
    return Key(name=name, group=group, read=read, meaning=meaning, options=options, used_if=used_if)


_turns = whole(1, "turns")
_tokens = whole(1, "tokens")

_STRATEGY: Final = (
    Key(
        name="strategy",
        group="strategy",
        read=setting_readers.text,
        default="masking",
        meaning="what may be hidden: a strategy, with or without options, or a preset",
    ),
    _strategy_key(
        "schedule",
        "strategy",
        setting_readers.schedule,
        "when hiding pays: cache-aware, every-turn or batched(10)",
        "schedule",
    ),
    _strategy_key(
        "placeholder",
        "strategy",
        setting_readers.placeholder,
        "text in place of a masked result; none: an account of what happened",
        "placeholder",
    ),
    _strategy_key(
        "gist", "strategy", whole(0, "tokens"), "tokens of a placeholder's gist, counted as o200k; 0 for none", "gist"
    ),
    _strategy_key("masking_window", "strategy", _turns, "newest turns that stay verbatim", "window", used_if=_MASKS),
    _strategy_key(
        "summary_turns",
        "strategy",
        _turns,
        "turns at which a summary is due (N)",
        "every",
        "summarize_at",
        used_if=_SUMMARIZES,
    ),
    _strategy_key(
        "summary_tail",
        "strategy",
        _turns,
        "newest turns that are kept out of a summary (M)",
        "tail",
        used_if=_SUMMARIZES,
    ),
    _strategy_key(
        "summary_tokens",
        "strategy",
        optional(_tokens),
        "tokens of the view, behind the summary and outside the tail, at which one is due too; two-tier: hard_tokens",
        "summarize_tokens",
        "hard",
        used_if="makes summaries",
    ),
    _strategy_key(
        "summary_max_tokens",
        "strategy",
        whole(50, "tokens"),
        "tokens that a summary may have",
        "summary_max_tokens",
    ),
    _strategy_key(
        "keep_recent",
        "strategy",
        whole(1, "tool results"),
        "two-tier: newest tool results that stay verbatim",
        "keep_recent",
        used_if=_TWO_TIER,
    ),
    _strategy_key(
        "soft_tokens",
        "strategy",
        _tokens,
        "two-tier: tokens of the view above which a summary is due late in a run",
        "soft",
        used_if=_TWO_TIER,
    ),
    _strategy_key(
        "hard_tokens",
        "strategy",
        _tokens,
        "two-tier: tokens of the view above which a summary is due at once",
        "hard",
        used_if=_TWO_TIER,
    ),
    _strategy_key(
        "after_steps",
        "strategy",
        whole(0, "calls"),
        "two-tier: calls after which soft_tokens counts",
        "after_steps",
        used_if=_TWO_TIER,
    ),
)

_BUDGET: Final = (
    _strategy_key(
        "token_budget",
        "budget",
        optional(_tokens),
        "largest view, in tokens; none: the model's window or, if lower, its next price cliff",
        "budget.tokens",
    ),
    _strategy_key(
        "max_context_pct",
        "budget",
        setting_readers.share,
        "share of the budget that may be used",
        "budget.max_context_pct",
    ),
    _strategy_key("reserved", "budget", whole(0, "tokens"), "tokens kept for the answer", "budget.reserved"),
    _strategy_key(
        "soft",
        "budget",
        optional(setting_readers.share),
        "share of what is usable above which everything that may be masked is",
        "budget.soft",
    ),
    _strategy_key(
        "low", "budget", setting_readers.share, "share of what is usable that pressure goes down to", "budget.low"
    ),
    _strategy_key("min_window", "budget", _turns, "turns that pressure leaves unmasked", "budget.min_window"),
)

_GUARDS: Final = (
    Key(name="max_turns", group="guards", read=optional(_turns), meaning="turns after which the run must stop"),
    Key(
        name="max_cost_usd",
        group="guards",
        read=optional(setting_readers.usd),
        meaning="USD at which the run must stop, summarizer included",
    ),
    Key(
        name="plateau_window",
        group="guards",
        read=optional(whole(2, "turns")),
        meaning="turns without progress at which it is hinted that the run stands still",
    ),
)

_SUMMARIES: Final = (
    Key(
        name="summarizer",
        group="summaries",
        read=setting_readers.summarizer,
        default="digest",
        meaning="who writes summaries: digest (no model), anthropic:, openai:, openai-responses: or litellm:MODEL",
    ),
    Key(
        name="summarizer_base_url",
        group="summaries",
        read=optional(setting_readers.address),
        meaning="where the summarizer's model is served; none: the provider's own address",
    ),
    Key(
        name="summary_prompt",
        group="summaries",
        read=optional(setting_readers.text),
        meaning="file with the prompt that a model is asked for a summary with; none: the built-in one",
    ),
    Key(
        name="summary_example",
        group="summaries",
        read=setting_readers.example,
        default="off",
        meaning="whether the prompt shows an example of a summary: off, on, or a file with one",
    ),
    Key(
        name="summary_temperature",
        group="summaries",
        read=optional(setting_readers.temperature),
        default=0.0,
        meaning="temperature at which a model writes summaries; none: the server's own",
    ),
    Key(
        name="summary_seconds",
        group="summaries",
        read=setting_readers.seconds,
        default=120.0,
        meaning="seconds that a summary may take",
    ),
    Key(
        name="background",
        group="summaries",
        read=setting_readers.flag,
        default=False,
        meaning="whether a summary is prepared while the agent goes on",
    ),
)

_SESSION: Final = (
    Key(
        name="store",
        group="session",
        read=setting_readers.store,
        default="sqlite:///elision.db",
        meaning="where sessions are kept; a password in it is never shown",
    ),
    Key(
        name="session",
        group="session",
        read=optional(setting_readers.text),
        meaning="the session's key; none: a new one for each run",
    ),
    Key(
        name="model",
        group="session",
        read=optional(setting_readers.text),
        meaning="the agent's model, for prices, window and what its provider allows",
    ),
    Key(
        name="prices",
        group="session",
        read=optional(setting_readers.prices),
        meaning="a named set of prices, or another model's; none: the model's own",
    ),
    Key(
        name="dialect",
        group="session",
        read=setting_readers.choice(("auto", *PROVIDERS)),
        default="auto",
        meaning="whose messages the agent sends",
    ),
    Key(
        name="observations",
        group="session",
        read=setting_readers.choice(("auto", "tools", "user")),
        default="auto",
        meaning="what observations are: tool results, or user messages that answer an action in plain text",
    ),
    Key(
        name="thinking",
        group="session",
        read=setting_readers.choice((AUTO_POLICY, *THINKING_POLICIES)),
        default=AUTO_POLICY,
        meaning="how a history is edited at models whose thinking is bound to what stood before it",
    ),
    Key(
        name="cache_control",
        group="session",
        read=setting_readers.choice(("auto", "client")),
        default="auto",
        meaning="who places cache breakpoints where the provider wants them: auto (we do) or client",
    ),
    Key(
        name="recall",
        group="session",
        read=setting_readers.flag,
        default=True,
        meaning="whether what is hidden can be asked for again, so that placeholders name handles",
    ),
    Key(
        name="tokens",
        group="session",
        read=setting_readers.choice(("o200k", "cl100k", "estimate")),
        default="o200k",
        meaning="how tokens are counted: o200k or cl100k (exact), or estimate",
    ),
    Key(
        name="redact",
        group="session",
        read=setting_readers.flag,
        default=True,
        meaning="whether secrets are taken out of summaries, logs and exports",
    ),
    Key(
        name="redact_without",
        group="session",
        read=setting_readers.names,
        default=(),
        meaning="kinds of secrets that are left alone",
    ),
    Key(
        name="redact_patterns",
        group="session",
        read=setting_readers.patterns,
        default=(),
        meaning="secrets of one's own: names and regular expressions",
    ),
    Key(
        name="log",
        group="session",
        read=setting_readers.choice(("none", "text", "json")),
        default="none",
        meaning="one line for each pass on the logger elision.context: none, text (key=value) or json",
    ),
    Key(
        name="metrics",
        group="session",
        read=setting_readers.choice(("none", "prometheus", "opentelemetry")),
        default="none",
        meaning="whom each call is reported to as metrics: none, prometheus or opentelemetry",
    ),
)

KEYS: Final[dict[str, Key]] = {key.name: key for key in (*_STRATEGY, *_BUDGET, *_GUARDS, *_SUMMARIES, *_SESSION)}
#: Names the file; part of the environment alone.
CONFIG: Final = "config"

#: Names that the specification has for settings, and what they are called here.
ALIASES: Final[dict[str, str]] = {
    "reserved_for_response": "reserved",
    "summarization_turn_threshold": "summary_turns",
    "summarization_token_threshold": "summary_tokens",
}
