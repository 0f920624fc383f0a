"""A placeholder that names a handle, where the model has no tool to read it, is noted once."""

from __future__ import annotations

from typing import Any

import pytest

from elision.manager import ContextManager
from elision.manager.recall_tools import NOTE_UNREAD_HANDLES
from tests.manager.agents import make_history

EAGER = "masking(window=2, schedule=every-turn)"


def notes(tools: Any = None, strategy: str = EAGER, shape: str = "openai", **options: Any) -> list[int]:
    """At which calls the note comes."""
    with ContextManager(strategy, store="memory:", **options) as context:
        given = context.tool_definitions("openai") if tools == "ours" else tools
        told = [context.prepare(make_history(shape, steps), tools=given).diagnostics.notes for steps in range(6)]
    return [call for call, said in enumerate(told) if NOTE_UNREAD_HANDLES in said]


BASH = [{"type": "function", "function": {"name": "bash", "parameters": {}}}]


@pytest.mark.parametrize("tools", [None, BASH])
def test_the_first_placeholder_that_nobody_can_read_is_noted(tools: Any) -> None:
    """The model may ask for what it cannot get: the note says what mends it, with the first placeholder alone."""
    assert notes(tools) == [3]


@pytest.mark.parametrize(
    ("tools", "options"),
    [
        ("ours", {}),
        (BASH, {"offer": "first"}),
        (BASH, {"offer": "never"}),
        (BASH, {"recall": False}),
        ([{"name": "mcp__elision__recall_hidden", "input_schema": {}}], {}),
        (BASH, {"shadow": True}),
        (BASH, {"strategy": "masking(window=2, schedule=every-turn, handles=false)"}),
        (BASH, {"strategy": 'masking(window=2, schedule=every-turn, placeholder="[gone]")'}),
        (BASH, {"strategy": "raw"}),
        # The provider clears by itself: no placeholder of ours is sent.
        (BASH, {"model": "claude-opus-5-5", "dialect": "anthropic", "shape": "anthropic"}),
    ],
)
def test_nothing_is_noted_where_handles_are_read_or_none_is_named(tools: Any, options: dict[str, Any]) -> None:
    """The recall tools are offered, or placeholders name no handle, or none is sent."""
    assert notes(tools, **options) == []


def test_the_same_in_a_loop_by_hand() -> None:
    """The tools are those of the head there."""
    for tools, expected in (([], 1), (ContextManager(store="memory:").tool_definitions("anthropic"), 0)):
        with ContextManager(EAGER, store="memory:", dialect="anthropic") as context:
            context.begin("Mend it.", tools=tools)
            told = []
            for step in range(6):
                told.append(context.view().diagnostics.notes)
                context.add_turn(action="ls", observation=f"{step} " + "file.py " * 200)
        assert sum(NOTE_UNREAD_HANDLES in said for said in told) == expected
