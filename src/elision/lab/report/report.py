"""A report as values: headings, sentences, tables and charts. A command builds one; three renderers show it.

    replay, tune, audit, outcomes, sessions, show, view ── build ──▶ Report ─┬─▶ terminal.print_report(report, console)
                                                                             ├─▶ page.build_page(report)
                                                                             └─▶ encode_report(report)      (elision/1)

A report opens with one headline and one chart. No renderer cuts a figure off: a terminal leaves out whole columns, and
on a phone a row of a table is a card. A table has seven columns until the reader asks for more (`MOST_COLUMNS`).

Texts may come from recordings. Builders hand them on as they are; the renderers take the harm out of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from elision.trajectory.foreign_text import make_visible

if TYPE_CHECKING:
    from elision.lab.report.svg import Drawing, Tip

#: The shape of what --json prints.
SCHEMA: Final = "elision/1"
#: Columns of a table that are shown before the reader asks for more: on a page by a click, in a terminal by --json.
MOST_COLUMNS: Final = 7

#: What a piece of text is, for both renderers to colour: strong, quiet, warning, better, worse; of a session masked,
#: folded, clipped, summary, note; of a view who speaks: system, user, assistant. "" for plain text.
Mood: TypeAlias = str
#: Where the cells of a column are.
Side: TypeAlias = Literal["left", "right", "wrap", "clip"]
#: A text, or pieces of one: plain, or with a mood.
Words: TypeAlias = str | Sequence[str | tuple[str, Mood]]


@dataclass(frozen=True, slots=True)
class Sentence:
    """A paragraph. whole: never broken, since it is copied: a command, an address. clipped: one line of a terminal.

    column: the one that it explains; a terminal that does not show the column leaves the sentence out.
    """

    words: Words
    mood: Mood = ""
    whole: bool = False
    clipped: bool = False
    column: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Names, each with what is to be said of it."""

    rows: Sequence[tuple[str, Words]]


@dataclass(frozen=True, slots=True)
class Glossary:
    """Word, meaning, and the column that it explains: a terminal leaves words out whose column it does not show."""

    words: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The figures that a page puts in large type: name, value, more. A terminal has them in its table."""

    tiles: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class Column:
    """title: may break at its newlines. keep: the higher, the longer it stays where room is short.

    side: of its cells; "wrap" for sentences, which take several lines; "clip" for words of one line whose end is cut
    off where room is short.
    """

    title: str
    keep: float = 0
    side: Side = "right"

    @property
    def heading(self) -> str:
        """The title on one line."""
        return self.title.replace("\n", " ").strip()


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row; of one cell, it is the heading of those below. slot: of the palette, for a page. link: of its name."""

    cells: Sequence[Words]
    mood: Mood = ""
    slot: str = ""
    recommended: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """The first column names the rows, and stays. few: rows that a terminal shows; 0 for all.

    least: cells that the names keep where room is short; None if they are never cut. clip: which end of them goes.
    rest: what is said of the rows beyond `few`, after their number.
    """

    columns: Sequence[Column]
    rows: Sequence[TableRow]
    few: int = 0
    least: int | None = None
    clip: Literal["start", "end"] = "end"
    rest: str = ""

    def list_extra(self) -> frozenset[int]:
        """Return the places of the columns that wait until the reader asks for more: the least needed."""
        places = sorted(range(1, len(self.columns)), key=lambda place: -self.columns[place].keep)
        return frozenset(places[MOST_COLUMNS - 1 :])


@dataclass(frozen=True, slots=True)
class Bar:
    """parts: slot of the palette, name and size of each. amount: what stands at its end. mark: a size to mark, such as
    that of hindsight."""

    name: str
    amount: str
    parts: Sequence[tuple[str, str, float]]
    mark: float | None = None
    mood: Mood = ""
    tip: Tip = ()

    @property
    def size(self) -> float:
        return sum(size for _, _, size in self.parts)


@dataclass(frozen=True, slots=True)
class BarChart:
    """Stacked bars. name: of the chart's element. what: for who cannot see it. line: a size that all compare with.

    few: places of the bars that a terminal draws: what was paid, and what Elision would cost.
    """

    name: str
    what: str
    bars: Sequence[Bar]
    axis: str
    line: float | None = None
    few: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of another kind. draw: as SVG. rows: its lines in a terminal so many cells wide; None for none."""

    name: str
    what: str
    draw: Callable[[Drawing], None] = lambda drawing: None
    rows: Callable[[int], Sequence[Words]] | None = None


@dataclass(frozen=True, slots=True)
class Explorer:
    """The runs of a replay, to sort and to look at call by call; for a page, whose script reads `data`.

    lines: of each strategy its name, slot, dash, and whether its line is shown at first. about: of the chart and of the
    table a sentence each.
    """

    data: Mapping[str, Any]
    lines: Sequence[tuple[str, str, tuple[int, int], bool]]
    about: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Passage:
    """A recorded text: its first and last rows where it is long. rows: how many of each; None for all."""

    text: str
    mood: Mood = ""
    rows: tuple[int, int] | None = (7, 3)
    before: Words = ""


@dataclass(frozen=True, slots=True)
class ViewEntry:
    """A message of a view. mark: in front of each of its rows. size: at the right."""

    title: Words
    mood: Mood
    size: str = ""
    body: Sequence[Passage] = ()
    mark: str = "▌"


@dataclass(frozen=True, slots=True)
class Divider:
    """Where a turn of a view begins."""

    text: str


Block: TypeAlias = Sentence | Facts | Glossary | Tiles | Table | BarChart | Chart | Explorer | ViewEntry | Divider


@dataclass(frozen=True, slots=True)
class Section:
    """title: "" for none. text: said below it, on a page. only: the renderer that shows it, if not both."""

    title: str
    blocks: Sequence[Block]
    text: str = ""
    only: Literal["", "terminal", "page"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """What made a report. version: of Elision. date: ISO, of the day. recorded: models and bills of the runs."""

    version: str
    date: str
    command: str
    recorded: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """command: which made it, such as "replay". headline: "" for an answer of a few lines, which are not indented.

    scope: the lines below the headline.

    data: what --json prints, which is documented in the reference. has_page: whether the command writes one. is_paged:
    whether a terminal shows it in the user's pager. made_by: None says nothing of it. footer: of a page, more lines.
    """

    command: str
    headline: str
    scope: Sequence[Sentence] = ()
    sections: Sequence[Section] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    has_page: bool = True
    is_paged: bool = False
    made_by: Provenance | None = None
    footer: Sequence[tuple[str, str]] = ()


def encode_report(report: Report) -> dict[str, Any]:
    """Return what --json prints: the schema, the command, the headline if any, and the figures by name."""
    headline = {"headline": report.headline} if report.headline else {}
    return {"schema": SCHEMA, "command": report.command, **headline, **report.data}


def join_words(words: Words) -> str:
    """Return the plain text of `words`."""
    if isinstance(words, str):
        return words
    return "".join(piece if isinstance(piece, str) else piece[0] for piece in words)


# -- recorded texts: in rows, with the middle of a long one left out --------------------------------------------------


#: Fewer hidden rows than this are not worth folding.
LEAST_FOLDED_ROWS = 3


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A text as it is shown: its beginning and end; between them `rows` rows, `letters` letters, are left out."""

    head: str
    tail: str = ""
    rows: int = 0
    letters: int = 0


def fold_text(text: str, head: int, tail: int, width: int) -> FoldedText:
    """`text` in at most `head` + `tail` rows of `width` letters; whole where fewer than 3 rows would be left out."""
    rows = [row for line in text.split("\n") for row in _wrap_line(line, width)]
    hidden = len(rows) - head - tail
    if hidden < LEAST_FOLDED_ROWS:
        return FoldedText(text)
    first = "".join(rows[:head]).removesuffix("\n")
    last = "".join(rows[head + hidden :]).removesuffix("\n")
    return FoldedText(first, last, hidden, len(text) - len(first) - len(last))


def _wrap_line(line: str, width: int) -> Iterator[str]:
    """The rows that a line takes, broken at spaces where there are some; the last of them ends with its newline."""
    start = 0
    while len(line) - start > width:
        space = line.rfind(" ", start + 1, start + width + 1)
        end = start + width if space < 0 else space + 1
        yield line[start:end]
        start = end
    yield f"{line[start:]}\n"


def fold_passage(passage: Passage, width: int) -> FoldedText:
    """Return the text of `passage` in rows of `width` letters, as much of it as it asks for."""
    clean = make_visible(passage.text).expandtabs(4).strip("\n")
    return FoldedText(clean) if passage.rows is None else fold_text(clean, *passage.rows, width=width)
