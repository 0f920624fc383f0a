"""`python -m benchmarks closed-loop`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.closed_loop import parse_knobs


def test_two_seeds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Every family under three strategies: a paired table, and JSON with every outcome."""
    path, chart = tmp_path / "found.json", tmp_path / "found.svg"
    arguments = ["--seeds", "2", "--first-seed", "40", "--calls", "20", "--prices", "uncached", "--jobs", "1"]
    main(
        [
            "closed-loop",
            *arguments,
            "--json",
            str(path),
            "--chart",
            str(chart),
            "--variants",
            "masking(window=3)",
            "paper-masking",
        ]
    )
    table = capsys.readouterr().out
    assert "uncached, 12 tasks" in table
    drawn = chart.read_text(encoding="utf-8")
    assert all(text in drawn for text in ("masking(window=3)", "paper-masking", "uncached", "cost / raw"))
    found = json.loads(path.read_bytes())
    assert [each["variant"] for each in found["comparisons"]] == ["raw", "masking(window=3)", "paper-masking"]
    assert len(found["outcomes"]) == 36
    assert {each["seed"] for each in found["outcomes"]} == {40, 41}
    assert all(each["usd_ratio"] < 1 for each in found["comparisons"][1:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--variants", "maskign"], "maskign"),
        (["--variants", "masking + colour=red"], "no option 'colour'"),
        (["--knobs", "rot=2"], "rot is a share"),
        (["--knobs", "mood=bad"], "mood"),
        (["--knobs", "calls=many"], "calls"),
        (["--prices", "no-such-model-1"], "no-such-model-1"),
        (["--families", "chess"], "chess"),
        (["--seeds", "0"], "1 or more"),
    ],
)
def test_bad_options(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    """Each is refused with a sentence that names it, before anything runs."""
    with pytest.raises(SystemExit):
        main(["closed-loop", *arguments])
    assert message in capsys.readouterr().err


def test_knobs_in_text() -> None:
    """Numbers, words and truth values."""
    knobs = parse_knobs(["rot=0.5", "calls=200", "reuse=heavy", "recalls=false"])
    assert (knobs.rot, knobs.calls, knobs.reuse, knobs.recalls) == (0.5, 200, "heavy", False)
