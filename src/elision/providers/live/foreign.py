"""Recognize messages of no provider: those of agent frameworks, which are refused, and those of no known shape.

Nothing that a provider of the table accepts is among them.
"""

from __future__ import annotations

from typing import Final

from elision.providers.shared.json_reading import Json, mapping_in, mappings_in

_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_GEMINI_ROLES: Final = frozenset(("user", "model", "function"))
_LANGCHAIN_TYPES: Final = frozenset(("human", "ai", "system", "tool", "function", "chat"))

_LANGCHAIN: Final = (
    "a LangChain message; give langchain_core.messages.convert_to_openai_messages(messages), or send the requests of "
    "the chain through the gateway (`elision serve`)"
)
_PYDANTIC_AI: Final = "a Pydantic AI message; send the agent's requests through the gateway (`elision serve`)"
_PARTS: Final = (
    "a message of parts (Gemini, AI SDK); give OpenAI chat messages, Responses items, Anthropic messages, or Gemini's "
    'contents with dialect="gemini"'
)
_CONVERSE: Final = "a message of Bedrock's Converse API; give Anthropic messages, as AnthropicBedrock takes them"


def describe_foreign(message: Json, *, takes_parts: bool = False) -> str:
    """Return whose message this plainly is and what to give instead; "" unless it is a framework's."""
    if "role" not in message:
        if "additional_kwargs" in message or (_read_type(message) in _LANGCHAIN_TYPES and "data" in message):
            return _LANGCHAIN
        if _read_type(message) in ("human", "ai"):
            return _LANGCHAIN
    parts = mappings_in(message.get("parts"))
    if any("part_kind" in part for part in parts):
        return _PYDANTIC_AI
    if parts and "content" not in message and (not takes_parts or any("type" in part for part in parts)):
        return _PARTS
    blocks = mappings_in(message.get("content"))
    if any("type" not in block and mapping_in(block.get("toolUse") or block.get("toolResult")) for block in blocks):
        return _CONVERSE
    return ""


def is_known(message: Json, *, has_items: bool) -> bool:
    """Return whether a message has a known role. has_items: whether an item without a role is known by its type."""
    if "parts" in message:
        return message.get("role", "user") in _GEMINI_ROLES
    role = message.get("role")
    if isinstance(role, str) and role in _ROLES:
        return True
    return has_items and _read_type(message) not in ("", "message")


def _read_type(message: Json) -> str:
    kind = message.get("type")
    if isinstance(kind, str):
        return kind
    return ""
