"""The gateway's own settings, as a table. Strategy, redaction, store and the like are settings of `setting_keys.py`."""

from __future__ import annotations

from typing import Any, Final

from elision.config import setting_readers
from elision.config.setting_keys import KEYS, Key
from elision.config.setting_readers import Reader, optional, whole
from elision.providers.provider_table import HOSTS

#: Prefix of their names; in a file they are in the table of that name, without the prefix.
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
        "address to listen on; beyond loopback only with an admin token",
    ),
    _key(
        "port",
        whole(0, "", most=65_535),
        8377,
        "port to listen on; 0 for a free one",
        counts=False,
    ),
    _key("workers", whole(1, "processes", most=256), 1, "processes that share the port"),
    _key(
        "admin_token",
        optional(setting_readers.token),
        None,
        "opens dashboard and metrics beyond loopback; 16 characters or more, shown nowhere",
        secret=True,
    ),
    _key(
        "secret",
        optional(setting_readers.token),
        None,
        "hashes API keys to tell clients apart; 16 characters or more, shown nowhere; by default "
        "created and kept with the store",
        secret=True,
    ),
    _key(
        "log",
        setting_readers.choice(("auto", "none", "text", "json")),
        "auto",
        "one line for each request on standard error: json, text (key=value), none, or auto: text in a "
        "terminal, JSON elsewhere",
    ),
)

_UPSTREAM: Final = (
    *(
        _key(
            f"upstream_{host.name}",
            optional(setting_readers.upstream),
            host.root_url,
            f"provider for {host.title}'s requests, with or without a version at the end; none for no provider",
        )
        for host in HOSTS.values()
    ),
    _key(
        "connect_seconds", setting_readers.seconds, 10.0, "seconds to connect to the provider, names and TLS included"
    ),
    _key(
        "read_seconds",
        setting_readers.seconds,
        600.0,
        "seconds that the provider may be silent, before its response and within it",
    ),
    _key(
        "proxy_env",
        setting_readers.flag,
        False,
        "whether HTTPS_PROXY and NO_PROXY apply to requests to the provider",
    ),
)

_WHAT: Final = (
    _key(
        "off",
        setting_readers.flag,
        False,
        "forwards everything byte for byte, stores nothing, limits nothing; the header x-elision: off "
        "does so for one request",
    ),
    _key(
        "shadow",
        setting_readers.flag,
        False,
        "forwards everything unchanged; decides, prices and stores what would be hidden",
    ),
    _key(
        "pin_tools",
        setting_readers.flag,
        False,
        "sends tools in the order, and with the keys, that they first had in the session, where they say the same",
    ),
)

_LIMITS: Final = (
    _key(
        "max_read_bytes",
        setting_readers.size,
        64 * _MIB,
        "largest request that is read (64 MiB); larger ones are forwarded unchanged",
    ),
    _key(
        "max_body_bytes",
        setting_readers.size,
        512 * _MIB,
        "largest request that is accepted (512 MiB); larger ones get 413",
    ),
    _key("memory_bytes", setting_readers.size, 512 * _MIB, "bytes of requests in a worker's memory at once (512 MiB)"),
    _key("max_concurrent", whole(1, "requests"), 512, "requests that a worker serves at once"),
    _key("max_waiting", whole(0, "requests"), 512, "requests that may wait; further ones are refused at once"),
    _key("wait_seconds", setting_readers.seconds, 10.0, "seconds that a request waits before it is refused"),
    _key("body_seconds", setting_readers.seconds, 60.0, "seconds that a client may take to send its request"),
    _key(
        "drain_seconds",
        setting_readers.seconds,
        30.0,
        "seconds for responses under way when the gateway stops",
    ),
    _key("max_sessions", whole(1, "sessions"), 1_000, "sessions that a worker keeps in memory; the store has all"),
    _key(
        "session_memory_bytes",
        setting_readers.size,
        1_024 * _MIB,
        "approximate memory of a worker's sessions (1 GiB); the least recently used leave it",
    ),
    _key(
        "session_idle_seconds",
        setting_readers.seconds,
        3_600.0,
        "seconds without a request after which a session leaves memory",
    ),
)

_BUDGETS: Final = (
    _key(
        "session_max_cost_usd",
        optional(setting_readers.usd),
        None,
        "USD that a session may cost; none is max_cost_usd, if set",
    ),
    _key(
        "session_max_turns",
        optional(whole(1, "turns")),
        None,
        "turns that a session may have; none is max_turns, if set, or the preset's",
    ),
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
        "beyond a limit: refuse answers 429 with a reason, hint sets a header",
    ),
)

GATEWAY_KEYS: Final[dict[str, Key]] = {key.name: key for key in (*_LISTENING, *_UPSTREAM, *_WHAT, *_LIMITS, *_BUDGETS)}
#: Every setting there is.
ALL_KEYS: Final[dict[str, Key]] = KEYS | GATEWAY_KEYS


def strip_prefix(name: str) -> str:
    """Return a gateway setting's name as the table of a file has it."""
    return name.removeprefix(f"{TABLE}_")
