"""What `elision store` shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elision.cli.amounts import size_out, span_out
from elision.errors import StoreError
from elision.stores.session_copy import CopyResult
from elision.stores.store import Finding, Footprint, SessionInfo

#: Characters of what is wrong somewhere.
_SAID: Final = 300
#: Sessions listed where not all are asked for.
SHOWN: Final = 20


def count(number: int, noun: str) -> str:
    """1 session, 2 sessions, 1,234 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def contents(footprint: Footprint) -> str:
    return ", ".join(
        (count(footprint.sessions, "session"), count(footprint.turns, "turn"), count(footprint.records, "record"))
    )


def usage(footprint: Footprint, shown: Sequence[SessionInfo], now: float) -> RenderableType:
    """The whole store in two lines, then its largest sessions."""
    total = Text.assemble((size_out(footprint.stored_bytes), "bold"), f" for {size_out(footprint.raw_bytes)} of logs")
    if footprint.stored_bytes:
        ratio = footprint.raw_bytes / footprint.stored_bytes
    else:
        ratio = 0.0
    if ratio >= 1.05:
        total.append(f", {ratio:.1f} times smaller")
    lines: list[RenderableType] = [total, Text(_told(footprint))]
    if not shown:
        return Group(*lines)
    table = _table("session", "size", "share", "turns", "records", "changed")
    for info in shown:
        if footprint.raw_bytes:
            share = info.raw_bytes / footprint.raw_bytes
        else:
            share = 0.0
        table.add_row(
            _name(info),
            size_out(info.raw_bytes),
            f"{share:.0%}",
            f"{info.turns:,}",
            f"{info.records:,}",
            _ago(info, now),
        )
    return Group(*lines, Text(), table, *_left_out(footprint.sessions - len(shown)))


def _told(footprint: Footprint) -> str:
    if footprint.texts:
        texts = f", {count(footprint.texts, 'large text')} kept once"
    else:
        texts = ""
    return contents(footprint) + texts


def _left_out(number: int) -> Iterator[RenderableType]:
    yield Text(
        (f"and {count(number, 'more session')}; --all lists them. " if number > 0 else "")
        + "size: before compression, and with what sessions share",
        style="dim",
    )


def doomed(
    footprint: Footprint, sessions: Sequence[SessionInfo], *, oldest: float | None, limit: int | None, now: float
) -> RenderableType:
    """What a purge would delete. Which sessions are too much is an estimate: each is taken to pack as all do."""
    table = _table("session", "size", "turns", "changed", "why")
    left = float(footprint.stored_bytes)
    if footprint.raw_bytes:
        packed = footprint.stored_bytes / footprint.raw_bytes
    else:
        packed = 0.0
    for info in reversed(sessions):
        old = oldest is not None and info.changed < oldest
        if not old and (limit is None or left <= limit):
            break
        left -= info.raw_bytes * packed
        table.add_row(
            _name(info), size_out(info.raw_bytes), f"{info.turns:,}", _ago(info, now), "too old" if old else "too much"
        )
    if not table.row_count:
        return Text("nothing would be deleted")
    freed = size_out(int(footprint.stored_bytes - max(0.0, left)))
    return Group(table, Text(f"{count(table.row_count, 'session')} would be deleted, about {freed} freed"))


def findings(found: Sequence[Finding]) -> RenderableType:
    """One a line, what is lost first."""
    return Group(*(_finding(each) for each in sorted(found, key=lambda each: not each.lost)))


def _finding(found: Finding) -> Text:
    if found.lost:
        mark = ("lost", "red")
    else:
        mark = ("kept", "dim")
    return Text.assemble(mark, "  ", (printable(found.place), "bold"), f": {printable(found.what)[:_SAID]}")


def copies(done: Sequence[CopyResult | StoreError]) -> RenderableType:
    """What was written and what was there, then each session of which something was written."""
    kept = [each for each in done if isinstance(each, CopyResult)]
    written = [each for each in kept if each.added_records or each.is_new]
    told = {
        f"{count(len(written), 'session')} copied and verified ({_records(kept)})": len(written),
        f"{count(len(kept) - len(written), 'session')} there already": len(kept) - len(written),
        f"{count(len(done) - len(kept), 'session')} refused": len(done) - len(kept),
        "nothing to copy": not done,
    }
    said = ", ".join(text for text, number in told.items() if number)
    if not written:
        return Text(said)
    table = _table("session", "written", "there already")
    for each in written[:SHOWN]:
        table.add_row(_line(each.key), f"{each.added_records:,}", f"{each.existing_records:,}")
    more = len(written) - SHOWN
    return Group(table, *([Text(f"and {count(more, 'more session')}", style="dim")] if more > 0 else []), Text(said))


def _records(copied: Sequence[CopyResult]) -> str:
    return count(sum(each.added_records for each in copied), "record")


def printable(key: str) -> str:
    """A key as it can be shown: control characters and the like as escapes, one line."""
    if key.isprintable() and key.strip() == key and key:
        return key
    return repr(key)


def _name(info: SessionInfo) -> Text:
    name = _line(info.key)
    if info.parent:
        name.append(f"  {info.relation or 'child'} of {printable(info.parent)}", style="dim")
    return name


def _line(key: str) -> Text:
    return Text(printable(key), overflow="ellipsis", no_wrap=True)


def _ago(info: SessionInfo, now: float) -> str:
    return f"{span_out(now - info.changed)} ago"


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.padding = (0, 2, 0, 0)
    table.show_edge = False
    table.pad_edge = False
    # Its cells do not wrap either; but a column may only be cut where it could.
    table.add_column(first, overflow="ellipsis")
    for head in numbers:
        table.add_column(head, justify="left" if head == "why" else "right", no_wrap=True)
    return table
