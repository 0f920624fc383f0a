"""A transaction in the making: changes over a state, read back as if they were done."""

from __future__ import annotations

from typing import Protocol

from elision.errors import CorruptError
from elision.stores.linear_hash.changes import DELETE, HEAD, PUT, Change, Record
from elision.stores.linear_hash.records import (
    TOTALS_KEY,
    Totals,
    pack_text_head,
    text_key,
    unpack_text_head,
    unpack_totals,
)
from elision.stores.packing import Blob


class TableState(Protocol):
    """Records of a writer, or of a reader's snapshot."""

    def get(self, key: bytes) -> Record | None: ...

    def head(self, key: bytes) -> bytes | None: ...


class Draft:
    """Collects changes; nothing is written."""

    def __init__(self, state: TableState) -> None:
        self._state = state
        self._changes: dict[bytes, Change] = {}

    def get(self, key: bytes) -> Record | None:
        """Return the record under `key` with the changes so far."""
        change = self._changes.get(key)
        if change is None:
            return self._state.get(key)
        if change.op == DELETE:
            return None
        if change.op == PUT:
            return Record(key, change.head, change.value)
        old = self._state.get(key)
        return old and old._replace(head=change.head)

    def head(self, key: bytes) -> bytes | None:
        change = self._changes.get(key)
        if change is None:
            return self._state.head(key)
        if change.op == DELETE:
            return None
        return change.head

    def put(self, key: bytes, head: bytes, value: bytes = b"") -> None:
        self._changes[key] = Change(PUT, key, head, value)

    def set_head(self, key: bytes, head: bytes) -> None:
        """Give a record that is there another head; its value stays."""
        self._changes[key] = Change(HEAD, key, head).over(self._changes.get(key))

    def delete(self, key: bytes) -> None:
        self._changes[key] = Change(DELETE, key)

    def list_changes(self) -> list[Change]:
        return list(self._changes.values())

    # Large texts

    def add_reference(self, blob: Blob) -> int:
        """Count one more record that refers to `blob`; return 1 if it was not there, else 0."""
        key = text_key(blob.address)
        head = self.head(key)
        if head is None:
            self.put(key, pack_text_head(1, blob.size), blob.packed)
            return 1
        self._change_count(key, head, 1)
        return 0

    def repeat_reference(self, address: bytes) -> None:
        """Count one more record that refers to a text that is there. Raises CorruptError if it is not."""
        key = text_key(address)
        head = self.head(key)
        if head is None:
            raise CorruptError(f"the text {address.hex()} is missing; run `elision store fsck`")
        self._change_count(key, head, 1)

    def drop_reference(self, address: bytes) -> int:
        """Count one record less that refers to a text; return 1 if it was the last and the text is deleted, else 0."""
        key = text_key(address)
        head = self.head(key)
        if head is None:
            return 0
        if unpack_text_head(head)[0] > 1:
            self._change_count(key, head, -1)
            return 0
        self.delete(key)
        return 1

    def _change_count(self, key: bytes, head: bytes, step: int) -> None:
        references, size = unpack_text_head(head)
        self.set_head(key, pack_text_head(references + step, size))

    # Totals

    def totals(self) -> Totals:
        return unpack_totals(self.head(TOTALS_KEY))

    def set_totals(self, now: Totals) -> None:
        if self.head(TOTALS_KEY) is None:
            self.put(TOTALS_KEY, now.pack())
        else:
            self.set_head(TOTALS_KEY, now.pack())
