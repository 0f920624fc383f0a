"""The recall tools as an agent's model sees them: their definitions, and the arguments of a call."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elision.manager.observation_text import TextPart
from elision.providers.provider_table import find_provider
from elision.stores.store import Hit
from elision.trajectory.foreign_json import parse_object
from elision.trajectory.recall_names import RECALL_TOOL, SEARCH_TOOL

_RECALL_DESCRIPTION = (
    "Read again what was hidden from this conversation to save room. A placeholder names its handle, such as t12.1. "
    "Ask for the lines or the pattern you need rather than for everything."
)
_SEARCH_DESCRIPTION = (
    "Search everything that was seen in this conversation, hidden or not, for words; returns handles and excerpts."
)
_RECALL_INPUT: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "handle": {
            "type": "string",
            "description": "The handle that a placeholder names, such as t12.1; t12 is the whole turn",
        },
        "lines": {"type": "string", "description": "Lines to show, such as 40-80"},
        "pattern": {"type": "string", "description": "Regular expression: show matching lines and those around them"},
        "head": {"type": "integer", "description": "Show the first so many lines"},
    },
    "required": ["handle"],
}
_SEARCH_INPUT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "Words that must all occur"}},
    "required": ["query"],
}
#: The recall tools in no provider's shape, as a session's log keeps them.
RECALL_TOOL_DEFINITIONS: tuple[Mapping[str, Any], ...] = (
    {"name": RECALL_TOOL, "description": _RECALL_DESCRIPTION, "input_schema": _RECALL_INPUT},
    {"name": SEARCH_TOOL, "description": _SEARCH_DESCRIPTION, "input_schema": _SEARCH_INPUT},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallTool:
    """One of the recall tools, for an agent framework that has tools of its own kind.

    name, description: as the model sees them. schema: the arguments, as a JSON Schema.
    call: answers a call, of its arguments as JSON or as a mapping, and never raises. call_async: does the same without
        blocking the event loop.
    """

    name: str
    description: str
    schema: dict[str, Any]
    call: Callable[[str | Mapping[str, Any]], str]
    call_async: Callable[[str | Mapping[str, Any]], Awaitable[str]]


def define_recall_tools(dialect: str) -> list[dict[str, Any]]:
    """Return the recall tools in the shape of `dialect`, the same bytes every time."""
    return render_tools(RECALL_TOOL_DEFINITIONS, dialect)


def render_tools(tools: Sequence[Mapping[str, Any]], dialect: str) -> list[dict[str, Any]]:
    """Return `tools`, each with `name`, `description` and `input_schema`, in the shape of `dialect`."""
    provider = find_provider(dialect)
    return [provider.render_tool(tool) for tool in tools]


def parse_arguments(arguments: object) -> Mapping[str, Any]:
    """Return a call's arguments as an object; {} where they are none."""
    if isinstance(arguments, Mapping):
        return arguments
    if not isinstance(arguments, str | bytes | bytearray):
        return {}
    return parse_object(arguments) or {}


def read_text_argument(arguments: Mapping[str, Any], name: str) -> str:
    """Return argument `name` as text, also where it is a whole number; "" for anything else."""
    value = arguments.get(name)
    # Python writes numbers of up to 4,300 digits.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= sys.maxsize:
        return str(value)
    if isinstance(value, str):
        return value
    return ""


def parse_part(arguments: Mapping[str, Any]) -> TextPart:
    """Return the part that a call asks for. Arguments of a wrong type are ignored."""
    pattern = arguments.get("pattern")
    head = arguments.get("head")
    return TextPart(
        lines=read_text_argument(arguments, "lines"),
        pattern=pattern if isinstance(pattern, str) else "",
        head=head if isinstance(head, int) and not isinstance(head, bool) else None,
    )


def format_hits(hits: list[Hit]) -> str:
    """Return the hits of a search as text, one line each."""
    if not hits:
        return "[nothing found; try fewer or other words]"
    return "\n".join(f"{hit.handle} {hit.tool or 'assistant'}: {hit.excerpt}" for hit in hits)
