"""A tuning as table, picture, page and settings file."""

from __future__ import annotations

import io
import tomllib
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.cells import cell_len
from rich.console import Console

from elision.config import load_settings
from elision.lab.report.page import build_page, draw_picture
from elision.lab.report.report import Provenance
from elision.lab.report.svg import render_png
from elision.lab.report.terminal import print_report
from elision.lab.report.tuning_report import build_tuning_report, describe_fully, write_settings
from elision.lab.tuning.tuning_result import Tuning
from elision.strategies.spec import parse_strategy
from tests.lab.report.studies import HOSTILE
from tests.lab.report.tunings import RULED, hostile, tuning

MADE_BY = Provenance(version="0.1.0", date="2026-11-22", command="elision tune runs")


def _print(found: Tuning, width: int = 100) -> str:
    output = io.StringIO()
    print_report(build_tuning_report(found, MADE_BY), Console(file=output, width=width))
    return output.getvalue()


def test_the_table_has_both_parts() -> None:
    """References, frontier, the mark at the recommended point, its text to copy."""
    text = _print(tuning())
    line = next(line for line in text.splitlines() if "▸" in line)
    assert line.split()[2:] == ["summarization", "21/5", "−25", "%", "98", "%", "3", "−20", "%", "98", "%", "1"]
    assert "summarization(every=21, tail=5, schedule=cache-aware)" in text
    assert "published for SWE-agent" in text
    (bar,) = (line for line in text.splitlines() if "(recommended)" in line)
    assert "█" in bar
    assert bar.endswith("−25 %")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_figure_is_cut(width: int) -> None:
    """Names give way, and whole columns; nothing is wider than the terminal but the texts to copy."""
    text = _print(tuning(), width)
    table = text.partition("Recommended")[0]
    assert all(cell_len(line) <= width for line in table.splitlines())
    line = next(line for line in table.splitlines() if "▸" in line)
    assert "−25 %" in line
    assert "…" not in line.split("−25 %")[1]


def test_harmful_names_do_nothing() -> None:
    """No escape reaches the terminal or the page; no markup is read."""
    text = _print(hostile())
    assert "\x1b" not in text.replace("\x1b[", "")
    assert "\u202e" not in text
    page = build_page(build_tuning_report(hostile(), MADE_BY))
    for name in HOSTILE[:2]:
        assert name not in page
    assert "<script>x</script>" not in page


def test_the_page_says_what_the_table_says() -> None:
    """The same sentences, every point, and who made it."""
    page = build_page(build_tuning_report(tuning(), MADE_BY))
    assert page.startswith("<!doctype html>")
    for words in ("Elision tune", "instead of $8.70 by default", "It holds.", "elision tune runs", "Every other point"):
        assert words in page


def test_the_picture_names_what_it_leaves_out() -> None:
    """Published rules that cost more than twice as much would squeeze all else together."""
    picture = ElementTree.fromstring(draw_picture(build_tuning_report(tuning(), MADE_BY)))
    texts = [node.text for node in picture.iterfind(".//{*}text")]
    assert "published for SWE-agent (+130 %)" in " ".join(filter(None, texts))
    labels = [node.text for node in picture.iterfind(".//{*}text") if node.get("class") == "mark-label"]
    assert sorted(filter(None, labels)) == [
        "default",
        "nothing hidden",
        "preset swe-agent",
        "recommended: summarization 21/5",
    ]


def test_the_picture_is_drawn() -> None:
    """Also where all points have one figure."""
    pytest.importorskip("resvg_py", reason="the extra `report` is not installed")
    assert render_png(draw_picture(build_tuning_report(tuning(), MADE_BY))).startswith(b"\x89PNG")
    raw = tuning().points[0]
    alone = replace(tuning(), points=(replace(raw, names=("default",)),), recommended="raw", default="raw")
    assert render_png(draw_picture(build_tuning_report(alone, MADE_BY))).startswith(b"\x89PNG")


@pytest.mark.parametrize("found", [tuning(), hostile()], ids=["ordinary", "hostile"])
def test_the_settings_file_loads(found: Tuning, tmp_path: Path) -> None:
    """Whatever the names are: it means the recommended strategy and nothing else."""
    text = write_settings(found, replace(MADE_BY, command="elision tune a\nguards = 1 \x7f"))
    assert set(tomllib.loads(text)) == {"strategy"}
    (tmp_path / "elision.toml").write_text(text, encoding="utf-8")
    assert load_settings({}, tmp_path).strategy == parse_strategy(found.recommended)


@pytest.mark.parametrize(
    "text", ["raw", "masking", RULED, "hybrid(gist=0)", "summarization", 'hybrid(window=3, placeholder="a, b(c")']
)
def test_in_full_means_the_same(text: str) -> None:
    """And states every option that a tuning chooses."""
    assert parse_strategy(describe_fully(text)) == parse_strategy(text)
    assert describe_fully("masking") == "masking(window=10, schedule=cache-aware, gist=50)"
