"""Which tools get a rule, and in which direction."""

from __future__ import annotations

from elision.lab.study_settings import StudySettings
from elision.lab.tuning.search_space import MOST_RULES, ToolRule, ToolUse, choose_tool_rules, measure_tools
from elision.testing.builders import call, long_text, result, trajectory, turn
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory
from tests.lab.tuning.recorded import make_run

SETTINGS = StudySettings(prices=find_price_set("anthropic"), candidates=(), tokens="estimate")


def test_a_tool_whose_results_are_missed_stays_longer() -> None:
    """Every fact that is used again comes from `read`: it gets twice the window, `list` half of it."""
    run = make_run(1, 40, needed_after=14)
    uses = {use.tool: use for use in measure_tools([run], SETTINGS)}
    assert uses["read"].missed > 0
    rules = choose_tool_rules([uses["read"], ToolUse(tool="list", hidden_tokens=uses["read"].hidden_tokens, runs=1)], 1)
    assert rules == (ToolRule(tool="read", longer=True), ToolRule(tool="list", longer=False))


def _shell_run(number: int) -> Trajectory:
    lines = ["cat a.py", "cd /src && grep -n x b.py", "cat c.py"]
    made = [
        turn(index, (call(command=lines[index % 3]), result(long_text(index * 10 + number, lines=12))))
        for index in range(1, 31)
    ]
    return trajectory(*made, id=f"shell-{number}")


def test_a_shell_is_divided_by_program() -> None:
    """One tool runs everything: its programs count, with the folder that a command changes to first."""
    uses = measure_tools([_shell_run(1), _shell_run(2)], SETTINGS)
    assert [use.args for use in uses] == ["cat *", "cd * && grep *"]
    assert all(use.tool == "bash" and use.runs == 2 for use in uses)


def test_small_and_lone_tools_get_no_rule() -> None:
    """A rule for the only tool is the window; one for little text changes little; three are enough."""
    assert choose_tool_rules([ToolUse(tool="bash", hidden_tokens=100, runs=1)], 1) == ()
    uses = [ToolUse(tool=f"t{number}", hidden_tokens=1000, runs=2) for number in range(6)]
    assert len(choose_tool_rules(uses, 2)) == MOST_RULES
    large, small = ToolUse(tool="big", hidden_tokens=990, runs=2), ToolUse(tool="small", hidden_tokens=10, runs=2)
    assert choose_tool_rules([large, small], 2) == (ToolRule(tool="big", longer=False),)


def test_what_occurs_in_one_of_several_runs_gets_no_rule() -> None:
    """Nor does what is left of a shell when its programs are counted: its pattern would match them too."""
    uses = [
        ToolUse(tool="bash", args="cat *", hidden_tokens=100, runs=3),
        ToolUse(tool="bash", hidden_tokens=100, runs=3),
        ToolUse(tool="bash", args="make *", hidden_tokens=100, runs=1),
    ]
    assert [rule.args for rule in choose_tool_rules(uses, 3)] == ["cat *"]


def test_a_name_that_no_file_could_show_gets_no_rule() -> None:
    """Names come from recordings: control characters and lone surrogates stay out of settings."""
    uses = [ToolUse(tool=name, hidden_tokens=100, runs=1) for name in ("a\x1b[2J", "b\ud800", "c\n", "read")]
    assert [rule.tool for rule in choose_tool_rules(uses, 1)] == ["read"]
