"""The figures of the paper's pages, as SVG in the colours of the replay report."""

from __future__ import annotations

from docs.paper.facts import AgentRun, Experiment, PaperFacts
from docs.paper.statistics import SOLVED_SEED, count_solved, estimate_ratio, list_common, mean_turns, mean_usd
from docs.paper.tables import list_openhands
from docs.paper.turn_table import HYBRIDS, MODELS, STRATEGIES

from elision.lab.report.svg import (
    PADDING,
    PAPER,
    Axis,
    Drawing,
    Plot,
    Span,
    draw_spans,
    find_ends,
    measure_text,
    write_share_tick,
    write_usd_tick,
)

WIDTH = 720
COLOURS = {
    "raw": PAPER.slots["grey"],
    "masking": PAPER.slots["blue"],
    "summarization": PAPER.slots["orange"],
    "hybrid, N=43": PAPER.slots["green"],
    "hybrid, N=21": PAPER.slots["green-pale"],
}
SHAPES = {"raw": "circle", "masking": "square", "summarization": "diamond", "hybrid, N=43": "triangle"}


def draw_figures(facts: PaperFacts) -> dict[str, str]:
    """Return every figure as SVG, by its name."""
    return {"cost": _draw_cost(facts), "turns": _draw_turns(facts), "windows": _draw_windows(facts)}


def _draw_cost(facts: PaperFacts) -> str:
    drawing = Drawing(WIDTH, PAPER)
    drawing.add_heading(
        "Masking and summaries about halve the cost with four of five models",
        ["SWE-agent on SWE-bench Verified, 500 instances a point; hybrid: 50 instances of Qwen3-Coder 480B."],
    )
    drawing.add_key((shape, COLOURS[name], name) for name, shape in SHAPES.items())
    plot = Plot(
        drawing,
        Axis(title="mean cost of a run, USD, summaries included", low=0, high=1.7, write=write_usd_tick),
        Axis(title="solved", low=0.1, high=0.6, write=write_share_tick),
        340,
    )
    lines = []
    for model in MODELS:
        own = [facts.experiments[f"{model}-{name}"] for name in ("raw", *STRATEGIES)]
        places = [plot.place((mean_usd(each), count_solved(each) / len(facts.instances))) for each in own]
        drawing.add_curve(places, PAPER.slots["grey"], opacity=0.5)
        lines.append((own, places))
    hybrid = facts.experiments["coder-hybrid-43"]
    x, y = plot.place((mean_usd(hybrid), count_solved(hybrid) / len(hybrid.runs)))
    drawing.add_mark(x, y, SHAPES["hybrid, N=43"], COLOURS["hybrid, N=43"])
    for own, places in lines:
        for each, place in zip(own, places, strict=True):
            drawing.add_mark(*place, SHAPES[each.strategy], COLOURS[each.strategy])
    marks = [(x, y), *(place for _, places in lines for place in places)]
    plot.add_labels([(*places[0], own[0].model) for own, places in lines], marks)
    return drawing.render(padding=PADDING)


def _draw_turns(facts: PaperFacts) -> str:
    groups: dict[str, list[Span]] = {}
    for model in MODELS:
        compared = [facts.experiments[f"{model}-{name}"] for name in STRATEGIES]
        raw = facts.experiments[f"{model}-raw"]
        instances = list_common([raw, *compared])
        groups[raw.model] = [_compare_turns(each.strategy, each, raw, instances) for each in compared]
    raw = facts.experiments["coder-raw"]
    same = [facts.experiments[f"coder-{name}"] for name in (*STRATEGIES, *HYBRIDS)]
    instances = list_common([raw, *same])
    groups["Qwen3-Coder 480B, the same 50"] = [
        _compare_turns(f"hybrid, N={each.every}" if each.strategy == "hybrid" else each.strategy, each, raw, instances)
        for each in same
    ]
    drawing = Drawing(WIDTH, PAPER)
    drawing.add_heading(
        "Summaries lengthen some runs and shorten others",
        ["Turns of SWE-agent against raw on the same instances. Most intervals hold zero."],
    )
    drawing.add_key(("circle", colour, name) for name, colour in COLOURS.items() if name != "raw")
    spans = []
    for model, own in groups.items():
        # The model's name stands beside the middle of its spans.
        middle = (len(own) - 1) // 2
        spans += [
            Span(model if place == middle else "", span.value, span.low, span.high, span.colour)
            for place, span in enumerate(own)
        ]
    low, high = find_ends(end for span in spans for end in (span.low, span.high))
    axis = Axis(title="turns against raw, paired, with 95 % intervals", low=low, high=high, write=_write_change)
    draw_spans(drawing, spans, axis, 0.0, (max(measure_text(model, 12) for model in groups) + 12, WIDTH), step=17)
    return drawing.render(padding=PADDING)


def _compare_turns(strategy: str, each: Experiment, raw: Experiment, instances: list[str]) -> Span:
    found = estimate_ratio(each, raw, _count_turns, SOLVED_SEED, instances)
    return Span("", found.value - 1, found.low - 1, found.high - 1, COLOURS[strategy])


def _count_turns(run: AgentRun) -> float:
    return run.turns


def _write_change(value: float, step: float) -> str:
    return f"{100 * value:+.0f}\xa0%".replace("-", "−") if abs(value) > step / 2 else "0\xa0%"


def _draw_windows(facts: PaperFacts) -> str:
    raw, summary, *masked = list_openhands(facts)
    panels = (
        ("solved of 50", {each.key: float(count_solved(each)) for each in (raw, summary, *masked)}, (10, 25)),
        ("turns", {each.key: mean_turns(each) for each in (raw, summary, *masked)}, (50, 200)),
        ("cost, USD", {each.key: mean_usd(each) for each in (raw, summary, *masked)}, (1, 2.6)),
    )
    drawing = Drawing(WIDTH, PAPER)
    drawing.add_heading(
        "OpenHands needs a larger window than SWE-agent: 58 or 72 solve most",
        ["Masking on 50 instances of SWE-bench Verified, Gemini 2.5 Flash, by window; dashed: raw and summarization."],
    )
    names = ("masking", "raw", "summarization")
    drawing.add_key(("circle", COLOURS[name], name) for name in names)
    top = drawing.bottom
    for number, (title, values, (low, high)) in enumerate(panels):
        drawing.bottom = top
        x = Axis(title="window M", low=0, high=90, write=_write_plain)
        y = Axis(title=title, low=low, high=high, write=_write_plain)
        plot = Plot(drawing, x, y, 190, (number * WIDTH / 3, (number + 1) * WIDTH / 3))
        for each in (raw, summary):
            at = plot.place_y(values[each.key])
            drawing.add_line(plot.left, at, plot.right, at, COLOURS[each.strategy], stroke_dasharray="5 4")
        places = [plot.place((float(each.window or 0), values[each.key])) for each in masked]
        drawing.add_curve(places, COLOURS["masking"], stroke_width=2)
        for place in places:
            drawing.add_mark(*place, "circle", COLOURS["masking"], radius=4)
    return drawing.render(padding=PADDING)


def _write_plain(value: float, step: float) -> str:
    return f"{value:.{0 if step >= 1 else 1}f}"
