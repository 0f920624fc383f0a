"""Read messages as clients hold them: JSON objects, or the objects of a provider's package. They are never changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elision.errors import DialectError
from elision.providers.live.foreign import describe_foreign, describe_foreign_object
from elision.providers.live.parsed_message import ParsedMessage
from elision.providers.live.pieces import LiveDialect
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
