"""The tables of settings: name, type, meaning, default. Options of `ContextManager` take their meaning from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

from elision.config.setting_readers import (
    Reader,
    choice,
    optional,
    read_address,
    read_example,
    read_flag,
    read_names,
    read_patterns,
    read_placeholder,
    read_prices,
    read_schedule,
    read_seconds,
    read_share,
    read_size,
    read_store,
    read_summarizer,
    read_temperature,
    read_text,
    read_token,
    read_upstream,
    read_usd,
    whole,
)
from elision.providers.anthropic.bound_thinking import AUTO_POLICY, THINKING_POLICIES
from elision.providers.provider_table import HOSTS, PROVIDERS
from elision.stores.store_urls import DEFAULT_STORE, FORMS

#: Before a setting's name in capitals: the variable of the environment.
PREFIX: Final = "ELISION_"
#: The prefix that the specification has. A variable with it means the same.
SPECIFIED_PREFIX: Final = "AGENT_CONTEXT_"
#: Begins the names of the gateway's own settings; in a file they are in the table of that name, without it.
GATEWAY: Final = "gateway"

Group: TypeAlias = Literal["strategy", "budget", "guards", "summaries", "session", "gateway"]


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    default: used unless the setting is given; what refines the strategy has the strategy's own default.
    options: of the strategy, with blanks between them: the setting stands for the first one that the strategy has.
    used_if: what a strategy must do to have a use for it.
    secret:  its value is shown nowhere. counts: whether a whole number is a count, which is shown in groups of digits.
    """

    name: str
    read: Reader
    meaning: str
    default: Any = None
    options: str = ""
    used_if: str = "hides anything"
    secret: bool = False
    counts: bool = True
    group: Group = "gateway"

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()


#: What a strategy must do to have a use for a setting.
_MASKS: Final = "masks by turns, as masking and hybrid do"
_SUMMARIZES: Final = "makes summaries by turns, as summarization and hybrid do"
_TWO_TIER: Final = "is two-tier"

_turns = whole(1, "turns")
_tokens = whole(1, "tokens")
_MIB: Final = 2**20

#: What is set for library and gateway alike: strategy, redaction, store and so on.
_OWN: Final[Mapping[Group, tuple[Key, ...]]] = {
    "strategy": (
        Key(
            "strategy",
            read_text,
            "what may be hidden: a strategy, with or without options, or a preset, in any letter case",
            "masking",
        ),
        Key("schedule", read_schedule, "when to act: cache-aware or every-turn", options="schedule"),
        Key(
            "placeholder",
            read_placeholder,
            "your own placeholder text; by default Elision's, which describes the result",
            options="placeholder",
        ),
        Key("gist", whole(0, "tokens"), "tokens of names and numbers in each placeholder; 0 is none", options="gist"),
        Key("masking_window", _turns, "newest turns whose tool results stay", options="window", used_if=_MASKS),
        Key(
            "summary_turns",
            _turns,
            "turns at which a summary is due: every of summarization, summarize_at of hybrid",
            options="every summarize_at",
            used_if=_SUMMARIZES,
        ),
        Key("summary_tail", _turns, "newest turns that a summary leaves out", options="tail", used_if=_SUMMARIZES),
        Key(
            "summary_tokens",
            optional(_tokens),
            "also summarize when the turns to cover exceed this many tokens; with two-tier the same as hard_tokens",
            options="summarize_tokens hard",
            used_if="makes summaries",
        ),
        Key("summary_max_tokens", whole(50, "tokens"), "tokens that a summary may have", options="summary_max_tokens"),
        Key(
            "keep_recent",
            whole(1, "tool results"),
            "two-tier: newest tool results that stay",
            options="keep_recent",
            used_if=_TWO_TIER,
        ),
        Key(
            "soft_tokens",
            _tokens,
            "two-tier: tokens above which a summary is due late in a run",
            options="soft",
            used_if=_TWO_TIER,
        ),
        Key(
            "hard_tokens",
            _tokens,
            "two-tier: tokens above which a summary is due at once",
            options="hard",
            used_if=_TWO_TIER,
        ),
        Key(
            "after_steps",
            whole(0, "calls"),
            "two-tier: calls after which soft_tokens counts",
            options="after_steps",
            used_if=_TWO_TIER,
        ),
    ),
    "budget": (
        Key(
            "token_budget",
            optional(_tokens),
            "largest view in tokens; by default the strategy's budget, else the model's window or its next price step",
            options="budget.tokens",
        ),
        Key("max_context_pct", read_share, "share of the budget that may be used", options="budget.max_context_pct"),
        Key("reserved", whole(0, "tokens"), "tokens kept for the response", options="budget.reserved"),
        Key(
            "soft",
            optional(read_share),
            "share above which everything that may be masked is masked",
            options="budget.soft",
        ),
        Key("low", read_share, "share to which an oversized view is reduced", options="budget.low"),
        Key("min_window", _turns, "turns that stay unmasked under pressure", options="budget.min_window"),
    ),
    "guards": (
        Key(
            "max_turns",
            optional(_turns),
            "turns after which a run should stop; also limits the gateway's sessions; 120 in the preset code",
        ),
        Key(
            "max_cost_usd",
            optional(read_usd),
            "USD at which a run should stop, summaries included; also limits the gateway's sessions",
        ),
        Key("plateau_window", optional(whole(2, "turns")), "turns without progress that give a hint; begin with 5"),
    ),
    "summaries": (
        Key(
            "summarizer",
            read_summarizer,
            "who writes summaries: digest needs no model; else anthropic:MODEL, openai:MODEL, "
            "openai-responses:MODEL, litellm:MODEL, or in Python a function of a SummaryRequest",
            "digest",
        ),
        Key(
            "summarizer_base_url",
            optional(read_address),
            "address of the summarizer's model; none is the provider's own",
        ),
        Key("summary_prompt", optional(read_text), "file with your own prompt for summaries; none is the built-in one"),
        Key("summary_example", read_example, "an example in that prompt: off, on, or a file with one", "off"),
        Key(
            "summary_temperature",
            optional(read_temperature),
            "temperature for summaries; none is the server's own",
            0.0,
        ),
        Key("summary_seconds", read_seconds, "seconds that a summary may take", 120.0),
        Key(
            "background",
            read_flag,
            "whether the agent continues while a summary is written; above hard it waits",
            False,
        ),
    ),
    "session": (
        Key(
            "store",
            read_store,
            f"where sessions are kept: {', '.join(FORMS)}; sqlite: is sessions.db in your state folder",
            DEFAULT_STORE,
        ),
        Key("session", optional(read_text), "the session's name; by default a new one for each run"),
        Key("model", optional(read_text), "the agent's model: its prices, window and rules"),
        Key("prices", optional(read_prices), "a price set, or another model's prices; by default the model's own"),
        Key(
            "dialect",
            choice(("auto", *PROVIDERS)),
            f"shape of the messages: {', '.join(PROVIDERS)}; auto detects it",
            "auto",
        ),
        Key(
            "observations",
            choice(("auto", "tools", "user")),
            "which messages are tool results: tools, or user for agents that act in plain text; auto detects them",
            "auto",
        ),
        Key(
            "thinking",
            choice((AUTO_POLICY, *THINKING_POLICIES)),
            "how to treat bound thinking: defer, native, drop_block or ignore; auto chooses by model",
            AUTO_POLICY,
        ),
        Key(
            "cache_control",
            choice(("auto", "client")),
            "auto sets cache breakpoints; client leaves them to the agent",
            "auto",
        ),
        Key(
            "cache_ttl",
            choice(("client", "1h")),
            "lifetime of cache entries at Elision's breakpoints: the client's, or 1h",
            "client",
        ),
        Key(
            "recall",
            choice(("auto", "caller", "never")),
            "who offers the recall tools: auto adds them to requests; caller offers its own; never turns recall off",
            "auto",
        ),
        Key(
            "tools",
            choice(("send", "defer")),
            "send sends all definitions of tools; defer leaves those beyond 2,000 tokens out until the model asks for "
            "them",
            "send",
        ),
        Key(
            "tokens",
            choice(("o200k", "cl100k", "estimate")),
            "how tokens are counted: o200k or cl100k, or a fast estimate",
            "o200k",
        ),
        Key("redact", read_flag, "whether secrets are removed from summaries, logs and exports", True),
        Key("redact_without", read_names, "kinds of secrets to keep: names separated by commas, or a list", ()),
        Key(
            "redact_patterns",
            read_patterns,
            "your own secrets: a table of names and patterns, or lines name=pattern",
            (),
        ),
        Key(
            "log",
            choice(("none", "text", "json")),
            "one line for each call on the logger elision.context: text (key=value) or json",
            "none",
        ),
        Key(
            "metrics",
            choice(("none", "prometheus", "opentelemetry")),
            "metrics of each call: prometheus or opentelemetry",
            "none",
        ),
    ),
}

#: The gateway's own.
_GATEWAY: Final = (
    Key("host", read_text, "address to listen on; beyond loopback only with an admin token", "127.0.0.1"),
    Key("port", whole(0, "", most=65_535), "port to listen on; 0 for a free one", 8377, counts=False),
    Key("workers", whole(1, "processes", most=256), "processes that share the port", 1),
    Key(
        "admin_token",
        optional(read_token),
        "opens dashboard and metrics beyond loopback; 16 characters or more, shown nowhere",
        secret=True,
    ),
    Key(
        "secret",
        optional(read_token),
        "hashes API keys to tell clients apart; 16 characters or more, shown nowhere; by default "
        "created and kept with the store",
        secret=True,
    ),
    Key(
        "log",
        choice(("auto", "none", "text", "json")),
        "one line for each request on standard error: json, text (key=value), none, or auto: text in a "
        "terminal, JSON elsewhere",
        "auto",
    ),
    *(
        Key(
            f"upstream_{host.name}",
            optional(read_upstream),
            f"provider for {host.title}'s requests, with or without a version at the end; none for no provider",
            host.root_url,
        )
        for host in HOSTS.values()
    ),
    Key("connect_seconds", read_seconds, "seconds to connect to the provider, names and TLS included", 10.0),
    Key(
        "read_seconds",
        read_seconds,
        "seconds that the provider may be silent, before its response and within it",
        600.0,
    ),
    Key("proxy_env", read_flag, "whether HTTPS_PROXY and NO_PROXY apply to requests to the provider", False),
    Key(
        "off",
        read_flag,
        "forwards everything byte for byte, stores nothing, limits nothing; the header x-elision: off "
        "does so for one request",
        False,
    ),
    Key("shadow", read_flag, "forwards everything unchanged; decides, prices and stores what would be hidden", False),
    Key(
        "pin_tools",
        read_flag,
        "sends tools in the order, and with the keys, that they first had in the session, where they say the same",
        False,
    ),
    Key(
        "max_read_bytes",
        read_size,
        "largest request that is read (64 MiB); larger ones are forwarded unchanged",
        64 * _MIB,
    ),
    Key("max_body_bytes", read_size, "largest request that is accepted (512 MiB); larger ones get 413", 512 * _MIB),
    Key("memory_bytes", read_size, "bytes of requests in a worker's memory at once (512 MiB)", 512 * _MIB),
    Key("max_concurrent", whole(1, "requests"), "requests that a worker serves at once", 512),
    Key("max_waiting", whole(0, "requests"), "requests that may wait; further ones are refused at once", 512),
    Key("wait_seconds", read_seconds, "seconds that a request waits before it is refused", 10.0),
    Key("body_seconds", read_seconds, "seconds that a client may take to send its request", 60.0),
    Key("drain_seconds", read_seconds, "seconds for responses under way when the gateway stops", 30.0),
    Key("max_sessions", whole(1, "sessions"), "sessions that a worker keeps in memory; the store has all", 1_000),
    Key(
        "session_memory_bytes",
        read_size,
        "approximate memory of a worker's sessions (1 GiB); the least recently used leave it",
        1_024 * _MIB,
    ),
    Key("session_idle_seconds", read_seconds, "seconds without a request after which a session leaves memory", 3_600.0),
    Key("session_max_cost_usd", optional(read_usd), "USD that a session may cost; none is max_cost_usd, if set"),
    Key(
        "session_max_turns",
        optional(whole(1, "turns")),
        "turns that a session may have; none is max_turns, if set, or the preset's",
    ),
    Key("key_max_cost_usd", optional(read_usd), "USD that all sessions of an API key may cost"),
    Key("key_max_turns", optional(whole(1, "turns")), "turns that all sessions of an API key may have"),
    Key(
        "key_requests_per_minute",
        optional(whole(1, "requests")),
        "requests that an API key may make in a minute of the clock, with all gateways on one PostgreSQL",
    ),
    Key(
        "at_limit",
        choice(("hint", "refuse")),
        "beyond a limit: refuse answers 429 with a reason, hint sets a header",
        "refuse",
    ),
)
KEYS: Final[dict[str, Key]] = {key.name: replace(key, group=group) for group, keys in _OWN.items() for key in keys}
GATEWAY_KEYS: Final[dict[str, Key]] = {
    f"{GATEWAY}_{key.name}": replace(key, name=f"{GATEWAY}_{key.name}") for key in _GATEWAY
}
#: Every setting there is.
ALL_KEYS: Final[dict[str, Key]] = KEYS | GATEWAY_KEYS
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


def strip_prefix(name: str) -> str:
    """Return a gateway setting's name as the table of a file has it."""
    return name.removeprefix(f"{GATEWAY}_")
