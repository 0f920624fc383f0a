"""What `elision sessions` shows: a line a session, with what hiding saved, or with what it takes up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.cli.session_figures import SessionFigures, choose_mood
from elision.cli.session_names import format_session_name
from elision.lab.ratios import divide_or_none, divide_or_zero
from elision.lab.report import figures
from elision.lab.report.report import Column, Report, Section, Sentence, Side, Table, TableRow, Words
from elision.stores.store import Footprint, SessionInfo

#: Models without prices that are named.
_NAMED_MODELS: Final = 3
#: Cells that a name keeps.
_NAME: Final = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """A session. front: the tree before its name. name: short, as other commands accept it. task: its first words.

    figures: None where its log cannot be read.
    """

    front: str
    info: SessionInfo
    name: str
    task: str = ""
    figures: SessionFigures | None = None
    fault: str = ""

    @property
    def known(self) -> SessionFigures | None:
        """The figures of a session that made a call."""
        return self.figures if self.figures is not None and self.figures.calls else None


def build_sessions_report(
    rows: Sequence[ListedSession], number: int, now: float, data: Mapping[str, Any], *, has_notes: bool
) -> Report:
    """Return the sessions with what hiding saved. number: sessions that there are. has_notes: what its columns mean."""
    if not rows:
        return Report(command="sessions", headline="The store keeps no sessions yet.", data=data, has_page=False)
    faults = [
        Sentence(f"{format_session_name(row.info.key)} cannot be read: {format_session_name(row.fault)}", "worse")
        for row in rows
        if row.fault
    ]
    notes = [Sentence(note, "quiet") for note in _list_notes(rows, number)] if has_notes else []
    return Report(
        command="sessions",
        headline=_write_headline(rows, number),
        sections=[Section("", [_build_table(rows, now), *faults, *notes])],
        data=data,
        has_page=False,
    )


def build_sizes_report(
    footprint: Footprint, sessions: Sequence[SessionInfo], now: float, data: Mapping[str, Any]
) -> Report:
    """Return the whole store, and its largest sessions; no log is read."""
    headline = f"{figures.format_size(footprint.stored_bytes)} for {figures.format_size(footprint.raw_bytes)} of logs"
    ratio = divide_or_zero(footprint.raw_bytes, footprint.stored_bytes)
    if ratio >= 1.05:
        headline += f", {ratio:.1f} times smaller"
    texts = f", {figures.format_plural(footprint.texts, 'large text')} kept once" if footprint.texts else ""
    columns = [
        Column("session"),
        Column("size", 5),
        Column("share", 4),
        Column("turns", 2),
        Column("records", 1),
        Column("changed", 3),
    ]
    rows = [
        TableRow(
            [
                name_session(info),
                figures.format_size(info.raw_bytes),
                figures.format_share(divide_or_none(info.raw_bytes, footprint.raw_bytes)),
                figures.format_count(info.turns),
                figures.format_count(info.records),
                format_age(info, now),
            ]
        )
        for info in sessions
    ]
    rest = footprint.sessions - len(sessions)
    more = f"and {figures.format_plural(rest, 'more session')}; --all lists them. " if rest > 0 else ""
    note = Sentence(f"{more}size: before compression, and with what sessions share", "quiet")
    return Report(
        command="sessions --sizes",
        headline=f"{headline}.",
        scope=[Sentence(describe_contents(footprint) + texts)],
        sections=[Section("", [Table(columns, rows, least=_NAME), note])] if rows else [],
        data=data,
        has_page=False,
    )


def describe_contents(footprint: Footprint) -> str:
    """`4 sessions, 120 turns, 530 records`."""
    counts = (footprint.sessions, "session"), (footprint.turns, "turn"), (footprint.records, "record")
    return ", ".join(figures.format_plural(number, what) for number, what in counts)


def name_session(info: SessionInfo) -> Words:
    """Return a session's name, then what it came from."""
    name = printable_key(info.key)
    return [name, (f"  {info.relation or 'child'} of {printable_key(info.parent)}", "quiet")] if info.parent else name


def printable_key(key: str) -> str:
    """A key as it can be shown: control characters and the like as escapes, one line."""
    return key if key.isprintable() and key.strip() == key and key else repr(key)


def format_age(info: SessionInfo, now: float) -> str:
    return f"{figures.format_duration(now - info.changed)} ago"


def _write_headline(rows: Sequence[ListedSession], number: int) -> str:
    """Return what hiding saved in all sessions that are listed."""
    listed = figures.format_plural(number, "session")
    if number > len(rows):
        listed = f"{figures.format_count(len(rows))} of {listed}"
    known = [row.known for row in rows if row.known is not None]
    if not known:
        return f"{listed[0].upper()}{listed[1:]}, and no call yet."
    ours, saved = sum(found.cost for found in known), sum(found.saved for found in known)
    change = figures.format_change(divide_or_none(ours, ours + saved))
    did = "saved" if saved >= 0 else "cost"
    amount = figures.format_usd(abs(saved)) + ("" if saved >= 0 else " more")
    paid = f"{figures.format_usd(ours)} instead of {figures.format_usd(ours + saved)} ({change})"
    return f"Hiding {did} {amount} in {listed}: {paid}."


# -- the table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SessionColumn:
    """keep: the higher, the longer it stays where room is short. needed: whether a row has something to say."""

    title: str
    keep: float
    cell: Callable[[ListedSession], Words]
    side: Side = "right"
    needed: Callable[[ListedSession], bool] = lambda row: True


def _build_table(rows: Sequence[ListedSession], now: float) -> Table:
    every = [
        _SessionColumn("task", 11.5, lambda row: row.task, side="clip", needed=lambda row: bool(row.task)),
        _SessionColumn("turns", 11, lambda row: figures.format_count(row.info.turns)),
        *_COUNTED,
        _SessionColumn("changed", 10, lambda row: format_age(row.info, now)),
        *_SAID,
    ]
    columns = [each for each in every if any(map(each.needed, rows))]
    table = []
    for row in rows:
        text = format_session_name(row.name)
        name: Words = [(text, "strong")]
        if row.front:
            name = [(row.front, "quiet"), text, (f" ({row.info.relation or 'child'})", "quiet")]
        table.append(TableRow([name, *(each.cell(row) for each in columns)]))
    headings = [Column("session"), *(Column(each.title, each.keep, each.side) for each in columns)]
    return Table(headings, table, least=_NAME)


def _figure_cell(cell: Callable[[SessionFigures], Words]) -> Callable[[ListedSession], Words]:
    return lambda row: figures.NOTHING if row.known is None else cell(row.known)


def _count_cell(number: Callable[[SessionFigures], int]) -> Callable[[ListedSession], Words]:
    return _figure_cell(lambda found: figures.format_count(number(found)))


def _has_caching_saved(row: ListedSession) -> bool:
    return row.known is not None and row.known.by_cache > 0


_COUNTED: Final = (
    _SessionColumn("calls", 2, _count_cell(lambda found: found.calls)),
    _SessionColumn("sent", 8, _figure_cell(lambda found: figures.format_tokens(found.sent_tokens))),
    _SessionColumn("of raw", 5, _figure_cell(lambda found: figures.format_tokens(found.raw_tokens))),
    _SessionColumn(
        "tokens",
        6,
        _figure_cell(lambda found: figures.format_change(divide_or_none(found.sent_tokens, found.raw_tokens))),
    ),
    _SessionColumn("cost", 9, _figure_cell(lambda found: figures.format_signed_usd(found.cost))),
    _SessionColumn(
        "saved", 12, _figure_cell(lambda found: [(figures.format_signed_usd(found.saved), choose_mood(found.saved))])
    ),
    _SessionColumn(
        "by cache", 5, _figure_cell(lambda found: figures.format_signed_usd(found.by_cache)), needed=_has_caching_saved
    ),
    _SessionColumn("rewrites", 4, _count_cell(lambda found: found.rewrites)),
    _SessionColumn("summaries", 3, _count_cell(lambda found: found.summaries)),
    _SessionColumn(
        "summaries\nfailed",
        13,
        _count_cell(lambda found: found.failed_summaries),
        needed=lambda row: row.known is not None and row.known.failed_summaries > 0,
    ),
)
_SAID: Final = (
    _SessionColumn(
        "mode",
        15,
        lambda row: [(row.figures.mode if row.figures else "", "warning")],
        side="left",
        needed=lambda row: bool(row.figures and row.figures.mode),
    ),
    _SessionColumn(
        "guards",
        14,
        lambda row: [(row.figures.guard if row.figures else "", "warning")],
        side="left",
        needed=lambda row: bool(row.figures and row.figures.guard),
    ),
    _SessionColumn(
        "model",
        1,
        _figure_cell(lambda found: format_session_name(found.model) if found.model else figures.NOTHING),
        side="left",
    ),
    _SessionColumn("strategy", 0, _figure_cell(lambda found: format_session_name(found.strategy)[:40]), side="left"),
)


def _list_notes(rows: Sequence[ListedSession], number: int) -> Iterator[str]:
    if number > len(rows):
        yield f"{figures.format_plural(number - len(rows), 'more session')}; --all lists them."
    unpriced = [row.figures for row in rows if row.figures is not None and row.figures.priced_as]
    if unpriced:
        yield _describe_stand_ins(unpriced)
    if any(row.figures for row in rows):
        yield "saved: by hiding, net."
    if any(map(_has_caching_saved, rows)):
        yield "by cache: saved by Elision's cache breakpoints if the client sets none."
    if any(row.figures and row.figures.mode for row in rows):
        yield "shadow: requests were sent unchanged, and the figures are hypothetical."


def _describe_stand_ins(unpriced: Sequence[SessionFigures]) -> str:
    """Return which sessions are priced as another model than their own, whose prices are not known."""
    stand_in = unpriced[0].priced_as
    models = sorted({found.model for found in unpriced if found.model})
    notes = []
    if models:
        more = f" and {len(models) - _NAMED_MODELS} more" if len(models) > _NAMED_MODELS else ""
        named = ", ".join(format_session_name(model)[:60] for model in models[:_NAMED_MODELS]) + more
        notes.append(f"No prices are known for {named}: priced as {stand_in}.")
    if not all(found.model for found in unpriced):
        notes.append(f"Sessions without a known model are priced as {stand_in}.")
    return " ".join([*notes, "--model prices all alike."])
