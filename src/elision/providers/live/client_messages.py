"""Read messages as clients hold them: JSON objects, or the objects of a provider's package. They are never changed.

Recognize messages of no provider: those of agent frameworks, which are refused, and those of no known shape.

Nothing that a provider of the table accepts is among them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from elision.errors import DialectError
from elision.providers.live.parsed_message import LiveDialect, ParsedMessage
from elision.providers.shared.json_reading import Json, mapping_in, mappings_in, text_in
from elision.providers.shared.message_tags import take_tags

_LANGCHAIN_TYPES: Final = frozenset(("human", "ai", "system", "tool", "function", "chat"))

_LANGCHAIN: Final = (
    "a LangChain message; give langchain_core.messages.convert_to_openai_messages(messages), or send the requests of "
    "the chain through the gateway (`elision serve`)"
)
_PYDANTIC_AI: Final = (
    "a Pydantic AI message; give the agent the capability of elision.adapters.pydantic_ai, or send its requests "
    "through the gateway (`elision serve`)"
)
_PARTS: Final = (
    "a message of parts (Gemini, AI SDK); give OpenAI chat messages, Responses items, Anthropic messages, or Gemini's "
    'contents with dialect="gemini"'
)
_CONVERSE: Final = (
    "a message of Bedrock's Converse API; give Anthropic messages, as AnthropicBedrock takes them, or use "
    "elision.adapters.strands with Strands Agents"
)


#: Packages whose message objects are no provider's, whatever they are dumped to, and what people call them.
_FRAMEWORKS: Final = {
    "agent_framework": "Microsoft Agent Framework",
    "agno": "Agno",
    "autogen_core": "AutoGen",
    "haystack": "Haystack",
    "inspect_ai": "Inspect",
    "langchain_core": "LangChain",
    "llama_index": "LlamaIndex",
    "openhands": "OpenHands",
    "pydantic_ai": "Pydantic AI",
    "semantic_kernel": "Semantic Kernel",
    "smolagents": "smolagents",
}
#: The adapters of those that have one.
_ADAPTERS: Final = {
    "agno": "elision.adapters.agno",
    "llama_index": "elision.adapters.llama_index",
    "langchain_core": "elision.adapters.langchain or elision.adapters.langgraph",
    "agent_framework": "elision.adapters.agent_framework",
    "inspect_ai": "elision.adapters.inspect_ai",
    "pydantic_ai": "elision.adapters.pydantic_ai",
    "openhands": "elision.adapters.openhands",
    "smolagents": "elision.adapters.smolagents",
}


def describe_foreign_object(value: object) -> str:
    """Return whose message an object is, by the package of its type, and what to do; "" unless it is a framework's."""
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        framework = _FRAMEWORKS.get(package)
        if framework is not None:
            adapter = _ADAPTERS.get(package)
            remedy = f"use {adapter}" if adapter else "translate its messages with elision.adapters.mirror"
            return (
                f"a {type(value).__name__} of {framework}; {remedy}, or send the agent's requests through the gateway "
                "(`elision serve`)"
            )
    return ""


def describe_foreign(message: Json, content_field: str = "content") -> str:
    """Return whose message this plainly is and what to give instead; "" unless it is a framework's.

    content_field: the field in which the client's API has the content of a message.
    """
    if "role" not in message:
        if "additional_kwargs" in message or (text_in(message.get("type")) in _LANGCHAIN_TYPES and "data" in message):
            return _LANGCHAIN
        if text_in(message.get("type")) in ("human", "ai"):
            return _LANGCHAIN
    parts = mappings_in(message.get("parts"))
    if any("part_kind" in part for part in parts):
        return _PYDANTIC_AI
    if parts and "content" not in message and (content_field != "parts" or any("type" in part for part in parts)):
        return _PARTS
    blocks = mappings_in(message.get("content"))
    if any("type" not in block and mapping_in(block.get("toolUse") or block.get("toolResult")) for block in blocks):
        return _CONVERSE
    return ""


def is_known(message: Json, dialect: LiveDialect) -> bool:
    """Return whether a message has a role of its API, or is an item that is known by its type."""
    if text_in(message.get("role")) in dialect.roles:
        return True
    return dialect.joins_assistant_messages and text_in(message.get("type")) not in ("", "message")


def copy_structure(value: Any) -> Any:
    """Copy the structure of `value` and share its texts, to know later what it looked like when it was read."""
    if type(value) is str:
        return value
    if isinstance(value, dict):
        return {key: copy_structure(inner) for key, inner in value.items()}
    if type(value) is list:
        return [copy_structure(inner) for inner in value]
    if type(value) is tuple:
        return tuple(copy_structure(inner) for inner in value)
    copied = getattr(value, "model_copy", None)
    if callable(copied):
        return copied(deep=True)
    return value


def convert_to_json(value: Any) -> Any:
    """Return `value` as JSON alone. Objects of a provider's package become what they send; JSON is copied."""
    kind = type(value)
    if kind is str or value is None or kind in (int, float, bool):
        return value
    if isinstance(value, dict):
        return {key: inner if type(inner) is str else convert_to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [convert_to_json(inner) for inner in value]
    if isinstance(value, ParsedMessage):
        # It never changes, and is JSON already.
        return value.json
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        # Providers send values that are newer than the package's types; pydantic would warn of each.
        if hasattr(value, "__pydantic_serializer__"):
            silent = {"warnings": False}
        else:
            silent = {}
        return convert_to_json(dump(mode="json", exclude_none=True, **silent))
    if isinstance(value, str | int | float):
        return value
    return str(value)


def read_client_message(value: Any, index: int, dialect: LiveDialect) -> Json:
    """Return message `index` (0-based) as a JSON object. Raises DialectError if it is none, or another framework's."""
    if type(value) is not dict and (foreign := describe_foreign_object(value)):
        raise DialectError(f"messages[{index}] is {foreign}")
    found = convert_to_json(value)
    if not isinstance(found, dict):
        raise DialectError(
            f"messages[{index}] is not a message but {type(value).__name__}: give dicts or the provider's own objects"
        )
    # Frameworks' messages have no role, or parts, or blocks as content.
    may_be_foreign = "role" not in found or "parts" in found or isinstance(found.get("content"), list)
    if may_be_foreign and (foreign := describe_foreign(found, dialect.content_field)):
        raise DialectError(f"messages[{index}] is {foreign}")
    return found


def remove_tags(messages: Iterable[Any]) -> list[Any]:
    """Return messages without the fields of their tags; those that have none are the very objects."""
    return list(map(_remove_tags, messages))


def _remove_tags(value: Any) -> Any:
    if isinstance(value, ParsedMessage):
        return value.sent
    try:
        json = convert_to_json(value)
    except Exception:  # noqa: BLE001 - an object that cannot be read is sent as it is
        return value
    if not isinstance(json, dict):
        return value
    bare, tags = take_tags(json)
    if tags is None:
        return value
    return bare
