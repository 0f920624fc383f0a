"""Keep the tools of a session as their client first wrote them, where a later request only writes them otherwise.

Providers put tools at the front of the prompt in the order and with the keys that a request has. So a client whose
tools come from an unordered map loses the whole prompt cache at every call, and means nothing by it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable
from typing import Any, Final

from elision.gateway.request_body import RequestBody
from elision.trajectory.tool_definitions import TOOL_GROUPS

#: Bytes of tools that are compared; larger ones would hold up other requests.
MAX_BYTES: Final = 256 * 1024
#: Sets of tools that a session remembers: an agent may have some for planning, and others for work.
MAX_SETS: Final = 4


class ToolPins:
    """The tools of one session, by what they say. Never shared by two sessions."""

    def __init__(self) -> None:
        self._first: dict[Hashable, bytes] = {}
        #: What could not be pinned last.
        self._refused = b""

    def knows(self, body: RequestBody) -> bool:
        """Return whether there is nothing to do: the tools have the bytes that are kept, or cannot be pinned."""
        raw = body.get_raw_field("tools")
        return raw is None or len(raw) > MAX_BYTES or raw == self._refused or raw in self._first.values()

    def pin_tools(self, body: RequestBody) -> RequestBody:
        """Return `body` with the bytes that its tools had when they first came; `body` itself where they have them."""
        raw = body.get_raw_field("tools")
        if raw is None or self.knows(body):
            return body
        says = read_meaning(raw)
        if says is None or (says not in self._first and len(self._first) >= MAX_SETS):
            self._refused = raw
            return body
        # Another request of the session may be the first one in this moment.
        first = self._first.setdefault(says, raw)
        return body if first == raw else body.replace_field("tools", first) or body


def read_meaning(raw: bytes) -> Hashable | None:
    """Return what a list of tools says, whatever their order, white space and order of keys; None where that is unsure.

    A cache breakpoint counts by its place in the list, and not as a part of its tool: all tools before it are cached.
    """
    try:
        tools = json.loads(raw, object_pairs_hook=_read_object, parse_float=_Number, parse_int=_Number)
        if not isinstance(tools, list):
            return None
        controls = []
        for place, tool in enumerate(tools):
            if isinstance(tool, dict) and "cache_control" in tool:
                controls.append((place, _freeze(tool.pop("cache_control"))))
        return _freeze_group(tools), tuple(controls)
    except (ValueError, RecursionError):
        return None


class _Number(str):
    """A number as it is written: what a provider makes of 1.0 is its own matter."""

    __slots__ = ()


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("of keys that come twice it is unsure which counts")
    return found


def _freeze(value: Any) -> Hashable:
    if isinstance(value, dict):
        fields = ((name, _freeze_group(each) if name in TOOL_GROUPS else _freeze(each)) for name, each in value.items())
        return "object", frozenset(fields)
    if isinstance(value, list):
        return "list", tuple(map(_freeze, value))
    return type(value).__name__, value


def _freeze_group(tools: Any) -> Hashable:
    """Return what tools say in any order."""
    if not isinstance(tools, list):
        return _freeze(tools)
    return "tools", frozenset(Counter(map(_freeze, tools)).items())
