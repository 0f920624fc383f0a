"""The table of strategies against the best choice of what to hide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from elision.lab.hiding_yardstick import HidingYardstick
from elision.lab.report import html
from elision.lab.report.hiding_table import TITLE, print_hiding
from elision.lab.report.names import find_group
from elision.lab.report.terminal import print_study
from elision.lab.report.wording import find_featured
from elision.lab.results import Study
from tests.lab.report.studies import RAW, study

LABEL = "masking, best hiding"
FOUND = HidingYardstick(usd=1.5, recall_usd=0.25, best_usd=1.4, bound_usd=1.25, exact_runs=1)


def make_study(*, known: int = 2) -> Study:
    """Two runs; of the first `known` the best hiding is known."""
    whole = study((RAW, "masking", LABEL))
    places = {file: place for place, file in enumerate(("runs/one.jsonl", "runs/two.jsonl"))}
    rows = (
        replace(row, hiding=FOUND) if row.strategy == LABEL and places[row.file] < known else row for row in whole.rows
    )
    return replace(whole, rows=tuple(rows))


def render(shown: Study, width: int = 80) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        print_hiding(shown, console)
    return captured.get()


def test_a_row_has_the_sums() -> None:
    """Of both runs: the bill, recalls, the best, the bound, their ratio, and how many runs are exact."""
    lines = [line.split() for line in render(make_study()).splitlines()]
    assert ["masking", "$3.00", "$0.500", "$2.80", "$2.50", "1.40", "2/2"] in lines


@pytest.mark.parametrize("known", [0, 1])
def test_without_every_run_there_is_no_sum(known: int) -> None:
    """A sum of some runs would be compared with that of all."""
    assert render(make_study(known=known)) == ""
    assert TITLE not in html.build_page(make_study(known=known))


def test_it_fits_into_80_columns_and_on_the_page() -> None:
    """No line is longer; the page has the same cells, and the row is a yardstick that is never featured."""
    found = make_study()
    assert max(map(len, render(found).splitlines())) <= 80
    console = Console(width=80)
    with console.capture() as captured:
        print_study(found, console)
    assert TITLE in captured.get()
    page = html.build_page(found)
    assert TITLE in page
    assert "<td>2/2</td>" in page
    assert find_group(LABEL) == "yardstick"
    featured = find_featured(found)
    assert featured is not None
    assert featured.strategy == "masking"
