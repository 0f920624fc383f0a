"""Read messages as clients hold them: JSON objects, or the objects of a provider's package. They are never changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from elision.errors import DialectError
from elision.providers.live.foreign import describe_foreign
from elision.providers.live.parsed_message import ParsedMessage
from elision.providers.shared.json_reading import Json
from elision.providers.shared.message_tags import take_tags


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


def outline_message(message: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the role, the answered call and the lengths of the contents of a message, without reading its texts."""
    content = message.get("content") or message.get("output") or message.get("arguments") or message.get("parts")
    if type(content) is list:
        lengths: object = [_count_block(block) for block in content]
    elif type(content) is str:
        lengths = len(content)
    else:
        lengths = content is None
    return message.get("role"), message.get("tool_call_id") or message.get("call_id"), lengths


def _count_block(block: Any) -> object:
    """Return the length of a content block's text, and the call that it answers or makes."""
    if type(block) is not dict:
        return type(block)
    answer = block.get("functionResponse")
    if type(answer) is dict and type(answer.get("response")) is dict:
        return answer.get("id"), [len(each) for each in answer["response"].values() if type(each) is str]
    text = block.get("text") or block.get("content") or block.get("input")
    if type(text) is str or type(text) is list or type(text) is dict:
        return len(text), block.get("tool_use_id") or block.get("id")
    return block.get("type")


def convert_to_json(value: Any) -> Any:
    """Return `value` as JSON alone. Objects of a provider's package become what they send; JSON is copied."""
    kind = type(value)
    if kind is str or value is None or kind in (int, float, bool):
        return value
    if isinstance(value, dict):
        return {key: convert_to_json(inner) for key, inner in value.items()}
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


def read_client_message(value: Any, index: int, *, takes_parts: bool = False) -> Json:
    """Return message `index` (0-based) as a JSON object. Raises DialectError if it is none, or another framework's."""
    found = convert_to_json(value)
    if not isinstance(found, dict):
        raise DialectError(
            f"messages[{index}] is no message but {type(value).__name__}: give dicts or the provider's own objects"
        )
    if foreign := describe_foreign(found, takes_parts=takes_parts):
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
