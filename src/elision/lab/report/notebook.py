"""Views, reports of sessions and studies in a notebook: one sentence, one chart, one table, all escaped."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from elision.lab.replay import Replay
from elision.lab.report.charts import build_costs, draw_bars
from elision.lab.report.figures import format_count, format_usd, neutralize_text
from elision.lab.report.svg import LINE, PAPER, Drawing, measure_text
from elision.lab.report.wording import write_headline
from elision.lab.results import Study
from elision.telemetry.context_report import ContextReport
from elision.telemetry.diagnostics import Diagnostics

#: Pixels of a chart, and hidden results that are listed.
WIDTH: Final = 640
MOST_RESULTS: Final = 20


def draw_value(value: object) -> str:
    """Return diagnostics, the report of a session, or a study as HTML. Raises TypeError for anything else."""
    draw = _DRAWN_BY.get(type(value))
    if draw is None:
        raise TypeError(f"{type(value).__name__} cannot be drawn")
    return draw(value)


def _draw_call(done: Diagnostics) -> str:
    bars = (
        ("everything", done.raw),
        ("without new edits", done.before),
        ("sent", done.raw if done.shadow else done.after),
    )
    hidden = [*done.masked, *done.clipped, *done.folded]
    rows = [(each.handle, each.tool, format_count(each.tokens), format_count(each.left)) for each in hidden]
    more = len(rows) - MOST_RESULTS
    rest = f"<p>and {more} more</p>" if more > 0 else ""
    table = _build_table(("result", "tool", "tokens", "tokens left"), rows[:MOST_RESULTS])
    return _join(done.describe(), _draw_bars(bars), table + rest)


def _draw_report(report: ContextReport) -> str:
    shares = report.composition
    bars = [(name.replace("_", " "), getattr(shares, name)) for name in shares.__slots__]
    costs = report.savings.costs
    rows = [
        ("tokens of all prompts", format_count(report.savings.raw_tokens), format_count(report.savings.sent_tokens)),
        ("bill so far", format_usd(costs.raw), format_usd(costs.ours)),
    ]
    return _join(report.describe(), _draw_bars(bars), _build_table(("", "sending everything", "with Elision"), rows))


def _draw_study(study: Study) -> str:
    drawing = Drawing(WIDTH, PAPER)
    draw_bars(build_costs(study), drawing)
    rows = [(row.strategy, format_usd(row.usd), format_count(row.cache_rewrites)) for row in study.totals]
    return _join(
        write_headline(study), drawing.render(padding=12), _build_table(("strategy", "cost", "cache rewrites"), rows)
    )


def _draw_replay(replay: Replay) -> str:
    rows = [
        ("bill", format_usd(replay.raw.usd), format_usd(replay.usd)),
        ("of it summaries", format_usd(0.0), format_usd(replay.summarizer.usd)),
    ]
    count = len(replay.calls)
    # Up to ten calls, evenly spread, the last one among them.
    chosen = sorted(range(count, 0, -max(1, -(-count // 10))))
    bars = [(f"call {number}", replay.calls[number - 1].tokens) for number in chosen]
    return _join(str(replay), _draw_bars(bars), _build_table(("", "sending everything", "with Elision"), rows))


def _draw_bars(bars: Sequence[tuple[str, int]]) -> str:
    """Return a bar for each (name, tokens) as SVG, on its own ground: a notebook may be dark."""
    drawing = Drawing(WIDTH, PAPER)
    names = max((measure_text(name) for name, _ in bars), default=0.0) + 12
    most = max((tokens for _, tokens in bars), default=0) or 1
    room = WIDTH - names - 80
    for name, tokens in bars:
        middle = drawing.bottom + LINE / 2
        width = max(room * tokens / most, 1.0)
        drawing.add_text(0, middle, name)
        drawing.add("rect", {"x": names, "y": middle - 6, "width": width, "height": 12, "fill": PAPER.slots["blue"]})
        drawing.add_text(names + width + 8, middle, format_count(tokens))
        drawing.bottom += LINE + 4
    return drawing.render(padding=12)


def _build_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; "" without rows."""
    body = "".join(f"<tr>{''.join(f'<td>{_escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{_escape(name)}</th>" for name in headings)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if body else ""


def _join(sentence: str, chart: str, table: str) -> str:
    return f"<div><p>{_escape(sentence)}</p>{chart}{table}</div>"


def _escape(text: str) -> str:
    return html.escape(neutralize_text(text))


_DRAWN_BY: Final[Mapping[type, Callable[[Any], str]]] = {
    Diagnostics: _draw_call,
    ContextReport: _draw_report,
    Study: _draw_study,
    Replay: _draw_replay,
}
