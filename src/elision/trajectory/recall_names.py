"""Names of the tools by which an agent reads what was hidden, or left out."""

from __future__ import annotations

from typing import Final

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
#: The fields of a tool's definition that hold further ones.
NESTED_TOOL_FIELDS: Final = ("functionDeclarations", "function_declarations", "tools")


def reads_handles(name: str) -> bool:
    """Return whether the tool of this name returns what was hidden."""
    # Hosts put the name of a server before those of its tools.
    return name in RECALL_TOOLS or name.endswith(MCP_RECALL_TOOL)
