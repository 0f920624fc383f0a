"""What the commands that keep, check and move sessions show, and the files that they write: whole or not at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from elision.cli.outputs import check_outputs, replace_file
from elision.cli.sessions_report import describe_contents as describe_contents
from elision.cli.sessions_report import format_age, name_session, printable_key
from elision.errors import StoreError
from elision.formats.elision_export import export, load_stored_session
from elision.lab.ratios import divide_or_zero
from elision.lab.report.figures import format_count, format_plural, format_size
from elision.lab.report.report import Block, Column, Sentence, Table, TableRow
from elision.stores.session_copy import CopyResult, format_log
from elision.stores.store import Finding, Footprint, SessionInfo, Store
from elision.trajectory.redact import Redaction

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


def show_deletions(found: Sequence[tuple[SessionInfo, str]], freed: int, now: float) -> list[Block]:
    """Return the sessions that would be deleted, and that this would free about `freed` bytes."""
    if not found:
        return [Sentence("nothing would be deleted")]
    columns = [Column("session"), Column("size", 3), Column("turns", 1), Column("changed", 2), Column("why", 4, "left")]
    rows = [
        TableRow(
            [name_session(info), format_size(info.raw_bytes), format_count(info.turns), format_age(info, now), why]
        )
        for info, why in found
    ]
    text = f"{format_plural(len(found), 'session')} would be deleted, about {format_size(freed)} freed"
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


def export_run(store: Store, session: SessionInfo, redaction: Redaction | None) -> Iterator[str]:
    """`session` as a recorded run (`elision.trajectory/1`). redaction: None leaves secrets in."""
    for line in export(load_stored_session(store, session.key)):
        yield json.dumps(redaction.redact_tree(json.loads(line)), separators=(",", ":")) if redaction else line


def export_log(store: Store, session: SessionInfo, redaction: Redaction | None) -> Iterator[str]:
    """`session` as a log (`elision.log/1`)."""
    return format_log(session, store.events(session.key), redaction)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write a file that is there when all of it is, readable by its owner alone; "-" is standard output.

    Raises OutputError before anything is read if it cannot or must not be written.
    """
    if str(path) == "-":
        for line in lines:
            sys.stdout.write(line + "\n")
        return
    check_outputs({"out": path})
    replace_file(path, (f"{line}\n".encode("ascii") for line in lines), private=True)
