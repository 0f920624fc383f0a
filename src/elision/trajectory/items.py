r"""Code-like items: what an action uses that an agent cannot guess.

Identifiers (snake_case, camelCase, dotted.names, CONSTANTS, names with digits), paths, numbers of three digits or
more, and quoted strings without a space. One extractor serves both the gist of a placeholder and the evidence measure
of the lab, so that what is kept and what is counted are the same thing.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain
from typing import Final

#: Longer runs are blobs (base64, minified code), not names that anybody writes again.
LONGEST_ITEM = 80
#: Longer words have no items: they are blobs.
_LONGEST_WORD: Final = 4 * LONGEST_ITEM
#: A text of more different numbers is a table: its numbers are data, not names that anybody writes again. No recorded
#: result whose numbers an agent used had half as many.
MOST_NUMBERS: Final = 1_000
#: Different words of a text that are looked at, half of them from either end.
MOST_WORDS: Final = 16_384
#: Words whose items are kept, some 6 MB of them: those of two of the largest texts.
_WORDS_KEPT: Final = 2 * MOST_WORDS
#: Texts whose scans are kept: of those of so many characters or more a few, or a hundred large results would stay.
_SHORT_TEXTS_KEPT = 256
_LONG_TEXTS_KEPT = 8
LONG_TEXT = 50_000

_LETTERS: Final = (string.ascii_letters + string.digits + "_./~@:#$%+-\\").encode()
#: Byte by byte: what may be part of a word is kept, and the end of a line; all else separates words.
_SEPARATED: Final = bytes(byte if byte in _LETTERS + b"\n" else ord(" ") for byte in range(256))
_PIECE: Final = 128 * 1024
#: Characters that are looked at for a place to cut, before a blob is looked for.
_STEP: Final = 1024
#: The slash of a closing tag belongs to what is before it.
_SEPARATOR: Final = re.compile(r"[^<\w./~@:#$%+\\-]|<(?!/)", re.ASCII)
#: Part of a word without escapes; both halves are longer than a word with items.
_BLOB: Final = re.compile(rf"[\w./~@:#$%+-]{{{2 * (_LONGEST_WORD + 1)}}}", re.ASCII)
#: Quotes may be escaped. What has a backslash between them is a pattern or half a line, not a name.
_QUOTED = re.compile(r"([\"'`])([^\s\"'`<>\\]{3,60})\\?\1")
_QUOTE: Final = re.compile(r"[\"'`]")
_LONGEST_QUOTED: Final = 63
_NUMBER = re.compile(r"\d{3,}(?:\.\d+)?$")
#: What numbers, dates and times consist of, and what may be left of one between its digits.
_NUMERIC: Final = string.digits + ".:-#@%+$~\\"
_EXPONENTS: Final = ("", "e", "E")
#: Escapes that stand for white space or a character: "\\nTest", "a\\n\\tb", "\\u00ae". `src\\tests` may be a path.
_ESCAPES: Final = re.compile(
    r"\\+u[0-9A-Fa-f]{4}|\\+x[0-9A-Fa-f]{2}|\A(?:\\+[nrt])+|(?:\\+[nrt])+\Z|(?:\\+[nrt]){2,}|(?:\\+[nrt])+(?=[A-Z+/-])"
)
#: Names of a page's metadata, as search results and browsers list them.
_PAGE_METADATA: Final = re.compile(r"(?:og|fb|twitter|article|al):[a-z_]+\Z")
_TRIM = "./:-\\#@%+$~"
#: Separates a path from its line and a host from its port, but not the parts of a URL.
_COLON: Final = re.compile(r":(?!//)")
_SHAPE = re.compile(
    r"""
      .*[a-z][A-Z]            # camelCase
    | .*[A-Za-z0-9]_[A-Za-z0-9]  # snake_case, CONSTANT_CASE
    | _\w                     # _private
    | .*[A-Za-z]\d | .*\d[A-Za-z]  # names with digits, hashes
    | .*\w/\w | /\w           # paths
    | .*[A-Za-z_]\w*\.[A-Za-z_]\w  # dotted names, file.ext
    | .*[A-Za-z]::[A-Za-z]
    """,
    re.VERBOSE,
)


def _is_item(word: str) -> bool:
    return len(word) <= LONGEST_ITEM and (bool(_NUMBER.match(word)) or bool(_SHAPE.match(word)))


@dataclass(frozen=True, slots=True)
class TextScan:
    """What was found in a text: all items, each once.

    words:  the words of a line that hold items, by its number from 0; only lines with such words.
    quoted: what is an item of a line because it is in quotes, likewise.
    """

    words: Mapping[int, tuple[str, ...]]
    quoted: Mapping[int, list[str]]
    items: tuple[str, ...]


def find_items(text: str) -> tuple[str, ...]:
    """The code-like items of `text`, each once, in order of first appearance.

    A path counts as itself and as its last component; a dotted or `::` name as itself and as its last part, since that
    is how agents refer to them.
    """
    return scan_text(text).items


def scan_text(text: str) -> TextScan:
    """`text`, looked through once; a cache serves who looks when it is read, masked and digested."""
    if len(text) >= LONG_TEXT:
        return _scan_long(text)
    return _scan_short(text)


def scan_text_uncached(text: str) -> TextScan:
    """The same as `scan_text`, for a text that nobody looks at again."""
    words: dict[int, tuple[str, ...]] = {}
    quoted: dict[int, list[str]] = {}
    items: dict[str, None] = {}
    number = 0
    keep_words = _choose_words(text)
    # Piece by piece: a call of C over all of a large text would let no other thread run meanwhile.
    for piece in _split_pieces(text):
        lines = _separate_words(piece).split("\n")
        kept = map(tuple, map(keep_words, map(str.split, lines)))
        # A piece may begin within a line.
        begun = words.get(number, ())
        new = {place: found for place, found in enumerate(kept, start=number) if found}
        items |= dict.fromkeys(_list_items(chain.from_iterable(new.values())))
        words |= new
        if begun:
            words[number] = begun + new.get(number, ())
        for place, word in _find_quoted(piece):
            quoted.setdefault(number + place, []).append(word)
        number += len(lines) - 1
    items |= dict.fromkeys(chain.from_iterable(quoted.values()))
    return TextScan(words, quoted, tuple(items))


def _choose_words(text: str) -> Callable[[Iterable[str]], Iterable[str]]:
    """Return what keeps the words that hold items: of a text with a great many different words, only some.

    Each new word costs some microseconds, so that a megabyte of numbers would take ten times as long as other text.
    """
    if len(text) < 2 * MOST_NUMBERS:
        return _KEEP_WORDS_WITH_ITEMS
    different: dict[str, None] = {}
    for piece in _split_pieces(text):
        different |= dict.fromkeys(_separate_words(piece).split())
    chosen = [word for word in different if word.strip(_NUMERIC) not in _EXPONENTS]
    if len(different) - len(chosen) <= MOST_NUMBERS:
        if len(different) <= MOST_WORDS:
            return _KEEP_WORDS_WITH_ITEMS
        chosen = list(different)
    if len(chosen) > MOST_WORDS:
        chosen = chosen[: MOST_WORDS // 2] + chosen[-MOST_WORDS // 2 :]
    return partial(filter, frozenset(_KEEP_WORDS_WITH_ITEMS(chosen)).__contains__)


def _split_pieces(text: str) -> Iterator[str]:
    """Yield `text` in pieces of about `_PIECE` characters, so that no item is cut."""
    start = 0
    while len(text) - start > 2 * _PIECE:
        end = _find_cut(text, start)
        yield text[start:end]
        start = end
    yield text[start:]


def _find_cut(text: str, start: int) -> int:
    """Return a place at least `_PIECE` characters behind `start` where `text` can be cut, or its end.

    That is behind a character that separates words, unless it may stand in quotes, or in the middle of a blob, of which
    both halves are too long for items.
    """
    for at in range(start + _PIECE, len(text), _STEP):
        for separator in _SEPARATOR.finditer(text, at, at + _STEP):
            if not _may_be_quoted(text, separator.end()):
                return separator.end()
        if _BLOB.match(text, at):
            return at + _LONGEST_WORD + 1
    return len(text)


def _may_be_quoted(text: str, place: int) -> bool:
    """Return whether something in quotes may begin before `place` and end behind it."""
    for quote in _QUOTE.finditer(text, max(0, place - _LONGEST_QUOTED), place):
        found = _QUOTED.match(text, quote.start())
        if found and found.end() > place:
            return True
    return False


_scan_short: Final = lru_cache(maxsize=_SHORT_TEXTS_KEPT)(scan_text_uncached)
_scan_long: Final = lru_cache(maxsize=_LONG_TEXTS_KEPT)(scan_text_uncached)


def find_items_by_line(text: str, wanted: Set[str]) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Yield (number from 0, line, its items) of each line of `text` that has one of the `wanted` items."""
    if not wanted:
        return
    scan = scan_text(text)
    words_with_items = set(chain.from_iterable(scan.words.values()))
    wanted_words = {word for word in words_with_items if not wanted.isdisjoint(_WORD_CACHE[word])}
    numbers = {number for number, words in scan.words.items() if not wanted_words.isdisjoint(words)}
    numbers |= {number for number, quoted in scan.quoted.items() if not wanted.isdisjoint(quoted)}
    lines = text.split("\n")
    for number in sorted(numbers):
        found = chain(_list_items(scan.words.get(number, ())), scan.quoted.get(number, ()))
        yield number, lines[number], tuple(dict.fromkeys(found))


def _list_items(words: Iterable[str]) -> Iterator[str]:
    """Return the items of these words, with repetitions."""
    return chain.from_iterable(map(_WORD_CACHE.__getitem__, words))


def _find_quoted(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 0, and the text of what is an item because it is in quotes."""
    line = 0
    seen = 0
    for match in _QUOTED.finditer(text):
        word = match[2]
        if any(map(str.isalpha, word)) and not _PAGE_METADATA.match(word):
            line += text.count("\n", seen, match.start())
            seen = match.start()
            yield line, word


def _separate_words(text: str) -> str:
    """Return `text` with a space for every character that is part of no word; ends of lines stay."""
    # Half the time of an expression for words: 40 ms instead of 84 for 4.5 MB. No letter beyond ASCII is part of one.
    # The slash of a closing tag begins no path.
    return text.encode("ascii", "replace").replace(b"</", b"  ").translate(_SEPARATED).decode("ascii")


def _split_word(word: str) -> tuple[str, ...]:
    pieces = _ESCAPES.split(word) if "\\" in word else [word]
    trimmed = [piece for piece in map(_trim_word, pieces) if len(piece) >= 3 and not _PAGE_METADATA.match(piece)]
    return tuple(filter(_is_item, chain.from_iterable(map(_list_parts, trimmed))))


class _WordCache(dict[str, tuple[str, ...]]):
    """The items of words. Texts of one run use the same words over and over: nearly all of the work is looked up."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        found = _split_word(word)
        # A blob comes once and would only take room.
        if len(word) <= _LONGEST_WORD:
            if len(self) >= _WORDS_KEPT:
                self.clear()
            self[word] = found
        return found


_WORD_CACHE: Final = _WordCache()
_KEEP_WORDS_WITH_ITEMS: Final = partial(filter, _WORD_CACHE.__getitem__)


def _trim_word(word: str) -> str:
    """`word` without the punctuation around it; the slash or tilde that begins a path stays."""
    word = word.rstrip(_TRIM).lstrip(":-\\#@%+$")
    while word.startswith("./"):
        word = word[2:]
    if "/" in word:
        return word
    return word.lstrip(_TRIM)


def _list_parts(word: str) -> list[str]:
    if len(word) > _LONGEST_WORD:
        return []
    parts = [word]
    if ":" in word:
        parts += [piece for piece in _COLON.split(word) if len(piece) >= 3]
    for piece in list(parts):
        if "/" in piece:
            tail = piece.rsplit("/", 1)[1].strip(_TRIM)
            if len(tail) >= 3:
                parts.append(tail)
        elif "." in piece and not _NUMBER.match(piece):
            tail = piece.rsplit(".", 1)[1]
            if len(tail) >= 3:
                parts.append(tail)
    return parts
