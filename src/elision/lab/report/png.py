"""The first picture of a study: cost per strategy by what is paid for, against raw and hindsight."""

from __future__ import annotations

import json

from elision.lab.report import charts, wording
from elision.lab.report.palette import PAPER, Ink
from elision.lab.report.vega import load_vega
from elision.lab.results import Study

#: Pixels of the picture per pixel of the chart.
SCALE = 2.0
WIDTH = 760


def draw_picture(study: Study) -> bytes:
    """Return the picture as a PNG file's bytes. Raises MissingExtra without vl-convert."""
    picture: bytes = load_vega().vegalite_to_png(json.dumps(build_picture(study, PAPER)), scale=SCALE)
    return picture


def build_picture(study: Study, ink: Ink) -> charts.Spec:
    """Return the picture in the colours of `ink`, with its legend, as Vega-Lite."""
    key = "Dashed line: what was sent, as recorded."
    key += wording.describe_hindsight_mark(study)
    lines = (f"{wording.describe_scope(study)}. {key}", wording.describe_prices(study.prices))
    cost = charts.draw_costs(study, ink, legend=True)
    return charts.make_standalone(cost, ink, WIDTH, wording.write_headline(study), lines)
