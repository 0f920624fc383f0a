"""Child processes of the tests: `python -m tests.stores.linear_hash.child_processes ROLE FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random

from elision.stores.linear_hash.changes import DELETE, PUT, Change
from elision.stores.linear_hash.locks import WriterLock
from elision.stores.linear_hash.reader import Snapshot
from elision.stores.linear_hash.store_folder import StoreFolder
from elision.stores.linear_hash.writer import Writer, WriterLimits

#: Records that each transaction writes anew; all of them carry its number.
WIDTH = 12
#: Checkpoints often, so that kills and readers meet them.
LIMITS = WriterLimits(log_bytes=40_000, dirty_pages=40, cache=16, patience=0.05)


def make_value(version: int, place: int) -> bytes:
    """Return what record `place` holds as of transaction `version`: sizes that move values between pages."""
    size = (version * 37 + place * 911) % 9_000
    return b"%d " % version + Random(version * 100 + place).randbytes(size)


def make_transaction(version: int) -> list[Change]:
    changes = [Change(PUT, b"r%d" % place, b"%d" % version, make_value(version, place)) for place in range(WIDTH)]
    changes.append(Change(PUT, b"version", b"%d" % version))
    changes.append(Change(PUT, b"extra %d" % version, b"", bytes(100)))
    if version > 200:
        changes.append(Change(DELETE, b"extra %d" % (version - 200)))
    return changes


def find_version(state: Writer | Snapshot) -> int:
    """Return the last transaction in `state`; assert that every record is as that one left it."""
    head = state.head(b"version")
    if head is None:
        assert state.get(b"r0") is None
        return 0
    version = int(head)
    for place in range(WIDTH):
        record = state.get(b"r%d" % place)
        assert record is not None
        assert (record.head, record.value) == (head, make_value(version, place)), f"record {place} is not of {version}"
    for number in (version, max(1, version - 199)):
        assert state.head(b"extra %d" % number) is not None
    assert state.head(b"extra %d" % (version + 1)) is None
    return version


def write_transactions(folder: Path, last: int = 0) -> None:
    """Commit for ever, or up to `last`; acknowledge each transaction."""
    lock = WriterLock(folder / "lock")
    writer = StoreFolder(folder).open_for_writing(LIMITS)
    version = find_version(writer)
    while not last or version < last:
        version += 1
        writer.commit(make_transaction(version))
        os.write(1, b"%d\n" % version)
    writer.close()
    lock.close()


if __name__ == "__main__":
    write_transactions(Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0)
