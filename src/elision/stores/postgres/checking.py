"""Reading everything that a store keeps, and saying what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elision.errors import CorruptError
from elision.stores.packing import Packer, address_of
from elision.stores.postgres.link import Cursor, Link
from elision.stores.postgres.names import kept
from elision.stores.postgres.reading import Records, batch_behind
from elision.stores.postgres.statements import sql
from elision.stores.store import Finding, SessionInfo

#: Texts read in one go.
_TEXTS = 100


def findings(link: Link, packer: Packer, sessions: Sequence[SessionInfo]) -> Iterator[Finding]:
    """Of the logs of `sessions`, the tables made from them, and all texts; nothing is changed."""
    if link.address.unsafe and link.read(lambda cursor: cursor.execute(sql("server")).fetchall())[0][2] != "on":
        yield Finding(place="server", what="it runs with fsync = off and may lose what it acknowledged")
    for info in sessions:
        yield from _log(link, packer, info)
    yield from _texts(link, packer)


def _log(link: Link, packer: Packer, info: SessionInfo) -> Iterator[Finding]:
    place = f"session {info.key!r}"
    id = link.read(lambda cursor: _id(cursor, info.key))
    if id is None:
        return
    yield from _counts(link, id, place)
    after = 0
    while batch := _next(link, id, after, info.records):
        yield from _unread(batch, packer, place)
        after = batch.bodies[-1][0]


def _next(link: Link, id: int, after: int, last: int) -> Records | None:
    batch = link.read(lambda cursor: batch_behind(cursor, id, after, last), patient=True)
    if batch.bodies:
        return batch
    return None


def _unread(batch: Records, packer: Packer, place: str) -> Iterator[Finding]:
    for position, body in batch.bodies:
        try:
            packer.unpack(body, batch.texts.__getitem__)
        except CorruptError as error:
            yield Finding(place=f"{place}, record {position}", what=str(error), lost=True)


def _counts(link: Link, id: int, place: str) -> Iterator[Finding]:
    row = link.read(lambda cursor: cursor.execute(sql("check_counts"), {"id": id}).fetchone(), patient=True)
    if row is None:
        return
    records, kept_records, turns, shown = row
    if records != kept_records:
        yield Finding(place=place, what=f"{kept_records} of {records} records are in its log", lost=True)
    if turns != shown:
        yield Finding(place=place, what=f"agent_context_turns has {shown} of its {turns} turns")


def _texts(link: Link, packer: Packer) -> Iterator[Finding]:
    after = b""
    while found := link.read(lambda cursor, after=after: _texts_behind(cursor, after), patient=True):  # type: ignore[misc]
        for address, packed in found:
            if what := _wrong(packer, address, packed):
                yield Finding(place=f"text {address.hex()}", what=what, lost=True)
        after = found[-1][0]


def _texts_behind(cursor: Cursor, after: bytes) -> list[tuple[bytes, bytes]]:
    return cursor.execute(sql("check_texts"), {"after": after, "records": _TEXTS}).fetchall()


def _wrong(packer: Packer, address: bytes, packed: bytes) -> str:
    try:
        if address_of(packer.stretch(packed)) == address:
            return ""
        return "it is another text than its address says"
    except CorruptError as error:
        return str(error)


def _id(cursor: Cursor, session: str) -> int | None:
    row = cursor.execute(sql("session"), {"session": kept(session)}).fetchone()
    return row[0] if row else None
