"""What the commands that keep, check and move sessions show."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from elision.cli.amounts import format_size
from elision.cli.sessions_report import format_age, name_session, printable_key
from elision.errors import StoreError
from elision.lab.ratios import divide_or_zero
from elision.lab.report.figures import format_count, format_plural
from elision.lab.report.report import Block, Column, Sentence, Table, TableRow
from elision.stores.session_copy import CopyResult
from elision.stores.store import Finding, Footprint, SessionInfo

#: Characters of what is wrong somewhere.
_SAID: Final = 300
#: Sessions listed where not all are asked for.
SHOWN: Final = 20
#: Cells that a name keeps.
_NAME: Final = 20


def list_deletions(
    footprint: Footprint,
    sessions: Sequence[SessionInfo],
    expired: Collection[str],
    *,
    oldest: float | None,
    limit: int | None,
) -> list[tuple[SessionInfo, str]]:
    """Return what a purge would delete, and why. Which sessions are too much is an estimate: each is taken to pack as
    all do.

    expired: names of those that a time to live of their family ends.
    """
    found = []
    left = float(footprint.stored_bytes)
    packed = divide_or_zero(footprint.stored_bytes, footprint.raw_bytes)
    oldest_first = sessions[::-1]
    for info in sorted(oldest_first, key=lambda info: info.key not in expired):
        old = info.key in expired or (oldest is not None and info.changed < oldest)
        if not old and (limit is None or left <= limit):
            break
        left -= info.raw_bytes * packed
        found.append((info, "too old" if old else "too much"))
    return found


def estimate_freed(footprint: Footprint, found: Sequence[tuple[SessionInfo, str]]) -> int:
    """Return about how many bytes the deletion of the sessions of `found` frees."""
    packed = divide_or_zero(footprint.stored_bytes, footprint.raw_bytes)
    return min(footprint.stored_bytes, int(sum(info.raw_bytes for info, _ in found) * packed))


def show_deletions(footprint: Footprint, found: Sequence[tuple[SessionInfo, str]], now: float) -> list[Block]:
    """Return the sessions that would be deleted, and what that would free."""
    if not found:
        return [Sentence("nothing would be deleted")]
    columns = [Column("session"), Column("size", 3), Column("turns", 1), Column("changed", 2), Column("why", 4, "left")]
    rows = [
        TableRow(
            [name_session(info), format_size(info.raw_bytes), format_count(info.turns), format_age(info, now), why]
        )
        for info, why in found
    ]
    freed = format_size(estimate_freed(footprint, found))
    text = f"{format_plural(len(found), 'session')} would be deleted, about {freed} freed"
    return [Table(columns, rows, least=_NAME), Sentence(text)]


def show_findings(found: Sequence[Finding]) -> list[Block]:
    """Return one a line, what is lost first."""
    return [
        Sentence(
            [
                ("lost", "worse") if each.lost else ("kept", "quiet"),
                "  ",
                (printable_key(each.place), "strong"),
                f": {printable_key(each.what)[:_SAID]}",
            ]
        )
        for each in sorted(found, key=lambda each: not each.lost)
    ]


def show_copies(done: Sequence[CopyResult | StoreError]) -> list[Block]:
    """Return what was written and what was there, then each session of which something was written."""
    kept = [each for each in done if isinstance(each, CopyResult)]
    written = [each for each in kept if each.added_records or each.is_new]
    records = format_plural(sum(each.added_records for each in kept), "record")
    told = {
        f"{format_plural(len(written), 'session')} copied and verified ({records})": len(written),
        f"{format_plural(len(kept) - len(written), 'session')} there already": len(kept) - len(written),
        f"{format_plural(len(done) - len(kept), 'session')} refused": len(done) - len(kept),
        "nothing to copy": not done,
    }
    said = Sentence(", ".join(text for text, number in told.items() if number))
    if not written:
        return [said]
    columns = [Column("session"), Column("written", 2), Column("there already", 1)]
    rows = [
        TableRow([printable_key(each.key), format_count(each.added_records), format_count(each.existing_records)])
        for each in written[:SHOWN]
    ]
    more = len(written) - SHOWN
    rest = [Sentence(f"and {format_plural(more, 'more session')}", "quiet")] if more > 0 else []
    return [Table(columns, rows, least=_NAME), *rest, said]
