"""Appends: written in one transaction, and recognized when they are repeated."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from elision.stores.batch_ids import check_batch_id, pack_batch_mark, recognize_append
from elision.stores.packing import Blob, PackedRecords, get_packer
from elision.stores.postgres.connection import Cursor
from elision.stores.postgres.readable_tables import find_words_apart, list_changes
from elision.stores.postgres.record_batches import read_records
from elision.stores.postgres.statements import find_statement
from elision.stores.postgres.text_escapes import escape_name
from elision.trajectory.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAppend:
    """One append as it is written and recognized. token: its id, or a new one for this call."""

    session: str
    events: Sequence[Event]
    packed: Sequence[PackedRecords]
    after: int
    at: float
    token: uuid.UUID

    @property
    def length(self) -> int:
        return self.after + len(self.packed)


def make_append(session: str, events: Sequence[Event], after: int, at: float, batch: bytes) -> PostgresAppend:
    """Return an append to `session`, packed. Raises StoreError for an id that is none."""
    check_batch_id(batch)
    packer = get_packer()
    return PostgresAppend(
        session=session,
        events=events,
        packed=[packer.pack(event) for event in events],
        after=after,
        at=at,
        token=uuid.UUID(bytes=batch) if batch else uuid.uuid4(),
    )


def write_append(cursor: Cursor, append: PostgresAppend, *, shows_whole: bool) -> bool:
    """Write an append; return False where the log does not end at its place.

    shows_whole: whether rows for people have whole texts.
    """
    claim = {
        "session": escape_name(append.session),
        "after": append.after,
        "added": len(append.packed),
        "at": append.at,
        "turn": max((turn for record in append.packed for _, turn, _ in record.turns), default=0),
        "size": sum(record.size for record in append.packed),
    }
    row = cursor.execute(find_statement("claim"), claim).fetchone()
    if row is None:
        return False
    _write_records(cursor, row[0], append, shows_whole=shows_whole)
    return True


def has_append(cursor: Cursor, append: PostgresAppend) -> bool:
    """Return whether an earlier try of this append, whose answer was lost, was committed.

    Raises StoreError if it wrote other records.
    """
    place = {"session": escape_name(append.session), "after": append.after, "token": append.token}
    row = cursor.execute(find_statement("claimed"), place).fetchone()
    if row is None:
        return False
    session, records = row
    positions = range(append.after + 1, append.length + 1)

    def read_stored() -> list[Event]:
        return [event for _, event in read_records(cursor, session, positions).unpack_events(get_packer())]

    batch = append.token.bytes
    return recognize_append(append.session, batch, pack_batch_mark(batch, records), append.events, read_stored)


def _write_records(cursor: Cursor, session: int, append: PostgresAppend, *, shows_whole: bool) -> None:
    """Write everything of an append but its claim."""
    for blob, words in _collect_texts(append.events, append.packed):
        text = {"address": blob.address, "size": blob.size, "packed": blob.packed, "words": words}
        cursor.execute(find_statement("add_text"), text)
        if words:
            cursor.execute(find_statement("add_words_of_text"), (words, blob.address))
        cursor.execute(find_statement("add_use"), (blob.address, session))
    pairs = zip(append.events, append.packed, strict=True)
    for position, (event, record) in enumerate(pairs, start=append.after + 1):
        addresses = [blob.address for blob in record.blobs]
        turn = record.turns[0][1] if record.turns else 0
        added = len(append.packed) if position == append.after + 1 else None
        row = (event.__struct_config__.tag, turn, record.size, append.token, addresses, record.body, added)
        cursor.execute(find_statement("add_record"), (session, position, *row))
        changes = list_changes(event, session=session, record=position, at=append.at, shows_whole=shows_whole)
        for change in changes:
            cursor.execute(find_statement(change.statement), change.parameters)


def _collect_texts(events: Sequence[Event], packed: Sequence[PackedRecords]) -> list[tuple[Blob, str]]:
    """Return each large text once, with its words.

    All writers take them in one order, so that no two of them wait for each other.
    """
    blobs: dict[bytes, Blob] = {}
    for record in packed:
        blobs.update((blob.address, blob) for blob in record.blobs)
    words: dict[bytes, str] = {}
    for event in events:
        words.update(find_words_apart(event))
    return [(blobs[address], words.get(address, "")) for address in sorted(blobs)]
