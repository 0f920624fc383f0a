"""The gateway's own settings, as a table. Strategy, redaction, store and the like are settings of `setting_keys.py`."""

from __future__ import annotations

from typing import Any, Final

from elision.config import setting_readers
from elision.config.setting_keys import KEYS, Key
from elision.config.setting_readers import Reader, optional, whole

#: In front of their names; in a file they stand in the table of that name, without it.
TABLE: Final = "gateway"


def _key(name: str, read: Reader, default: Any, meaning: str, *, secret: bool = False, counts: bool = True) -> Key:
    return Key(
        name=f"{TABLE}_{name}",
        group="gateway",
        read=read,
        default=default,
        meaning=meaning,
        secret=secret,
        counts=counts,
    )


_MIB: Final = 2**20

_LISTENING: Final = (
    _key(
        "host",
        setting_readers.text,
        "127.0.0.1",
        "address that it listens at; beyond loopback only with an admin token",
    ),
    _key(
        "port",
        whole(0, "the number of a port", most=65_535),
        8377,
        "port that it listens at; 0 for a free one",
        counts=False,
    ),
    _key("workers", whole(1, "processes", most=256), 1, "processes that share the port"),
    _key(
        "admin_token",
        optional(setting_readers.token),
        None,
        "opens dashboard and metrics beyond loopback; shown nowhere",
        secret=True,
    ),
    _key(
        "secret",
        optional(setting_readers.token),
        None,
        "what API keys are hashed with to tell clients apart; if not given it is made and kept with the store",
        secret=True,
    ),
    _key(
        "log",
        setting_readers.choice(("auto", "none", "text", "json")),
        "auto",
        "one line for each request, on standard error; auto: text in a terminal, JSON elsewhere",
    ),
)

_UPSTREAM: Final = (
    _key(
        "upstream_openai",
        optional(setting_readers.upstream),
        "https://api.openai.com",
        "where requests in OpenAI's shapes go on to",
    ),
    _key(
        "upstream_anthropic",
        optional(setting_readers.upstream),
        "https://api.anthropic.com",
        "where requests in Anthropic's shape go on to",
    ),
    _key(
        "upstream_gemini",
        optional(setting_readers.upstream),
        "https://generativelanguage.googleapis.com",
        "where requests in Gemini's shape go on to",
    ),
    _key("connect_seconds", setting_readers.seconds, 10.0, "seconds until a connection to the provider stands"),
    _key("read_seconds", setting_readers.seconds, 600.0, "seconds that the provider may be silent"),
    _key(
        "proxy_env",
        setting_readers.flag,
        False,
        "whether HTTPS_PROXY and NO_PROXY are heeded on the way to the provider",
    ),
)

_WHAT: Final = (
    _key("off", setting_readers.flag, False, "everything passes as it comes, byte for byte, and nothing is kept"),
    _key(
        "shadow",
        setting_readers.flag,
        False,
        "everything passes as it comes; what would be hidden is decided, priced and kept",
    ),
)

_LIMITS: Final = (
    _key(
        "max_read_bytes",
        setting_readers.size,
        64 * _MIB,
        "largest request that is taken apart; larger ones pass as they come",
    ),
    _key("max_body_bytes", setting_readers.size, 512 * _MIB, "largest request that is taken at all"),
    _key("memory_bytes", setting_readers.size, 512 * _MIB, "bytes of requests that a worker holds at once"),
    _key("max_concurrent", whole(1, "requests"), 512, "requests that a worker serves at once"),
    _key("max_waiting", whole(0, "requests"), 512, "requests that may wait for their turn"),
    _key("wait_seconds", setting_readers.seconds, 10.0, "seconds that a request waits for its turn"),
    _key("body_seconds", setting_readers.seconds, 60.0, "seconds in which a client must have sent its request"),
    _key(
        "drain_seconds",
        setting_readers.seconds,
        30.0,
        "seconds that answers under way are given when the gateway stops",
    ),
    _key("max_sessions", whole(1, "sessions"), 1_000, "sessions that a worker keeps in memory; all are in the store"),
    _key("session_memory_bytes", setting_readers.size, 1_024 * _MIB, "memory of a worker's sessions, about"),
    _key(
        "session_idle_seconds",
        setting_readers.seconds,
        3_600.0,
        "seconds without a request after which one leaves memory",
    ),
)

_BUDGETS: Final = (
    _key(
        "session_max_cost_usd",
        optional(setting_readers.usd),
        None,
        "USD that a session may cost; default: max_cost_usd",
    ),
    _key("session_max_turns", optional(whole(1, "turns")), None, "turns that a session may have; default: max_turns"),
    _key("key_max_cost_usd", optional(setting_readers.usd), None, "USD that all sessions of an API key may cost"),
    _key("key_max_turns", optional(whole(1, "turns")), None, "turns that all sessions of an API key may have"),
    _key(
        "key_requests_per_minute",
        optional(whole(1, "requests")),
        None,
        "requests that an API key may make in a minute of the clock, with all gateways on one PostgreSQL",
    ),
    _key(
        "at_limit",
        setting_readers.choice(("hint", "refuse")),
        "refuse",
        "what happens beyond such a limit: the request is refused with 429, or a header says so (hint)",
    ),
)

GATEWAY_KEYS: Final[dict[str, Key]] = {key.name: key for key in (*_LISTENING, *_UPSTREAM, *_WHAT, *_LIMITS, *_BUDGETS)}
#: Every setting there is.
ALL_KEYS: Final[dict[str, Key]] = KEYS | GATEWAY_KEYS


def strip_prefix(name: str) -> str:
    """A gateway setting's name as it stands in the table."""
    return name.removeprefix(f"{TABLE}_")
