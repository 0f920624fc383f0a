"""Reading everything that a store keeps, and saying what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elision.errors import CorruptError
from elision.stores.packing import Packer, hash_text
from elision.stores.postgres.connection import Cursor, PostgresDatabase
from elision.stores.postgres.record_batches import RecordBatch, read_batch
from elision.stores.postgres.statements import find_statement
from elision.stores.postgres.text_escapes import escape_name
from elision.stores.store import Finding, SessionInfo

#: Texts read in one go.
_TEXTS = 100


def find_damage(link: PostgresDatabase, packer: Packer, sessions: Sequence[SessionInfo]) -> Iterator[Finding]:
    """Of the logs of `sessions`, the tables made from them, and all texts; nothing is changed."""
    if (
        link.address.allows_unsafe
        and link.read(lambda cursor: cursor.execute(find_statement("server")).fetchall())[0][2] != "on"
    ):
        yield Finding(place="server", what="it runs with fsync = off and may lose what it acknowledged")
    for info in sessions:
        yield from _check_log(link, packer, info)
    yield from _check_texts(link, packer)


def _check_log(link: PostgresDatabase, packer: Packer, info: SessionInfo) -> Iterator[Finding]:
    place = f"session {info.key!r}"
    id = link.read(lambda cursor: _find_id(cursor, info.key))
    if id is None:
        return
    yield from _check_counts(link, id, place)
    after = 0
    while batch := _read_batch(link, id, after, info.records):
        yield from _check_batch(batch, packer, place)
        after = batch.bodies[-1][0]


def _read_batch(link: PostgresDatabase, id: int, after: int, last: int) -> RecordBatch | None:
    batch = link.read(lambda cursor: read_batch(cursor, id, after, last), patient=True)
    if batch.bodies:
        return batch
    return None


def _check_batch(batch: RecordBatch, packer: Packer, place: str) -> Iterator[Finding]:
    for position, body in batch.bodies:
        try:
            packer.unpack(body, batch.texts.__getitem__)
        except CorruptError as error:
            yield Finding(place=f"{place}, record {position}", what=str(error), lost=True)


def _check_counts(link: PostgresDatabase, id: int, place: str) -> Iterator[Finding]:
    row = link.read(lambda cursor: cursor.execute(find_statement("check_counts"), {"id": id}).fetchone(), patient=True)
    if row is None:
        return
    records, kept_records, turns, shown = row
    if records != kept_records:
        yield Finding(place=place, what=f"{kept_records} of {records} records are in its log", lost=True)
    if turns != shown:
        yield Finding(place=place, what=f"agent_context_turns has {shown} of its {turns} turns")


def _check_texts(link: PostgresDatabase, packer: Packer) -> Iterator[Finding]:
    after = b""
    while found := link.read(lambda cursor, after=after: _read_texts(cursor, after), patient=True):  # type: ignore[misc]
        for address, packed in found:
            if what := _describe_damage(packer, address, packed):
                yield Finding(place=f"text {address.hex()}", what=what, lost=True)
        after = found[-1][0]


def _read_texts(cursor: Cursor, after: bytes) -> list[tuple[bytes, bytes]]:
    return cursor.execute(find_statement("check_texts"), {"after": after, "records": _TEXTS}).fetchall()


def _describe_damage(packer: Packer, address: bytes, packed: bytes) -> str:
    try:
        if hash_text(packer.decompress(packed)) == address:
            return ""
        return "it is another text than its address says"
    except CorruptError as error:
        return str(error)


def _find_id(cursor: Cursor, session: str) -> int | None:
    row = cursor.execute(find_statement("session"), {"session": escape_name(session)}).fetchone()
    return row[0] if row else None
