"""`elision replay --rules`: a dry run of rules over recorded runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from elision.cli.app import app
from elision.cli.strategy_reports import count_matches
from elision.lab.run_loading import load_runs
from elision.strategies.selectors import Rule
from elision.trajectory.tokens import Sizer, make_counter

RUN = Path(__file__).parents[2] / "examples" / "runs" / "openhands-pylint.tar.gz"


def test_lists_every_rule_with_its_matches() -> None:
    """Each rule of the strategy with counts and handles; those of tags only where results have tags."""
    spec = 'masking(rules=[rule(tool="think", keep=true), rule(args="*pytest*", after=2)])'
    result = CliRunner(env={"COLUMNS": "140"}).invoke(app, ["replay", "--rules", str(RUN), "-s", spec])
    assert result.exit_code == 0
    assert 'rule(tool="think", keep=true)' in result.output
    assert 'rule(args="*pytest*", after=2)' in result.output
    assert "keep_output" not in result.output
    assert "think" in result.output.split('rule(tool="think"')[1]


def test_counts_are_those_of_the_run() -> None:
    """A rule that matches everything counts every observation and its tokens."""
    runs = load_runs([RUN]).runs
    sizer = Sizer(make_counter())
    found = count_matches(Rule(keep=True), runs, sizer)
    observations = [observation for turn in runs[0].turns for observation in turn.observations]
    assert found.results == len(observations)
    assert found.tokens == sum(sizer.count_observation(observation) for observation in observations)


def test_a_rule_has_one_line_at_80_columns() -> None:
    """Rules as long as those of the guide."""
    spec = 'masking(rules=[rule(args="*reproduce*", keep=true), rule(below=40)])'
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["replay", "--rules", str(RUN), "-s", spec])
    lines = result.output.splitlines()
    assert [line.split("  ")[0] for line in lines if line.startswith("rule")] == [
        "rule",
        'rule(args="*reproduce*", keep=true)',
        "rule(below=40)",
    ]
    assert "90 tool results in 1 run." in result.output


def test_without_a_strategy_the_error_has_an_example() -> None:
    """What the error shows can be typed."""
    error = str(CliRunner().invoke(app, ["replay", "--rules", str(RUN)]).exception)
    example = re.search(r"-s '(.*)'$", error)
    assert example is not None
    assert CliRunner().invoke(app, ["replay", "--rules", str(RUN), "-s", example[1]]).exit_code == 0


def test_tags_of_recorded_messages(tmp_path: Path) -> None:
    """A dry run shows what rules by tag would match in messages that were recorded with tags."""
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "long", "tags": ["keep_output", "tool_output"]},
    ]
    path = tmp_path / "run.json"
    path.write_text(json.dumps({"messages": messages}), encoding="utf-8")
    spec = 'masking(rules=rule(tag="tool_output", after=3))'
    shown = CliRunner(env={"COLUMNS": "140"}).invoke(app, ["replay", "--rules", str(path), "-s", spec])
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.output.splitlines() if line.startswith("rule(")]
    assert [(line[0], line[2]) for line in lines] == [
        ('rule(tag="tool_output",', "1"),
        ('rule(tag="keep_output",', "1"),
    ]
