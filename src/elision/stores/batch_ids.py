"""Ids of appends: with one, a store recognizes an append that is repeated because its answer was lost.

A store keeps 20 bytes with the first record of an append that has an id: the id and the number of its records. They are
kept as long as the record. A fork has the records that it shares without these ids.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from elision.errors import StoreError
from elision.stores.packing import decode_json, encode_json
from elision.stores.store_errors import reused_batch_error
from elision.trajectory.event_json import decode_event, encode_event
from elision.trajectory.events import Event

_ID_BYTES: Final = 16
_MARK: Final = struct.Struct(">16sI")


def make_batch_id() -> bytes:
    """Return a new id for one append."""
    return uuid.uuid4().bytes


def check_batch_id(batch: bytes) -> None:
    """Raise StoreError unless `batch` has 16 bytes, or none."""
    if len(batch) not in (0, _ID_BYTES):
        raise StoreError(f"a batch id has {_ID_BYTES} bytes, not {len(batch)}; uuid.uuid4().bytes is one")


def pack_batch_mark(batch: bytes, records: int) -> bytes:
    """Return what is kept with the first of `records` records; b"" where they have no id."""
    if not batch:
        return b""
    return _MARK.pack(batch, records)


def recognize_append(
    session: str, batch: bytes, mark: bytes | None, given: Sequence[Event], read: Callable[[], Sequence[Event]]
) -> bool:
    """Return whether the append `batch` wrote the record that is kept with `mark`.

    given: the events of this call. read: returns as many stored ones. Where `given` is empty the answer is False.
    Raises StoreError where `batch` wrote other records there.
    """
    if not given or not batch or not mark or mark[:_ID_BYTES] != batch:
        return False
    _, records = _MARK.unpack(mark)
    if records != len(given) or list(map(_normalize, read())) != list(map(_normalize, given)):
        raise reused_batch_error(session, batch)
    return True


def _normalize(event: Event) -> bytes:
    """Return the JSON that the event has once it was stored and read."""
    return encode_json(encode_event(decode_event(decode_json(encode_json(encode_event(event))))))
