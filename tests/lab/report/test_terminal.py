"""A study in the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from elision.lab.report import terminal
from elision.lab.report.columns import COLUMNS
from elision.lab.results import Control, Study
from tests.lab.report.studies import HOSTILE, HYBRID, STRATEGIES, empty, hostile, row, study


def shown(what: Study, width: int = 140, *, colour: bool = False) -> str:
    system = "truecolor" if colour else None
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, color_system=system)  # type: ignore[arg-type]
    terminal.show(what, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_no_number_is_broken(width: int) -> None:
    """At every width each strategy has one line that ends with a whole cell, and nothing is wider than the terminal."""
    text = shown(study(), width)
    assert max(map(cell_len, text.splitlines())) <= width
    lines = text.splitlines()
    for strategy, cost in zip(STRATEGIES, ("$5.00", "$7.50", "$4.00", "$2.50", "$2.40"), strict=True):
        totals = [line for line in lines if line.startswith(f"{strategy} ") and cost in line]
        assert len(totals) == 1
        assert "…" not in totals[0]


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_tables_drop_whole_columns(width: int) -> None:
    """In worst runs and controls too: what is headed is whole, and the run's name is there with its end."""
    text = shown(study(), width)
    worst = text[text.index("Worst runs") : text.index("Controls")].splitlines()
    rule = next(place for place, line in enumerate(worst) if line.startswith("──"))
    heads = worst[1:rule]
    assert heads[-1].split()[0] == "strategy"
    assert heads[-1].split()[-1] == "run"
    rows = [line for line in worst[rule + 1 :] if line.strip()]
    assert len(rows) == 4
    assert all(line.endswith(("one.jsonl", "two.jsonl")) for line in map(str.rstrip, rows))
    controls = text[text.index("Controls") : text.index("Noise:")]
    assert "…" not in "".join(heads) + controls
    assert "noise" in controls
    assert "31 %" in controls


def test_nothing_empty_is_shown() -> None:
    """Raw alone has no worst runs; single runs have a line for their controls; words nobody uses are not explained."""
    alone = study(("raw",))
    text = shown(replace(alone, controls=(Control(reader="pi-session", runs=1, noise=None, noise_filtered=None),)))
    assert "Worst runs" not in text
    assert "None here: they take two runs of a format" in text
    assert "Noise:" not in text
    for word in ("hindsight:", "redone:", "Summaries", "Extra turns"):
        assert word not in text
    assert "hindsight:" in shown(study())


def test_hindsight_that_was_not_asked_for_has_no_column() -> None:
    """Neither in the totals nor among the worst runs; a sentence says why."""
    text = shown(replace(study(), hindsight=False), 200)
    assert "hind-" not in text
    assert "No hindsight was asked for" in text
    assert "wider terminal" not in text


def test_a_missing_hindsight_is_explained() -> None:
    """A dash in the column has a line below the table, unless it is raw's."""
    assert "– under × hindsight" in shown(study())
    assert "– under × hindsight" not in shown(study(("raw", "masking")))


def test_everything_at_140() -> None:
    """A wide terminal shows every column; a narrow one the first of them, and says that there are more."""
    assert len(terminal.table(study(), 140).columns) == len(COLUMNS) + 1
    assert 4 <= len(terminal.table(study(), 80).columns) - 1 < len(COLUMNS)
    assert "more in a wider terminal" in shown(study(), 80)
    assert "more in a wider terminal" not in shown(study(), 140)


def test_what_must_be_said() -> None:
    """Headline, allowance, worst runs, controls, problems, and that steps are kept and summaries the digest's."""
    text = " ".join(shown(study()).split())
    assert "hybrid: $2.50 instead of $5.00 (−50 %), evidence kept 90 %." in text
    assert "32 (+35 %)" in text  # 0.35 x 90 turns
    assert "93 % (window 5)" in text
    assert "runs/broken.jsonl:12: no JSON" in text
    assert "keeps the agent's steps as they were recorded" in text
    assert "model-free digest" in text
    assert "billed as the LLM call" in text
    worst = text[text.index("Worst runs") : text.index("Controls")]
    assert "one.jsonl" in worst


def test_hostile_text_is_shown_as_it_is() -> None:
    """Nothing in a name is markup, a link, or an escape sequence."""
    text = shown(hostile(), colour=True)
    assert "[bold]not bold[/bold]" in text
    assert "example.org" in text
    assert "\x1b[31mred" not in text
    assert "\x1b]8" not in text
    assert "\x07" not in text
    assert "\u202e" not in text
    text.encode()  # no lone surrogate is left


def test_wide_characters_keep_their_columns() -> None:
    """Names in scripts of double width do not push numbers out of the terminal."""
    text = shown(study((*STRATEGIES, "長い名前の戦略"), files=("長い" * 60 + ".jsonl",)), 80)
    assert max(map(cell_len, text.splitlines())) <= 80


def test_unknown_values_are_dashes() -> None:
    """A study without hindsight, evidence or a price has dashes, not errors."""
    bare = replace(row(HYBRID), raw_usd=0.0, late_usd=0.0, evidence_items=0, evidence_items_filtered=0)
    line = next(
        line for line in shown(replace(study((HYBRID,)), rows=(bare,))).splitlines() if line.startswith("hybrid ")
    )
    assert line.count("–") == 8


def test_long_labels_have_a_legend() -> None:
    """A shortened strategy is spelled out below the table."""
    label = "hybrid(window=10, summarize_at=43, schedule=cache-aware, gist=50)"
    text = shown(study(("raw", label)))
    assert f"hybrid(window=1…, gist=50): {label}" in text


def test_empty_and_unfinished() -> None:
    """Nothing replayed still says what was wrong; a broken-off study says that it is one."""
    text = shown(empty())
    assert "No run was replayed." in text
    assert "no known format" in text
    assert "How to read this" not in text
    assert "Interrupted before the first run was finished." in shown(replace(empty(), finished=False))
    assert "Interrupted: 2 runs finished" in shown(replace(study(), finished=False))


def test_hostile_reasons_are_listed() -> None:
    """All nine hostile problems are there, at every width."""
    assert f"{len(HOSTILE)} problems while reading" in shown(hostile(), 80)
