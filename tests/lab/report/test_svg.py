"""Marks, axes and labels."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.lab.report.svg import (
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


def parse(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.render(padding=20))


@given(st.text())
def test_any_text_is_text(text: str) -> None:
    """In an element, in what a pointer reads, and in a heading: nothing of it is markup, and the file is XML."""
    drawing = Drawing(400, PAPER)
    drawing.add_text(0, 0, text)
    drawing.add_mark(1, 1, "circle", "#123456", tip=[("name", text)])
    drawing.add_heading(text, [text])
    assert {node.tag.rpartition("}")[2] for node in parse(drawing).iter()} <= {"svg", "rect", "text", "circle"}


def test_a_tip_cannot_add_lines_to_itself() -> None:
    """A name that holds a line break or a tab is one value."""
    drawing = Drawing(400, PAPER)
    drawing.add_mark(1, 1, "square", "#123456", tip=[("strategy", "a\nb\tc"), ("cost", "$1")])
    [mark] = parse(drawing).iterfind(".//{*}polygon")
    assert mark.attrib["data-tip"] == "strategy\ta·b·c\ncost\t$1"


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 10))
def test_ticks_are_inside_and_few(low: float, length: float, wanted: int) -> None:
    """Between both ends, at equal steps, and not more than a few above what was wanted."""
    axis = Axis(title="", low=low, high=low + length, write=write_usd_tick)
    ticks, step = axis.list_ticks(wanted)
    assert len(ticks) <= wanted + 1
    assert all(low - step * 1e-3 <= tick <= low + length + step * 1e-3 for tick in ticks)


def test_no_tick_above_the_most() -> None:
    """No share is above 100 %, although the axis leaves room there."""
    axis = Axis(title="", low=0.9, high=1.02, write=write_share_tick, most=1.0)
    ticks, step = axis.list_ticks(6)
    assert axis.write(ticks[-1], step) == "100\xa0%"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (write_usd_tick(5, 5), "$5"),
        (write_usd_tick(0.05, 0.05), "$0.05"),
        (write_share_tick(0.955, 0.005), "95.5\xa0%"),
    ],
)
def test_ticks_have_the_decimals_of_their_step(written: str, expected: str) -> None:
    assert written == expected


@pytest.mark.parametrize("width", [338, 680, 1160])
def test_labels_are_inside_and_hide_no_other(width: float) -> None:
    """Ten points close together, on a phone too."""
    drawing = Drawing(width, PAPER)
    low, high = find_ends([0.0, 1.0])
    axis = Axis(title="", low=low, high=high, write=write_share_tick)
    plot = Plot(drawing, axis, axis, 300)
    points = [plot.place((0.9 + number / 100, 0.5)) for number in range(6)]
    plot.add_labels([(*point, f"strategy {number}") for number, point in enumerate(points)], points)
    boxes = []
    for text in parse(drawing).iterfind(".//{*}text"):
        if text.get("class") == "mark-label":
            wide = measure_text(text.text or "", 12)
            left = float(text.attrib["x"]) - {"start": 0, "middle": wide / 2, "end": wide}[text.attrib["text-anchor"]]
            boxes.append((left, left + wide, float(text.attrib["y"])))
    assert len(boxes) == 6
    assert all(left >= 0 and right <= width for left, right, _ in boxes)
    for place, (left, right, y) in enumerate(boxes):
        assert not any(a < right and left < b and abs(y - other) < 12 for a, b, other in boxes[place + 1 :])


def test_spans_are_where_their_values_are() -> None:
    """A value in the middle of its axis is in the middle of its ends."""
    drawing = Drawing(400, PAPER)
    axis = Axis(title="", low=0, high=2, write=write_usd_tick)
    draw_spans(drawing, [Span("one", 1.0, 0.5, 1.5, "#123456")], axis, 1.0, (100, 300))
    [mark] = parse(drawing).iterfind(".//{*}circle")
    assert mark.attrib["cx"] == "200"


def test_a_key_takes_as_many_lines_as_it_needs() -> None:
    """No entry is cut off at the right."""
    drawing = Drawing(200, PAPER)
    drawing.add_key(("circle", "#123456", f"a strategy {number}") for number in range(5))
    for text in parse(drawing).iterfind(".//{*}text"):
        assert float(text.attrib["x"]) + measure_text(text.text or "") <= 200
