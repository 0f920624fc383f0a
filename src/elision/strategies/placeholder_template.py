"""Templates of placeholders: a text with fields in braces, such as `[turn {turn}: {lines} lines omitted]`.

Values come from tools, so they are untrusted: they are put in once and never read as a template.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from elision.errors import SpecError

#: Every field, in the order of the documentation, and what it names.
TEMPLATE_FIELDS: Mapping[str, str] = {
    "turn": "number of the turn",
    "handle": "handle by which the result is recalled",
    "tool": "name of the tool",
    "arguments": "arguments of the call",
    "lines": "lines of the result",
    "tokens": "o200k tokens of the result",
    "characters": "characters of the result",
    "outcome": "what came of the call",
    "gist": "names and numbers that the agent may need again",
}

#: Names that other programs use -> ours, for "did you mean".
_OTHER_NAMES = {
    "args": "arguments",
    "brief": "outcome",
    "chars": "characters",
    "command": "arguments",
    "i": "turn",
    "id": "handle",
    "index": "turn",
    "n_lines": "lines",
    "name": "tool",
    "result": "outcome",
    "size": "tokens",
    "step": "turn",
    "summary": "outcome",
    "turn_idx": "turn",
    "x": "turn",
}
_PIECE = re.compile(r"(?P<text>[^{}]+)|(?P<brace>\{\{|\}\})|\{(?P<field>[^{}\n]*)\}|(?P<lone>[{}])")
#: Characters of a template in an error.
_EXCERPT_CHARS = 200
#: After these, and at the beginning of a line, nothing precedes an empty field that a blank would separate.
_OPENERS = ("[", "(", "<", "{", '"', "'", "\n")


@dataclass(frozen=True, slots=True)
class TemplatePiece:
    """A literal text of a template, or the name of a field of it."""

    text: str
    is_field: bool


@dataclass(frozen=True, slots=True)
class PlaceholderTemplate:
    """A template that was read: its pieces in order, and the fields that it names."""

    pieces: tuple[TemplatePiece, ...]
    fields: frozenset[str]

    def fill_fields(self, find_value: Callable[[str], str]) -> str:
        """Return the text with the value of each field, which `find_value` returns for the field's name.

        An empty value takes one blank beside it away: the one before it, or the one after it where it begins a line
        or follows an opening bracket or quote.
        """
        filled = ""
        skips_blank = False
        for piece in self.pieces:
            if piece.is_field:
                text = find_value(piece.text)
                if text:
                    skips_blank = False
                elif filled.endswith(" "):
                    filled = filled[:-1]
                else:
                    skips_blank = not filled or filled.endswith(_OPENERS)
            else:
                text = piece.text
                if skips_blank:
                    text = text.removeprefix(" ")
                    skips_blank = False
            filled += text
        return filled


@lru_cache(maxsize=64)
def parse_template(text: str) -> PlaceholderTemplate:
    """Return the template that `text` writes: fields as `{name}`, braces as `{{` and `}}`.

    Raises SpecError for an unknown field and for a lone brace, with the place and the fields that there are.
    """
    pieces: list[TemplatePiece] = []
    for match in _PIECE.finditer(text):
        if match["lone"]:
            raise SpecError(
                f"placeholder: {match['lone']!r} at character {match.start() + 1} of {_quote_template(text)} "
                f"belongs to no field; write {match['lone'] * 2} for a brace; fields: {_list_fields()}"
            )
        if match["field"] is None:
            pieces.append(TemplatePiece(match["text"] or match["brace"][0], is_field=False))
            continue
        if match["field"] not in TEMPLATE_FIELDS:
            raise SpecError(
                f"placeholder: no field {match[0]!r} (character {match.start() + 1} of {_quote_template(text)}); "
                f"{_suggest_field(match['field'])}: {_list_fields()}; {{{{ and }}}} write braces"
            )
        pieces.append(TemplatePiece(match["field"], is_field=True))
    return PlaceholderTemplate(tuple(pieces), frozenset(piece.text for piece in pieces if piece.is_field))


def _quote_template(text: str) -> str:
    if len(text) <= _EXCERPT_CHARS:
        return repr(text)
    return f"{text[:_EXCERPT_CHARS]!r}…"


def _list_fields() -> str:
    return ", ".join(f"{{{name}}}" for name in TEMPLATE_FIELDS)


def _suggest_field(name: str) -> str:
    """Return what an error says before the fields that there are."""
    # Format specifications (`{turn:03}`) and attributes (`{turn.index}`) have no meaning here.
    word = re.split(r"[:!.\[]", name, maxsplit=1)[0].strip().lower()
    if word in TEMPLATE_FIELDS:
        near = [word]
    elif word in _OTHER_NAMES:
        near = [_OTHER_NAMES[word]]
    else:
        near = get_close_matches(word[:40], TEMPLATE_FIELDS, 1)
    if near:
        return f"did you mean {{{near[0]}}}? There are"
    return "there are"
