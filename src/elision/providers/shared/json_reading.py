"""Read provider JSON into Elision's values: what the dialects share.

Provider JSON may have any types, so every field is read through one of the readers below. Each returns a plain value of
the type that it promises, for any input, and never raises.

Reasoning that only its provider can read: it is sent back and billed again, as many tokens as it was billed first.

A request has its text sealed, in base64, and not its tokens. Beyond an envelope of constant length the text grows with
them. Both numbers are fitted to the reasoning tokens that providers reported for the sealed items of 101 recorded
responses (`tests/providers/shared/test_sealed.py` has a part of them).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeAlias

import msgspec

from elision.trajectory.content import IMAGE_TOKENS, Content, Opaque, Part, Text, make_content
from elision.trajectory.turn import Action

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
