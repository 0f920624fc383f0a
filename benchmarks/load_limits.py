"""How full the linear-hash store's buckets may be: pages read per lookup against bytes of bucket pages per turn."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

from elision.stores.linear_hash.changes import PUT, Change
from elision.stores.linear_hash.file_access import OsFile
from elision.stores.linear_hash.meta import Meta
from elision.stores.linear_hash.pager import Pager
from elision.stores.linear_hash.table import SPLIT_ABOVE, Table

LIMITS = (0.60, 0.75, 0.85, 0.90, 1.00)
#: Turns at which is measured: between two doublings, as the load of single buckets follows the split pointer.
SIZES = (4_000, 5_200, 6_600, 8_000)
LOOKUPS = 3_000


def changes(number: int, chance: Random) -> list[Change]:
    """Records as a turn leaves them: log record, turn, text, history; keys, heads and pointers of the real sizes."""
    return [
        Change(PUT, b"l%024d" % number, bytes(16), bytes(13)),
        Change(PUT, b"t%024d" % number, bytes(chance.choice((24, 60, 60)))),
        Change(PUT, b"b%032d" % number, bytes(12), bytes(13)),
        Change(PUT, b"n%016d" % number, b"", bytes(24)),
    ]


def measured(table: Table, turns: int, chance: Random) -> str:
    table.reads.lookups = table.reads.bucket_pages = 0
    for _ in range(LOOKUPS):
        table.head(b"t%024d" % chance.randrange(turns))
    size = (table.meta.bucket_pages + table.meta.overflow_pages) * 4096 / turns
    return f"{table.reads.bucket_pages / LOOKUPS:6.3f} / {size:3.0f} B"


def main() -> None:
    print(f"Bucket pages per lookup / bytes of bucket pages per turn; the store splits above {SPLIT_ABOVE}.")
    print("  limit " + "".join(f"{size:>15,}" for size in SIZES) + "  turns")
    for limit in LIMITS:
        with tempfile.TemporaryDirectory() as folder:
            files = [OsFile(Path(folder) / name, writable=True) for name in ("pages", "log")]
            table, chance, turns, found = Table(Pager(*files, Meta(file_id=1)), limit), Random(5), 0, []
            table.begin()
            for size in SIZES:
                for number in range(turns, size):
                    for change in changes(number, chance):
                        table.apply_change(change)
                turns = size
                found.append(measured(table, turns, chance))
            for file in files:
                file.close()
        print(f"  {limit:.2f}  " + "".join(f"{each:>15}" for each in found), flush=True)
