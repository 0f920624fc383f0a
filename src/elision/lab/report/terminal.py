"""A report in the terminal: whole columns of a table are left out where room is short, and no number is broken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment as Piece
from rich.style import Style
from rich.table import Table as Grid
from rich.text import Text

from elision.lab.report.figures import format_plural, neutralize_text, wrap_text
from elision.lab.report.report import (
    BarChart,
    Block,
    Chart,
    Divider,
    Facts,
    Glossary,
    Mood,
    Passage,
    Report,
    Sentence,
    Table,
    TableRow,
    ViewEntry,
    Words,
    fold_passage,
    join_words,
)

#: Before the recommended strategy, and before the others.
MARK: Final = "▸ "
NO_MARK: Final = "  "
#: Cells of a bar at most, and of a sentence in a table at least.
_BAR: Final = 40
_SENTENCE: Final = 24
#: Columns that take the room that is left, up to so many cells if each is one line.
_FLEXIBLE: Final = ("wrap", "clip")
_CLIPPED: Final = 60

STYLES: Final[dict[Mood, str]] = {
    "": "",
    "strong": "bold",
    "quiet": "bright_black",
    "heading": "italic",
    "warning": "yellow",
    "better": "green",
    "worse": "red",
    "note": "cyan",
    "masked": "yellow",
    "folded": "bright_blue",
    "clipped": "red",
    "summary": "magenta",
    "system": "blue",
    "user": "cyan",
    "assistant": "green",
    "result": "white",
    "thinking": "italic bright_black",
}


def print_report(report: Report, console: Console) -> None:
    """Print everything that a person needs to judge."""
    _Printer(console, "with --html and --json" if report.has_page else "with --json").print_report(report)


def build_text(words: Words, mood: Mood = "") -> Text:
    """Return `words` with their colours, and nothing in them that acts on a terminal."""
    pieces = [words] if isinstance(words, str) else words
    text = Text(style=STYLES[mood])
    for piece in pieces:
        plain, own = (piece, "") if isinstance(piece, str) else piece
        text.append(_neutralize_lines(plain), style=STYLES[own] or None)
    return text


def _neutralize_lines(text: str) -> str:
    return "\n".join(map(neutralize_text, text.split("\n")))


class _Printer:
    """Prints to `console`. more: where columns and rows are that are not shown."""

    def __init__(self, console: Console, more: str) -> None:
        self._console = console
        self._more = more
        self._headings: set[str] = set()

    def print_report(self, report: Report) -> None:
        if not report.headline:
            for block in (block for section in report.sections for block in section.blocks):
                self.print_block(block, indent=0)
            return
        print_text(self._console, _neutralize_lines(report.headline), "bold")
        for sentence in report.scope:
            print_text(self._console, _neutralize_lines(join_words(sentence.words)), STYLES[sentence.mood or "quiet"])
        for section in report.sections:
            if section.only == "page" or not section.blocks:
                continue
            self._console.print()
            if section.title:
                print_text(self._console, _neutralize_lines(section.title), "bold")
            for block in section.blocks:
                self.print_block(block, indent=2)

    def _print(self, what: RenderableType, *, whole: bool = False) -> None:
        # Nothing in a recorded text is markup, an emoji's code or a number to be coloured.
        self._console.print(what, markup=False, emoji=False, highlight=False, soft_wrap=whole)

    def print_block(self, block: Block, indent: int) -> None:
        if isinstance(block, Sentence):
            if block.column in ("", *self._headings):
                self._print_sentence(block, indent)
        elif isinstance(block, Table):
            self._print_table(block, indent)
        elif isinstance(block, Facts):
            self._print_facts(block)
        elif isinstance(block, Glossary):
            for word, meaning, column in block.words:
                self.print_block(Sentence(f"{word}: {meaning}.", column=column), indent)
        elif isinstance(block, BarChart):
            self._print_bars(block)
        elif isinstance(block, Chart):
            for row in block.rows(self._console.width) if block.rows else ():
                self._print(build_text(row))
        elif isinstance(block, Divider):
            self._console.print()
            self._print(Rule(build_text(block.text, "quiet"), style=STYLES["quiet"], align="left", characters="·"))
        elif isinstance(block, ViewEntry):
            self._print_entry(block)

    def _print_sentence(self, sentence: Sentence, indent: int) -> None:
        if sentence.clipped:
            line = build_text(sentence.words, sentence.mood)
            line.truncate(max(20, self._console.width - indent), overflow="ellipsis")
            self._print(Padding(line, (0, 0, 0, indent), expand=False))
        elif isinstance(sentence.words, str) and not sentence.whole:
            print_text(self._console, _neutralize_lines(sentence.words), STYLES[sentence.mood], indent=indent)
        elif sentence.whole:
            self._print(Text.assemble(" " * indent, build_text(sentence.words, sentence.mood)), whole=True)
        else:
            self._print(Padding(build_text(sentence.words, sentence.mood), (0, 0, 0, indent), expand=False))

    def _print_facts(self, facts: Facts) -> None:
        grid = Grid.grid(padding=(0, 2))
        grid.add_column(style=STYLES["quiet"], no_wrap=True, min_width=8)
        grid.add_column(overflow="fold")
        for name, words in facts.rows:
            grid.add_row(build_text(name), build_text(words))
        if grid.row_count:
            self._print(grid)

    def _print_entry(self, entry: ViewEntry) -> None:
        style = STYLES[entry.mood]
        head = Grid.grid(expand=True, padding=(0, 1))
        head.add_column(ratio=1)
        head.add_column(justify="right", no_wrap=True, style=STYLES["quiet"])
        head.add_row(build_text(entry.title, entry.mood), entry.size)
        room = max(20, self._console.width - 2)
        body = [
            Text.assemble(build_text(each.before), build_passage(each, room, STYLES[each.mood])) for each in entry.body
        ]
        self._print(BarredBlock(Group(head, *body), entry.mark, style))

    # -- tables and bars ------------------------------------------------------------------------------------------

    def _print_table(self, table: Table, indent: int) -> None:
        shown = table.rows[: table.few or None]
        places = fit_columns(table, shown, self._console.width)
        self._headings |= {table.columns[place].heading for place in places}
        self._print(build_table(table, shown, places, self._console.width))
        missing = len(table.columns) - len(places)
        if missing:
            note = f"{format_plural(missing, 'more column')} {self._more}."
            self._print_sentence(Sentence(note, "quiet"), indent)
        if len(table.rows) > len(shown) and table.rest:
            rest = f"{format_plural(len(table.rows) - len(shown), f'more {table.rest}')} {self._more}."
            self._print_sentence(Sentence(rest, "quiet"), indent)

    def _print_bars(self, chart: BarChart) -> None:
        """Print the few bars that matter most, a line each: name, bar, amount."""
        bars = [chart.bars[place] for place in chart.few] or list(chart.bars)
        names = [neutralize_text(bar.name) for bar in bars]
        amounts = max((cell_len(bar.amount) for bar in bars), default=0)
        widest = min(max(map(cell_len, names), default=0), max(12, self._console.width // 3))
        room = max(4, min(_BAR, self._console.width - widest - amounts - 4))
        largest = max((bar.size for bar in bars), default=0.0) or 1.0
        for name, bar in zip(names, bars, strict=True):
            cells = max(1, round(room * bar.size / largest)) if bar.size else 0
            style = STYLES[bar.mood]
            label = set_cell_size(_clip(name, widest, "end"), widest)
            self._print(Text.assemble((label, style), "  ", ("█" * cells, style or STYLES["quiet"]), f" {bar.amount}"))


def fit_columns(table: Table, rows: Sequence[TableRow], width: int) -> list[int]:
    """Return the places of the columns that are shown in `width` cells: the first, and the most needed that fit."""
    columns = list(table.columns[1:])
    texts = [
        [column.title, *(join_words(row.cells[place]) for row in rows if place < len(row.cells))]
        for place, column in enumerate(columns, start=1)
    ]
    measured = [
        [text[:_SENTENCE] for text in text_of] if column.side in _FLEXIBLE else text_of
        for column, text_of in zip(columns, texts, strict=True)
    ]
    name = measure_names(table, rows)
    if table.least is not None:
        name = min(name, table.least)
    room = width - name
    kept: list[int] = []
    for place in sorted(range(len(columns)), key=lambda place: -columns[place].keep):
        room -= measure_column(measured[place])
        if room < 0:
            break
        kept.append(place + 1)
    return [0, *sorted(set(kept) - table.list_extra())]


def measure_names(table: Table, rows: Sequence[TableRow]) -> int:
    """Return the cells that the names of the rows take, their marks included."""
    indent = len(MARK) if _has_marks(table) else 0
    widest = max(map(cell_len, table.columns[0].title.split("\n")), default=0)
    for row in rows:
        mark = indent if row.cells[1:] else 0
        widest = max([widest, *(mark + cell_len(line) for line in join_words(row.cells[0]).split("\n"))])
    return widest


def build_table(table: Table, rows: Sequence[TableRow], places: Sequence[int], width: int) -> Grid:
    """Return the columns at `places` of `rows`. The names give way, never a figure."""
    # Light enough that eight columns fit into 80 cells.
    grid = Grid(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="bold")
    taken = flexible = 0
    for place in places[1:]:
        texts = [table.columns[place].title, *(join_words(row.cells[place]) for row in rows if row.cells[1:])]
        if table.columns[place].side in _FLEXIBLE:
            flexible += min(measure_column(texts), _SENTENCE + GAP)
        else:
            taken += measure_column(texts)
    room = max(4, width - taken - flexible)
    clipped_room = min(_CLIPPED, width - taken - min(room, measure_names(table, rows)) - GAP)
    has_marks = _has_marks(table)
    _add_columns(grid, table, rows, places)
    for row in rows:
        if len(row.cells) == 1:
            heading = build_text(row.cells[0], row.mood or "heading")
            heading.truncate(room, overflow="ellipsis")
            grid.add_row(heading)
            continue
        cells = [build_text(row.cells[place]) for place in places[1:]]
        for place, cell in zip(places[1:], cells, strict=True):
            if table.columns[place].side == "clip":
                cell.truncate(clipped_room, overflow="ellipsis")
        name = _build_name(row, room, table.clip, is_marked=has_marks)
        grid.add_row(name, *cells, style="bold" if row.recommended else STYLES[row.mood])
    return grid


def _add_columns(grid: Grid, table: Table, rows: Sequence[TableRow], places: Sequence[int]) -> None:
    wraps = any(table.columns[place].side == "wrap" for place in places)
    is_tall = wraps or any("\n" in join_words(row.cells[0]) for row in rows)
    for place in places:
        column = table.columns[place]
        grid.add_column(
            Text(column.title),
            justify="right" if place and column.side == "right" else "left",
            no_wrap=column.side != "wrap",
            # A heading of two lines ends above its figures; beside a long sentence figures are at its first line.
            vertical="top" if is_tall else "bottom",
            overflow="fold" if column.side == "wrap" else "ellipsis",
        )


def _build_name(row: TableRow, room: int, clip: str, *, is_marked: bool) -> Text:
    """Return the name of a row in `room` cells, with its mark where rows of the table have one."""
    mark = ""
    if is_marked:
        mark = MARK if row.recommended else NO_MARK
    name = build_text(row.cells[0])
    if max(map(cell_len, name.plain.split("\n"))) > room - len(mark):
        name = Text(_clip(name.plain, room - len(mark), clip))
    return Text.assemble(mark, name)


def _has_marks(table: Table) -> bool:
    return any(row.recommended for row in table.rows) or any(len(row.cells) == 1 for row in table.rows)


def _clip(text: str, cells: int, end: str) -> str:
    """Return `text`, or as much of it as fits into `cells` cells; paths differ at their ends, names at their starts."""
    if cell_len(text) <= cells:
        return text
    if end == "end":
        return f"{set_cell_size(text, max(1, cells - 1))}…"
    while cell_len(text) >= cells:
        text = text[max(1, (cell_len(text) - cells) // 2) :]
    return f"…{text}"


# -- what fits --------------------------------------------------------------------------------------------------------

#: Cells between two columns.
GAP = 2


def measure_column(column: Sequence[str]) -> int:
    """Cells that a column's heading and cells take, its gap included; a heading may break at its newlines."""
    return GAP + max((cell_len(line) for text in column for line in text.split("\n")), default=0)


def print_text(console: Console, text: str | None, style: str = "", *, indent: int = 0) -> None:
    """Print `text`, in which nothing is markup, and no line break parts a number from its unit; None prints nothing."""
    if text:
        lines = wrap_text(text, console.width - indent)
        console.print(Padding(Text("\n".join(lines), style=style), (0, 0, 0, indent), expand=False))


def build_passage(passage: Passage, width: int, style: str) -> Text:
    """Return a passage for a terminal of `width` cells, with a count in place of what is left out."""
    cut = fold_passage(passage, width)
    if not (cut.head.strip() or cut.rows):
        return Text("(empty)", style="italic bright_black")
    line = Text(cut.head, style=style)
    if cut.rows:
        line.append(f"\n⋯ {cut.rows:,} more rows, {cut.letters:,} characters ⋯\n", style="italic bright_black")
        line.append(cut.tail)
    return line


@dataclass(frozen=True, slots=True)
class BarredBlock:
    """`body` with `mark` in front of every row."""

    body: RenderableType
    mark: str
    colour: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - len(self.mark) - 1
        style = Style.parse(self.colour)
        for row in console.render_lines(self.body, options.update(width=width), pad=False):
            yield Piece(f"{self.mark} ", style)
            yield from row
            yield Piece.line()
