"""The report of a tuning: what is recommended, the frontier on both parts of the runs, and how to use it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from elision.lab.report import tuning_wording, wording
from elision.lab.report.figures import (
    NOTHING,
    format_change,
    format_count,
    format_share,
    format_usd,
    name_runs,
    neutralize_text,
)
from elision.lab.report.replay_report import build_problem_section
from elision.lab.report.report import (
    Bar,
    BarChart,
    Block,
    Chart,
    Column,
    Provenance,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
)
from elision.lab.report.sent_wording import label_sent_rows
from elision.lab.report.svg import Drawing, Plot, Tip, plot_shares, write_share_tick
from elision.lab.results import Row
from elision.lab.tuning.search_space import FAMILIES
from elision.lab.tuning.tuning_result import TunedPoint, Tuning
from elision.strategies.spec import describe_strategy, parse_strategy

#: The columns of figures, those of the runs to fit first.
_COLUMNS: Final = (
    Column("fit: vs\nrecorded", 6),
    Column("fit:\nfacts", 5),
    Column("fit:\nmissing", 2),
    Column("judge: vs\nrecorded", 4),
    Column("judge:\nfacts", 3),
    Column("judge:\nmissing", 1),
    Column("fit: cost", 0),
    Column("judge: cost", 0),
)
#: Cells of a name that are shown however narrow the terminal.
_NAME: Final = 26


def build_tuning_report(tuning: Tuning, made_by: Provenance) -> Report:
    """Return the report of `tuning`."""
    return Report(
        command="tune",
        headline=tuning_wording.write_headline(tuning),
        scope=list(_list_scope(tuning)),
        sections=list(_build_sections(tuning)),
        data=tuning.json(),
        made_by=made_by,
        footer=[("Prices", tuning.prices.name)],
    )


def _list_scope(tuning: Tuning) -> Iterator[Sentence]:
    yield Sentence(tuning_wording.describe_scope(tuning))
    yield Sentence(wording.describe_prices(tuning.prices))
    for warning in (tuning_wording.describe_study(tuning), tuning_wording.describe_interruption(tuning)):
        if warning:
            yield Sentence(warning, "warning")


def _build_sections(tuning: Tuning) -> Iterator[Section]:
    text = "Filled: runs to fit. Hollow: runs to judge. Ring: recommended. Grey: points that another one beats."
    chart = Chart(
        "recall",
        "points: cost and facts still visible of every strategy tried",
        lambda drawing: draw_frontier(tuning, drawing),
    )
    yield Section(
        "Cost against facts still visible", [chart], " ".join([text, *describe_far_points(tuning)]), only="page"
    )
    yield Section("What the runs to fit cost", [_build_bars(tuning)], only="terminal")
    yield Section("", [_build_points(tuning), *_list_verdicts(tuning)])
    yield Section("In full", list(_list_texts(tuning)))
    yield from _show_others(tuning)
    if shares := tuning_wording.list_tool_shares(tuning):
        titles = (Column("hidden\ntokens", 2), Column("facts\nmissed", 1), Column("rule tried:\nvisible for"))
        table = Table([Column("tool"), *titles], [TableRow(cells) for cells in shares])
        yield Section("What masking by age hides, by tool (runs to fit)", [table])
    yield _list_runs(tuning)
    yield from build_problem_section(tuning.problems)
    yield Section("How to read this", [Sentence(note) for note in tuning_wording.list_notes(tuning)])


def _build_bars(tuning: Tuning) -> BarChart:
    """Return a bar for what was sent, the references and the recommended point, for a terminal."""
    happened = label_sent_rows(tuning.sending)
    names = tuning_wording.list_reference_names(tuning.references)
    named = [(happened[each.name], each.fit, False) for each in tuning.sent]
    named += [(names[point.text], point.fit, point.text == tuning.recommended) for point in tuning.references]
    if tuning.recommended not in names:
        named.append((tuning_wording.describe_point(tuning.recommended), tuning.best.fit, True))
    bars = [
        Bar(
            f"{name} (recommended)" if is_recommended else name,
            f"{format_usd(row.usd)}  {tuning_wording.format_cells(row)[0]}",
            [("", "", row.usd)],
            mood="better" if is_recommended else "",
        )
        for name, row, is_recommended in named
    ]
    return BarChart("costs", "bars: the cost of the runs to fit", bars, "USD")


def _list_verdicts(tuning: Tuning) -> Iterator[Block]:
    for text, mood in (
        (tuning_wording.describe_choice(tuning), ""),
        (tuning_wording.describe_sent(tuning), ""),
        (tuning_wording.write_verdict(tuning), "strong" if tuning.is_confirmed() else "warning"),
        (tuning_wording.describe_excess(tuning), "warning"),
        (tuning_wording.describe_break_even(tuning), ""),
        (tuning_wording.describe_rule_of_thumb(tuning), ""),
    ):
        if text:
            yield Sentence(text, mood)
    yield Sentence(f"strategy = {quote_toml(describe_fully(tuning.recommended))}", whole=True)


def _build_points(tuning: Tuning) -> Table:
    """Return what happened, the references and the frontier, each on both parts of the runs."""
    listed = tuning_wording.choose_listed(tuning)
    happened = label_sent_rows(tuning.sending)
    names = tuning_wording.list_reference_names(tuning.references)
    head = "frontier, cheapest first"
    if len(listed) < len(tuning.frontier):
        head = f"frontier ({len(listed)} of {len(tuning.frontier)})"
    rows = [TableRow([happened[each.name], *_list_cells(each.fit, each.judge)]) for each in tuning.sent]
    rows.append(TableRow(["beside it"]))
    rows += [_build_row(names[point.text], point, tuning) for point in tuning.references]
    rows.append(TableRow([head]))
    rows += [
        _build_row(f"{number:2}  {tuning_wording.describe_point(point.text)}", point, tuning)
        for number, point in enumerate(listed, start=1)
    ]
    return Table([Column("strategy"), *_COLUMNS], rows, least=_NAME)


def _build_row(name: str, point: TunedPoint, tuning: Tuning) -> TableRow:
    cells = [name, *_list_cells(point.fit, point.judge)]
    return TableRow(cells, recommended=point.text == tuning.recommended)


def _list_cells(fit: Row | None, judge: Row | None) -> list[str]:
    costs = [NOTHING if row is None else format_usd(row.usd) for row in (fit, judge)]
    return [*tuning_wording.format_cells(fit), *tuning_wording.format_cells(judge), *costs]


def _list_texts(tuning: Tuning) -> Iterator[Sentence]:
    """Yield the strategies in full, for -s and for settings."""
    for number, point in enumerate(tuning_wording.choose_listed(tuning), start=1):
        mood = "strong" if point.text == tuning.recommended else ""
        # On one line whatever the width, so that a copy is whole.
        yield Sentence(f"{number:2}  {describe_fully(point.text)}", mood, whole=True)


def _show_others(tuning: Tuning) -> Iterator[Section]:
    others = [point for point in tuning.points if not point.names and not point.on_frontier]
    if others:
        columns = [Column("strategy"), *_COLUMNS, Column("in full", 0, "wrap")]
        rows = [
            TableRow(
                [
                    tuning_wording.describe_point(point.text),
                    *_list_cells(point.fit, point.judge),
                    describe_fully(point.text),
                ],
                recommended=point.text == tuning.recommended,
            )
            for point in others
        ]
        yield Section("Every other point, cheapest first", [Table(columns, rows)], only="page")


def _list_runs(tuning: Tuning) -> Section:
    parts: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
        ("to fit", tuning.fit_runs),
        ("to judge", tuning.judge_runs),
    )
    names = name_runs(Row(file=file, trajectory=run) for _, keys in parts for file, run in keys)
    rows = [TableRow([names[key], part]) for part, keys in parts for key in keys]
    return Section("Runs", [Table([Column("run"), Column("part", 0, "left")], rows)], only="page")


# -- the recommended point as an `elision.toml` -----------------------------------------------------------------------


def write_settings(tuning: Tuning, made_by: Provenance) -> str:
    """Return the file's text: what was found on which runs as comments, and the strategy in full."""
    comments = [
        f"Found by Elision {made_by.version}: {made_by.command}",
        tuning_wording.describe_scope(tuning),
        tuning_wording.write_headline(tuning),
        tuning_wording.write_verdict(tuning),
        tuning_wording.describe_excess(tuning),
    ]
    lines = [f"# {neutralize_text(comment)}" for comment in comments if comment]
    return "\n".join([*lines, f"strategy = {quote_toml(describe_fully(tuning.recommended))}"]) + "\n"


def describe_fully(text: str) -> str:
    """Return `text` with every option that a tuning chooses, so that it means the same if a default changes."""
    strategy = parse_strategy(text)
    names = [name for name in FAMILIES.get(strategy.name, ()) if name != "rules"]
    if not names:
        return text
    plain = type(strategy)()
    rest = describe_strategy(replace(strategy, **{name: getattr(plain, name) for name in names}))
    others = rest.partition("(")[2].removesuffix(")")
    stated = [f"{name}={getattr(strategy, name)}" for name in names]
    return f"{strategy.name}({', '.join([*stated, *filter(None, [others])])})"


def quote_toml(text: str) -> str:
    """Return `text` as a string of TOML."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# -- the picture: filled points are the runs to fit, hollow ones those to judge ---------------------------------------


#: Family -> slot of the palette, and shape.
LOOKS: Final = {
    "masking": ("blue", "circle"),
    "hybrid": ("orange", "square"),
    "summarization": ("green", "diamond"),
    "raw": ("grey", "triangle"),
}
#: Points that cost more, as a multiple of raw, are named below the picture: they would squeeze all others together.
MOST_SHOWN: Final = 1.1
#: Pixels of the plot.
HEIGHT: Final = 380


def describe_far_points(tuning: Tuning) -> list[str]:
    """Return the named points that cost too much for the picture."""
    far = [
        f"{', '.join(point.names)} ({format_change(point.fit.to_recorded)})"
        for point in tuning.points
        if point.names and not _is_shown(point.fit)
    ]
    return [f"Not in the picture, more expensive: {'; '.join(far)}."] if far else []


@dataclass(frozen=True, slots=True)
class _FrontierMark:
    """A point of the frontier, a reference or the recommended point.

    label: of the last two; "" for one of the frontier. judge: where the runs to judge have it, if it has a label.
    """

    point: TunedPoint
    family: str
    label: str
    judge: Row | None


def draw_frontier(tuning: Tuning, drawing: Drawing) -> None:
    """Draw cost against facts still visible: other points in grey, the line of the frontier, and the marks."""
    shown = [point for point in tuning.points if _is_shown(point.fit)]
    marks = _list_marks(tuning, shown)
    marked = {mark.point.text: mark.family for mark in marks}
    looks = [(family, *look) for family, look in LOOKS.items() if family in marked.values()]
    drawing.add_key((shape, drawing.ink.slots[slot], family) for family, slot, shape in looks)
    rows = [point.fit for point in shown] + [mark.judge for mark in marks if mark.judge is not None]
    titles = "cost, as a share of what was sent", "facts still visible"
    plot = plot_shares(drawing, list(map(_get_figures, rows)), titles, write_share_tick, HEIGHT)
    for point in shown:
        if point.text not in marked:
            x, y = plot.place(_get_figures(point.fit))
            tip = _describe_point(point, point.fit, "runs to fit")
            dot: dict[str, str | float] = {"class": "other", "fill": drawing.ink.slots["grey"], "opacity": 0.55}
            drawing.add("circle", {"cx": x, "cy": y, "r": 2.6, **dot}, tip=tip)
    edge = (plot.place(_get_figures(point.fit)) for point in _find_upper_edge(shown))
    drawing.add_curve(edge, drawing.ink.slots["grey"], stroke_width=1.5, class_="frontier")
    _draw_marks(drawing, plot, marks, tuning.recommended)


def _list_marks(tuning: Tuning, shown: Sequence[TunedPoint]) -> list[_FrontierMark]:
    labels = {point.text: ", ".join(point.names) for point in tuning.references}
    labels[tuning.recommended] = f"recommended: {tuning_wording.describe_point(tuning.recommended)}"
    marks = []
    for point in shown:
        label = labels.get(point.text, "")
        if label or point.on_frontier:
            name = parse_strategy(point.text).name
            family = name if name in LOOKS else "masking"
            judge = point.judge if label and point.judge is not None and _is_shown(point.judge) else None
            marks.append(_FrontierMark(point, family, label, judge))
    return marks


def _draw_marks(drawing: Drawing, plot: Plot, marks: Sequence[_FrontierMark], recommended: str) -> None:
    """Draw a dashed line from fit to judge below both, then what was judged, then what was fitted, and the ring."""
    ink = drawing.ink
    judged = [(mark, mark.judge) for mark in marks if mark.judge is not None]
    for mark, judge in judged:
        ends = (*plot.place(_get_figures(mark.point.fit)), *plot.place(_get_figures(judge)))
        drawing.add_line(*ends, ink.slots[LOOKS[mark.family][0]], stroke_dasharray="3 3", opacity=0.8)
    for mark, judge in judged:
        slot, shape = LOOKS[mark.family]
        tip = _describe_point(mark.point, judge, "runs to judge")
        drawing.add_mark(*plot.place(_get_figures(judge)), shape, ink.slots[slot], filled=False, tip=tip)
    for mark in marks:
        slot, shape = LOOKS[mark.family]
        x, y = plot.place(_get_figures(mark.point.fit))
        drawing.add_mark(x, y, shape, ink.slots[slot], tip=_describe_point(mark.point, mark.point.fit, "runs to fit"))
        if mark.point.text == recommended:
            ring: dict[str, str | float] = {"class": "ring", "fill": "none", "stroke": ink.text, "stroke_width": 1.6}
            drawing.add("circle", {"cx": x, "cy": y, "r": 11.5, **ring})
    rows = [mark.point.fit for mark in marks] + [judge for _, judge in judged]
    labels = [(*plot.place(_get_figures(mark.point.fit)), mark.label) for mark in marks if mark.label]
    plot.add_labels(labels, [plot.place(_get_figures(row)) for row in rows])


def _is_shown(row: Row) -> bool:
    return row.to_recorded is not None and row.to_recorded <= MOST_SHOWN and row.evidence_recall is not None


def _get_figures(row: Row) -> tuple[float, float]:
    """Return share of the cost and of the facts of a row that is shown."""
    return row.to_recorded or 0.0, row.evidence_recall or 0.0


def _find_upper_edge(points: Sequence[TunedPoint]) -> list[TunedPoint]:
    """Return the points that no cheaper one equals in facts visible: the frontier of two figures, as a line."""
    edge: list[TunedPoint] = []
    for point in sorted(points, key=lambda point: (point.fit.usd, -point.fit.evidence_found)):
        if not edge or point.fit.evidence_found > edge[-1].fit.evidence_found:
            edge.append(point)
    return edge


def _describe_point(point: TunedPoint, row: Row, part: str) -> Tip:
    return (
        ("strategy", tuning_wording.describe_point(point.text)),
        ("part", part),
        ("cost", format_usd(row.usd)),
        ("vs recorded", format_change(row.to_recorded)),
        ("facts still visible", format_share(row.evidence_recall)),
        ("turns missing a fact or own words", format_count(row.missing_turns)),
    )
