"""How the two shapes of messages say what an agent says: its task, its tools, the results of its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.agent.environment import Outcome, Tool
from elision.agent.model import Shape
from elision.trajectory.turn import Action

Json = dict[str, Any]
#: What stands for a result that says nothing: providers take no empty one.
NOTHING = "(no output)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """One shape. system: (what to put in front of the messages, what to send apart)."""

    tool: Callable[[Tool], Json]
    results: Callable[[Sequence[tuple[Action, Outcome]]], list[Json]]
    system: Callable[[str], tuple[list[Json], str | None]]


def user(text: str) -> Json:
    """A message of the user; both shapes say it alike."""
    return {"role": "user", "content": text}


def _openai_tool(tool: Tool) -> Json:
    inner = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": inner}


def _openai_results(pairs: Sequence[tuple[Action, Outcome]]) -> list[Json]:
    return [{"role": "tool", "tool_call_id": call.id, "content": outcome.text or NOTHING} for call, outcome in pairs]


def _anthropic_tool(tool: Tool) -> Json:
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}


def _anthropic_results(pairs: Sequence[tuple[Action, Outcome]]) -> list[Json]:
    blocks = []
    for call, outcome in pairs:
        block: Json = {"type": "tool_result", "tool_use_id": call.id, "content": outcome.text or NOTHING}
        blocks.append({**block, "is_error": True} if outcome.error else block)
    return [{"role": "user", "content": blocks}]


WORDS: Final[Mapping[Shape, Words]] = {
    "openai": Words(
        tool=_openai_tool,
        results=_openai_results,
        system=lambda text: ([{"role": "system", "content": text}], None),
    ),
    "anthropic": Words(tool=_anthropic_tool, results=_anthropic_results, system=lambda text: ([], text)),
}
