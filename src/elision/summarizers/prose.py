"""Prose: one-line texts, head-and-tail cuts and the sentences of what an agent said."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: What replaces the text that was cut out.
ELLIPSIS = "…"

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|.)")
_FENCE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z][\w=:. -]{0,40}>")
_MARKS = re.compile(r"^\s*(?:#{1,6}\s+|[-*•]\s+(?:\[.\]\s+)?|\d{1,2}[.)]\s+|>\s+)|\*\*|__(?=\W)", re.MULTILINE)
# A full stop inside a name or number ("fields.py", "3.11") is followed by no space.
_END = re.compile(r"(?<=[.!?。！？])\s+|\n+|(?<=[。！？])")
# Shorter ones ("Perfect!", "Let me see.") carry nothing that the next turn does not show.
_SHORTEST = 15


def join_lines(text: str) -> str:
    """Return `text` with every run of white space made one space, terminal escapes left out."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    return " ".join(text.split())


def clip_line(text: str, width: int) -> str:
    """Return `text` on one line of at most `width` characters: two thirds head, one third tail."""
    flat = join_lines(text)
    if len(flat) <= width:
        return flat
    tail = (width - 1) // 3
    return (flat[: width - 1 - tail].rstrip() + ELLIPSIS + flat[len(flat) - tail :].lstrip())[:width]


def cut_middle(text: str, width: int, note: str = "\n[... {} characters left out ...]\n") -> str:
    """Return head and tail of `text`, about `width` characters, lines kept, with a note of how much is missing."""
    if len(text) <= width:
        return text
    half = max(1, width // 2)
    return text[:half] + note.format(len(text) - 2 * half) + text[-half:]


def strip_markup(text: str) -> str:
    """Return `text` without code fences, tags and Markdown marks."""
    return _MARKS.sub("", _TAG.sub(" ", _FENCE.sub("\n", text)))


def split_sentences(text: str) -> list[str]:
    """Return the sentences of `text`, each on one line; code and very short ones left out."""
    found = (join_lines(piece) for piece in _END.split(strip_markup(text)))
    return [piece for piece in found if len(piece) >= _SHORTEST]


def drop_duplicates(lines: Sequence[str]) -> tuple[str, ...]:
    """Return `lines`, each once, at its first place."""
    return tuple(dict.fromkeys(lines))
