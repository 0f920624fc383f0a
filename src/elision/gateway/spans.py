"""Where the parts of a JSON text stand, so that some can be replaced while all others keep their very bytes.

msgspec takes one level of a text apart in C: the values of an object, the elements of an array, each as the bytes that
stand there. Their places follow by looking for those very bytes behind what came before, so a place that is not theirs
is noticed. Loops in Python run over fields and elements, and in `survey` over strings; none runs over bytes.
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
from typing import Any, Final, NamedTuple

from elision.errors import ElisionError, MissingExtra

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

#: Fields of one object; providers know about sixty. Each is a step of a loop in Python.
MOST_FIELDS: Final = 1_000

#: Values in one text, and bytes of one string. A call of C that makes more of them stops everything else meanwhile; a
#: request of a million tokens has a few ten thousand values, and the largest images of providers are smaller.
MOST_VALUES: Final = 200_000
LONGEST_STRING: Final = 8 * 1024 * 1024
#: Bytes between two strings: white space, numbers, brackets.
_WIDEST_GAP: Final = 1024 * 1024
#: Bytes of a string that are looked through in one call.
_PIECE: Final = 256 * 1024

_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_SPACE: Final = re.compile(rb"[ \t\n\r]*")
_KEY: Final = re.compile(rb'[ \t\n\r]*("[^"\\]*+(?:\\.[^"\\]*+)*+")[ \t\n\r]*:[ \t\n\r]*', re.DOTALL)
_OPENS: Final = re.compile(rb"[ \t\n\r]*:[ \t\n\r]*\[")
_STRING: Final = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_GAP: Final = re.compile(rb"[ \t\n\r]*,[ \t\n\r]*")
_BEHIND: Final = frozenset(b" \t\n\r,}")
#: Says where a value ends. Numbers stay text: one may be longer than Python takes.
_SCANNER: Final = json.JSONDecoder(parse_int=str, parse_float=str, strict=False)


class Unreadable(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """Bytes that cannot be taken apart here; they pass as they came."""


class Edit(NamedTuple):
    """`new` in place of the bytes from `start` to `end`; the same place twice means in front of it."""

    start: int
    end: int
    new: bytes


class Field(NamedTuple):
    """One field of an object: its name decoded, where its name begins, and from where to where its value stands."""

    name: str
    key: int
    start: int
    end: int


def spliced(raw: bytes, edits: Iterable[Edit]) -> bytes:
    """`raw` with every edit made; they do not overlap."""
    view = memoryview(raw)
    at = 0
    parts: list[bytes | memoryview] = []
    for edit in sorted(edits):
        parts += (view[at : edit.start], edit.new)
        at = edit.end
    if parts:
        return b"".join([*parts, view[at:]])
    return raw


def survey(raw: bytes, start: int = 0) -> None:
    """Raise Unreadable where the JSON text behind `start` has more values than are read, or a longer string.

    For what is large, before C takes it apart in one go. Where `raw` is no JSON nothing needs to be noticed.
    """
    values = 0
    at = start
    while at < len(raw):
        quote = raw.find(b'"', at)
        gap_end = quote if quote >= 0 else len(raw)
        if gap_end - at > _WIDEST_GAP:
            raise Unreadable(f"more than {_WIDEST_GAP} bytes stand between two strings")
        if gap_end - at > 4:
            values += 1 + sum(raw.count(mark, at, gap_end) for mark in (b",", b"[", b"{"))
        else:
            values += 2
        if values > MOST_VALUES:
            raise Unreadable(f"more than {MOST_VALUES} values")
        if quote < 0:
            return
        at = _string_end(raw, quote + 1) + 1


def _string_end(raw: bytes, start: int) -> int:
    """Where the string ends whose first letter is at `start`. Raises Unreadable where it is too long."""
    at = start
    while at < len(raw):
        end = _found(_STRING, raw, at, min(at + _PIECE, len(raw))).end()
        if end - start > LONGEST_STRING:
            raise Unreadable(f"a string has more than {LONGEST_STRING} bytes")
        if end == at or raw.startswith(b'"', end):
            return end
        at = end
    return at


# -- objects ----------------------------------------------------------------------------------------------------------


def fields(raw: bytes) -> list[Field]:
    """The fields of an object in their order, doubles included. Raises ValueError, RecursionError or Unreadable."""
    values = _OBJECT.decode(raw)
    if values:
        return list(_fields(raw, values))
    return []


def _fields(raw: bytes, values: dict[str, msgspec.Raw]) -> Iterator[Field]:
    at = raw.index(b"{") + 1
    text = ""
    for _ in range(MOST_FIELDS):
        key = _found(_KEY, raw, at)
        name = _name(key[1])
        end = _last_end(raw, key.end(), values[name])
        if end is None:
            # The name stands there again. Its text is made once, however many such fields there are.
            text = text or raw.decode("latin-1")
            end = _SCANNER.raw_decode(text, key.end())[1]
        yield Field(name, key.start(1), key.end(), end)
        gap = _GAP.match(raw, end)
        if gap is None:
            return
        at = gap.end()
    raise Unreadable(f"an object has more than {MOST_FIELDS} fields")


def _name(key: bytes) -> str:
    if b"\\" in key:
        return msgspec.json.decode(key, type=str)
    return key[1:-1].decode()


def _last_end(raw: bytes, start: int, value: msgspec.Raw) -> int | None:
    """Where the value at `start` ends if it is `value`, the last of its name; else None."""
    end = start + len(memoryview(value))
    # A number may begin like another.
    if raw.startswith(value, start) and raw[end] in _BEHIND:
        return end
    return None


def _found(pattern: re.Pattern[bytes], raw: bytes, at: int, end: int = sys.maxsize) -> re.Match[bytes]:
    found = pattern.match(raw, at, end)
    assert found is not None
    return found


def without(all_fields: Sequence[Field], names: Iterable[str]) -> Iterator[Edit]:
    """The edits that remove the fields so named, each with the comma in front of it or, at the front, behind it."""
    gone = set(names)
    kept = next((place for place, field in enumerate(all_fields) if field.name not in gone), None)
    if kept is None:
        if all_fields:
            yield Edit(all_fields[0].key, all_fields[-1].end, b"")
        return
    if kept:
        yield Edit(all_fields[0].key, all_fields[kept].key, b"")
    for place in range(kept + 1, len(all_fields)):
        if all_fields[place].name in gone:
            yield Edit(all_fields[place - 1].end, all_fields[place].end, b"")


def added(raw: bytes, all_fields: Sequence[Field], new: Iterable[tuple[str, bytes]], *, first: bool) -> Iterator[Edit]:
    """The edit that puts new fields behind all others. first: whether no other is left in front of them."""
    told = b",".join(msgspec.json.encode(name) + b":" + value for name, value in new)
    if told and first:
        if all_fields:
            place = all_fields[0].key
        else:
            place = raw.index(b"{") + 1
        yield Edit(place, place, told)
    elif told:
        yield Edit(all_fields[-1].end, all_fields[-1].end, b"," + told)


# -- arrays -----------------------------------------------------------------------------------------------------------


def elements(raw: bytes) -> list[bytes]:
    """The bytes of each element of an array. Raises ValueError or RecursionError."""
    return copy_values(_ARRAY.decode(raw))


def copy_values(values: Iterable[msgspec.Raw]) -> list[bytes]:
    """The bytes of each; a loop in Python, so that other threads get their turn between two."""
    return [bytes(value) for value in values]


def opens(raw: bytes, at: int) -> int | None:
    """Where the array opens that is the value of the name that ends at `at`; None if there is none."""
    found = _OPENS.match(raw, at)
    if found is not None:
        return found.end() - 1
    return None


def closes(raw: bytes, start: int, values: Sequence[bytes]) -> int | None:
    """Where an array of `values` that opens at `start` ends; None if no such array stands there.

    Only arrays with the same white space between any two elements are recognised, by one comparison in C.
    """
    at = _found(_SPACE, raw, start + 1).end()
    if values:
        inner = _between(raw, at + len(values[0])).join(values)
        if not raw.startswith(inner, at):
            return None
        at = _found(_SPACE, raw, at + len(inner)).end()
    if raw[at : at + 1] == b"]":
        return at + 1
    return None


def _between(raw: bytes, at: int) -> bytes:
    """What stands behind an element that ends at `at`, up to the next one."""
    gap = _GAP.match(raw, at)
    if gap is not None:
        return gap[0]
    return b","


class Laid(NamedTuple):
    """Where each element of an array ends, and what stands between any two of them; None where that differs."""

    ends: list[int]
    gap: bytes | None


@dataclass(frozen=True)
class Array:
    """An array in `raw` that opens at `start`, with these elements. known: how they are laid, if that is known."""

    raw: bytes
    start: int
    values: list[bytes]
    known: Laid | None = None

    @property
    def ends(self) -> list[int]:
        """Where each element ends."""
        return self.laid.ends

    @cached_property
    def laid(self) -> Laid:
        return self.known or self._looked_for()

    def _looked_for(self) -> Laid:
        if not self.values:
            return Laid([], b",")
        first = _found(_SPACE, self.raw, self.start + 1).end()
        gap = _between(self.raw, first + len(self.values[0]))
        if self.raw.startswith(gap.join(self.values), first):
            step = len(gap)
            at = first - len(gap)
            return Laid([at + whole for whole in accumulate([len(value) + step for value in self.values])], gap)
        return Laid(list(self._walked(first)), None)

    def followed(self, shared: int, rest: Array, by: int) -> Laid:
        """How an array is laid that shares so many elements with this one, and goes on like `rest` behind its first,
        `by` bytes further on."""
        own = self.laid
        more = rest.laid
        ends = [*own.ends[:shared], *(end + by for end in more.ends[1:])]
        if len(more.ends) < 2:
            return Laid(ends, own.gap)
        return Laid(ends, more.gap if shared < 2 or own.gap == more.gap else None)

    def _walked(self, at: int) -> Iterator[int]:
        for value in self.values:
            yield at + len(value)
            gap = _GAP.match(self.raw, at + len(value))
            at = gap.end() if gap is not None else at

    def edits(self, new: Sequence[bytes]) -> list[Edit]:
        """What makes it an array of `new`: elements in common at both ends stay, and so do those that keep a place."""
        old = self.values
        most = min(len(old), len(new))
        front = next(compress(range(most), map(ne, old, new)), most)
        back = next(compress(range(most - front), map(ne, reversed(old), reversed(new))), most - front)
        if len(old) == len(new) and self.laid.gap is None:
            return [
                Edit(self.ends[place] - len(old[place]), self.ends[place], new[place])
                for place in compress(range(front, most - back), map(ne, old[front:], new[front:]))
            ]
        if front == len(old) == len(new):
            return []
        return [self._replaced(front, len(old) - back, new[front : len(new) - back])]

    def _replaced(self, start: int, stop: int, new: Sequence[bytes]) -> Edit:
        """Elements `start` to `stop` become `new`; one of the two may be none."""
        if self.ends:
            gap = _between(self.raw, self.ends[0])
        else:
            gap = b","
        told = gap.join(new)
        if start < stop and new:
            return Edit(self._start(start), self.ends[stop - 1], told)
        if start:
            return Edit(self.ends[start - 1], self.ends[stop - 1], gap + told if new else b"")
        if new:
            if self.values:
                place = self._start(0)
            else:
                place = self.start + 1
            return Edit(place, place, told + gap if self.values else told)
        return Edit(self._start(0), self._start(stop) if stop < len(self.values) else self.ends[-1], b"")

    def _start(self, place: int) -> int:
        return self.ends[place] - len(self.values[place])


def decoded(raw: bytes) -> Any:
    """A JSON value. Raises Unreadable, also for what Python holds no value for: 1e400, half of a surrogate pair."""
    try:
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"JSON that cannot be read: {error}") from error
