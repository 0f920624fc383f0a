"""The first picture of a study: cost per strategy against raw and hindsight."""

from __future__ import annotations

import json

from elision.lab.report import charts, wording
from elision.lab.report.palette import PAPER
from elision.lab.report.vega import renderer
from elision.lab.results import Study

#: Pixels of the picture per pixel of the chart.
SCALE = 2.0
WIDTH = 760


def draw_picture(study: Study) -> bytes:
    """Return the picture as a PNG file's bytes. Raises MissingExtra without vl-convert."""
    vega = renderer()
    key = "dashed line: sending everything"
    if study.hindsight:
        key += "; black mark: the same strategy's cheapest schedule in hindsight"
    cost = charts.cost(study, PAPER)
    subtitles = (wording.scope(study), key)
    spec = charts.standalone(cost, PAPER, WIDTH, wording.headline(study), subtitles)
    picture: bytes = vega.vegalite_to_png(json.dumps(spec), scale=SCALE)
    return picture
