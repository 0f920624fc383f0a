"""Text of others on its way into a request: only what every JSON encoder, store and provider takes."""

from __future__ import annotations

import re
from typing import Final

#: Terminal sequences, and the control characters of ASCII and Latin-1 but tab, line feed and carriage return.
_CONTROLS: Final = re.compile("\x1b\\[[0-?]{0,40}[ -/]{0,10}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def make_encodable(text: str) -> str:
    """Return `text` as UTF-8 can carry it: two halves of a surrogate pair joined, a lone half replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def remove_controls(text: str) -> str:
    """Return `text` without terminal sequences and control characters (NUL, ESC ...); tabs and line ends stay."""
    if text.isprintable():
        return text
    return _CONTROLS.sub("", text)
