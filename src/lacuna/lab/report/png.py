"""The first picture of a study, as a file: cost per strategy against raw and hindsight."""

from __future__ import annotations

import json
from pathlib import Path

from lacuna.lab.report import charts, wording
from lacuna.lab.report.palette import PAPER
from lacuna.lab.report.vega import renderer
from lacuna.lab.results import Study

#: Pixels of the picture per pixel of the chart.
SCALE = 2.0
WIDTH = 760


def save(study: Study, path: Path) -> None:
    """Write the picture to `path`. Raises MissingExtra without vl-convert."""
    vega = renderer()
    spec = charts.standalone(charts.cost(study, PAPER), PAPER, WIDTH, wording.headline(study), wording.scope(study))
    path.write_bytes(vega.vegalite_to_png(json.dumps(spec), scale=SCALE))
