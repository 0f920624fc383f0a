"""Where a PostgreSQL store is: the URL, our own options taken out of it, the rest left to libpq.

postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=agents&pool=4&timeout=30&sslmode=require
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from elision.errors import StoreError

#: Of a name in PostgreSQL, in bytes.
_LONGEST = 63
#: The options that are ours.
_OURS = ("schema", "pool", "timeout", "fsync", "turns")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """libpq: a connection URI; it may contain a password, and the repr leaves it out.

    schema:          where the tables are. pool_size: connections at most.
    timeout_seconds: after which a statement is given up; waiting for a connection has the same limit.
    allows_unsafe:   whether a server that runs with fsync = off is accepted.
    shows_whole:     whether `agent_context_turns` has whole texts.
    """

    libpq: str = field(repr=False)
    schema: str = "public"
    pool_size: int = 4
    timeout_seconds: float = 30.0
    allows_unsafe: bool = False
    shows_whole: bool = True


def parse_address(rest: str) -> PostgresAddress:
    """Return the address in `rest`, what follows `postgresql:`. Raises StoreError, which shows no credentials."""
    if not rest.startswith("//"):
        raise StoreError("a PostgreSQL store is named postgresql://HOST/DATABASE; after `postgresql:` come two slashes")
    head, _, query = rest.partition("?")
    if _has_stray_marks(head):
        # A password with / @ or : in it would be read as host or database, and shown in errors.
        raise StoreError(
            "the PostgreSQL URL does not read as //USER:PASSWORD@HOST:PORT/DATABASE; write / @ : # ? % and blanks in a "
            "user or password as %2F %40 %3A %23 %3F %25 %20, or keep the password in PGPASSWORD or ~/.pgpass"
        )
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), errors="strict")
    except ValueError:
        raise StoreError("the options of the PostgreSQL URL do not read as name=value&name=value") from None
    ours = {name: value for name, value in options if name in _OURS}
    theirs = urlencode([(name, value) for name, value in options if name not in _OURS], quote_via=quote)
    return PostgresAddress(
        libpq=f"postgresql:{head}?{theirs}" if theirs else f"postgresql:{head}",
        schema=_check_schema(ours.get("schema", "public")),
        pool_size=int(_parse_number("pool", ours.get("pool", "4"), least=1, most=1_000)),
        timeout_seconds=_parse_number("timeout", ours.get("timeout", "30"), least=0.1, most=86_400),
        allows_unsafe=not _parse_choice(
            "fsync", ours.get("fsync", "on"), "on", "off", "to take a server that may lose data"
        ),
        shows_whole=_parse_choice("turns", ours.get("turns", "full"), "full", "short", "for texts of 2,000 characters"),
    )


def _has_stray_marks(head: str) -> bool:
    try:
        parts = urlsplit(f"postgresql:{head}")
        credentials, _, hosts = parts.netloc.rpartition("@")
    except ValueError:
        return True
    if parts.fragment or "@" in credentials or not {"@", ":"}.isdisjoint(parts.path):
        return True
    for host in hosts.split(","):
        # A port is what follows the last colon outside of brackets.
        _, colon, port = host.rpartition("]")[2].rpartition(":")
        if colon and port and not port.isdigit():
            return True
    return False


def _check_schema(name: str) -> str:
    if not name or len(name.encode("utf-8", "replace")) > _LONGEST or "\0" in name or not name.isprintable():
        raise StoreError(f"schema={name[:80]!r}: no name of a schema; 1 to {_LONGEST} printable bytes")
    return name


def _parse_number(name: str, text: str, *, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise StoreError(f"{name}={text[:20]!r} in the PostgreSQL URL: give a number from {least:g} to {most:g}")
    return value


def _parse_choice(name: str, text: str, usual: str, other: str, purpose: str) -> bool:
    """Return whether an option has its usual value. purpose: of the other one. Raises StoreError for a third."""
    if text not in (usual, other):
        raise StoreError(f"{name}={text[:20]!r} in the PostgreSQL URL: {usual}, or {other} {purpose}")
    return text == usual
