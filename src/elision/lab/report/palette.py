"""Which colour is whose: one hue per kind of strategy, one tone, dash and shape per variant; raw is grey.

The hues are Okabe and Ito's, told apart by people with any of the common colour blindnesses; within a hue the tones
differ in lightness, and dash and shape say the same without colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elision.lab.report.names import find_family, is_every_turn, is_hindsight, is_raw, is_sent
from elision.lab.results import is_on_top

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
