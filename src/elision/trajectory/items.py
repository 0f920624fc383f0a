"""Code-like items: what an action uses that an agent cannot guess; and line numbers, which are none.

Items are identifiers (snake_case, camelCase, dotted.names, CONSTANTS, names with digits), paths, numbers of three
digits or more, and quoted strings without a space. One extractor serves both the gist of a placeholder and the evidence
measure of the lab, so that what is kept and what is counted are the same thing.

Gutters are line numbers that a tool put in front of lines: `cat -n`, editors, `grep -n`. They name no fact of the task.

    345:def run(self):                 an editor, grep -n
    src/app.py:345:def run(self):      grep -rn
    Line 345:def run(self):            search tools
       345<tab>def run(self):          cat -n, nl, editors
       345→def run(self):              editors
    345|def run(self):                 editors
    345-    return                     grep -C

Other numbers stay: `app.py:345: error: …`, `404: Not Found`, `2026-11-22 10:15:00`, `4096<tab>./src`, `101 | Ada`.
"""

from __future__ import annotations

import re
import string
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, filterfalse
from operator import itemgetter
from threading import Lock
from typing import Final

from elision.trajectory.foreign_text import PIECE, iter_line_matches

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
#: Characters of the texts whose items are kept: those of a batch of turns, which is digested after it was read.
CHARACTERS_KEPT: Final = 4_000_000
#: What a text counts for at least: an entry takes room, too.
_FEWEST_COUNTED: Final = 4_000

_LETTERS: Final = (string.ascii_letters + string.digits + "_./~@:#$%+-\\").encode()
#: Byte by byte: what may be part of a word is kept, and the end of a line; all else separates words.
_SEPARATED: Final = bytes(byte if byte in _LETTERS + b"\n" else ord(" ") for byte in range(256))
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
#: Searched for in a word: a match of `.*` before each form would go to its end and back once a form.
_SHAPE: Final = re.compile(
    r"""
      [a-z][A-Z]            # camelCase
    | [A-Za-z0-9]_[A-Za-z0-9]  # snake_case, CONSTANT_CASE
    | \A_\w                  # _private
    | [A-Za-z]\d | \d[A-Za-z]  # names with digits, hashes
    | \w/\w | \A/\w          # paths
    | [A-Za-z_]\w*\.[A-Za-z_]\w  # dotted names, file.ext
    | [A-Za-z]::[A-Za-z]
    """,
    re.VERBOSE,
)
#: Those of a list of words, one a line, that are identifiers with such a shape: no slash, dot or colon is in them.
_IDENTIFIERS: Final = re.compile(
    rf"""
      ^(?=[A-Za-z_]\w{{2,{LONGEST_ITEM - 1}}}$)
      (?: _
        | [A-Za-z][a-z]*+(?: \d | _[A-Za-z0-9] )  # most of them, without a step back
        | \w*?(?: [a-z][A-Z] | [A-Za-z0-9]_[A-Za-z0-9] | [A-Za-z]\d | \d[A-Za-z] )
      )\w*$
    """,
    re.VERBOSE | re.MULTILINE | re.ASCII,
)


#: A path has a dot or a slash; looked ahead for, so that a long line without a colon is read twice and no more.
_GUTTER: Final = r"((?=[^\s:]*[./])[^\s:]+:|[Ll]ine | *+)(\d+)([:|\t\u2192-])"
_FIRST_GUTTER: Final = re.compile(_GUTTER)
#: Begins with a character, not with "^", and so it is found three times as fast.
_LATER_GUTTER: Final = re.compile(r"\n" + _GUTTER)
#: What follows the colon in front of a line of code: never a digit, and no single blank, which is a sentence's.
_AFTER_COLON: Final = re.compile(r"(?! \S)\D|$")
#: `cat -n` and editors that follow it fill up to so many characters.
_GUTTER_WIDTH: Final = 6
#: So many lines numbered one after the other are a listing, whatever follows the numbers.
_LEAST_LISTING: Final = 3


class ItemCache:
    """Finds the items of texts, and keeps those of the texts that were asked for last.

    most: characters of the texts whose items are kept.
    """

    def __init__(self, most: int = CHARACTERS_KEPT) -> None:
        self.most = most
        self.size = 0
        self._found: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._lock = Lock()

    def find_items(self, text: str) -> tuple[str, ...]:
        with self._lock:
            known = self._found.get(text)
            if known is not None:
                self._found.move_to_end(text)
                return known
        items = find_items_uncached(text)
        with self._lock:
            if text not in self._found:
                self._found[text] = items
                self.size += max(len(text), _FEWEST_COUNTED)
            # The newest stays however long it is, because it is asked for again.
            while self.size > self.most and len(self._found) > 1:
                oldest, _ = self._found.popitem(last=False)
                self.size -= max(len(oldest), _FEWEST_COUNTED)
        return items


_CACHE: Final = ItemCache()


def find_items(text: str) -> tuple[str, ...]:
    """The code-like items of `text`, each once: those of words in order of first appearance, then those in quotes.

    A path counts as itself and as its last component; a dotted or `::` name as itself and as its last part, since that
    is how agents refer to them. A cache serves who asks when a text is read, masked and digested.
    """
    return _CACHE.find_items(text)


def find_items_uncached(text: str) -> tuple[str, ...]:
    """The same as `find_items`, for a text that nobody asks for again."""
    # Piece by piece: a call of C over all of a large text would let no other thread run meanwhile.
    pieces = _split_pieces(text)
    items = dict.fromkeys(chain.from_iterable(map(_WORD_CACHE.__getitem__, _list_words(pieces))))
    for piece in pieces:
        in_quotes = dict.fromkeys(map(itemgetter(1), _QUOTED.findall(piece)))
        items |= dict.fromkeys(filter(_is_quoted_item, in_quotes))
    return tuple(items)


def find_items_by_line(text: str, wanted: Set[str]) -> list[tuple[int, str, tuple[str, ...]]]:
    """Return (number from 0, line, its items) of each line of `text` that has one of the `wanted` items."""
    if not wanted:
        return []
    pieces = _split_pieces(text)
    words_by_line = _list_words_by_line(pieces)
    words_with_items = frozenset(_choose_words(dict.fromkeys(chain.from_iterable(words_by_line))))
    wanted_words = {word for word in words_with_items if not wanted.isdisjoint(_WORD_CACHE[word])}
    quoted: dict[int, list[str]] = {}
    number = 0
    for piece in pieces:
        for place, word in _find_quoted(piece):
            quoted.setdefault(number + place, []).append(word)
        number += piece.count("\n")
    lines_with_quoted = {number for number, words in quoted.items() if not wanted.isdisjoint(words)}
    lines = text.split("\n")
    found = []
    for number, words in enumerate(words_by_line):
        if number in lines_with_quoted or not wanted_words.isdisjoint(words):
            items = chain.from_iterable(map(_WORD_CACHE.__getitem__, filter(words_with_items.__contains__, words)))
            found.append((number, lines[number], tuple(dict.fromkeys(chain(items, quoted.get(number, ()))))))
    return found


def _list_words_by_line(pieces: Iterable[str]) -> list[list[str]]:
    """Return the words of each line; a piece may begin within one."""
    lines: list[list[str]] = [[]]
    for piece in pieces:
        first, *others = _separate_words(piece).split("\n")
        lines[-1] += first.split()
        lines += [line.split() for line in others]
    return lines


def _list_words(pieces: Iterable[str]) -> Iterator[str]:
    """Return the words that hold items, each once."""
    different: dict[str, None] = {}
    for piece in pieces:
        different |= dict.fromkeys(_separate_words(piece).split())
    return _choose_words(different)


def _choose_words(different: dict[str, None]) -> Iterator[str]:
    """Return those of the `different` words of a text that hold items: of a great many, only some are looked at.

    Each new word costs some microseconds, so that a megabyte of numbers would take ten times as long as other text.
    """
    chosen = list(different)
    if len(different) > MOST_NUMBERS:
        names = [word for word in different if word.strip(_NUMERIC) not in _EXPONENTS]
        if len(different) - len(names) > MOST_NUMBERS:
            chosen = names
    if len(chosen) > MOST_WORDS:
        chosen = chosen[: MOST_WORDS // 2] + chosen[-MOST_WORDS // 2 :]
    _WORD_CACHE.add_identifiers(chosen)
    return filter(_WORD_CACHE.__getitem__, chosen)


def _split_pieces(text: str) -> list[str]:
    """Return `text` in pieces of about `PIECE` characters, so that no item is cut."""
    pieces = []
    start = 0
    while len(text) - start > 2 * PIECE:
        end = _find_cut(text, start)
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]


def _find_cut(text: str, start: int) -> int:
    """Return a place at least `PIECE` characters behind `start` where `text` can be cut, or its end.

    That is behind a character that separates words, unless it may stand in quotes, or in the middle of a blob, of which
    both halves are too long for items.
    """
    for at in range(start + PIECE, len(text), _STEP):
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


def _find_quoted(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line, from 0, and the text of what is an item because it is in quotes."""
    line = 0
    seen = 0
    for match in _QUOTED.finditer(text):
        word = match[2]
        if _is_quoted_item(word):
            line += text.count("\n", seen, match.start())
            seen = match.start()
            yield line, word


def _is_quoted_item(word: str) -> bool:
    return any(map(str.isalpha, word)) and not _PAGE_METADATA.match(word)


def _separate_words(text: str) -> str:
    """Return `text` with a space for every character that is part of no word; ends of lines stay."""
    # Half the time of an expression for words: 40 ms instead of 84 for 4.5 MB. No letter beyond ASCII is part of one.
    # The slash of a closing tag begins no path.
    return text.encode("ascii", "replace").replace(b"</", b"  ").translate(_SEPARATED).decode("ascii")


class _WordCache(dict[str, tuple[str, ...]]):
    """The items of words. Texts of one run use the same words over and over: nearly all of the work is looked up."""

    def add_identifiers(self, words: Sequence[str]) -> None:
        """Keep those of `words` that are new and items themselves: most of the new words of code.

        One expression finds them in all of the words, in less than half the time that each takes alone.
        """
        new = list(filterfalse(self.__contains__, words))
        if len(self) + len(new) > _WORDS_KEPT:
            self.clear()
        self.update({word: (word,) for word in _IDENTIFIERS.findall("\n".join(new))})

    def __missing__(self, word: str) -> tuple[str, ...]:
        if word.isidentifier():
            # Nothing around it to trim, and no parts.
            return self._keep(word, (word,) if _IDENTIFIERS.match(word) else ())
        found: list[str] = []
        for piece in _ESCAPES.split(word) if "\\" in word else (word,):
            # Without the punctuation around it; the slash or tilde that begins a path stays.
            trimmed = piece.rstrip(_TRIM).lstrip(":-\\#@%+$")
            while trimmed.startswith("./"):
                trimmed = trimmed[2:]
            if "/" not in trimmed:
                trimmed = trimmed.lstrip(_TRIM)
            if 3 <= len(trimmed) <= _LONGEST_WORD and not _PAGE_METADATA.match(trimmed):
                # Without a colon, slash or dot it has no parts.
                found += (trimmed,) if trimmed.isalnum() else _list_parts(trimmed)
        items = tuple(
            part for part in found if len(part) <= LONGEST_ITEM and (_NUMBER.match(part) or _SHAPE.search(part))
        )
        return self._keep(word, items)

    def _keep(self, word: str, items: tuple[str, ...]) -> tuple[str, ...]:
        # A blob comes once and would only take room.
        if len(word) <= _LONGEST_WORD:
            if len(self) >= _WORDS_KEPT:
                self.clear()
            self[word] = items
        return items


_WORD_CACHE: Final = _WordCache()


def _list_parts(word: str) -> list[str]:
    """Return a word, what colons separate in it, and the last component of each path or dotted name."""
    parts = [word]
    if ":" in word:
        parts += [part for part in _COLON.split(word) if len(part) >= 3]
    for part in list(parts):
        tail = ""
        if "/" in part:
            tail = part.rsplit("/", 1)[1].strip(_TRIM)
        elif "." in part and not _NUMBER.match(part):
            tail = part.rsplit(".", 1)[1]
        if len(tail) >= 3:
            parts.append(tail)
    return parts


def strip_gutters(text: str) -> str:
    """Return `text` with a blank in place of each line number in a gutter."""
    parts = []
    end = 0
    for match in find_gutters(text):
        parts += [text[end : match.start(2)], " "]
        end = match.end()
    return "".join([*parts, text[end:]])


def find_gutters(text: str) -> list[re.Match[str]]:
    """Return the gutters of `text`, in order.

    Groups: what is before the number, the number, the mark after it. A line begins where the first group does.
    """
    gutters = []
    for run in _group_numbered_lines(text):
        for match in run:
            lead, digits, mark = match.groups()
            if mark == "\t":
                is_gutter = len(lead) + len(digits) >= _GUTTER_WIDTH and not lead.strip()
            elif mark in "|-":
                is_gutter = len(run) > 1
            else:
                is_code = mark == "\u2192" or _AFTER_COLON.match(text, match.end()) is not None
                is_gutter = is_code or len(run) >= _LEAST_LISTING
            if is_gutter:
                gutters.append(match)
    return gutters


def _group_numbered_lines(text: str) -> list[list[re.Match[str]]]:
    """Return what may be gutters, in runs of neighbouring lines whose numbers follow each other."""
    runs: list[list[re.Match[str]]] = []
    wanted = -1
    first = _FIRST_GUTTER.match(text)
    start = first.end() if first else 0
    later = _LATER_GUTTER.finditer(text, start) if len(text) <= PIECE else iter_line_matches(_LATER_GUTTER, text, start)
    for match in chain([first] if first else [], later):
        number = int(match[2][-9:])
        before = runs[-1][-1] if runs else match
        if (
            number == wanted
            and match[1].strip() == before[1].strip()
            and text.find("\n", before.end(), match.start(1)) == match.start(1) - 1
        ):
            runs[-1].append(match)
        else:
            runs.append([match])
        wanted = number + 1
    return runs
