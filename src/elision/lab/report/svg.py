"""Charts as SVG: marks, axes, keys, and labels that hide nothing; and such a drawing as PNG.

Texts are escaped here, whatever a recording put into them. Colours are those of an `Ink`: on a page they are CSS
variables, which follow its light or dark scheme; in a picture they are plain colours.

Strategies of one kind share a hue; each has a tone, dash and shape of its own, and raw is grey. The hues are Okabe and
Ito's, told apart by people with any of the common colour blindnesses; within a hue the tones differ in lightness, and
dash and shape say the same without colour.
"""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Final, TypeAlias

from elision.errors import MissingExtra, OutputError
from elision.lab.report.figures import (
    find_family,
    is_every_turn,
    is_hindsight,
    is_raw,
    is_sent,
    neutralize_text,
    wrap_text,
)
from elision.lab.results import is_on_top

# -- colours, dashes and shapes ---------------------------------------------------------------------------------------


#: slot -> (on a light ground, on a dark ground)
COLOURS: dict[str, tuple[str, str]] = {
    "grey": ("#7d828a", "#9aa0a8"),
    "blue": ("#0072b2", "#3d9be0"),
    "blue-pale": ("#6bb8ea", "#a9d8f7"),
    "blue-deep": ("#003a5d", "#1f6aa5"),
    "orange": ("#d55e00", "#f07f2e"),
    "orange-pale": ("#eda64a", "#f9c58d"),
    "orange-deep": ("#7a3500", "#b3571a"),
    "green": ("#009e73", "#25c296"),
    "green-pale": ("#74cfb1", "#a5e6d0"),
    "green-deep": ("#00513b", "#12805f"),
    "purple": ("#a8458f", "#d477bd"),
    "purple-pale": ("#d99bc8", "#eec3e2"),
    "purple-deep": ("#571d49", "#96457f"),
    "gold": ("#a88400", "#d6b12f"),
    "gold-pale": ("#dcc35f", "#eedb96"),
    "gold-deep": ("#5f4b00", "#96791a"),
    # Who pays for what: no strategy's hue.
    "pays-input": ("#41506b", "#8fa3c8"),
    "pays-write": ("#96233c", "#ee6c86"),
    "pays-read": ("#e3a4ae", "#74414c"),
    "pays-output": ("#a9adb5", "#6d737d"),
    "pays-summarizer": ("#2aa5b5", "#63d3e0"),
}

_HUES = ("blue", "orange", "green", "purple", "gold")
_TONES = ("", "-pale", "-deep")
_DASHES = {"": (1, 0), "-pale": (5, 3), "-deep": (2, 2)}
_SHAPES = {"": "circle", "-pale": "square", "-deep": "diamond"}


@dataclass(frozen=True, slots=True)
class Look:
    """slot: a key of COLOURS. dash: stroke and gap in pixels. shape: of its points, as `Drawing.add_mark` names it."""

    slot: str
    dash: tuple[int, int] = (1, 0)
    shape: str = "circle"


def assign_looks(labels: Sequence[str]) -> dict[str, Look]:
    """A look for each strategy; two share one only where there are more than fifteen."""
    kinds = list(dict.fromkeys(find_family(label) for label in labels if not (is_raw(label) or is_sent(label))))
    taken: set[str] = set()
    result: dict[str, Look] = {}
    for label in labels:
        if is_raw(label):
            result[label] = Look("grey")
            continue
        if is_sent(label):
            result[label] = Look("grey", (5, 3), "square")
            continue
        hue = _HUES[kinds.index(find_family(label)) % len(_HUES)]
        tone = "-pale" if is_every_turn(label) else ""
        if is_hindsight(label) or is_on_top(label):
            tone = "-deep"
        # Last hues first: the first ones are wanted by kinds of strategy still to come.
        slots = [hue + tone, *(other + tone for other in (hue, *reversed(_HUES)) for tone in _TONES)]
        slot = next((slot for slot in slots if slot not in taken), hue)
        taken.add(slot)
        tone = slot.removeprefix(slot.partition("-")[0])
        result[label] = Look(slot, _DASHES[tone], _SHAPES[tone])
    return result


@dataclass(frozen=True, slots=True)
class Ink:
    """Colours of one drawing: text, grid and ground, and by slot."""

    text: str
    faint: str
    ground: str
    slots: dict[str, str]


#: For the page, which defines the variables for both schemes.
PAGE = Ink("currentColor", "var(--line)", "var(--ground)", {slot: f"var(--{slot})" for slot in COLOURS})
#: For a picture.
PAPER = Ink("#22262c", "#dfe2e6", "#ffffff", {slot: light for slot, (light, _) in COLOURS.items()})
#: For a picture on a dark ground.
DARK_PAPER = Ink("#e7eaee", "#343a43", "#0d1117", {slot: dark for slot, (_, dark) in COLOURS.items()})


def build_css(*, dark: bool) -> str:
    """The slots as CSS variables."""
    return "".join(f"--{slot}:{pair[dark]};" for slot, pair in COLOURS.items())


# -- drawings ---------------------------------------------------------------------------------------------------------


FONT: Final = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', 'Liberation Sans', 'Noto Sans', "
    "sans-serif"
)
#: Pixels of an ordinary letter's height, and of a line of such text.
TEXT: Final = 12.5
LINE: Final = 18.0
#: Pixels of a picture that is a file of its own, and of the ground around it.
WIDTH: Final = 760
PADDING: Final = 20
#: Name and value of each line of a tooltip.
Tip: TypeAlias = Sequence[tuple[str, str]]
Attributes: TypeAlias = Mapping[str, str | float]
_WIDE: Final = frozenset("mwMW%@—…")
_NARROW: Final = frozenset("iljIftr.,:;'|!()[]-/ \xa0")
#: Where a label may be: anchor, and its distance from its point in pixels; the best first.
_SIDES: Final = tuple(
    (anchor, dx, dy)
    for dy in (0, -16, 16, -30, 30, -46, 46, -62, 62)
    for anchor, dx in (("start", 10), ("end", -10), ("middle", 0))
    if dy or anchor != "middle"
)


def measure_text(text: str, size: float = TEXT) -> float:
    """Return the width of `text` in pixels, a little too wide for most fonts."""
    units = 0.0
    for char in text:
        if unicodedata.east_asian_width(char) in "WF":
            units += 1.0
        elif char in _WIDE:
            units += 0.95
        elif char in _NARROW:
            units += 0.38
        else:
            units += 0.69 if char.isupper() else 0.62
    return units * size


class Drawing:
    """A chart that grows downward. bottom: the y below everything drawn so far, in pixels."""

    def __init__(self, width: float, ink: Ink) -> None:
        self.width = width
        self.ink = ink
        self.bottom = 0.0
        self._parts: list[str] = []

    def add(self, tag: str, attributes: Attributes, content: str = "", tip: Tip = ()) -> None:
        """Add an element. content: markup. tip: what a pointer reads there. In names `_` stands for `-`."""
        found = dict(attributes)
        if tip:
            found["data_tip"] = "\n".join(f"{name}\t{neutralize_text(value)}" for name, value in tip if value)
        written = "".join(
            f' {name.strip("_").replace("_", "-")}="{_format_value(value)}"' for name, value in found.items()
        )
        self._parts.append(f"<{tag}{written}>{content}</{tag}>" if content else f"<{tag}{written}/>")

    def add_line(self, x1: float, y1: float, x2: float, y2: float, colour: str, **attributes: str | float) -> None:
        self.add("line", {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke": colour, **attributes})

    def add_curve(self, points: Iterable[tuple[float, float]], colour: str, **attributes: str | float) -> None:
        """Add straight lines from point to point."""
        self.add("polyline", {"points": _join_points(points), "fill": "none", "stroke": colour, **attributes})

    def add_text(
        self, x: float, y: float, text: str, *, size: float = TEXT, rim: bool = False, **attributes: str | float
    ) -> None:
        """Add a text whose middle is at height y. rim: part it by the ground's colour from what it lies on."""
        found: dict[str, str | float] = {"x": x, "y": y + 0.36 * size, "font_size": size, "fill": self.ink.text}
        if rim:
            found |= {"stroke": self.ink.ground, "stroke_width": 5, "stroke_linejoin": "round", "paint_order": "stroke"}
        self.add("text", found | attributes, html.escape(neutralize_text(text)))

    def add_mark(
        self, x: float, y: float, shape: str, colour: str, *, radius: float = 5.5, filled: bool = True, tip: Tip = ()
    ) -> None:
        """Add a point with a rim, or a hollow one. shape: circle, square, diamond or triangle."""
        paint: dict[str, str | float]
        if filled:
            paint = {"class": "mark", "fill": colour, "stroke": self.ink.ground, "stroke_width": 1}
        else:
            paint = {"class": "mark", "fill": "none", "stroke": colour, "stroke_width": 2, "pointer_events": "all"}
        if shape == "circle":
            self.add("circle", {"cx": x, "cy": y, "r": radius, **paint}, tip=tip)
            return
        r = radius
        corners = {
            "square": ((-0.9 * r, -0.9 * r), (0.9 * r, -0.9 * r), (0.9 * r, 0.9 * r), (-0.9 * r, 0.9 * r)),
            "diamond": ((0, -1.25 * r), (1.25 * r, 0), (0, 1.25 * r), (-1.25 * r, 0)),
            "triangle": ((0, -1.15 * r), (1.1 * r, 0.85 * r), (-1.1 * r, 0.85 * r)),
        }[shape]
        self.add("polygon", {"points": _join_points((x + dx, y + dy) for dx, dy in corners), **paint}, tip=tip)

    def add_key(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """Add what colours and shapes mean, in as many lines as it takes. entries: (shape, colour, meaning) each."""
        x = 0.0
        self.bottom += LINE / 2
        for shape, colour, meaning in entries:
            width = 18 + measure_text(meaning) + 16
            if x and x + width - 16 > self.width:
                x = 0.0
                self.bottom += LINE + 2
            self.add_mark(x + 6, self.bottom, shape, colour)
            self.add_text(x + 18, self.bottom, meaning)
            x += width
        self.bottom += LINE / 2 + 10

    def add_heading(self, title: str, lines: Sequence[str]) -> None:
        """Add a title and lines below it, broken at the drawing's width."""
        for sentence in re.split(r"(?<=\.) ", title):
            for line in wrap_text(sentence, int(self.width / measure_text("n", 17))):
                self.add_text(0, self.bottom + 11, line, size=17, font_weight="bold")
                self.bottom += 22
        for text in lines:
            for line in wrap_text(text, int(self.width / 6.9)):
                self.add_text(0, self.bottom + 9, line, size=12)
                self.bottom += 17
        self.bottom += 12

    def render(self, *, padding: float = 0, class_: str = "") -> str:
        """Return the SVG. padding: pixels of ground around it, for a picture; 0 for a page, whose ground it has."""
        width, height = self.width + 2 * padding, self.bottom + 2 * padding
        box = " ".join(map(_format_value, (-padding, -padding, width, height)))
        size = f' width="{_format_value(width)}" height="{_format_value(height)}"'
        ground = ""
        if padding:
            ground = f'<rect x="{-padding}" y="{-padding}" width="100%" height="100%" fill="{self.ink.ground}"/>'
        named = f' class="{class_}"' if class_ else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg"{named}{size} viewBox="{box}" font-family="{FONT}">'
            f"{ground}{''.join(self._parts)}</svg>"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis shows: from `low` to `high`, ticks written by `write` (value, step), none above `most`."""

    title: str
    low: float
    high: float
    write: Callable[[float, float], str]
    most: float = math.inf

    def place(self, value: float, start: float, end: float) -> float:
        """Return where `value` is in a drawing whose axis goes from `start` to `end`, in pixels."""
        return start + (value - self.low) / (self.high - self.low) * (end - start)

    def list_ticks(self, wanted: int) -> tuple[list[float], float]:
        """Return at most about `wanted` round numbers between both ends, and their step."""
        rough = (self.high - self.low) / max(1, wanted)
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-6), math.floor(min(self.high, self.most) / step + 1e-6)
        return [number * step for number in range(first, last + 1)], step


class Plot:
    """Two axes in a drawing, and where a value is between them.

    height: of the plot alone, in pixels. ends: its left and right; without them it is as wide as the drawing.
    """

    def __init__(
        self, drawing: Drawing, x: Axis, y: Axis, height: float, ends: tuple[float, float] | None = None
    ) -> None:
        start, end = ends or (0.0, drawing.width)
        ticks, step = y.list_ticks(max(3, round(height / 48)))
        labels = [y.write(value, step) for value in ticks]
        drawing.add_text(start, drawing.bottom + LINE / 2, y.title, size=12, opacity=0.8)
        self._axes = x, y
        self.left = start + max((measure_text(label, 12) for label in labels), default=0.0) + 10
        self.right = end - 16
        self.top = drawing.bottom + LINE + 6
        self.bottom = self.top + height
        self.drawing = drawing
        for value, label in zip(ticks, labels, strict=True):
            at = self.place_y(value)
            drawing.add_line(self.left, at, self.right, at, drawing.ink.faint)
            drawing.add_text(self.left - 8, at, label, size=12, text_anchor="end", opacity=0.8)
        draw_bottom_axis(drawing, x, (self.left, self.right), self.bottom)

    def place_x(self, value: float) -> float:
        return self._axes[0].place(value, self.left, self.right)

    def place_y(self, value: float) -> float:
        return self._axes[1].place(value, self.bottom, self.top)

    def place(self, point: tuple[float, float]) -> tuple[float, float]:
        return self.place_x(point[0]), self.place_y(point[1])

    def add_labels(self, labels: Sequence[tuple[float, float, str]], marks: Iterable[tuple[float, float]]) -> None:
        """Add labels beside their points where they hide the fewest of `marks` and of each other; all in pixels."""
        points = [(x - 6, y - 6, x + 6, y + 6) for x, y in marks]
        taken: list[tuple[float, float, float, float]] = []
        for x, y, text in labels:
            boxes = [_measure_label(text, x, y, *side) for side in _SIDES]
            # Another label is worse to hide than a point.
            costs = [self._count_hidden(box, points) + 5 * self._count_hidden(box, taken) for box in boxes]
            anchor, dx, dy = _SIDES[costs.index(min(costs))]
            taken.append(boxes[costs.index(min(costs))])
            self.drawing.add_text(x + dx, y + dy, text, size=12, text_anchor=anchor, class_="mark-label", rim=True)

    def _count_hidden(
        self, box: tuple[float, float, float, float], taken: Sequence[tuple[float, float, float, float]]
    ) -> int:
        """Return how many of `taken` a label in `box` would hide; being cut off at an edge counts as several."""
        left, top, right, bottom = box
        hidden = sum(left < x1 and x0 < right and top < y1 and y0 < bottom for x0, y0, x1, y1 in taken)
        is_cut = left < 0 or right > self.drawing.width or top < self.top - 8 or bottom > self.bottom
        return hidden + 10 * is_cut


def plot_shares(
    drawing: Drawing,
    points: Sequence[tuple[float, float]],
    titles: tuple[str, str],
    write: Callable[[float, float], str],
    height: float,
) -> Plot:
    """Return axes with room around `points`, not below 0 to the left, and shares upward.

    titles: of the axis to the right, and of that upward. write: ticks of the one to the right.
    """
    left, right = find_ends(x for x, _ in points)
    low, high = find_ends(y for _, y in points)
    x = Axis(title=titles[0], low=max(0.0, left), high=right, write=write)
    y = Axis(title=titles[1], low=low, high=high, write=write_share_tick, most=1.0)
    return Plot(drawing, x, y, height)


@dataclass(frozen=True, slots=True)
class Span:
    """A value with its interval, and what stands to the left of it."""

    name: str
    value: float
    low: float
    high: float
    colour: str


def draw_spans(
    drawing: Drawing, spans: Sequence[Span], axis: Axis, neutral: float, ends: tuple[float, float], step: float = 24
) -> None:
    """Draw values below each other, and a dashed line where nothing changes. ends: of the axis; names are at 0."""
    top, bottom = drawing.bottom, drawing.bottom + step * len(spans)
    at = axis.place(neutral, *ends)
    drawing.add_line(at, top, at, bottom, drawing.ink.slots["grey"], stroke_dasharray="5 4")
    for number, span in enumerate(spans):
        y = top + step * (number + 0.5)
        drawing.add_text(0, y, span.name, size=12)
        drawing.add_line(axis.place(span.low, *ends), y, axis.place(span.high, *ends), y, span.colour, stroke_width=2)
        drawing.add_mark(axis.place(span.value, *ends), y, "circle", span.colour, radius=4.5)
    draw_bottom_axis(drawing, axis, ends, bottom + 2)


def draw_bottom_axis(drawing: Drawing, axis: Axis, ends: tuple[float, float], y: float) -> None:
    """Draw an axis from left to right at height y, and go on below it."""
    left, right = ends
    widest = max(measure_text(axis.write(end, (axis.high - axis.low) / 4), 12) for end in (axis.low, axis.high))
    ticks, step = axis.list_ticks(max(2, min(8, int((right - left) / (widest + 24)))))
    drawing.add_line(left, y, right, y, drawing.ink.faint)
    for value in ticks:
        at = axis.place(value, left, right)
        label = axis.write(value, step)
        # A label at an end of the axis is moved inside rather than cut.
        room = measure_text(label, 12) / 2
        drawing.add_line(at, y, at, y + 5, drawing.ink.faint)
        inside = min(max(at, room), drawing.width - room)
        drawing.add_text(inside, y + 15, label, size=12, text_anchor="middle", opacity=0.8)
    drawing.add_text((left + right) / 2, y + 35, axis.title, size=12, text_anchor="middle", opacity=0.8)
    drawing.bottom = y + 46


def write_usd_tick(value: float, step: float) -> str:
    """`$5`, `$0.05`: as many decimals as the step needs."""
    return f"${value:,.{_count_decimals(step)}f}"


def write_share_tick(value: float, step: float) -> str:
    """`95 %`: as many decimals as the step needs."""
    return f"{100 * value:.{_count_decimals(100 * step)}f}\xa0%"


def find_ends(values: Iterable[float], room: float = 0.08) -> tuple[float, float]:
    """Return the ends of an axis that leaves a share of `room` around `values`."""
    known = list(values)
    low, high = min(known), max(known)
    around = room * (high - low) or 0.05 * abs(high) or 0.05
    return low - around, high + around


def _count_decimals(step: float) -> int:
    return max(0, -math.floor(math.log10(step) + 1e-9))


def _measure_label(text: str, x: float, y: float, anchor: str, dx: int, dy: int) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a label at the point (x, y)."""
    width = measure_text(text, 12)
    left = x + dx - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return left, y + dy - 7, left + width, y + dy + 7


def _join_points(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{_format_value(x)},{_format_value(y)}" for x, y in points)


def _format_value(value: str | float) -> str:
    if isinstance(value, str):
        return html.escape(value).replace("\n", "&#10;").replace("\t", "&#9;")
    return f"{value:.2f}".rstrip("0").rstrip(".")


# -- PNG: needs resvg, which draws SVG without a browser, and fonts of the system -------------------------------------


#: Pixels of the picture per pixel of the drawing.
SCALE: Final = 2


def render_png(svg: str) -> bytes:
    """Return a picture as a PNG file's bytes. Raises MissingExtra without resvg, OutputError without a font."""
    resvg = load_resvg()
    if not _has_fonts():
        raise OutputError("--png: this system has no font; install one, such as fonts-dejavu-core, or write --html")
    picture: bytes = resvg.svg_to_bytes(svg_string=svg, zoom=SCALE)
    return picture


def load_resvg() -> ModuleType:
    """Return the module resvg_py. Raises MissingExtra without it."""
    try:
        import resvg_py
    except ImportError:
        raise MissingExtra("a picture (--png)", "report") from None
    return resvg_py


@cache
def _has_fonts() -> bool:
    """Whether texts are drawn: without a font resvg leaves them out and says nothing."""
    frame = '<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">{}</svg>'
    text = '<text x="2" y="16" font-family="{}" font-size="14">M</text>'
    resvg = load_resvg()
    blank, written = (resvg.svg_to_bytes(svg_string=frame.format(content)) for content in ("", text.format(FONT)))
    return bool(blank != written)
