"""Reading everything that a store keeps, and saying what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from elision.errors import CorruptError
from elision.stores.log_check import LogCheck
from elision.stores.packing import Packer, hash_text
from elision.stores.postgres.column_values import escape_name, is_escaped_name
from elision.stores.postgres.connection import PostgresDatabase
from elision.stores.postgres.record_batches import read_batch
from elision.stores.sql_dialect import load_statements
from elision.stores.store import Finding, SessionInfo

#: Texts read in one go.
_TEXTS: Final = 100
_SQL: Final = load_statements("postgres")


def find_damage(database: PostgresDatabase, packer: Packer, sessions: Sequence[SessionInfo]) -> Iterator[Finding]:
    """Yield what is wrong with the logs of `sessions`, the tables made from them, and all texts; nothing is changed."""
    if database.address.allows_unsafe and _read_rows(database, "server")[0][2] != "on":
        yield Finding(place="server", what="it runs with fsync = off and may lose what it acknowledged")
    for name, *_ in _read_rows(database, "sessions", since=float("-inf")):
        if not is_escaped_name(name):
            yield Finding(place="agent_context_sessions", what=f"{name!r} is not a session name", lost=True)
    for info in sessions:
        yield from _check_log(database, packer, info)
    for session, records, turns in _read_rows(database, "check_strays"):
        what = f"the row of session {session} is lost: {records} records and {turns} turns belong to none"
        yield Finding(place="agent_context_sessions", what=what, lost=True)
    yield from _check_texts(database, packer)


def _read_rows(database: PostgresDatabase, statement: str, **parameters: object) -> list[Any]:
    """Return all that `statement` finds, without a time limit: it reads whole tables."""
    return database.read(lambda cursor: cursor.execute(_SQL[statement], parameters).fetchall(), patient=True)


def _check_log(database: PostgresDatabase, packer: Packer, info: SessionInfo) -> Iterator[Finding]:
    place = f"session {info.key!r}"
    named = {"key": escape_name(info.key)}
    for id, _ in database.read(lambda cursor: cursor.execute(_SQL["session"], named).fetchall()):
        for records, kept_records, turns, shown in _read_rows(database, "check_counts", id=id):
            if records != kept_records:
                yield Finding(place=place, what=f"{kept_records} of {records} records are in its log", lost=True)
            if turns != shown:
                yield Finding(place=place, what=f"agent_context_turns has {shown} of its {turns} turns")
        after = 0
        log_check = LogCheck()
        read = partial(read_batch, session=id, last=info.records)
        while (batch := database.read(partial(read, after=after), patient=True)).bodies:
            for position, body in batch.bodies:
                try:
                    events = packer.unpack(body, batch.texts.__getitem__)
                except CorruptError as error:
                    log_check.skip()
                    yield Finding(place=f"{place}, record {position}", what=str(error), lost=True)
                    continue
                for what in filter(None, map(log_check.find_gap, events)):
                    yield Finding(place=f"{place}, record {position}", what=what, lost=True)
            after = batch.bodies[-1][0]


def _check_texts(database: PostgresDatabase, packer: Packer) -> Iterator[Finding]:
    address = b""
    while texts := _read_rows(database, "check_texts", after=address, records=_TEXTS):
        for address, packed in texts:
            what = ""
            try:
                if hash_text(packer.decompress(packed)) != address:
                    what = "its text does not match its address"
            except CorruptError as error:
                what = str(error)
            if what:
                yield Finding(place=f"text {address.hex()}", what=what, lost=True)
