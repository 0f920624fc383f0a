"""Tool definitions of OpenAI's shape, in which many frameworks hold them, as Anthropic takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def make_anthropic_tool(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function's definition in Anthropic's shape; any other definition is returned as it is."""
    function = definition.get("function")
    if not isinstance(function, Mapping):
        return dict(definition)
    made = {"name": function["name"], "description": function.get("description") or ""}
    return {**made, "input_schema": function.get("parameters") or {"type": "object"}}
