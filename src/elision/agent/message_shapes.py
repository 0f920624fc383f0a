"""Messages of the agent in the shape of its model: the task, tools, and the results of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from elision.agent.environment import ActionResult, Tool
from elision.agent.model import Shape
from elision.providers.provider_table import PROVIDERS
from elision.trajectory.turn import Action

Json = dict[str, Any]
#: Calls, each with its result.
CallResults: TypeAlias = Sequence[tuple[Action, ActionResult]]
#: What stands for a result that says nothing: providers take no empty one.
EMPTY_RESULT = "(no output)"


def make_user_message(text: str) -> Json:
    """Return a message of the user, which is the same in both shapes."""
    return {"role": "user", "content": text}


def render_tool(shape: Shape, tool: Tool) -> Json:
    """Return the definition of a tool."""
    return PROVIDERS[shape].render_tool(
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
    )


def split_system(shape: Shape, text: str) -> tuple[list[Json], str | None]:
    """Return the messages that begin a request, and the system prompt where it is apart from them."""
    if PROVIDERS[shape].system_field:
        return [], text
    return [{"role": "system", "content": text}], None


def render_results(shape: Shape, results: CallResults) -> list[Json]:
    """Return the results of one message's calls as messages."""
    if shape == "openai":
        return [
            {"role": "tool", "tool_call_id": call.id, "content": outcome.text or EMPTY_RESULT}
            for call, outcome in results
        ]
    blocks = []
    for call, outcome in results:
        block: Json = {"type": "tool_result", "tool_use_id": call.id, "content": outcome.text or EMPTY_RESULT}
        blocks.append({**block, "is_error": True} if outcome.error else block)
    return [{"role": "user", "content": blocks}]
