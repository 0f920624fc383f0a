"""The tool definitions of a head, which are JSON in the shape of any API: one by one, and by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from elision.trajectory.turn import Head

#: Fields of a tool in which Gemini has several definitions.
TOOL_GROUPS: Final = ("functionDeclarations", "function_declarations")


def list_tools(head: Head) -> Iterator[Mapping[str, Any]]:
    """Yield the tool definitions one by one, out of Gemini's groups too."""
    for tool in head.tools:
        declared = next(filter(None, map(tool.get, TOOL_GROUPS)), None)
        if isinstance(declared, list):
            yield from (each for each in declared if isinstance(each, Mapping))
        else:
            yield tool


def get_tool_name(tool: Mapping[str, Any]) -> str:
    """Return the name of a definition; "" where it has none."""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, Mapping) else tool.get("name")
    return name if isinstance(name, str) else ""
