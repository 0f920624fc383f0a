"""What the tokens of a prompt are."""

from __future__ import annotations

import pytest

from elision.audit.prompt_content import count_tools, find_last_uses, measure_idle_share
from elision.testing import builders
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.tool_definitions import list_tools
from elision.trajectory.turn import Head

SIZER = Sizer(make_counter("estimate"))
TEXT = "what it does " * 20


@pytest.mark.parametrize(
    "tools",
    [
        [{"name": "bash", "description": TEXT}, {"name": "find", "description": TEXT}],
        [
            {"type": "function", "function": {"name": "bash", "description": TEXT}},
            {"type": "function", "function": {"name": "find", "description": TEXT}},
        ],
        [{"functionDeclarations": [{"name": "bash", "description": TEXT}, {"name": "find", "description": TEXT}]}],
    ],
    ids=["anthropic", "openai", "gemini"],
)
def test_unused_tools_of_every_shape(tools: list[dict[str, object]]) -> None:
    """One of two definitions of one length belongs to a tool that is never called."""
    run = builders.trajectory(builders.step(1), head=Head(tools=tuple(tools)))
    assert len(list(list_tools(run.head))) == 2
    assert measure_idle_share(count_tools(run, SIZER)) == pytest.approx(0.5, abs=0.02)


def test_a_run_without_calls_condemns_no_tool() -> None:
    run = builders.trajectory(builders.turn(1, text="Done."), head=Head(tools=({"name": "bash"},)))
    assert measure_idle_share(count_tools(run, SIZER)) == 0.0


def test_the_last_use_of_a_result() -> None:
    """A result is in use up to the last turn that first writes an item of it."""
    shown = builders.turn(1, (builders.call(), builders.result("parse_line in src/reader.py, emit_token")))
    run = builders.trajectory(
        shown, builders.turn(2, text="I look at parse_line."), builders.turn(3, text="And emit_token, then parse_line.")
    )
    assert find_last_uses(run) == {(1, 1): 3}
