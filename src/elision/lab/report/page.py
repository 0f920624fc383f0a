"""A report as one self-contained page. It asks the network for nothing.

Text of a recording reaches a page in two ways only: escaped into the markup here, or as JSON that page.js puts into the
document as text. The policy in the page's head lets nothing run but the page's own script.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from string import Template
from typing import Any, Final

from elision.lab.report.charts import draw_bars
from elision.lab.report.figures import bind_units, format_count, neutralize_text
from elision.lab.report.report import (
    BarChart,
    Chart,
    Divider,
    Explorer,
    Facts,
    Glossary,
    Passage,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
    Tiles,
    ViewEntry,
    Words,
    fold_passage,
    join_words,
)
from elision.lab.report.svg import PADDING, PAGE, PAPER, WIDTH, Drawing, build_css

#: Pixels of a chart on a phone, a tablet and a desk: class of the drawing (page.css) -> its width.
WIDTHS: Final = {"small": 338, "middle": 680, "large": 1160}
#: Rows of a table that a page holds at most; JSON has all.
MOST_ROWS: Final = 300
_BADGE: Final = '<span class="badge">recommended</span>'
#: Letters of a row of a recorded text.
_ROW: Final = 130


def build_page(report: Report) -> str:
    """Return the page, to be written as UTF-8."""
    sections = [section for section in report.sections if section.only != "terminal" and section.blocks]
    body = "\n".join(map(_show_section, sections))
    explorer = next((block for each in sections for block in each.blocks if isinstance(block, Explorer)), None)
    scripts = [_read_asset("page.js")] if explorer is not None or "data-tip=" in body else []
    style = _build_style()
    data = f'<script type="application/json" id="study">{embed_json(explorer.data)}</script>' if explorer else ""
    brand = f"Elision {report.command}"
    return Template(_read_asset("page.html")).substitute(
        policy=_build_policy(scripts, style),
        brand=escape_text(brand),
        title=escape_text(f"{brand}: {report.headline}"),
        style=style,
        headline=escape_text(report.headline),
        scope="".join(map(_show_sentence, report.scope)),
        body=body,
        footer=_list_provenance(report),
        data=data,
        scripts="".join(f"<script>{script}</script>" for script in scripts),
    )


def draw_picture(report: Report) -> str:
    """Return the first chart of `report` as SVG, with the headline and what is said of it."""
    section, chart = next(
        (section, block)
        for section in report.sections
        for block in section.blocks
        if isinstance(block, BarChart | Chart)
    )
    drawing = Drawing(WIDTH, PAPER)
    scope = [join_words(sentence.words) for sentence in report.scope]
    drawing.add_heading(report.headline, [*scope, *filter(None, [section.text])])
    _draw_chart(chart)(drawing)
    return drawing.render(padding=PADDING)


def escape_text(text: str) -> str:
    """Return `text` as markup that shows it."""
    return bind_units(html.escape(neutralize_text(text)))


def embed_json(value: Any) -> str:
    """Return `value` as JSON that is safe inside a script element, whatever its strings hold."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# -- the frame --------------------------------------------------------------------------------------------------------


def _read_asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _build_policy(scripts: Sequence[str], style: str) -> str:
    def hash_sources(texts: Iterable[str]) -> str:
        hashes = (base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts)
        return " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"

    return (
        f"default-src 'none'; script-src {hash_sources(scripts)}; style-src {hash_sources([style])};"
        " base-uri 'none'; form-action 'none'"
    )


def _build_style() -> str:
    text = (
        _read_asset("page.css")
        .replace("--light-slots: 0;", build_css(dark=False))
        .replace("--dark-slots: 0;", build_css(dark=True))
    )
    # No style attribute passes the policy, so that what is coloured by strategy has a class.
    return text + "".join(
        f".c-{slot}{{background:var(--{slot});stroke:var(--{slot});fill:var(--{slot})}}" for slot in sorted(PAGE.slots)
    )


def _list_provenance(report: Report) -> str:
    made_by = report.made_by
    if made_by is None:
        return ""
    first = ("Made by", f"Elision {made_by.version} on {made_by.date}"), ("Command", made_by.command)
    lines = (*first, ("Recorded as", made_by.recorded), *report.footer)
    return "".join(f"<dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd>" for name, value in lines if value)


# -- blocks -----------------------------------------------------------------------------------------------------------


def _show_section(section: Section) -> str:
    title = f"<h2>{escape_text(section.title)}</h2>" if section.title else ""
    text = f'<p class="under">{escape_text(section.text)}</p>' if section.text else ""
    blocks = "".join(_SHOWN_BY[type(block)](block) for block in section.blocks)
    return f"<section>{title}{text}{blocks}</section>"


def _show_facts(facts: Facts) -> str:
    rows = "".join(f"<dt>{escape_text(name)}</dt><dd>{_show_words(words)}</dd>" for name, words in facts.rows)
    return f'<dl class="facts">{rows}</dl>'


def _show_glossary(glossary: Glossary) -> str:
    words = "".join(f"<dt>{escape_text(word)}</dt><dd>{escape_text(text)}</dd>" for word, text, _ in glossary.words)
    return f'<dl class="glossary">{words}</dl>'


def _show_tiles(tiles: Tiles) -> str:
    shown = "".join(
        f"<div><dt>{name}</dt><dd><strong>{value}</strong><small>{more}</small></dd></div>"
        for name, value, more in (map(escape_text, tile) for tile in tiles.tiles)
    )
    return f'<dl class="tiles">{shown}</dl>'


def _show_words(words: Words) -> str:
    pieces = [words] if isinstance(words, str) else words
    return "".join(
        _escape_lines(piece)
        if isinstance(piece, str)
        else f'<span class="m-{piece[1]}">{_escape_lines(piece[0])}</span>'
        for piece in pieces
    )


def _escape_lines(text: str) -> str:
    return "<br>".join(map(escape_text, text.split("\n")))


def _show_sentence(sentence: Sentence) -> str:
    words = _show_words(sentence.words)
    named = f' class="m-{sentence.mood}"' if sentence.mood else ""
    return f"<p{named}><code>{words}</code></p>" if sentence.whole else f"<p{named}>{words}</p>"


def _place_chart(chart: BarChart | Chart) -> str:
    """Return the chart once for each of WIDTHS, since text that is scaled down cannot be read; the style chooses."""
    drawings = []
    for size, width in WIDTHS.items():
        drawing = Drawing(width, PAGE)
        _draw_chart(chart)(drawing)
        drawings.append(drawing.render(class_=size))
    what = escape_text(chart.what)
    return f'<div class="chart" id="{chart.name}" role="img" aria-label="{what}">{"".join(drawings)}</div>'


def _draw_chart(chart: BarChart | Chart) -> Callable[[Drawing], None]:
    if isinstance(chart, Chart):
        return chart.draw
    return lambda drawing: draw_bars(chart, drawing)


def _show_table(table: Table) -> str:
    """Return a table of its most needed columns; a box shows the others. On a phone a row is a card (page.css)."""
    extra = table.list_extra()
    classes = []
    for place, column in enumerate(table.columns):
        side = ""
        if column.side == "wrap":
            side = "sentence"
        elif column.side in ("left", "clip") and place:
            side = "word"
        classes.append(" ".join(filter(None, ("extra" if place in extra else "", side))))
    heads = [escape_text(column.heading) for column in table.columns]
    head = "".join(
        f'<th scope="col"{_name_class(name)}>{title}</th>' for title, name in zip(heads, classes, strict=True)
    )
    rows = "".join(_show_row(row, heads, classes) for row in table.rows[:MOST_ROWS])
    box = ""
    if extra:
        box = f'<label class="columns"><input type="checkbox"> Show all {len(heads)} columns</label>'
    rest = len(table.rows) - MOST_ROWS
    more = f'<p class="under">{format_count(rest)} more with --json.</p>' if rest > 0 else ""
    return (
        f'<div class="table">{box}<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{more}</div>"
    )


def _name_class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _show_row(row: TableRow, heads: Sequence[str], classes: Sequence[str]) -> str:
    if len(row.cells) == 1:
        return f'<tr class="group"><th scope="rowgroup" colspan="{len(heads)}">{_show_words(row.cells[0])}</th></tr>'
    name = f"<bdi>{_show_words(row.cells[0])}</bdi>"
    if row.link:
        name = f'<a href="{html.escape(row.link)}">{name}</a>'
    dot = f'<span class="dot c-{row.slot}"></span>' if row.slot else ""
    cells = "".join(
        f'<td data-title="{head}"{_name_class(named)}>{_show_words(words)}</td>'
        for words, head, named in zip(row.cells[1:], heads[1:], classes[1:], strict=True)
    )
    badge = _BADGE if row.recommended else ""
    kind = "recommended" if row.recommended else f"m-{row.mood}" if row.mood else ""
    return f"<tr{_name_class(kind)}><td{_name_class(classes[0])}>{dot}{name}{badge}</td>{cells}</tr>"


def _show_explorer(explorer: Explorer) -> str:
    keys = ""
    for place, (name, slot, dash, is_shown) in enumerate(explorer.lines):
        dashes = f'stroke-dasharray="{dash[0]} {dash[1]}"' if dash[1] else ""
        line = f'<line class="c-{slot}" x1="0" y1="4" x2="22" y2="4" stroke-width="2.5" {dashes}/>'
        keys += (
            f'<li><label><input type="checkbox"{" checked" if is_shown else ""} data-strategy="{place}">'
            f'<svg width="22" height="8" aria-hidden="true">{line}</svg>{escape_text(name)}</label></li>'
        )
    above, below = map(escape_text, explorer.about)
    context = (
        f'<h2>Context of each call</h2><p class="under">{above}</p>'
        '<div class="bar"><label>Run <select id="run"></select></label></div>'
        f'<ul class="key">{keys}</ul>'
        '<div class="chart" id="context" role="img" aria-label="lines: context size call by call"></div>'
        if explorer.data["series"]
        else ""
    )
    return (
        f'{context}<h2>Runs</h2><p class="under">{below}</p>'
        '<div class="bar"><label>Strategy <select id="only"><option value="">all</option></select></label></div>'
        '<div class="table"><label class="columns"><input type="checkbox"> Show all columns</label>'
        '<div class="scroll"><table id="runs"><thead></thead><tbody></tbody></table></div></div>'
        '<p><button type="button" id="more" hidden></button></p>'
    )


def _show_entry(entry: ViewEntry) -> str:
    size = f"<small>{escape_text(entry.size)}</small>" if entry.size else ""
    body = "".join(map(_show_passage, entry.body))
    return f'<article class="m-{entry.mood}"><h3><span>{_show_words(entry.title)}</span>{size}</h3>{body}</article>'


def _show_passage(passage: Passage) -> str:
    """Return a text whose middle, where it is long, opens by a click."""
    cut = fold_passage(passage, _ROW)
    named = f' class="m-{passage.mood}"' if passage.mood else ""
    before = _show_words(passage.before)
    if not (cut.head.strip() or cut.rows):
        return f'<pre class="m-quiet">{before}(empty)</pre>'
    head = f"<pre{named}>{before}{_escape_passage(cut.head)}</pre>"
    if not cut.rows:
        return head
    middle = fold_passage(Passage(passage.text, rows=None), _ROW).head[len(cut.head) : -len(cut.tail) or None]
    return (
        f"{head}<details><summary>{cut.rows:,} more rows</summary><pre{named}>{_escape_passage(middle)}</pre></details>"
        f"<pre{named}>{_escape_passage(cut.tail)}</pre>"
    )


def _escape_passage(text: str) -> str:
    return html.escape(text.strip("\n"))


_SHOWN_BY: Final[Mapping[type, Callable[[Any], str]]] = {
    Sentence: _show_sentence,
    Table: _show_table,
    BarChart: _place_chart,
    Chart: _place_chart,
    Facts: _show_facts,
    Glossary: _show_glossary,
    Tiles: _show_tiles,
    Explorer: _show_explorer,
    Divider: lambda divider: f'<h3 class="divider">{escape_text(divider.text)}</h3>',
    ViewEntry: _show_entry,
}
