"""The tool definitions of a head, which are JSON in the shape of any API, and the names of the tools of ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from elision.trajectory.turn import Head

#: Tools by which the agent reads what was hidden, and searches it.
RECALL_TOOL: Final = "elision_recall"
SEARCH_TOOL: Final = "elision_search"
RECALL_TOOLS: Final = frozenset((RECALL_TOOL, SEARCH_TOOL))
#: The tool by which it reads whole definitions of outlined tools.
FIND_TOOL: Final = "elision_find_tools"
#: All tools of ours that requests may have.
OWN_TOOLS: Final = RECALL_TOOLS | {FIND_TOOL}
#: The tool of `elision mcp` that reads a handle.
MCP_RECALL_TOOL: Final = "recall_hidden"
#: Fields of a tool in which Gemini has several definitions.
TOOL_GROUPS: Final = ("functionDeclarations", "function_declarations")
#: The fields of a definition that hold further ones, whichever tool it is.
NESTED_TOOL_FIELDS: Final = (*TOOL_GROUPS, "tools")


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


def reads_handles(name: str) -> bool:
    """Return whether the tool of this name returns what was hidden."""
    # Hosts put the name of a server before those of its tools.
    return name in RECALL_TOOLS or name.endswith(MCP_RECALL_TOOL)
