"""Whose messages these are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.dialects import Json, anthropic, mapping_in, mappings_in, openai_responses, text_in
from elision.dialects.capabilities import bare
from elision.dialects.live.anthropic import Anthropic
from elision.dialects.live.openai_chat import OpenAIChat
from elision.dialects.live.openai_responses import OpenAIResponses
from elision.dialects.live.pieces import LiveDialect
from elision.dialects.live.plain import plain

LIVE: Final[Mapping[str, LiveDialect]] = {
    dialect.name: dialect for dialect in (OpenAIChat(), OpenAIResponses(), Anthropic())
}
#: Types of tools that Anthropic runs, or defines: `web_search_20250305`.
_ANTHROPICS: Final = re.compile(r".*_\d{8}|mcp_toolset")
_OPENAIS: Final = re.compile(r"(gpt|o\d|chatgpt|codex|computer-use)\b")


def detected(messages: Sequence[Any], system: object, tools: object, model: str) -> LiveDialect:
    """The dialect that messages, system prompt and tools bear signs of; OpenAI chat where there is none.

    model: decides where nothing else does.
    """
    found = shown(messages, system, tools, model)
    if found is not None:
        return found
    # Between the messages stand system prompts of chat, and of Responses too, whose items will show it.
    is_prompted = any(mapping_in(plain(message)).get("role") in ("system", "developer") for message in messages)
    return LIVE["anthropic" if "claude" in model and not tools and not is_prompted else "openai"]


def shown(messages: Sequence[Any], system: object, tools: object, model: str = "") -> LiveDialect | None:
    """The same, or None where there is no sign. A system prompt that stands apart is a sign of the model's own API."""
    looked = [mapping_in(plain(message)) for message in messages]
    if tools:
        definitions = mappings_in(plain(tools))
    else:
        definitions = []
    if openai_responses.shows(looked):
        return LIVE["openai-responses"]
    if anthropic.shows(looked, {"tools": definitions}):
        return LIVE["anthropic"]
    if named := next(filter(None, map(_owner, definitions)), ""):
        return LIVE[named]
    if isinstance(plain(system), str | list):
        return LIVE["openai-responses" if _OPENAIS.match(bare(model)) else "anthropic"]
    said = any("tool_calls" in message or message.get("role") == "tool" for message in looked)
    if said or definitions:
        return LIVE["openai"]
    return None


def _owner(tool: Json) -> str:
    """The dialect that a tool's definition is written in; "" where it does not show."""
    if "function" in tool or "custom" in tool:
        return "openai"
    kind = text_in(tool.get("type"))
    if _ANTHROPICS.fullmatch(kind):
        return "anthropic"
    if kind:
        return "openai-responses"
    return ""
