"""Records of a log with the large texts that they need, in few statements and in batches of limited size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from elision.errors import CorruptError
from elision.stores.packing import Packer, get_packer
from elision.stores.postgres.connection import Cursor, PostgresDatabase
from elision.stores.postgres.statements import find_statement
from elision.trajectory.events import Event

#: Of a batch: records, and bytes before packing (one record may be more).
RECORDS = 500
BYTES = 16_000_000


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """bodies: by position, in order. texts: packed, by address."""

    bodies: Sequence[tuple[int, bytes]]
    texts: Mapping[bytes, bytes]

    def unpack_events(self, packer: Packer) -> Iterator[tuple[int, Event]]:
        """Raises CorruptError."""
        for position, body in self.bodies:
            (event,) = packer.unpack(body, self.texts.__getitem__)
            yield position, event


def read_records(cursor: Cursor, session: int, positions: Sequence[int]) -> RecordBatch:
    """Return the records at `positions` of the log, in order. Raises CorruptError if one is missing."""
    parameters = {"id": session, "positions": list(positions)}
    rows = cursor.execute(find_statement("records"), parameters).fetchall()
    missing = len({*positions}) - len(rows)
    if missing:
        raise CorruptError(f"{missing} records of a session are missing from its log")
    return _add_texts(cursor, rows)


def read_batches(
    database: PostgresDatabase, find_session: Callable[[Cursor], int], after: int, last: int
) -> Iterator[RecordBatch]:
    """Yield the log from record `after` + 1 to `last` of the session that `find_session` returns.

    Each batch is a short transaction of its own.
    """
    while after < last:
        batch = database.read(lambda cursor, after=after: read_batch(cursor, find_session(cursor), after, last))  # type: ignore[misc]
        there = {position for position, _ in batch.bodies}
        end = max(there, default=after + 1)
        missing = next((position for position in range(after + 1, end + 1) if position not in there), None)
        if missing is not None:
            raise CorruptError(f"{database.name}: record {missing} of a log of {last} is not there")
        yield batch
        after = batch.bodies[-1][0]


def iterate_events(
    database: PostgresDatabase, find_session: Callable[[Cursor], int], after: int, last: int
) -> Iterator[Event]:
    """Yield the events of `read_batches`."""
    for batch in read_batches(database, find_session, after, last):
        yield from (event for _, event in batch.unpack_events(get_packer()))


def read_batch(cursor: Cursor, session: int, after: int, last: int) -> RecordBatch:
    """Return the next records after `after`, up to a batch of them."""
    asked = {"id": session, "after": after, "last": last, "records": RECORDS, "bytes": BYTES}
    return _add_texts(cursor, cursor.execute(find_statement("log"), asked).fetchall())


def _add_texts(cursor: Cursor, rows: Sequence[tuple[int, list[bytes], bytes]]) -> RecordBatch:
    addresses: set[bytes] = set()
    for _, apart, _ in rows:
        addresses.update(apart)
    texts: list[tuple[bytes, bytes]] = []
    if addresses:
        texts = cursor.execute(find_statement("texts"), {"addresses": list(addresses)}).fetchall()
    return RecordBatch([(position, body) for position, _, body in rows], dict(texts))
