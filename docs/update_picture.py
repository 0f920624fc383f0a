"""Draw the README's picture anew, light and dark, from the sample runs: `python docs/update_picture.py`.

Look at it before you commit it.
"""

from __future__ import annotations

import html
from pathlib import Path

from elision.lab.candidates import Candidate, default_candidates
from elision.lab.report.charts import draw_picture
from elision.lab.report.palette import DARK_PAPER, PAPER
from elision.lab.report.png import render_png
from elision.lab.results import Study
from elision.lab.run_loading import load_runs
from elision.lab.study import run_study
from elision.lab.study_settings import StudySettings
from elision.trajectory.price_lookup import find_prices

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
#: Strategies of the picture -> what it calls them.
BARS = {
    "raw": "Send everything",
    "masking, every turn": "Mask old tool results at every turn, the usual way",
    "masking (recommended)": "Elision: mask them when it pays",
}
PICTURES = {"saving-light.png": PAPER, "saving-dark.png": DARK_PAPER}


def replay_samples() -> Study:
    """Return the sample runs under the strategies of the picture."""
    chosen: tuple[Candidate, ...] = tuple(
        each for each in default_candidates() if each.label in {"raw", "masking", "masking, every turn"}
    )
    settings = StudySettings(prices=find_prices("claude-opus-5-5"), candidates=chosen, hindsight=False)
    return run_study(load_runs([ROOT / "examples" / "runs"]), settings)


def main() -> None:
    found = replay_samples()
    for name, ink in PICTURES.items():
        text = draw_picture(found, ink).replace("Masking costs", "Elision: masking costs", 1)
        for label, words in BARS.items():
            text = text.replace(f">{html.escape(label)}<", f">{html.escape(words)}<")
        (IMAGES / name).write_bytes(render_png(text))


if __name__ == "__main__":
    main()
