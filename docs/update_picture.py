"""Draw the README's picture anew, light and dark: what was sent, a peer's default, and Elision, at two price lists.

`python -m benchmarks peer-default > build/peer-default.txt`, with the shared recordings beside the checkout, and then
`python docs/update_picture.py build/peer-default.txt`. Look at it before you commit it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from elision.lab.report.svg import DARK_PAPER, PADDING, PAPER, WIDTH, Drawing, Ink, measure_text, render_png

IMAGES: Final = Path(__file__).parents[1] / "docs" / "images"
PICTURES: Final = {"saving-light.png": PAPER, "saving-dark.png": DARK_PAPER}
#: Rows of the benchmark -> what the picture calls them, and the slot of their colour.
BARS: Final = {
    "as recorded": ("What the agents sent", "grey"),
    "clear above 100k, keep 3": ("The usual default: above 100,000 tokens, clear all results but three", "orange"),
    "masking": ("Elision: mask results when it pays", "blue"),
}
#: Groups of the benchmark -> what the picture says of them.
GROUPS: Final = {
    "Claude Opus 5.5": "Claude Opus 5.5: cached tokens cost 1/20 of the input price",
    "Claude Fable 5.2": "Claude Fable 5.2: cached tokens cost 1/40 of the input price",
}
_GROUP: Final = re.compile(r"^the recordings as (.+), (\d+) runs$")
_ROW: Final = re.compile(r"^  (.+?) +\$ *([\d.]+) ")
STEP, THICK = 34, 14


def read_costs(text: str) -> tuple[dict[str, dict[str, float]], int]:
    """Return model -> row -> USD, and how many runs there are. Raises SystemExit where the recordings are missing."""
    costs: dict[str, dict[str, float]] = {}
    runs = 0
    group: dict[str, float] = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            group = {}
        if found := _GROUP.match(line):
            costs[found[1]] = group
            runs = int(found[2])
        elif found := _ROW.match(line):
            group[found[1]] = float(found[2])
    if not GROUPS.keys() <= costs.keys():
        raise SystemExit("the recordings are not in it: run the benchmark where they lie beside the checkout")
    return costs, runs


def draw_savings(costs: dict[str, dict[str, float]], runs: int, ink: Ink) -> str:
    """Return the picture as SVG: a bar for each row in each group, as long as its cost is of what was sent."""
    drawing = Drawing(WIDTH, ink)
    drawing.add_heading(f"What {runs} recorded runs cost", [])
    room = WIDTH - measure_text("$000.00  −00 %  ")
    for model, title in GROUPS.items():
        sent = costs[model]["as recorded"]
        drawing.add_text(0, drawing.bottom + 8, title, size=13, font_weight="bold")
        drawing.bottom += 24
        for row, (name, slot) in BARS.items():
            usd = costs[model][row]
            change = "" if row == "as recorded" else f"  −{100 * (1 - usd / sent):.0f} %"
            width = room * usd / sent
            drawing.add_text(0, drawing.bottom + 6, name, size=12)
            bar = {"x": 0, "y": drawing.bottom + 14, "width": width, "height": THICK, "fill": ink.slots[slot]}
            drawing.add("rect", bar)
            drawing.add_text(width + 8, drawing.bottom + 14 + THICK / 2, f"${usd:.2f}{change}", font_weight="bold")
            drawing.bottom += STEP
        drawing.bottom += 12
    return drawing.render(padding=PADDING)


def main() -> None:
    costs, runs = read_costs(Path(sys.argv[1]).read_text())
    for name, ink in PICTURES.items():
        (IMAGES / name).write_bytes(render_png(draw_savings(costs, runs, ink)))


if __name__ == "__main__":
    main()
