"""Tags that a client writes into its messages for rules (`keep_output`, `tool_output`, its own), and their removal.

No provider knows the fields, and most reject them, so they are read and left out of what is sent. A field of one of
these names with a value of another type is not ours, and stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from elision.providers.shared.json_reading import Json, text_in

#: Every field that may hold tags.
TAG_FIELDS: Final = frozenset(
    ("tags", "observation", "observation.type", "observation_type", "keep_output", "remove_output")
)
#: Tags that are fields of their own, true or false.
_FLAGS: Final = ("keep_output", "remove_output")
#: Content blocks whose tags are read. Others are the provider's or unknown, and keep every field.
_TAGGED_BLOCKS: Final = frozenset(("tool_result", "tool_use", "text", "input_text", "output_text"))

_NO_TAGS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageTags:
    """The tags of one message.

    whole:  of the message itself. blocks: by the index of a content block. calls: by the id of a call in it.
    """

    whole: frozenset[str] = _NO_TAGS
    blocks: Mapping[int, frozenset[str]] = field(default_factory=dict)
    calls: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def select_blocks(self, indexes: Iterable[int]) -> frozenset[str]:
        """Return the tags of those content blocks."""
        return _NO_TAGS.union(*(self.blocks.get(index, _NO_TAGS) for index in indexes))

    @property
    def of_text(self) -> frozenset[str]:
        """The tags of the message and of all its content blocks."""
        return self.whole.union(*self.blocks.values())


def take_tags(message: Json) -> tuple[Json, MessageTags | None]:
    """Return `message` without the fields of its tags, and the tags.

    The very message and None where it has no such field. Tags are read at the message, at the blocks of its content and
    at its calls (`tool_calls`, `tool_use`). The message is never changed.
    """
    content = message.get("content")
    calls = message.get("tool_calls")
    if TAG_FIELDS.isdisjoint(message) and not _has_fields(content) and not _has_fields(calls):
        return message, None
    bare, whole = _take_own(message)
    blocks: dict[int, frozenset[str]] = {}
    by_call: dict[str, frozenset[str]] = {}
    changed: dict[str, Any] = {}
    for name, parts in (("content", content), ("tool_calls", calls)):
        if type(parts) is not list:
            continue
        taken = [_take_part(part, is_call=name == "tool_calls") for part in parts]
        if all(tags is None for _, tags in taken):
            continue
        changed[name] = [part for part, _ in taken]
        for index, (part, tags) in enumerate(taken):
            if tags is None:
                continue
            if name == "tool_calls" or part.get("type") == "tool_use":
                by_call[text_in(part.get("id"))] = tags
            else:
                blocks[index] = tags
    if whole is None and not changed:
        return message, None
    return {**bare, **changed}, MessageTags(whole=whole or _NO_TAGS, blocks=blocks, calls=by_call)


def _has_fields(parts: object) -> bool:
    """Return whether one of the parts of a message has a field of such a name."""
    if type(parts) is not list:
        return False
    return any(type(part) is dict and not TAG_FIELDS.isdisjoint(part) for part in parts)


def find_tags(value: Json) -> frozenset[str]:
    """Return the tags that the fields of one JSON object hold, those of its parts left out."""
    return _take_own(value)[1] or _NO_TAGS


def _take_part(part: Any, *, is_call: bool) -> tuple[Any, frozenset[str] | None]:
    if not isinstance(part, dict) or TAG_FIELDS.isdisjoint(part):
        return part, None
    if not is_call and text_in(part.get("type")) not in _TAGGED_BLOCKS:
        return part, None
    return _take_own(part)


def _take_own(value: Json) -> tuple[Json, frozenset[str] | None]:
    """Return `value` without the fields that hold its tags, and the tags; None where it has no such field."""
    if TAG_FIELDS.isdisjoint(value):
        return value, None
    found: dict[str, frozenset[str]] = {}
    for name in TAG_FIELDS & value.keys():
        tags = _read_field(name, value[name])
        if tags is not None:
            found[name] = tags
    if not found:
        return value, None
    return {name: inner for name, inner in value.items() if name not in found}, _NO_TAGS.union(*found.values())


def _read_field(name: str, value: object) -> frozenset[str] | None:
    """Return the tags of one field; None where its value is none of ours."""
    if name in _FLAGS:
        if isinstance(value, bool):
            return frozenset((name,)) if value else _NO_TAGS
        return None
    if name == "observation":
        value = value.get("type") if isinstance(value, dict) else None
    if isinstance(value, str):
        return frozenset((value,)) if value else _NO_TAGS
    if name == "tags" and isinstance(value, list) and all(isinstance(tag, str) for tag in value):
        return frozenset(filter(None, value))
    return None
