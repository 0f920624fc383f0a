"""Records of a log with the large texts that they need, in few statements and in batches of limited size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elision.errors import CorruptError
from elision.stores.packing import get_packer
from elision.stores.postgres.connection import Cursor
from elision.stores.sql_dialect import load_statements
from elision.trajectory.events import Event

#: Of a batch: records, and bytes before packing (one record may be more).
RECORDS = 500
BYTES = 16_000_000
_SQL: Final = load_statements("postgres")


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """bodies: by position, in order. texts: packed, by address."""

    bodies: Sequence[tuple[int, bytes]]
    texts: Mapping[bytes, bytes]

    def unpack_events(self) -> Iterator[tuple[int, Event]]:
        """Yield the records, each with its position; no connection is needed. Raises CorruptError."""
        packer = get_packer()
        for position, body in self.bodies:
            (event,) = packer.unpack(body, self.texts.__getitem__)
            yield position, event


def read_records(cursor: Cursor, session: int, positions: Sequence[int]) -> RecordBatch:
    """Return the records at `positions` of the log, in order. Raises CorruptError if one is missing."""
    parameters = {"id": session, "positions": list(positions)}
    rows = cursor.execute(_SQL["records"], parameters).fetchall()
    missing = len({*positions}) - len(rows)
    if missing:
        raise CorruptError(f"{missing} records of a session are missing from its log")
    return _add_texts(cursor, rows)


def read_batch(cursor: Cursor, session: int, after: int, last: int) -> RecordBatch:
    """Return the next records after `after`, up to a batch of them."""
    asked = {"id": session, "after": after, "last": last, "records": RECORDS, "bytes": BYTES}
    return _add_texts(cursor, cursor.execute(_SQL["log"], asked).fetchall())


def _add_texts(cursor: Cursor, rows: Sequence[tuple[int, list[bytes], bytes]]) -> RecordBatch:
    addresses = {address for _, apart, _ in rows for address in apart}
    texts: list[tuple[bytes, bytes]] = []
    if addresses:
        texts = cursor.execute(_SQL["texts"], {"addresses": list(addresses)}).fetchall()
    return RecordBatch([(position, body) for position, _, body in rows], dict(texts))
