"""The pages on the published results: they are what their data give, and broken data get a clear error."""

from __future__ import annotations

import gzip
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from docs.paper.facts import (
    DIFFERENCES,
    EXPERIMENTS,
    FOLDER,
    INSTANCES,
    AgentRun,
    Experiment,
    PaperFacts,
    compact_source,
    load_facts,
)
from docs.paper.statistics import count_solved, estimate_difference, estimate_ratio, list_common, mean_turns, mean_usd
from docs.paper.tables import recompute_difference
from docs.update_paper import Outputs, build_outputs, fill_page, list_outdated

from elision.errors import FormatError
from elision.lab.elongation import KNEE, LARGEST_WINDOW_ABOVE, warn_of_window
from tests.docs.blocks import ROOT, prose


@pytest.fixture(scope="module")
def facts() -> PaperFacts:
    return load_facts()


@pytest.fixture(scope="module")
def outputs(facts: PaperFacts) -> Outputs:
    return build_outputs(facts)


def test_pages_figures_and_the_table_of_turns_are_of_the_data(outputs: Outputs) -> None:
    """`python docs/update_paper.py --check` finds nothing."""
    assert list_outdated(outputs) == []


def test_what_is_outdated_is_named(outputs: Outputs, tmp_path: Path) -> None:
    """A changed number, a figure of other data, a missing figure, another factor."""
    for name in ("docs/concepts", "docs/reference", "docs/images", "src/elision/lab"):
        shutil.copytree(ROOT / name, tmp_path / name)
    page = tmp_path / "docs/concepts/paper.md"
    page.write_text(page.read_text().replace("−10.3 % (−21.7 to +5.9) | 0", "−7.0 % (−21.7 to +5.9) | 0"))
    figure = tmp_path / "docs/images/paper-cost.svg"
    figure.write_text(figure.read_text().replace("480B", "481B"))
    (tmp_path / "docs/images/paper-turns.svg").unlink()
    table = tmp_path / "src/elision/lab/elongation.toml"
    table.write_text(table.read_text().replace("63.5400", "60.0000"))
    assert list_outdated(outputs, tmp_path) == [
        "docs/concepts/paper.md",
        "docs/images/paper-cost.svg",
        "docs/images/paper-turns.svg",
        "src/elision/lab/elongation.toml",
    ]


def test_a_table_is_filled_by_its_name() -> None:
    """What stood there goes, the text around stays."""
    page = "before\n<!-- table: one -->\nold\n<!-- end -->\nafter <!-- table: one -->\n<!-- end -->"
    filled = "<!-- table: one -->\n\n| 1 |\n\n<!-- end -->"
    assert fill_page(page, {"one": "| 1 |\n"}) == f"before\n{filled}\nafter {filled}"
    with pytest.raises(KeyError):
        fill_page(page, {})


def test_costs_hold_once_summaries_are_paid(facts: PaperFacts) -> None:
    """$1.2859, 0.6098, 0.6361, 0.5714: cost and summary_cost; solved as published, hybrid 28 of 50."""
    coder = {name: facts.experiments[f"coder-{name}"] for name in ("raw", "masking-10", "summarization-21")}
    assert [round(mean_usd(each), 4) for each in coder.values()] == [1.2859, 0.6098, 0.6361]
    assert [count_solved(each) for each in coder.values()] == [267, 274, 269]
    hybrid = facts.experiments["coder-hybrid-43"]
    assert round(mean_usd(hybrid), 4) == 0.5714
    instances = list_common([*coder.values(), hybrid])
    assert len(instances) == 50
    assert {count_solved(each, instances) for each in (*coder.values(), hybrid)} == {28}


def test_intervals_are_the_authors_own(facts: PaperFacts) -> None:
    """Solved: to the last digit, all 500 instances counted. Cost: equal where no run is missing in the data."""
    assert len(facts.differences) == 10
    for published in facts.differences:
        solved, cost = recompute_difference(facts, published)
        assert (solved.value, solved.low, solved.high) == pytest.approx(published.solve_rate, abs=1e-12)
        runs = [facts.experiments[name].runs for name in (published.experiment, published.raw)]
        close = 2e-4 if all(len(each) == 500 for each in runs) else 0.015
        assert (cost.value, cost.low, cost.high) == pytest.approx(published.cost, abs=close)


def test_the_page_states_what_the_tables_give(outputs: Outputs) -> None:
    """The numbers of the claims that are written by hand stand in a generated table too."""
    tables = "\n".join(outputs.tables.values())
    claims = prose(ROOT / "docs/concepts/paper.md")
    claims = claims[claims.index("| claim |") : claims.index("The hybrids ran")]
    for number in (
        *("1.2859", "0.6098", "0.6361", "0.5714", "267 of 500", "274 of 500", "269 of 500", "28 of 50", "27 of 50"),
        *("−10.3 % (−21.7 to +5.9)", "−23.9 % (−39.4 to −2.4)", "0.712", "80.7", "63.5"),
        *("+17.9 %", "+15.2 %", "+1.4 %", "−16.5 %", "−17.5 %", "2.87 %", "6.89 %", "6.57 %", "22 of 50", "15 of 50"),
        *("−4.0 (", "−9.0 (", "57 %", "56 %", "53 %", "50 %", "10 %"),
    ):
        assert number in tables, number
    stated = set(re.findall(r"−\d+\.\d|\+\d+\.\d|\d\.\d{4}", claims))
    assert stated <= set(re.findall(r"−\d+\.\d|\+\d+\.\d|\d\.\d{4}", tables))


def _experiment(*turns: int) -> Experiment:
    runs = {
        f"i{place}": AgentRun(cost=float(count), summary_cost=0.0, summaries=0, turns=count, solved=count % 2)
        for place, count in enumerate(turns)
    }
    return Experiment(key="k", name="n", scaffold="s", model="m", strategy="raw", window=0, every=0, runs=runs)


def test_misses_predict_what_is_solved(facts: PaperFacts) -> None:
    """Over the windows of OpenHands: none below the knee solves less than raw, and every one above it does."""
    experiments = [facts.experiments[dose.experiment] for dose in facts.doses]
    shares = [dose.missing_turns / dose.turns for dose in facts.doses]
    solved = [count_solved(each) for each in experiments]
    assert round(correlate_ranks(shares, solved), 2) == -0.87
    assert round(correlate_ranks(shares, [mean_turns(each) for each in experiments]), 2) == 0.88
    assert all((count >= solved[-1]) == (share <= KNEE) for share, count in zip(shares, solved, strict=True))


def test_the_warning_of_a_window_is_of_the_data(facts: PaperFacts) -> None:
    """`elision doctor --settings` warns of the published windows above the knee only; its counts are theirs."""
    masked = [dose for dose in facts.doses if dose.window]
    above = [dose for dose in masked if dose.missing_turns > KNEE * dose.turns]
    assert max(dose.window for dose in above) == LARGEST_WINDOW_ABOVE
    for dose in masked:
        assert (warn_of_window("openhands", dose.window) is not None) == (dose in above)
    text = str(warn_of_window("openhands", LARGEST_WINDOW_ABOVE))
    for some in (above, [dose for dose in masked if dose not in above]):
        solved = [count_solved(facts.experiments[dose.experiment]) for dose in some]
        assert f"{min(solved)} to {max(solved)}" in text


def correlate_ranks(first: Sequence[float], second: Sequence[float]) -> float:
    """Return Spearman's coefficient; values that are equal share their ranks."""
    ranks = [
        [statistics.mean(i for i, v in enumerate(sorted(row)) if v == value) for value in row]
        for row in (first, second)
    ]
    return statistics.correlation(*ranks)


def test_paired_samples_cancel_what_is_the_same() -> None:
    """Where each instance differs by the same, so does every sample; a missing run counts as nothing."""
    one, other = _experiment(12, 22, 102), _experiment(10, 20, 100)
    instances = list_common([one, other])
    found = estimate_difference(one, other, lambda run: run.turns, 0, instances)
    assert (found.value, found.low, found.high) == (2, 2, 2)
    double = estimate_ratio(_experiment(20, 40, 200), other, lambda run: run.turns, 0, instances)
    assert (double.value, double.low, double.high) == (2, 2, 2)
    assert estimate_difference(_experiment(12), other, lambda run: run.turns, 0, ["i0", "i1"]).value == (12 - 30) / 2


def test_figures_are_drawings_of_the_data(outputs: Outputs) -> None:
    """Each is one file without a request, and has a mark for each figure of its table."""
    marks = {}
    for name, svg in outputs.figures.items():
        assert not re.search(r"(?:href|src)=", svg)
        marks[name] = svg.count('class="mark"')
    # Four of the key and 5 models thrice and the hybrid; 4 and 14 intervals; 3 and nine windows in each of 3 panels.
    assert marks == {"cost": 4 + 16, "turns": 4 + 14, "windows": 3 + 27}


# -- broken data ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the data."""
    return Path(shutil.copytree(FOLDER, tmp_path / "data"))


def _rewrite(file: Path, old: str, new: str) -> None:
    text = gzip.decompress(file.read_bytes()).decode() if file.suffix == ".gz" else file.read_text()
    assert old in text
    data = text.replace(old, new, 1).encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)


def _refuse(folder: Path) -> str:
    with pytest.raises(FormatError) as error:
        load_facts(folder)
    assert "restore docs/data/complexity-trap" in str(error.value)
    return str(error.value)


def test_a_file_cut_short(folder: Path) -> None:
    """Compressed: the bytes end; plain: the last row does."""
    file = folder / INSTANCES
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    assert f"{file}: cut short or damaged" in _refuse(folder)
    text = gzip.decompress(whole)
    file.write_bytes(gzip.compress(text[:5_000]))
    rows = len(text[:5_000].splitlines())
    assert f"{file}, row {rows}: the file ends in the middle" in _refuse(folder)
    file.write_bytes(gzip.compress(text[: text.index(b"\n", 5_000) + 1]))
    assert re.search(r"coder-hybrid-43 has \d+ rows, and experiments.csv, row 3, states 50", _refuse(folder))
    file.unlink()
    assert f"{file}: cannot be read (No such file" in _refuse(folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        (INSTANCES, "summary_cost,", "extra,", ["row 1: no column summary_cost"]),
        (INSTANCES, "coder-hybrid-21,astropy", "coder-hybrid-22,astropy", ["coder-hybrid-21 has", "states 50"]),
        (EXPERIMENTS, "scaffold", "scaffolding", ["row 1: no column scaffold"]),
        (EXPERIMENTS, "coder-hybrid-21,SWE-agent", "coder-hybrid-20,SWE-agent", ["coder-hybrid-20 has 0 rows"]),
        (DIFFERENCES, "mean_cost_hi", "mean_cost_high", ["row 1: no column mean_cost_hi"]),
        (DIFFERENCES, "0.03199999999999997", "often", ["row 2: solve_rate_diff is 'often', no number"]),
        (DIFFERENCES, ",500,", ",500,500,", ["row 2", "cells are expected"]),
        (DIFFERENCES, "gemini_2.5_flash-agent-t_0.8-turn", "other", ["row 2: experiments.csv has no experiment"]),
    ],
)
def test_a_broken_file(folder: Path, name: str, old: str, new: str, words: list[str]) -> None:
    """File, row, and what is wrong there."""
    if old.startswith("coder-hybrid-21,astropy"):
        text = gzip.decompress((folder / name).read_bytes()).decode()
        old = next(line for line in text.splitlines() if line.startswith("coder-hybrid-21,"))
        new = old.replace("-21,", "-22,")
    _rewrite(folder / name, old, new)
    message = _refuse(folder)
    assert str(folder / name) in message or name == EXPERIMENTS
    assert all(word in message for word in words), message


def test_an_instance_twice(folder: Path) -> None:
    text = gzip.decompress((folder / INSTANCES).read_bytes()).decode()
    row = text.splitlines()[1]
    _rewrite(folder / INSTANCES, row, f"{row}\n{row}")
    assert "row 3" in _refuse(folder)
    assert "twice" in _refuse(folder)


def test_the_data_are_compacted_the_same_way(folder: Path, tmp_path: Path) -> None:
    """From the authors' columns, in any order of rows; an experiment that is not listed is an error."""
    source = tmp_path / "source.csv"
    header = (
        "experiment,instance_id,cost,summary_cost,has_summary,summary_count,turn_count,mean_reasoning_tokens,"
        "mean_completion_tokens,mean_prompt_tokens,outcome,strategy,scaffold"
    )
    known = load_facts().experiments["coder-hybrid-21"].name
    rows = [f"{known},b,2.5,0.0,False,0,7,1,2,3,0,s,w", f"{known},a,1.25,0.5,True,2,9,1,2,3,1,s,w"]
    source.write_text("\n".join((header, *rows)) + "\n")
    compact_source(source, folder)
    first = (folder / INSTANCES).read_bytes()
    assert gzip.decompress(first).decode().splitlines() == [
        "experiment,instance_id,cost,summary_cost,summaries,turns,solved",
        "coder-hybrid-21,a,1.25,0.5,2,9,1",
        "coder-hybrid-21,b,2.5,0.0,0,7,0",
    ]
    compact_source(source, folder)
    assert (folder / INSTANCES).read_bytes() == first
    source.write_text(f"{header}\n{rows[0].replace(known, 'unknown')}\n")
    with pytest.raises(FormatError, match=r"row 2: experiments\.csv has no experiment 'unknown'; add it"):
        compact_source(source, folder)


def test_the_script_refuses_in_a_sentence(tmp_path: Path) -> None:
    """Exit code 2 and the mend, no traceback."""
    command = [sys.executable, str(ROOT / "docs/update_paper.py"), "--check", "--compact", str(tmp_path / "none.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "none.csv: cannot be read" in done.stderr
    assert "Traceback" not in done.stderr
