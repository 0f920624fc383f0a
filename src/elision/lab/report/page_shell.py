"""The frame of a self-contained page: policy, style, data and scripts, and how text becomes markup.

Text of a recording reaches a page in two ways only: escaped into the markup here, or as JSON that page.js puts into the
document as text. The policy in the page's head lets nothing run but the page's own scripts.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import Any, Final

from elision.lab.report import figures, wording
from elision.lab.report.names import neutralize_text
from elision.lab.report.palette import PAGE, build_css
from elision.lab.report.provenance import Provenance
from elision.lab.report.svg import Drawing
from elision.trajectory.trajectory import Problem

#: Pixels of a chart on a phone, a tablet and a desk: class of the drawing (page.css) -> its width.
WIDTHS: Final = {"small": 338, "middle": 680, "large": 1160}
#: What page.js works from on a page without runs.
NO_RUNS: Final[dict[str, list[object]]] = {"strategies": [], "columns": [], "runs": [], "rows": [], "series": []}
#: Markup beside the name of the recommended strategy.
BADGE = '<span class="badge">recommended</span>'


@dataclass(frozen=True, slots=True, kw_only=True)
class PageParts:
    """What a page is filled with. headline, scope, prices, warning: text; sections, footer: markup.

    brand: the command that made it. data: what page.js works from; None for a page without scripts. slots: of the
    palette, those that the markup colours by.
    """

    brand: str
    headline: str
    scope: str
    prices: str = ""
    warning: str | None = None
    sections: Sequence[str] = ()
    footer: str = ""
    data: Any = None
    slots: Sequence[str] = ()


def fill_page(parts: PageParts) -> str:
    """Return the page, to be written as UTF-8."""
    scripts = [] if parts.data is None else [_read_asset("page.js")]
    style = _build_style(parts.slots)
    return Template(_read_asset("page.html")).substitute(
        policy=_build_policy(scripts, style),
        brand=escape_text(parts.brand),
        title=escape_text(f"{parts.brand}: {parts.headline}"),
        style=style,
        headline=escape_text(parts.headline),
        scope=escape_text(parts.scope),
        prices=escape_text(parts.prices),
        interruption=f'<p class="warning">{escape_text(parts.warning)}</p>' if parts.warning else "",
        body="\n".join(parts.sections),
        footer=parts.footer,
        data=""
        if parts.data is None
        else f'<script type="application/json" id="study">{embed_json(parts.data)}</script>',
        scripts="".join(f"<script>{script}</script>" for script in scripts),
    )


def embed_json(value: Any) -> str:
    """Return `value` as JSON that is safe inside a script element, whatever its strings hold."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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


def _build_style(slots: Sequence[str]) -> str:
    text = (
        _read_asset("page.css")
        .replace("--light-slots: 0;", build_css(dark=False))
        .replace("--dark-slots: 0;", build_css(dark=True))
    )
    # No style attribute passes the policy, so that what is coloured by strategy has a class.
    return text + "".join(
        f".c-{slot}{{background:var(--{slot});stroke:var(--{slot});fill:var(--{slot})}}" for slot in sorted(slots)
    )


def wrap_section(kind: str, title: str, *content: str) -> str:
    """Return a section of the page. title: text; content: markup."""
    return f'<section class="{kind}"><h2>{escape_text(title)}</h2>{"".join(content)}</section>'


def place_chart(name: str, what: str, draw: Callable[[Drawing], None] | None = None) -> str:
    """Return the chart `name`; without `draw`, the place where page.js draws it. what: its meaning, as text.

    It is drawn once for each of WIDTHS, since text that is scaled down cannot be read; the style shows the one that
    fits.
    """
    drawings = []
    for size, width in WIDTHS.items():
        if draw is not None:
            drawing = Drawing(width, PAGE)
            draw(drawing)
            drawings.append(drawing.render(class_=size))
    return f'<div class="chart" id="{name}" role="img" aria-label="{escape_text(what)}">{"".join(drawings)}</div>'


def wrap_subtitle(text: str) -> str:
    """Return `text` as the line under a heading."""
    return f'<p class="under">{escape_text(text)}</p>'


def build_table(titles: Iterable[str], rows: Iterable[str]) -> str:
    """Return a table. titles, rows: markup."""
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def build_row(cells: Iterable[str], name: str = "") -> str:
    """Return a row of a table. cells: text. name: text of a first cell that heads the row; "" for none."""
    head = f'<th scope="row">{escape_text(name)}</th>' if name else ""
    return f"<tr>{head}{''.join(f'<td>{escape_text(cell)}</td>' for cell in cells)}</tr>"


def list_provenance(made_by: Provenance | None, *lines: tuple[str, str]) -> str:
    """Return the footer of a page: what made it, and `lines`, text. Empty values are left out; "" without `made_by`."""
    if made_by is None:
        return ""
    first = ("Made by", f"Elision {made_by.version} on {made_by.date}"), ("Command", made_by.command)
    return "".join(
        f"<dt>{escape_text(name)}</dt><dd>{escape_text(value)}</dd>" for name, value in (*first, *lines) if value
    )


def list_problems(problems: Sequence[Problem]) -> str:
    """Return the section of what could not be read; "" if everything could."""
    lines, more = wording.summarize_problems(problems)
    if not lines:
        return ""
    items = "".join(f"<li><bdi>{escape_text(line)}</bdi></li>" for line in lines)
    rest = f"<li>and {figures.format_count(more)} more</li>" if more else ""
    title = f"{figures.format_plural(len(problems), 'problem')} while reading"
    return wrap_section("", title, f'<ul class="problems">{items}{rest}</ul>')


def escape_text(text: str) -> str:
    """Return `text` as markup that shows it."""
    return figures.bind_units(html.escape(neutralize_text(text)))
