"""A study in the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from elision.cli.replay import build_next_steps
from elision.lab.elongation import TurnAssumption, TurnFactor
from elision.lab.report import terminal
from elision.lab.report.columns import COLUMNS
from elision.lab.report.figures import GROUPS
from elision.lab.report.replay_report import build_replay_report, build_totals
from elision.lab.report.report import MOST_COLUMNS, Column, Report, Section, Sentence, Table, TableRow, join_words
from elision.lab.results import Control, Study
from tests.cli.in_process import run_elision
from tests.lab.report.studies import HOSTILE, HYBRID, MASKING, RAW, STRATEGIES, empty, hostile, row, study


def shown(what: Study, width: int = 140, *, colour: bool = False) -> str:
    system = "truecolor" if colour else None
    console = Console(file=io.StringIO(), width=width, force_terminal=colour, color_system=system)  # type: ignore[arg-type]
    terminal.print_report(build_replay_report(what), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


#: Strategies as lines of the table begin, with what they cost.
LINES = dict(zip(STRATEGIES, ("$5.00", "$7.50", "$4.00", "$2.50", "$2.40"), strict=True))


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140, 200])
def test_no_number_is_broken(width: int) -> None:
    """At every width each strategy has one line that ends with a whole cell, and nothing is wider than the terminal."""
    text = shown(study(), width)
    assert max(map(cell_len, text.splitlines())) <= width
    for strategy, cost in LINES.items():
        mark = "▸" if strategy == MASKING else " "
        totals = [line for line in text.splitlines() if re.match(rf"{mark} {re.escape(strategy)} +\{cost} ", line)]
        assert len(totals) == 1
        assert "…" not in totals[0]


def test_rows_are_in_groups() -> None:
    """Nothing hidden, as in the papers, Elision, the yardstick: each under its heading, the recommended one marked."""
    lines = [line.rstrip() for line in shown(study()).splitlines()]
    headings = [lines.index(name) for name in GROUPS if name in lines]
    assert headings == sorted(headings)
    assert len(headings) == 4
    assert [line[:9] for line in lines[headings[2] + 1 : headings[3]]] == ["▸ masking", "  hybrid "]
    # Two groups need no headings.
    assert not set(GROUPS) & set(shown(study((RAW, MASKING))).splitlines())


@pytest.mark.parametrize("width", [40, 60])
def test_narrow_tables_drop_whole_columns(width: int) -> None:
    """Among runs and controls too: the columns that are there are whole, and a run's name has its end."""
    text = shown(study(), width)
    runs = text[text.index("run by run") : text.index("How far")].splitlines()
    rule = next(place for place, line in enumerate(runs) if line.startswith("──"))
    heads = runs[1:rule]
    assert heads[-1].split()[0] == "run"
    rows = [line for line in runs[rule + 1 :] if line.strip() and not line.startswith("  ")]
    assert [line.split()[0] for line in rows] == ["one.jsonl", "two.jsonl"]
    controls = text[text.index("How far") : text.index("Noise:")]
    assert "…" not in "".join(heads) + controls
    assert "noise" in controls
    assert "31 %" in controls


def test_runs_are_compared_with_every_turn() -> None:
    """Each run of the recommended strategy, beside raw and beside the same strategy at every turn."""
    text = shown(study())
    (line,) = [line for line in text.splitlines() if line.startswith("two.jsonl")]
    assert line.split()[:7] == ["two.jsonl", "50", "$3.00", "$2.40", "−20", "%", "+50"]


def test_of_many_runs_the_worst_are_listed() -> None:
    """Eight at most; the heading says of how many, and in which order."""
    many = study(files=tuple(f"runs/{number}.jsonl" for number in range(20)))
    assert "Masking: 8 of 20 runs, highest cost vs recorded first" in shown(many)


def test_nothing_empty_is_shown() -> None:
    """Raw alone has no list of runs; controls without a figure are left out; only used words are explained."""
    alone = study(("raw",))
    text = shown(replace(alone, controls=(Control(reader="pi-session", runs=1, noise=None, noise_filtered=None),)))
    for absent in ("run by run", "can be trusted", "hindsight:", "repeated call:", "Summaries", "extra turns:"):
        assert absent not in text
    assert "hindsight:" in shown(study())
    assert "cache rewrite:" in shown(study(), 140)
    assert "turn missing a fact:" not in shown(study(), 140)  # Its column waits until the reader asks for more.


def test_what_to_do_next() -> None:
    """The page, as an address on one line however long, and commands with the paths that were given."""
    console = Console(file=io.StringIO(), width=40)
    page = Path("/a/long/folder/of/somebody/report.html")
    steps = build_next_steps(page, ["my runs", "more"], 5)
    terminal.print_report(Report(command="replay", headline="Saved", sections=[steps]), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "file:///a/long/folder/of/somebody/report.html\n" in text
    assert "elision tune 'my runs' more\n" in text
    assert "elision serve\n" in text


def test_what_to_do_next_can_be_run() -> None:
    """Each command that a replay of one run ends with does what it says."""
    run = "examples/runs/swe-agent-sympy-20801.traj.gz"
    section = build_next_steps(None, [run], 1)
    commands = [str(block.words)[23:] for block in section.blocks if isinstance(block, Sentence)]
    assert commands == [f"elision view {run} --call last", "elision serve"]
    done = run_elision(*commands[0].split()[1:])
    assert done.returncode == 0
    assert "Call 84 of 84" in done.stdout


def test_hindsight_that_was_not_asked_for_has_no_column() -> None:
    """Neither in the totals nor among the worst runs; a sentence says why."""
    text = shown(replace(study(), hindsight=False), 200)
    assert "× hindsight" not in " ".join(text.split())
    assert "No hindsight here" in text
    assert "wider terminal" not in text


def test_a_missing_hindsight_is_explained() -> None:
    """A dash in the column has a line below the table, unless it is raw's."""
    assert "– under × hindsight" in shown(study())
    assert "– under × hindsight" not in shown(study(("raw", "masking")))
    assert "– under × hindsight" not in shown(study(), 80)  # The column has no room there.


@pytest.mark.parametrize("width", [80, 175, 400])
def test_a_table_has_at_most_seven_columns(width: int) -> None:
    """However wide the terminal: the most needed ones, and the line below says where the others are."""
    table = build_totals(study())
    places = terminal.fit_columns(table, table.rows, width)
    assert 5 <= len(places) <= MOST_COLUMNS
    text = shown(study(), width)
    assert f"{len(table.columns) - len(places)} more columns with --html and --json." in text


def test_it_opens_with_what_was_paid_and_what_elision_costs() -> None:
    """The headline, and a bar each for raw, the same at every turn, the recommended strategy and the cheapest."""
    lines = shown(study(), 80).splitlines()
    assert lines[0].startswith("Masking costs $4.00 instead of $5.00")
    bars = [line for line in lines if "█" in line]
    names = [line.split("  ")[0] for line in bars]
    assert names == [RAW, "masking (every turn)", "masking (recommended)", HYBRID]
    assert bars[1].count("█") > bars[0].count("█") > bars[2].count("█") > bars[3].count("█")


def test_what_must_be_said() -> None:
    """Headline, recommendation, prices, break-even, controls, problems, and what limits the figures."""
    text = " ".join(shown(study()).split())
    assert (
        "Masking costs $4.00 instead of $5.00 as recorded (−20 %). Masking at every turn costs $7.50 (+50 %)." in text
    )
    assert "Recommended: masking; it needs no model, and recall gives back what it hid." in text
    assert "Lowest cost here: hybrid at $2.50, including $0.250 for 4 summaries by a model." in text
    assert "Prices of 2026-11-20: anthropic (most Claude models), $3 input, $3.75 cache write" in text
    assert "32 (+35 %)" in text  # 0.35 x 90 turns
    assert "93 % (window 5)" in text
    assert "runs/broken.jsonl:12: no JSON" in text
    assert "keeps the agent's recorded steps" in text
    assert "priced like a real summary call" in text


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
    lines = shown(replace(study((HYBRID,)), rows=(bare,))).splitlines()
    _, line, *_ = [line for line in lines if line.startswith("hybrid ")]
    assert line.count("–") == 4


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


def test_context_by_turn() -> None:
    """Raw, the recommended strategy and the cheapest, at the turns that runs reach; how many reach them is said."""
    text = shown(study())
    lines = text[text.index("Tokens of the context") : text.index("run by run")].splitlines()
    assert [line.split() for line in lines[1:7]] == [
        ["50"],
        ["context", "at", "turn", "10", "(1", "of", "2", "runs)"],
        ["─" * len(lines[3])],
        ["raw", "10.0k", "50.0k"],
        ["masking", "4.0k", "20.0k"],
        ["hybrid", "4.0k", "20.0k"],
    ]
    assert "Tokens of the context" not in shown(replace(study(), series={}))


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_turns_that_fit(width: int) -> None:
    """Few columns are the last ones; no line is wider than the terminal."""
    long = study(files=("runs/one.jsonl",))
    sizes = {key: replace(each, tokens=tuple(range(1, 1_001))) for key, each in long.series.items()}
    text = shown(replace(long, series=sizes), width)
    assert max(map(cell_len, text.splitlines())) <= width
    (heading,) = [line for line in text.splitlines() if line.startswith("context at turn")]
    assert heading.split()[-1] == "1,000"


def test_turns_column() -> None:
    """A range by default, an amount where one factor is assumed, none with none; a dash where nothing was measured."""
    band = TurnFactor(low=0.9, high=1.1, basis="x")
    rows = tuple(
        replace(each, extended_usd=(each.usd * 0.9, each.usd * 1.1)) if each.strategy == MASKING else each
        for each in study().rows
    )
    found = replace(study(), rows=rows, turns=TurnAssumption(mode="band", factors={MASKING: band}))
    assert _read_cells(found, "vs recorded, turns\nas measured") == ["–", "–", "−28 to −12 %", "–", "–"]
    for mode, heading in (("measured", "cost, turns\nas measured"), ("given", "cost, turns\nas assumed")):
        one = replace(found, turns=replace(found.turns, mode=mode))
        assert _read_cells(one, heading) == ["–", "–", "$3.60 (−28 %)", "–", "–"]
    assert not [name for name in _read_headings(study()) if "turns\n" in name and "missing" not in name]


def _read_headings(what: Study) -> list[str]:
    return [column.title for column in build_totals(what).columns]


def _read_cells(what: Study, heading: str) -> list[str]:
    place = _read_headings(what).index(heading)
    return [join_words(row.cells[place]) for row in build_totals(what).rows if len(row.cells) > 1]


def test_raw_is_compared_with_what_was_sent() -> None:
    """It costs something else where the agent condensed its own history."""
    (raw,) = [row for row in study(("raw",)).totals if row.strategy == "raw"]
    (column,) = [column for column in COLUMNS if column.heading == "vs recorded"]
    assert column.cell(raw) == "–"
    assert column.cell(replace(raw, raw_usd=raw.usd * 1.25)) == "−20 %"


def test_a_heading_in_a_table_takes_no_room_from_figures() -> None:
    """It is cut at its end instead, so that no column of figures is."""
    columns = [Column("name"), Column("first of all", 2), Column("second of all", 1)]
    rows = [TableRow(["a heading of more words than there is room"]), TableRow(["x", "100 %", "200 %"])]
    table = Table(columns, rows, least=4)
    console = Console(file=io.StringIO(), width=40)
    terminal.print_report(Report(command="", headline="", sections=[Section("", [table])]), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "a heading …" in text
    assert "first of all  second of all" in text
