"""What `elision sessions` shows: a line a session, as many columns as fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elision.cli.amounts import format_duration
from elision.cli.savings import choose_colour
from elision.cli.session_figures import SessionFigures
from elision.cli.session_names import format_session_name
from elision.lab.report import figures
from elision.lab.report.fitting import GAP, choose_columns, open_table
from elision.stores.store import SessionInfo

#: Models without prices that are named.
_NAMED_MODELS: Final = 3
#: Cells that a name is given at least, and at most where there are other columns to show.
_NAME: Final = (26, 48)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSession:
    """A session. front: the tree before its name. figures: None where its log cannot be read."""

    front: str
    info: SessionInfo
    figures: SessionFigures | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SessionColumn:
    """keep: the higher, the longer it stays where room is short. needed: whether any row has something to say."""

    title: str
    keep: int
    cell: Callable[[ListedSession], str]
    mood: Callable[[ListedSession], str] = lambda row: ""
    left: bool = False
    needed: Callable[[ListedSession], bool] = lambda row: True


def render_sessions(
    rows: Sequence[ListedSession], number: int, now: float, width: int, *, has_notes: bool
) -> RenderableType:
    """The table, and with `has_notes` what its columns mean. number: sessions that there are."""
    if not rows:
        return Text("the store keeps no sessions yet")
    columns = [each for each in _build_columns(now) if any(map(each.needed, rows))]
    texts = [[each.title, *map(each.cell, rows)] for each in columns]
    widest = max(cell_len(_find_name(row)) for row in rows)
    name = min(max(widest, len("session")), _NAME[1], max(_NAME[0], width // 3))
    kept = [columns[place] for place in choose_columns(texts, [each.keep for each in columns], width - name)]
    room = width - sum(GAP + max(map(cell_len, texts[columns.index(each)])) for each in kept)
    result = _build_table(min(widest, room) if widest > name else name, kept)
    for row in rows:
        result.add_row(
            _name_cell(row, min(widest, room)), *(Text(each.cell(row), style=each.mood(row)) for each in kept)
        )
    notes = _list_notes(rows, number, len(columns) - len(kept)) if has_notes else ()
    return Group(result, *_list_faults(rows), *notes)


def _build_table(name: int, columns: Sequence[_SessionColumn]) -> Table:
    result = open_table()
    result.add_column("session", no_wrap=True, min_width=name)
    for column in columns:
        result.add_column(Text(column.title), justify="left" if column.left else "right", no_wrap=True)
    return result


def _name_cell(row: ListedSession, room: int) -> Text:
    """The name, cut at its end where it must be; what it came by stands quietly behind it."""
    name = _find_name(row)
    if cell_len(name) > room:
        return Text(f"{set_cell_size(name, room - 1)}…")
    text = Text.assemble((row.front, "dim"), (format_session_name(row.info.key), "" if row.front else "bold"))
    text.append(_describe_relation(row), style="dim")
    return text


def _find_name(row: ListedSession) -> str:
    return f"{row.front}{format_session_name(row.info.key)}{_describe_relation(row)}"


def _describe_relation(row: ListedSession) -> str:
    return f" ({row.info.relation or 'child'})" if row.front else ""


# -- columns ----------------------------------------------------------------------------------------------------------


def _build_columns(now: float) -> list[_SessionColumn]:
    changed = _SessionColumn(
        title="changed", keep=10, cell=lambda row: f"{format_duration(now - row.info.changed)} ago"
    )
    turns = _SessionColumn(title="turns", keep=11, cell=lambda row: figures.format_count(row.info.turns))
    return [turns, *_COUNTED, changed, *_SAID]


def _figure_cell(cell: Callable[[SessionFigures], str]) -> Callable[[ListedSession], str]:
    return lambda row: cell(row.figures) if row.figures and row.figures.calls else figures.NOTHING


def _has_caching_saved(row: ListedSession) -> bool:
    return row.figures is not None and row.figures.by_cache > 0


def format_usd(usd: float) -> str:
    """USD that may be negative."""
    if usd < 0:
        return f"{figures.MINUS}{figures.format_usd(-usd)}"
    return figures.format_usd(usd)


_COUNTED: Final = (
    _SessionColumn(title="calls", keep=2, cell=_figure_cell(lambda found: figures.format_count(found.calls))),
    _SessionColumn(title="sent", keep=8, cell=_figure_cell(lambda found: figures.format_tokens(found.sent_tokens))),
    _SessionColumn(title="of raw", keep=5, cell=_figure_cell(lambda found: figures.format_tokens(found.raw_tokens))),
    _SessionColumn(
        title="tokens",
        keep=6,
        cell=_figure_cell(lambda found: figures.format_change(found.sent_tokens / max(1, found.raw_tokens))),
    ),
    _SessionColumn(title="cost", keep=9, cell=_figure_cell(lambda found: format_usd(found.cost))),
    _SessionColumn(
        title="saved",
        keep=12,
        cell=_figure_cell(lambda found: format_usd(found.saved)),
        mood=lambda row: choose_colour(row.figures.saved if row.figures else 0.0),
    ),
    _SessionColumn(
        title="by cache",
        keep=5,
        cell=_figure_cell(lambda found: format_usd(found.by_cache)),
        needed=_has_caching_saved,
    ),
    _SessionColumn(title="rewrites", keep=4, cell=_figure_cell(lambda found: figures.format_count(found.rewrites))),
    _SessionColumn(
        title="summaries",
        keep=3,
        cell=_figure_cell(
            lambda found: f"{found.summaries} +{found.failed_summaries} failed".removesuffix(" +0 failed")
        ),
    ),
)
_SAID: Final = (
    _SessionColumn(
        title="mode",
        keep=14,
        cell=lambda row: row.figures.mode if row.figures else "",
        mood=lambda row: "yellow",
        left=True,
        needed=lambda row: bool(row.figures and row.figures.mode),
    ),
    _SessionColumn(
        title="guards",
        keep=13,
        cell=lambda row: row.figures.guard if row.figures else "",
        mood=lambda row: "yellow",
        left=True,
        needed=lambda row: bool(row.figures and row.figures.guard),
    ),
    _SessionColumn(
        title="model",
        keep=1,
        cell=_figure_cell(lambda found: format_session_name(found.model) if found.model else figures.NOTHING),
        left=True,
    ),
    _SessionColumn(
        title="strategy",
        keep=0,
        cell=_figure_cell(lambda found: format_session_name(found.strategy)[:40]),
        left=True,
    ),
)


# -- below the table --------------------------------------------------------------------------------------------------


def _list_faults(rows: Sequence[ListedSession]) -> Iterator[Text]:
    for row in rows:
        if row.fault:
            yield Text(
                f"{format_session_name(row.info.key)} cannot be read: {format_session_name(row.fault)}", style="red"
            )


def _list_notes(rows: Sequence[ListedSession], number: int, left_out: int) -> Iterator[Text]:
    notes = []
    if number > len(rows):
        notes.append(f"{figures.format_plural(number - len(rows), 'more session')}; --all lists them")
    unpriced = [row.figures for row in rows if row.figures and row.figures.priced_as]
    models = sorted({found.model for found in unpriced if found.model})
    if models:
        named = ", ".join(format_session_name(model)[:60] for model in models[:_NAMED_MODELS])
        more = f" and {len(models) - _NAMED_MODELS} more" if len(models) > _NAMED_MODELS else ""
        notes.append(f"no prices are known for {named}{more}: priced as {unpriced[0].priced_as}")
    if not all(found.model for found in unpriced):
        notes.append(f"sessions without a known model are priced as {unpriced[0].priced_as}")
    if unpriced:
        notes.append("--model prices all alike")
    if any(row.figures for row in rows):
        notes.append("saved: by hiding, net")
    if any(map(_has_caching_saved, rows)):
        notes.append("by cache: saved by cache breakpoints of ours, where the client sets none")
    if any(row.figures and row.figures.mode for row in rows):
        notes.append("shadow: requests went out as they came, and the figures are what would have been")
    if left_out:
        notes.append(f"{figures.format_plural(left_out, 'more column')} in a wider terminal, or with --json")
    if notes:
        yield Text(". ".join(note[0].upper() + note[1:] for note in notes) + ".", style="dim")
