"""Find where the parts of a JSON text are, so that some can be replaced while all others keep their bytes.

msgspec splits one level of a text in C: the values of an object, the elements of an array, each as its bytes. Their
places are found by looking for those bytes after the previous part, so a wrong place is noticed. Loops in Python run
over fields and elements, and in `check_size` over strings; none runs over bytes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, compress
from operator import ne
from typing import Final, NamedTuple

from elision.errors import ElisionError, MissingExtra
from elision.trajectory.text_pieces import PIECE

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

#: Fields of one object; providers know about sixty. Each is a step of a loop in Python.
MAX_FIELDS: Final = 1_000

#: Values in one text, and bytes of one string. A call of C that makes more of them stops everything else meanwhile; a
#: request of a million tokens has a few ten thousand values, and the largest images of providers are smaller.
MAX_VALUES: Final = 200_000
MAX_STRING_BYTES: Final = 8 * 1024 * 1024
#: Bytes between two strings: white space, numbers, brackets.
_MAX_GAP_BYTES: Final = 1024 * 1024

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_KEY: Final = re.compile(rb'[ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_ARRAY_START: Final = re.compile(rb"[ \t\n\r]*:[ \t\n\r]*\[")
_BACKSLASH: Final = ord("\\")
_GAP: Final = re.compile(rb"[ \t\n\r]*,[ \t\n\r]*")
_AFTER_VALUE: Final = frozenset(b" \t\n\r,}")
#: Says where a value ends. Numbers stay text: one may be longer than Python takes.
_SCANNER: Final = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)


class UnreadableBody(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """Bytes that cannot be parsed here; they pass unchanged."""


class BytesEdit(NamedTuple):
    """`new` replaces the bytes from `start` to `end`; equal ends insert it there."""

    start: int
    end: int
    new: bytes


class JsonField(NamedTuple):
    """One field of an object: its decoded name, where its name begins, and the span of its value."""

    name: str
    key_start: int
    start: int
    end: int


def apply_edits(raw: bytes, edits: Iterable[BytesEdit]) -> bytes:
    """Return `raw` with every edit made; they do not overlap."""
    view = memoryview(raw)
    at = 0
    parts: list[bytes | memoryview] = []
    for edit in sorted(edits):
        parts += (view[at : edit.start], edit.new)
        at = edit.end
    if parts:
        return b"".join([*parts, view[at:]])
    return raw


def check_size(raw: bytes, start: int = 0) -> None:
    """Raise UnreadableBody where the JSON text after `start` has too many values, or too long a string.

    For large bodies, before a C parser takes them in one call. Text that is no JSON needs no error here.
    """
    values = 0
    at = start
    while at < len(raw):
        quote = raw.find(b'"', at)
        gap_end = quote if quote >= 0 else len(raw)
        if gap_end - at > _MAX_GAP_BYTES:
            raise UnreadableBody(f"more than {_MAX_GAP_BYTES} bytes stand between two strings")
        if gap_end - at > 4:
            values += 1 + sum(raw.count(mark, at, gap_end) for mark in (b",", b"[", b"{"))
        else:
            values += 2
        if values > MAX_VALUES:
            raise UnreadableBody(f"more than {MAX_VALUES} values")
        if quote < 0:
            return
        at = find_string_end(raw, quote + 1) + 1


def find_string_end(raw: bytes, start: int, longest: int = MAX_STRING_BYTES) -> int:
    """Return where the string ends whose first character is at `start`.

    Raises UnreadableBody where it has more than `longest` bytes.
    """
    at = start
    while at < len(raw):
        end = min(at + PIECE, len(raw))
        quote = raw.find(b'"', at, end)
        if raw[(quote if quote > at else end) - 1] == _BACKSLASH and quote != at:
            # Backslashes come in pairs but for one that escapes what is behind it, perhaps in the next piece.
            piece = raw[at:end].replace(rb"\\", b"  ").replace(rb"\"", b"  ")
            place = piece.find(b'"')
            quote = at + place if place >= 0 else -1
            end -= piece.endswith(b"\\")
        if quote >= 0:
            end = quote
        if end - start > longest:
            raise UnreadableBody(f"a string has more than {longest} bytes")
        if quote >= 0 or end == at:
            return end
        at = end
    return at


# -- objects ----------------------------------------------------------------------------------------------------------


def parse_fields(raw: bytes) -> list[JsonField]:
    """Return an object's fields in order, repeated ones too. Raises ValueError, RecursionError or UnreadableBody."""
    values = _OBJECT.decode(raw)
    if values:
        return list(_iterate_fields(raw, values))
    return []


def _iterate_fields(raw: bytes, values: dict[str, msgspec.Raw]) -> Iterator[JsonField]:
    at = raw.index(b"{") + 1
    text = ""
    for _ in range(MAX_FIELDS):
        key = _match_at(_KEY, raw, at)
        name = msgspec.json.decode(key[1], type=str) if b"\\" in key[1] else key[1][1:-1].decode()
        end = _find_last_end(raw, key.end(), values[name])
        if end is None:
            # The name stands there again. Its text is made once, however many such fields there are.
            text = text or raw.decode("latin-1")
            end = _SCANNER.raw_decode(text, key.end())[1]
        yield JsonField(name, key.start(1), key.end(), end)
        gap = _GAP.match(raw, end)
        if gap is None:
            return
        at = gap.end()
    raise UnreadableBody(f"an object has more than {MAX_FIELDS} fields")


def _find_last_end(raw: bytes, start: int, value: msgspec.Raw) -> int | None:
    """Return where the value at `start` ends if it is `value`, the last of its name; else None."""
    end = start + len(memoryview(value))
    # A number may begin like another.
    if raw.startswith(value, start) and raw[end] in _AFTER_VALUE:
        return end
    return None


def _match_at(pattern: re.Pattern[bytes], raw: bytes, at: int, end: int = sys.maxsize) -> re.Match[bytes]:
    found = pattern.match(raw, at, end)
    assert found is not None
    return found


def remove_fields(all_fields: Sequence[JsonField], names: Iterable[str]) -> Iterator[BytesEdit]:
    """Yield the edits that remove these fields, each with the comma before it or, at the start, after it."""
    gone = set(names)
    kept = next((place for place, field in enumerate(all_fields) if field.name not in gone), None)
    if kept is None:
        if all_fields:
            yield BytesEdit(all_fields[0].key_start, all_fields[-1].end, b"")
        return
    if kept:
        yield BytesEdit(all_fields[0].key_start, all_fields[kept].key_start, b"")
    for place in range(kept + 1, len(all_fields)):
        if all_fields[place].name in gone:
            yield BytesEdit(all_fields[place - 1].end, all_fields[place].end, b"")


def add_fields(
    raw: bytes, all_fields: Sequence[JsonField], new: Iterable[tuple[str, bytes]], *, first: bool
) -> Iterator[BytesEdit]:
    """Yield the edit that adds fields at the end. first: whether no other field is left before them."""
    joined = b",".join(msgspec.json.encode(name) + b":" + value for name, value in new)
    if joined and first:
        if all_fields:
            place = all_fields[0].key_start
        else:
            place = raw.index(b"{") + 1
        yield BytesEdit(place, place, joined)
    elif joined:
        yield BytesEdit(all_fields[-1].end, all_fields[-1].end, b"," + joined)


# -- arrays -----------------------------------------------------------------------------------------------------------


def parse_elements(raw: bytes) -> list[bytes]:
    """Return the bytes of each element of an array. Raises ValueError or RecursionError."""
    return copy_values(_ARRAY.decode(raw))


def copy_values(values: Iterable[msgspec.Raw]) -> list[bytes]:
    """Return the bytes of each value; a loop in Python, so that other threads can run between two."""
    return [bytes(value) for value in values]


def find_array_start(raw: bytes, at: int) -> int | None:
    """Return where the array opens that is the value of the name that ends at `at`; None if there is none."""
    found = _ARRAY_START.match(raw, at)
    if found is not None:
        return found.end() - 1
    return None


def find_array_end(raw: bytes, start: int, values: Sequence[bytes]) -> int | None:
    """Return where an array of `values` that opens at `start` ends; None if there is no such array.

    Only arrays with the same white space between any two elements are recognised, by one comparison in C.
    """
    at = _match_at(_SPACE, raw, start + 1).end()
    if values:
        inner = _find_gap(raw, at + len(values[0])).join(values)
        if not raw.startswith(inner, at):
            return None
        at = _match_at(_SPACE, raw, at + len(inner)).end()
    if raw[at : at + 1] == b"]":
        return at + 1
    return None


def _find_gap(raw: bytes, at: int) -> bytes:
    """Return the separator after an element that ends at `at`."""
    gap = _GAP.match(raw, at)
    if gap is not None:
        return gap[0]
    return b","


class ArrayLayout(NamedTuple):
    """Where each element of an array ends, and the separator of its elements; None where they differ."""

    ends: list[int]
    gap: bytes | None

    def extend(self, shared: int, rest: ArrayLayout, by: int) -> ArrayLayout:
        """Return the layout of an array with the first `shared` elements of this one and all but the first of `rest`.

        by: how many bytes later the latter are.
        """
        ends = [*self.ends[:shared], *(end + by for end in rest.ends[1:])]
        if len(rest.ends) < 2:
            return ArrayLayout(ends, self.gap)
        return ArrayLayout(ends, rest.gap if shared < 2 or self.gap == rest.gap else None)


@dataclass(frozen=True)
class JsonArray:
    """An array in `raw` that starts at `start`, with these elements. known_layout: its layout, if that is known."""

    raw: bytes
    start: int
    values: list[bytes]
    known_layout: ArrayLayout | None = None

    @property
    def ends(self) -> list[int]:
        """Return where each element ends."""
        return self.layout.ends

    @cached_property
    def layout(self) -> ArrayLayout:
        return self.known_layout or self._compute_layout()

    def _compute_layout(self) -> ArrayLayout:
        if not self.values:
            return ArrayLayout([], b",")
        first = _match_at(_SPACE, self.raw, self.start + 1).end()
        gap = _find_gap(self.raw, first + len(self.values[0]))
        if self.raw.startswith(gap.join(self.values), first):
            step = len(gap)
            at = first - len(gap)
            return ArrayLayout([at + whole for whole in accumulate([len(value) + step for value in self.values])], gap)
        return ArrayLayout(list(self._walk_ends(first)), None)

    def _walk_ends(self, at: int) -> Iterator[int]:
        for value in self.values:
            yield at + len(value)
            gap = _GAP.match(self.raw, at + len(value))
            at = gap.end() if gap is not None else at

    def make_edits(self, new: Sequence[bytes]) -> list[BytesEdit]:
        """Return the edits that make it an array of `new`: equal elements at both ends stay, and those in place."""
        old = self.values
        most = min(len(old), len(new))
        front = next(compress(range(most), map(ne, old, new)), most)
        back = next(compress(range(most - front), map(ne, reversed(old), reversed(new))), most - front)
        if len(old) == len(new) and self.layout.gap is None:
            return [
                BytesEdit(self.ends[place] - len(old[place]), self.ends[place], new[place])
                for place in compress(range(front, most - back), map(ne, old[front:], new[front:]))
            ]
        if front == len(old) == len(new):
            return []
        return [self._replace_elements(front, len(old) - back, new[front : len(new) - back])]

    def _replace_elements(self, start: int, stop: int, new: Sequence[bytes]) -> BytesEdit:
        """Return the edit that replaces elements `start` to `stop` with `new`; one of the two may be empty."""
        if self.ends:
            gap = _find_gap(self.raw, self.ends[0])
        else:
            gap = b","
        joined = gap.join(new)
        if start < stop and new:
            return BytesEdit(self._find_start(start), self.ends[stop - 1], joined)
        if start:
            return BytesEdit(self.ends[start - 1], self.ends[stop - 1], gap + joined if new else b"")
        if new:
            if self.values:
                place = self._find_start(0)
            else:
                place = self.start + 1
            return BytesEdit(place, place, joined + gap if self.values else joined)
        return BytesEdit(self._find_start(0), self._find_start(stop) if stop < len(self.values) else self.ends[-1], b"")

    def _find_start(self, place: int) -> int:
        return self.ends[place] - len(self.values[place])
