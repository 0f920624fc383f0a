"""Whose messages these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from lacuna.dialects import anthropic, mapping_in, mappings_in, openai_responses
from lacuna.dialects.live.anthropic import Anthropic
from lacuna.dialects.live.openai_chat import OpenAIChat
from lacuna.dialects.live.openai_responses import OpenAIResponses
from lacuna.dialects.live.pieces import LiveDialect
from lacuna.dialects.live.plain import plain

LIVE: Final[Mapping[str, LiveDialect]] = {
    dialect.name: dialect for dialect in (OpenAIChat(), OpenAIResponses(), Anthropic())
}


def detected(messages: Sequence[Any], system: object, tools: object, model: str) -> LiveDialect:
    """The dialect that messages, system prompt and tools bear signs of; OpenAI chat where there is none.

    model: decides where nothing else does.
    """
    return shown(messages, system, tools) or LIVE["anthropic" if "claude" in model and not tools else "openai"]


def shown(messages: Sequence[Any], system: object, tools: object) -> LiveDialect | None:
    """The same, or None where there is no sign."""
    looked = [mapping_in(plain(message)) for message in messages]
    definitions = mappings_in(plain(tools)) if tools else []
    if openai_responses.shows(looked) or any(
        "type" in tool and "function" not in tool and "parameters" in tool for tool in definitions
    ):
        return LIVE["openai-responses"]
    if anthropic.shows(looked, {"system": plain(system), "tools": definitions}):
        return LIVE["anthropic"]
    said = any("tool_calls" in message or message.get("role") in ("tool", "system", "developer") for message in looked)
    return LIVE["openai"] if said or definitions else None
