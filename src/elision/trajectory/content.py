"""What a message says: text, and opaque parts that are kept and counted but never read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

#: Kinds of parts that hold reasoning which only the provider that sealed it can read.
SEALED_KINDS = frozenset(("thinking", "redacted_thinking", "reasoning"))
#: Tokens booked for an image whose size is not known. Anthropic bills (width x height) / 750, at most about 1,600;
#: OpenAI 85 to about 1,100 (providers' vision guides). An estimate, and labelled as one wherever it is shown.
IMAGE_TOKENS = 1_200


class Text(msgspec.Struct, frozen=True):
    """A run of text."""

    text: str


class Opaque(msgspec.Struct, frozen=True, omit_defaults=True, rename={"kind": "opaque"}):
    """A part that Elision keeps and counts but does not understand: an image, audio, a signed block, an unknown type.

    kind:   the provider's own word for it (``image``, ``input_audio``, ``redacted_thinking`` ...).
    tokens: as which it is counted; an estimate unless the provider reported them.
    data:   the part as it was recorded, for rendering it again; never read, never shown.
    """

    kind: str
    tokens: int = 0
    data: Mapping[str, Any] | None = None

    def __hash__(self) -> int:
        return hash((self.kind, self.tokens))

    def __repr__(self) -> str:
        return f"Opaque(kind={self.kind!r}, tokens={self.tokens})"


Part: TypeAlias = Text | Opaque
if TYPE_CHECKING:
    Content: TypeAlias = tuple[Part, ...]
else:
    # The JSON of a part has no tag, so that msgspec cannot decode it: `event_json` makes the parts before.
    Content = tuple[Any, ...]


def make_content(text: str) -> Content:
    """Content that is just `text`; empty text is no part at all."""
    if text:
        return (Text(text),)
    return ()


def has_sealed_reasoning(parts: Content) -> bool:
    """Return whether one of `parts` is reasoning that only its provider can read."""
    return any(isinstance(part, Opaque) and part.kind in SEALED_KINDS for part in parts)


def join_text(parts: Content) -> str:
    """The text of `parts`, opaque parts left out, parts joined by a newline."""
    if len(parts) == 1 and isinstance(parts[0], Text):
        return parts[0].text
    return "\n".join(part.text for part in parts if isinstance(part, Text))


_T = TypeVar("_T")


def write_always(default: _T) -> _T:
    """Return the default of a field that is written even where it has this value.

    Other fields with a default are left out. Readers of stores and exports rely on these.
    """
    value: _T = msgspec.field(default_factory=lambda: default)
    return value
