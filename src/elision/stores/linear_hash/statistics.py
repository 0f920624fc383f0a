"""How full the table is and what its lookups cost: the numbers by which a load limit is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from elision.stores.linear_hash.layout import PAGE
from elision.stores.linear_hash.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """load: share of the buckets' first pages that records fill. lookups, bucket_reads, value_reads: in this process
    since it opened the store, pages found in memory included; value pages are those of large values.
    """

    records: int = 0
    buckets: int = 0
    overflow_pages: int = 0
    value_pages: int = 0
    free_pages: int = 0
    file_bytes: int = 0
    load: float = 0.0
    lookups: int = 0
    bucket_reads: int = 0
    value_reads: int = 0

    @property
    def pages_per_lookup(self) -> float:
        """Return the bucket pages read per lookup."""
        if self.lookups:
            return self.bucket_reads / self.lookups
        return 0.0


def measure_table(table: Table | None) -> Statistics:
    """Return the statistics of `table`; all zero for None, a store that was never written."""
    if table is None:
        return Statistics()
    meta = table.meta
    return Statistics(
        records=meta.records,
        buckets=meta.buckets,
        overflow_pages=meta.overflow_pages,
        value_pages=meta.value_pages + meta.cell_pages,
        free_pages=meta.free_pages,
        file_bytes=meta.pages * PAGE,
        load=table.load,
        lookups=table.reads.lookups,
        bucket_reads=table.reads.bucket_pages,
        value_reads=table.value_pages_read,
    )
