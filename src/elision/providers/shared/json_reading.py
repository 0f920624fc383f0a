"""Read provider JSON into Elision's values: what the dialects share.

Provider JSON may have any types, so every field is read through one of the readers below. Each returns a plain value of
the type that it promises, for any input, and never raises.

Reasoning that only its provider can read is sent back and billed again, as many tokens as it was billed first. A
request has its text sealed, in base64, and not its tokens. Beyond an envelope of constant length the text grows with
them. Both numbers are fitted to the reasoning tokens that providers reported for the sealed items of 101 recorded
responses (`tests/providers/shared/test_sealed.py` has a part of them).

Tags are fields that a client writes into its messages for rules (`keep_output`, `tool_output`, its own). No provider
knows them, and most reject them, so they are read and left out of what is sent. A field of one of these names with a
value of another type is not ours, and stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from elision.trajectory.turn import IMAGE_TOKENS, Action, Content, Opaque, Part, Text, make_content

Json: TypeAlias = Mapping[str, Any]

#: Parts whose size in tokens does not follow from the length of their JSON; booked at `IMAGE_TOKENS`.
MEDIA = frozenset(
    [
        "image",
        "image_url",
        "input_image",
        "output_image",
        "computer_screenshot",
        "input_audio",
        "output_audio",
        "audio",
        "video",
        "video_url",
        "input_video",
        "file",
        "input_file",
        "document",
        "container_upload",
    ]
)
#: Characters of JSON or text per token, for parts that are counted but not understood.
CHARS_PER_TOKEN = 4
#: Larger numbers (tokens, USD, seconds since the epoch) are nonsense, and may not fit a float.
LARGEST_NUMBER = 1e15


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One assistant message: what it says, its reasoning in clear text, its calls.

    summary: set where the message carries a provider's summary that replaces everything before it.
    """

    content: Content = ()
    reasoning: str = ""
    actions: tuple[Action, ...] = ()
    summary: str | None = None


#: Tags of a result that no text can stand for, so that it is never hidden.
KEEP_OUTPUT: Final = frozenset(("keep_output",))


class ToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to a call. error: None where the provider's JSON does not say. tags: those of its observation."""

    action_id: str
    content: Content
    tool: str = ""
    error: bool | None = None
    tags: frozenset[str] = frozenset()


def text_in(value: object) -> str:
    """Return `value` if it is a string, else ""."""
    if isinstance(value, str):
        return value
    return ""


def mapping_in(value: object) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else {}."""
    if isinstance(value, dict):
        return value
    return {}


def mappings_in(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects of a list; [] if it is no list."""
    if isinstance(value, list):
        return [item for item in value if isinstance(item, dict)]
    return []


def list_in(value: object) -> list[Any]:
    """Return `value` if it is a list, else []."""
    return value if isinstance(value, list) else []


def bool_in(value: object) -> bool | None:
    """Return `value` if it is true or false, else None."""
    return value if isinstance(value, bool) else None


def int_in(value: object) -> int | None:
    """Return `value` if it is a whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def count_in(value: object) -> int:
    """Return `value` if it is a whole number from 1 up to a plausible size, else 0."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_NUMBER:
        return value
    return 0


def number_in(value: object) -> float | None:
    """Return `value` as a float if it is a plausible number of zero or more, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LARGEST_NUMBER:
        return None
    return float(value)


def cost_in(value: object) -> float | None:
    """Return the cost that a recording states, in USD; None for 0, which agents record where they know no price."""
    return number_in(value) or None


def join_lines(texts: Iterable[str]) -> str:
    """Join the texts that are not empty, each on its own line."""
    return "\n".join(text for text in texts if text)


def join_contents(contents: Iterable[Iterable[Part]]) -> Content:
    """Join contents, one after the other."""
    return tuple(chain.from_iterable(contents))


def dump_json(value: object) -> str:
    """Return `value` as JSON text. A string is taken to be JSON text, or to stand for it, already."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def dump_arguments(value: object) -> str:
    """Return a call's arguments as JSON text, in whatever form the provider has them; {} if there are none."""
    if value is None:
        return "{}"
    return dump_json(value)


def make_opaque(kind: str, part: Json) -> Opaque:
    """Keep `part` and estimate its tokens: `IMAGE_TOKENS` for media, else by the length of its JSON."""
    if kind in MEDIA and mapping_in(part.get("source")).get("type") != "text":
        return Opaque(kind, IMAGE_TOKENS, part)
    return Opaque(kind, len(dump_json(part)) // CHARS_PER_TOKEN, part)


#: Type of a text part, in any dialect -> the field that holds its text.
_TEXT_FIELDS = {"text": "text", "refusal": "refusal", "input_text": "text", "output_text": "text"}


def parse_content(value: object) -> Content:
    """Read a `content` field: a string, a list of parts, or anything else that a recorder wrote there."""
    if isinstance(value, str):
        return make_content(value)
    if isinstance(value, list):
        return join_contents(_parse_parts(item) for item in value)
    if isinstance(value, dict):
        return tuple(_parse_parts(value))
    if value is None:
        return ()
    return make_content(dump_json(value))


def _parse_parts(item: object) -> Iterator[Part]:
    if not isinstance(item, dict):
        yield from parse_content(item)
        return
    kind = text_in(item.get("type"))
    text = item.get(_TEXT_FIELDS.get(kind, "text"))
    if isinstance(text, str) and (kind in _TEXT_FIELDS or not kind):
        if text:
            yield Text(text)
    else:
        yield make_opaque(kind or "unknown", item)


def list_objects(value: object) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects of a list with their places; [] if it is no list."""
    items = enumerate(value) if isinstance(value, list | tuple) else ()
    return [(place, item) for place, item in items if isinstance(item, dict)]


@dataclass(frozen=True, slots=True)
class Seal:
    """How a provider seals reasoning.

    envelope: characters of a secret that holds no reasoning. letters_per_token: further characters for each token.
    """

    envelope: int
    letters_per_token: float

    def count_tokens(self, secret: str) -> int:
        """Return about how many tokens of reasoning `secret` holds."""
        return max(0, round((len(secret) - self.envelope) / self.letters_per_token))


OPENAI_SEAL: Final = Seal(envelope=1_000, letters_per_token=6.2)
ANTHROPIC_SEAL: Final = Seal(envelope=240, letters_per_token=5.2)
GEMINI_SEAL: Final = Seal(envelope=70, letters_per_token=5.3)
#: OpenAI's secrets are Fernet tokens, which all begin alike.
_OPENAI_START: Final = "gAAAA"


def recognize_seal(secret: str) -> Seal:
    """Return the seal of `secret`, recorded by an agent that talks to several providers."""
    return OPENAI_SEAL if secret.startswith(_OPENAI_START) else ANTHROPIC_SEAL


def make_sealed(kind: str, part: Json, secret: str, seal: Seal) -> Opaque:
    """Keep reasoning that only the provider can read."""
    return Opaque(kind, seal.count_tokens(secret), part)


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
    content, calls = message.get("content"), message.get("tool_calls")
    if TAG_FIELDS.isdisjoint(message) and not _has_fields(content) and not _has_fields(calls):
        return message, None
    bare, whole = _take_own(message)
    blocks: dict[int, frozenset[str]] = {}
    by_call: dict[str, frozenset[str]] = {}
    changed: dict[str, Any] = {}
    for name, parts in (("content", content), ("tool_calls", calls)):
        taken = _take_parts(parts, are_calls=name == "tool_calls")
        if taken:
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


def _take_parts(parts: object, *, are_calls: bool) -> list[tuple[Any, frozenset[str] | None]]:
    """Return each part without the fields of its tags, and the tags; nothing where no part has such a field."""
    if type(parts) is not list:
        return []
    taken = [_take_part(part, is_call=are_calls) for part in parts]
    return [] if all(tags is None for _, tags in taken) else taken


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
