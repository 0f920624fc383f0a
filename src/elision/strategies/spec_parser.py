"""The text form of strategies and their options, before it has a meaning: words with arguments, numbers, texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from elision.errors import SpecError

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<number>-?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.]))"""
    r"""|(?P<name>[A-Za-z][\w-]*)|(?P<mark>[(),=\[\]]))"""
)
#: Characters of a text in an error.
_EXCERPT_CHARS = 200
#: Parentheses within parentheses: far more than any strategy needs, and fewer than Python's own stack allows.
_DEEPEST = 50


class SpecCall:
    """A name with arguments, not yet given a meaning."""

    def __init__(self, name: str, positional: list[Any], named: dict[str, Any]) -> None:
        self.name = name
        self.positional = positional
        self.keywords = named

    @property
    def kind(self) -> str:
        """The name of a strategy, preset or schedule, which may be written in any letter case."""
        return self.name.lower()


class SpecParser:
    """Reads one text: `parse_value`, then `need_end`. Raises SpecError for what cannot be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        #: The text, for an error.
        if len(text) <= _EXCERPT_CHARS:
            self.excerpt = repr(text)
        else:
            self.excerpt = f"{text[:_EXCERPT_CHARS]!r}…"
        self.tokens = list(self._scan_tokens())
        self.position = 0
        self.depth = 0

    def _scan_tokens(self) -> Iterator[tuple[str, str]]:
        place = 0
        end = len(self.text.rstrip())
        while place < end:
            match = _TOKEN.match(self.text, place)
            if match is None:
                rest = self.text[place:].strip()
                word = re.split(r"[\s,()\[\]=]", rest, maxsplit=1)[0] or rest
                wanted = "give a number, a word, or a text in quotes"
                raise SpecError(f"cannot read {word[:20]!r} in {self.excerpt}: {wanted}")
            place = match.end()
            yield match.lastgroup or "", match[match.lastgroup or 0]
        yield "end", ""

    def take_token(self, text: str) -> bool:
        if self.tokens[self.position] == ("mark", text):
            self.position += 1
            return True
        return False

    def need_token(self, text: str) -> None:
        if not self.take_token(text):
            raise SpecError(
                f"{text!r} is missing in {self.excerpt}, {self._strip_token(self.tokens[self.position][1])}"
            )

    def need_end(self) -> None:
        if self.tokens[self.position][0] != "end":
            rest = self.tokens[self.position][1]
            raise SpecError(
                f"{rest!r} comes after the end of {self.excerpt}; options have brackets: masking(window=10)"
            )

    def parse_value(self) -> Any:
        kind, text = self.tokens[self.position]
        if self.take_token("["):
            return tuple(self._parse_items("]")[0])
        self.position += 1
        if kind == "string":
            return re.sub(r"\\(.)", r"\1", text[1:-1])
        if kind == "number":
            return self._parse_number(text.replace("_", ""))
        if kind == "name":
            words = {"true": True, "false": False, "none": None}
            if text.lower() in words:
                return words[text.lower()]
            if self.take_token("("):
                positional, named = self._parse_items(")")
            else:
                positional, named = ([], {})
            return SpecCall(text, positional, named)
        raise SpecError(f"a value is missing in {self.excerpt}, {self._strip_token(text)}")

    @staticmethod
    def _strip_token(token: str) -> str:
        if token:
            return f"before {token!r}"
        return "at its end"

    def _parse_number(self, text: str) -> int | float:
        if any(mark in text for mark in ".eE"):
            return float(text)
        try:
            return int(text)
        except ValueError:  # Python reads at most 4,300 digits
            raise SpecError(f"{text[:20]}... is too long for a number") from None

    def _parse_items(self, close: str) -> tuple[list[Any], dict[str, Any]]:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise SpecError(f"more than {_DEEPEST} brackets are inside each other in {self.excerpt}")
        positional: list[Any] = []
        named: dict[str, Any] = {}
        while not self.take_token(close):
            if self.tokens[self.position][0] == "name" and self.tokens[self.position + 1] == ("mark", "="):
                name = self.tokens[self.position][1]
                if name in named:
                    raise SpecError(f"option {name!r} is given twice in {self.excerpt}")
                self.position += 2
                named[name] = self.parse_value()
            else:
                positional.append(self.parse_value())
            if not self.take_token(","):
                self.need_token(close)
                break
        self.depth -= 1
        return positional, named
