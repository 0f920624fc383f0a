"""Detect which provider's messages these are."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from elision.providers.anthropic import parse as anthropic
from elision.providers.anthropic.live import LiveAnthropic
from elision.providers.live.client_messages import convert_to_json
from elision.providers.live.pieces import LiveDialect
from elision.providers.openai_chat.live import LiveOpenAIChat
from elision.providers.openai_responses import parse as openai_responses
from elision.providers.openai_responses.live import LiveOpenAIResponses
from elision.providers.shared.capabilities import normalize_model
from elision.providers.shared.json_reading import Json, mapping_in, mappings_in, text_in

LIVE_DIALECTS: Final[Mapping[str, LiveDialect]] = {
    dialect.name: dialect for dialect in (LiveOpenAIChat(), LiveOpenAIResponses(), LiveAnthropic())
}
#: Types of tools that Anthropic runs, or defines: `web_search_20250305`.
_ANTHROPIC_TOOLS: Final = re.compile(r".*_\d{8}|mcp_toolset")
_OPENAI_MODELS: Final = re.compile(r"(gpt|o\d|chatgpt|codex|computer-use)\b")


def detect_dialect(messages: Sequence[Any], system: object, tools: object, model: str) -> LiveDialect:
    """Return the dialect of which messages, system prompt and tools bear signs; OpenAI chat if there is none.

    model: decides where nothing else does.
    """
    found = recognize_dialect(messages, system, tools, model)
    if found is not None:
        return found
    # System prompts among the messages are those of chat, or of Responses, whose items will show it.
    is_prompted = any(
        mapping_in(convert_to_json(message)).get("role") in ("system", "developer") for message in messages
    )
    return LIVE_DIALECTS["anthropic" if "claude" in model and not tools and not is_prompted else "openai"]


def recognize_dialect(messages: Sequence[Any], system: object, tools: object, model: str = "") -> LiveDialect | None:
    """Return the dialect of which there are signs, or None. A system prompt outside the messages is a sign of the
    model's own API."""
    looked = [mapping_in(convert_to_json(message)) for message in messages]
    if tools:
        definitions = mappings_in(convert_to_json(tools))
    else:
        definitions = []
    if openai_responses.has_dialect_signs(looked):
        return LIVE_DIALECTS["openai-responses"]
    if anthropic.has_dialect_signs(looked, {"tools": definitions}):
        return LIVE_DIALECTS["anthropic"]
    if named := next(filter(None, map(_identify_tool, definitions)), ""):
        return LIVE_DIALECTS[named]
    if isinstance(convert_to_json(system), str | list):
        return LIVE_DIALECTS["openai-responses" if _OPENAI_MODELS.match(normalize_model(model)) else "anthropic"]
    said = any("tool_calls" in message or message.get("role") == "tool" for message in looked)
    if said or definitions:
        return LIVE_DIALECTS["openai"]
    return None


def _identify_tool(tool: Json) -> str:
    """Return the dialect that a tool's definition is written in; "" if it bears no sign."""
    if "function" in tool or "custom" in tool:
        return "openai"
    kind = text_in(tool.get("type"))
    if _ANTHROPIC_TOOLS.fullmatch(kind):
        return "anthropic"
    if kind:
        return "openai-responses"
    return ""
