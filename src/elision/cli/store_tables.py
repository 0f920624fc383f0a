"""What the commands that keep, check and move sessions show."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elision.cli.amounts import format_duration, format_size
from elision.errors import StoreError
from elision.lab.ratios import divide_or_zero
from elision.lab.report.figures import format_plural, format_share
from elision.lab.report.fitting import open_table
from elision.stores.session_copy import CopyResult
from elision.stores.store import Finding, Footprint, SessionInfo

#: Characters of what is wrong somewhere.
_SAID: Final = 300
#: Sessions listed where not all are asked for.
SHOWN: Final = 20


def describe_contents(footprint: Footprint) -> str:
    return ", ".join(
        (
            format_plural(footprint.sessions, "session"),
            format_plural(footprint.turns, "turn"),
            format_plural(footprint.records, "record"),
        )
    )


def render_usage(footprint: Footprint, shown: Sequence[SessionInfo], now: float) -> RenderableType:
    """The whole store in two lines, then its largest sessions."""
    total = Text.assemble(
        (format_size(footprint.stored_bytes), "bold"), f" for {format_size(footprint.raw_bytes)} of logs"
    )
    ratio = divide_or_zero(footprint.raw_bytes, footprint.stored_bytes)
    if ratio >= 1.05:
        total.append(f", {ratio:.1f} times smaller")
    texts = f", {format_plural(footprint.texts, 'large text')} kept once" if footprint.texts else ""
    lines: list[RenderableType] = [total, Text(describe_contents(footprint) + texts)]
    if not shown:
        return Group(*lines)
    table = _new_table("session", "size", "share", "turns", "records", "changed")
    for info in shown:
        table.add_row(
            _name_cell(info),
            format_size(info.raw_bytes),
            format_share(divide_or_zero(info.raw_bytes, footprint.raw_bytes)),
            f"{info.turns:,}",
            f"{info.records:,}",
            _format_age(info, now),
        )
    return Group(*lines, Text(), table, *_list_left_out(footprint.sessions - len(shown)))


def _list_left_out(number: int) -> Iterator[RenderableType]:
    yield Text(
        (f"and {format_plural(number, 'more session')}; --all lists them. " if number > 0 else "")
        + "size: before compression, and with what sessions share",
        style="dim",
    )


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


def render_deletions(footprint: Footprint, found: Sequence[tuple[SessionInfo, str]], now: float) -> RenderableType:
    """The sessions that would be deleted, and what that would free."""
    if not found:
        return Text("nothing would be deleted")
    table = _new_table("session", "size", "turns", "changed", "why")
    for info, why in found:
        table.add_row(_name_cell(info), format_size(info.raw_bytes), f"{info.turns:,}", _format_age(info, now), why)
    freed = format_size(estimate_freed(footprint, found))
    return Group(table, Text(f"{format_plural(len(found), 'session')} would be deleted, about {freed} freed"))


def render_findings(found: Sequence[Finding]) -> RenderableType:
    """One a line, what is lost first."""
    return Group(*(_format_finding(each) for each in sorted(found, key=lambda each: not each.lost)))


def _format_finding(found: Finding) -> Text:
    mark = ("lost", "red") if found.lost else ("kept", "dim")
    return Text.assemble(mark, "  ", (printable_key(found.place), "bold"), f": {printable_key(found.what)[:_SAID]}")


def render_copies(done: Sequence[CopyResult | StoreError]) -> RenderableType:
    """What was written and what was there, then each session of which something was written."""
    kept = [each for each in done if isinstance(each, CopyResult)]
    written = [each for each in kept if each.added_records or each.is_new]
    records = format_plural(sum(each.added_records for each in kept), "record")
    told = {
        f"{format_plural(len(written), 'session')} copied and verified ({records})": len(written),
        f"{format_plural(len(kept) - len(written), 'session')} there already": len(kept) - len(written),
        f"{format_plural(len(done) - len(kept), 'session')} refused": len(done) - len(kept),
        "nothing to copy": not done,
    }
    said = ", ".join(text for text, number in told.items() if number)
    if not written:
        return Text(said)
    table = _new_table("session", "written", "there already")
    for each in written[:SHOWN]:
        table.add_row(_key_line(each.key), f"{each.added_records:,}", f"{each.existing_records:,}")
    more = len(written) - SHOWN
    return Group(
        table, *([Text(f"and {format_plural(more, 'more session')}", style="dim")] if more > 0 else []), Text(said)
    )


def printable_key(key: str) -> str:
    """A key as it can be shown: control characters and the like as escapes, one line."""
    if key.isprintable() and key.strip() == key and key:
        return key
    return repr(key)


def _name_cell(info: SessionInfo) -> Text:
    name = _key_line(info.key)
    if info.parent:
        name.append(f"  {info.relation or 'child'} of {printable_key(info.parent)}", style="dim")
    return name


def _key_line(key: str) -> Text:
    return Text(printable_key(key), overflow="ellipsis", no_wrap=True)


def _format_age(info: SessionInfo, now: float) -> str:
    return f"{format_duration(now - info.changed)} ago"


def _new_table(first: str, *numbers: str) -> Table:
    table = open_table(2)
    # Its cells do not wrap either; but a column may only be cut where it could.
    table.add_column(first, overflow="ellipsis")
    for head in numbers:
        table.add_column(head, justify="left" if head == "why" else "right", no_wrap=True)
    return table
