"""`elision lab closed-loop`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elision.testing.loop.closed_loop import FAMILIES
from elision.testing.loop.loop_study import parse_knobs
from tests.cli.in_process import run_elision

STUDY = ["lab", "closed-loop", "--seeds", "2", "--first-seed", "40", "--knob", "calls=20", "--prices", "uncached"]


def test_two_seeds(tmp_path: Path) -> None:
    """Every family under three strategies: a paired table, a chart, and JSON with every outcome."""
    chart = tmp_path / "found.svg"
    options = [*STUDY, "--jobs", "1", "-s", "masking(window=3)", "-s", "paper-masking"]
    one = [*options, "--family", next(iter(FAMILIES)), "--svg", chart]
    assert "uncached, 2 tasks" in run_elision(*one).stdout
    drawn = chart.read_text(encoding="utf-8")
    assert all(text in drawn for text in ("masking(window=3)", "paper-masking", "uncached", "cost / raw"))
    found = json.loads(run_elision(*options, "--json").stdout)
    assert (found["schema"], found["command"]) == ("elision/1", "lab closed-loop")
    assert [each["variant"] for each in found["comparisons"]] == ["raw", "masking(window=3)", "paper-masking"]
    assert len(found["outcomes"]) == 36
    assert {each["seed"] for each in found["outcomes"]} == {40, 41}
    assert all(each["usd_ratio"] < 1 for each in found["comparisons"][1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-s", "maskign"], "maskign"),
        (["-s", "masking + colour=red"], "no option 'colour'"),
        (["--knob", "rot=2"], "rot is a share"),
        (["--knob", "mood=bad"], "mood"),
        (["--knob", "calls=many"], "calls"),
        (["--prices", "no-such-model-1"], "no-such-model-1"),
        (["--family", "chess"], "chess"),
        (["--seeds", "0"], "--seeds"),
        (["--model", "openai:gpt-5"], "--max-cost-usd"),
    ],
)
def test_bad_options(arguments: list[str], message: str) -> None:
    """Each is refused with a sentence that names it, before anything runs."""
    done = run_elision("lab", "closed-loop", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_file_of_ones_own_is_not_replaced(tmp_path: Path) -> None:
    """Refused before anything runs."""
    mine = tmp_path / "mine.txt"
    mine.write_text("mine", encoding="utf-8")
    for place, message in ((mine, "is not a report of Elision"), (tmp_path / "no" / "a.svg", "there is no folder")):
        done = run_elision(*STUDY, "--svg", place)
        assert done.returncode == 2
        assert message in done.stderr
    assert mine.read_text(encoding="utf-8") == "mine"


def test_knobs_in_text() -> None:
    """Numbers, words and truth values."""
    knobs = parse_knobs(["rot=0.5", "calls=200", "reuse=heavy", "recalls=false"])
    assert (knobs.rot, knobs.calls, knobs.reuse, knobs.recalls) == (0.5, 200, "heavy", False)
