"""Reading everything that a store keeps, and saying what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from elision.errors import CorruptError
from elision.stores.log_check import LogCheck
from elision.stores.packing import Packer, hash_text
from elision.stores.postgres.connection import Cursor, PostgresDatabase
from elision.stores.postgres.record_batches import RecordBatch, read_batch
from elision.stores.postgres.text_escapes import escape_name, is_escaped_name
from elision.stores.sql_dialect import load_statements
from elision.stores.store import Finding, SessionInfo

#: Texts read in one go.
_TEXTS = 100


def find_damage(database: PostgresDatabase, packer: Packer, sessions: Sequence[SessionInfo]) -> Iterator[Finding]:
    """Yield what is wrong with the logs of `sessions`, the tables made from them, and all texts; nothing is changed."""
    if (
        database.address.allows_unsafe
        and database.read(lambda cursor: cursor.execute(load_statements("postgres")["server"]).fetchall())[0][2] != "on"
    ):
        yield Finding(place="server", what="it runs with fsync = off and may lose what it acknowledged")
    yield from _check_names(database)
    for info in sessions:
        yield from _check_log(database, packer, info)
    yield from _check_strays(database)
    yield from _check_texts(database, packer)


def _check_names(database: PostgresDatabase) -> Iterator[Finding]:
    query = load_statements("postgres")["sessions"]
    everything = {"since": float("-inf")}
    for name, *_ in database.read(lambda cursor: cursor.execute(query, everything).fetchall(), patient=True):
        if not is_escaped_name(name):
            yield Finding(place="agent_context_sessions", what=f"{name!r} is no session's name", lost=True)


def _check_log(database: PostgresDatabase, packer: Packer, info: SessionInfo) -> Iterator[Finding]:
    place = f"session {info.key!r}"
    id = database.read(lambda cursor: _find_id(cursor, info.key))
    if id is None:
        return
    yield from _check_counts(database, id, place)
    after = 0
    log_check = LogCheck()
    while True:
        batch = database.read(partial(read_batch, session=id, after=after, last=info.records), patient=True)
        if not batch.bodies:
            return
        yield from _check_batch(batch, packer, place, log_check)
        after = batch.bodies[-1][0]


def _check_batch(batch: RecordBatch, packer: Packer, place: str, log_check: LogCheck) -> Iterator[Finding]:
    for position, body in batch.bodies:
        try:
            events = packer.unpack(body, batch.texts.__getitem__)
        except CorruptError as error:
            log_check.skip()
            yield Finding(place=f"{place}, record {position}", what=str(error), lost=True)
            continue
        for what in filter(None, map(log_check.find_gap, events)):
            yield Finding(place=f"{place}, record {position}", what=what, lost=True)


def _check_strays(database: PostgresDatabase) -> Iterator[Finding]:
    strays = database.read(
        lambda cursor: cursor.execute(load_statements("postgres")["check_strays"]).fetchall(), patient=True
    )
    for session, records, turns in strays:
        what = f"the row of session {session} is lost: {records} records and {turns} turns belong to none"
        yield Finding(place="agent_context_sessions", what=what, lost=True)


def _check_counts(database: PostgresDatabase, id: int, place: str) -> Iterator[Finding]:
    row = database.read(
        lambda cursor: cursor.execute(load_statements("postgres")["check_counts"], {"id": id}).fetchone(), patient=True
    )
    if row is None:
        return
    records, kept_records, turns, shown = row
    if records != kept_records:
        yield Finding(place=place, what=f"{kept_records} of {records} records are in its log", lost=True)
    if turns != shown:
        yield Finding(place=place, what=f"agent_context_turns has {shown} of its {turns} turns")


def _check_texts(database: PostgresDatabase, packer: Packer) -> Iterator[Finding]:
    after = b""
    while True:
        texts = database.read(partial(_read_texts, after=after), patient=True)
        if not texts:
            return
        for address, packed in texts:
            what = _describe_damage(packer, address, packed)
            if what:
                yield Finding(place=f"text {address.hex()}", what=what, lost=True)
        after = texts[-1][0]


def _read_texts(cursor: Cursor, after: bytes) -> list[tuple[bytes, bytes]]:
    return cursor.execute(load_statements("postgres")["check_texts"], {"after": after, "records": _TEXTS}).fetchall()


def _describe_damage(packer: Packer, address: bytes, packed: bytes) -> str:
    try:
        if hash_text(packer.decompress(packed)) == address:
            return ""
        return "it is another text than its address says"
    except CorruptError as error:
        return str(error)


def _find_id(cursor: Cursor, session: str) -> int | None:
    row = cursor.execute(load_statements("postgres")["session"], {"key": escape_name(session)}).fetchone()
    return row[0] if row else None
