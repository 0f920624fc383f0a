"""Agents that act in plain text: finding the action in the assistant's text.

`observations = tools | user | auto` (design 1). `auto` decides once: an agent with tool definitions, tool calls or tool
results speaks the tool protocol; else it acts in text if its first message holds an action; else it only chats, and a
chat has no observations.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

from elision.trajectory.turn import Action

ObservationRole: TypeAlias = Literal["tools", "user", "auto"]

# An opening line has an end: without one, marks in a row without a newline are quadratic.
_FENCE = re.compile(r"```([\w+-]{0,40})[^\n]{0,400}\n(.*?)\n?```", re.DOTALL)
_TAG = re.compile(r"<(command|execute_bash|execute_ipython|tool_call|action|function=[\w.-]+)>")
_REACT = re.compile(r"^Action:\s*([\w.-]+)\s*\n+Action Input:\s*(.+)", re.MULTILINE)
_SHELLS = frozenset({"bash", "sh", "shell", "console", "mswea_bash_command"})
_NOT_ACTIONS = frozenset({"json", "diff", "patch", "yaml", "toml", "text", "markdown", "md"})


def find_action(text: str) -> Action | None:
    """The action that an assistant's `text` holds, or None: last runnable fence, tag or ReAct line."""
    for language, body in reversed(_FENCE.findall(text)):
        if language.lower() not in _NOT_ACTIONS and body.strip():
            if language.lower() in _SHELLS or not language:
                name = "bash"
            else:
                name = language.lower()
            return Action(id="", name=name, arguments=body.strip(), implicit=True)
    if tagged := _find_tagged_action(text):
        return tagged
    if found := _REACT.search(text):
        return Action(id="", name=found[1], arguments=found[2].strip(), implicit=True)
    return None


def _find_tagged_action(text: str) -> Action | None:
    opened = _TAG.search(text)
    # Looked for apart: a pattern with both ends is quadratic in tags that are never closed.
    end = text.find("</", opened.end()) if opened else -1
    if opened is None or end < 0:
        return None
    name = opened[1].removeprefix("function=")
    shell = name in ("command", "execute_bash")
    return Action(id="", name="bash" if shell else name, arguments=text[opened.end() : end].strip(), implicit=True)


def choose_observation_role(first_text: str, *, has_tools: bool) -> Literal["tools", "user"]:
    """What `auto` means for an agent whose first message says `first_text`.

    has_tools: tool definitions, tool calls or tool results were seen.
    """
    if not has_tools and find_action(first_text):
        return "user"
    return "tools"
