"""How full the directory is and what its lookups cost: the numbers by which a load limit is chosen."""

from __future__ import annotations

from dataclasses import dataclass

from elision.stores.linear_hash.open_log import OpenLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """load: share of the buckets' first pages that entries fill. lookups, bucket_reads, value_reads: in this process
    since it opened the store, pages found in memory included; a value is one record of the log.
    """

    entries: int = 0
    buckets: int = 0
    overflow_pages: int = 0
    directory_bytes: int = 0
    log_bytes: int = 0
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


def measure_log(log: OpenLog) -> Statistics:
    """Return the statistics of a log and its directory."""
    directory = log.catalogue.directory
    directory.settle()
    return Statistics(
        entries=directory.entries,
        buckets=directory.buckets,
        overflow_pages=directory.pages.count - 1 - directory.buckets,
        directory_bytes=log.catalogue.directory_bytes,
        log_bytes=log.log_bytes,
        load=directory.load,
        lookups=directory.lookups,
        bucket_reads=directory.pages_read,
        value_reads=log.view.values_read,
    )
