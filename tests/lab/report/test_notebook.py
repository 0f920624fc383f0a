"""Replays in a notebook."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from elision.lab.replay import replay_run
from elision.lab.report.notebook import draw_value
from elision.lab.results import Study
from elision.strategies.spec import parse_strategy
from elision.testing.builders import steps, trajectory
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.tokens import Sizer, make_counter
from tests.lab.report.studies import HOSTILE, hostile, study


def list_parts(shown: str) -> list[str]:
    return [child.tag.rpartition("}")[2] for child in ET.fromstring(shown)]


@pytest.mark.parametrize("found", [study(), hostile()], ids=["ordinary", "hostile"])
def test_a_study_is_a_sentence_a_chart_and_a_table(found: Study) -> None:
    """One row per strategy, in well-formed HTML, in which no text of a recording is markup."""
    shown = found._repr_html_()
    assert list_parts(shown) == ["p", "svg", "table"]
    assert shown.count("<tr>") == len(found.totals) + 1
    assert not any(text in shown for text in HOSTILE if "<" in text)


def test_the_replay_of_one_run_is_drawn() -> None:
    """Its bill against sending everything, and the size of up to ten of its calls."""
    prices = find_prices("gpt-5")
    replay = replay_run(trajectory(*steps(24)), parse_strategy("masking"), prices, Sizer(make_counter("o200k")))
    shown = replay._repr_html_()
    assert list_parts(shown) == ["p", "svg", "table"]
    assert str(replay) in shown
    assert shown.count("<rect") <= 11


def test_what_is_no_result_is_not_drawn() -> None:
    """The error names the type."""
    with pytest.raises(TypeError, match="int cannot be drawn"):
        draw_value(5)
