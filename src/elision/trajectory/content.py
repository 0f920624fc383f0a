"""What a message says: text, and opaque parts that are kept and counted but never read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: Tokens booked for an image whose size is not known. Anthropic bills (width x height) / 750, at most about 1,600;
#: OpenAI 85 to about 1,100 (providers' vision guides). An estimate, and labelled as one wherever it is shown.
IMAGE_TOKENS = 1_200


@dataclass(frozen=True, slots=True)
class Text:
    """A run of text."""

    text: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """A part that Elision keeps and counts but does not understand: an image, audio, a signed block, an unknown type.

    kind:   the provider's own word for it (``image``, ``input_audio``, ``redacted_thinking`` ...).
    tokens: as which it is counted; an estimate unless the provider reported them.
    data:   the part as it was recorded, for rendering it again; never read, never shown.
    """

    kind: str
    tokens: int = 0
    data: Mapping[str, Any] | None = field(default=None, hash=False, compare=True, repr=False)


Part: TypeAlias = Text | Opaque
Content: TypeAlias = tuple[Part, ...]


def make_content(text: str) -> Content:
    """Content that is just `text`; empty text is no part at all."""
    if text:
        return (Text(text),)
    return ()


def join_text(parts: Content) -> str:
    """The text of `parts`, opaque parts left out, parts joined by a newline."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return "\n".join(part.text for part in parts if isinstance(part, Text))
