"""The two shapes of messages: how each writes a task, tools, and the results of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.agent.environment import ActionResult, Tool
from elision.agent.model import Shape
from elision.trajectory.turn import Action

Json = dict[str, Any]
#: What stands for a result that says nothing: providers take no empty one.
EMPTY_RESULT = "(no output)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageShape:
    """One shape. split_system: returns the messages that begin a request, and the system prompt apart from them."""

    render_tool: Callable[[Tool], Json]
    render_results: Callable[[Sequence[tuple[Action, ActionResult]]], list[Json]]
    split_system: Callable[[str], tuple[list[Json], str | None]]


def make_user_message(text: str) -> Json:
    """Return a message of the user, which is the same in both shapes."""
    return {"role": "user", "content": text}


def _render_openai_tool(tool: Tool) -> Json:
    inner = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": inner}


def _render_openai_results(pairs: Sequence[tuple[Action, ActionResult]]) -> list[Json]:
    return [
        {"role": "tool", "tool_call_id": call.id, "content": outcome.text or EMPTY_RESULT} for call, outcome in pairs
    ]


def _render_anthropic_tool(tool: Tool) -> Json:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _render_anthropic_results(pairs: Sequence[tuple[Action, ActionResult]]) -> list[Json]:
    blocks = []
    for call, outcome in pairs:
        block: Json = {"type": "tool_result", "tool_use_id": call.id, "content": outcome.text or EMPTY_RESULT}
        blocks.append({**block, "is_error": True} if outcome.error else block)
    return [{"role": "user", "content": blocks}]


MESSAGE_SHAPES: Final[Mapping[Shape, MessageShape]] = {
    "openai": MessageShape(
        render_tool=_render_openai_tool,
        render_results=_render_openai_results,
        split_system=lambda text: ([{"role": "system", "content": text}], None),
    ),
    "anthropic": MessageShape(
        render_tool=_render_anthropic_tool,
        render_results=_render_anthropic_results,
        split_system=lambda text: ([], text),
    ),
}
