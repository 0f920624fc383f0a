"""The gist of JSON: values under their keys, those of one object side by side.

    name="Desk Lamp" product_id=6817146515 item_id=8384507844; payment_method_id=paypal_7644869

A value without its key says nothing: agents took a `product_id` for an `item_id`. A key without a value says less.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple

from elision.strategies.extractors.wrappers import decode_json, unwrap_output
from elision.trajectory.items import find_items_uncached
from elision.trajectory.tokens import TokenCounter

#: Longer keys, and longer values, are data and prose.
_LONGEST_KEY: Final = 40
_LONGEST_VALUE: Final = 60
#: What would not be read back from a placeholder as it was written.
_UNQUOTABLE: Final = re.compile(r"[\"\[\]|;\\]|[^\S ]|[^\x20-\x7e\u00a1-\uffff]")
_WORD_ENDS: Final = re.compile(r"[\s,;:()\[\]…]+")
#: Names of fields. Anything else that an object has for a key is an id, a path or a name: it is data.
_FIELD: Final = re.compile(r"[A-Za-z_@$][A-Za-z_ -]*\d{0,2}\Z")
#: Keys of what other calls are made with, and of what is only looked at.
_NAMING: Final = re.compile(
    r"(?:.*_)?(?:id|ids|key|number|code|ref|path|file|slug|sku)\Z|(?:name|title)\Z|.*[a-z](?:Id|Key)\Z"
)
_MEASURING: Final = re.compile(
    r"(?:.*_)?(?:price|amount|cost|total|count|size|width|height|score|time|timestamp|date|at|lat|lng|lon|zip|est)\Z"
)
#: What such keys add to the score of a value; the score of one that the agent knows, and of one that is no item.
_NAMING_SCORE: Final = 0.8
_MEASURING_SCORE: Final = -0.4
_KNOWN_SCORE: Final = -1.2
_WORD_SCORE: Final = -0.5
_NUMBER_SCORE: Final = -0.9
#: What a value has more where another one of its object is told.
_SIBLING_SCORE: Final = 0.4
#: Scores below this are not worth their tokens at every later call.
LEAST_SCORE: Final = -0.3
#: Levels of objects and lists that are looked at.
_DEEPEST: Final = 40
#: The group of items that stand in prose or for keys: they are told last.
_APART: Final = 1 << 30
#: A rest of the budget that holds no pair.
_FEWEST_TOKENS: Final = 3


class _Value(NamedTuple):
    """A value of an object, which is known by its place in the text. is_name: whether other calls are made with it."""

    group: int
    key: str
    text: str
    is_name: bool


@dataclass(slots=True)
class _Unit:
    """What is told in one piece: a value under its key, or an item that stands in prose or for a key.

    group: the object that has it, by its place in the text; place: its own place. key: "" for none.
    """

    group: int
    place: int
    key: str
    text: str
    score: float
    is_name: bool = False


class JsonValues:
    """What the JSON of a result holds: values by object, each with its key, and the keys that only name fields."""

    def __init__(self, value: Any) -> None:
        self.values: list[_Value] = []
        self.fields: set[str] = set()
        self._groups = 0
        self._walk_value("", value, 0)

    def _walk_value(self, key: str, value: Any, group: int, depth: int = 0, *, in_list: bool = False) -> None:
        if depth > _DEEPEST:
            return
        if isinstance(value, dict):
            for name, inner in value.items():
                if _FIELD.match(name):
                    self.fields.add(name)
                self._walk_value(name, inner, self._begin_group() if _is_apart(name, inner) else group, depth + 1)
        elif isinstance(value, list):
            for inner in value:
                place = self._begin_group() if isinstance(inner, dict) else group
                self._walk_value(key, inner, place, depth + 1, in_list=True)
        elif value is not None and not isinstance(value, bool):
            is_name = bool(_NAMING.match(key)) or (in_list and isinstance(value, str) and " " not in value)
            self.values.append(_Value(group, key, str(value), is_name))

    def _begin_group(self) -> int:
        self._groups += 1
        return self._groups


def _is_apart(key: str, value: Any) -> bool:
    """Return whether `value` is an object of its own: `options` and `address` are part of what they describe."""
    return isinstance(value, dict) and (
        not _FIELD.match(key) or any(isinstance(inner, dict | list) for inner in value.values())
    )


def read_json(text: str) -> JsonValues | None:
    """Return what the JSON of a result holds; None where it is none."""
    for body in dict.fromkeys((unwrap_output(text).body, text)):
        value = decode_json(body)
        if value is not None:
            return JsonValues(value)
    return None


def write_json_gist(
    found: JsonValues, text: str, scores: Mapping[str, float], shown_text: str, budget: int, counter: TokenCounter
) -> str:
    """Return the most informative values of `text` under their keys, those of one object side by side.

    scores: of the items of `text` that may be told. shown_text: what the placeholder says already.
    """
    units = _list_units(found, text, scores, shown_text)
    by_group: dict[int, list[_Unit]] = {}
    for unit in units:
        by_group.setdefault(unit.group, []).append(unit)
    waiting = [(-unit.score, unit.place) for unit in units if unit.score > LEAST_SCORE]
    heapify(waiting)
    chosen: dict[int, list[_Unit]] = {}
    told: set[int] = set()
    spent = 0
    while waiting and budget - spent >= _FEWEST_TOKENS:
        unit = units[heappop(waiting)[1]]
        if unit.place in told:
            continue
        told.add(unit.place)
        cost = counter.count(f" {_write_pair(unit.key, [unit.text])}") + (unit.group not in chosen)
        if spent + cost > budget:
            continue
        spent += cost
        if unit.group not in chosen:
            chosen[unit.group] = []
            is_named = unit.is_name
            for other in by_group[unit.group] if unit.key else ():
                # What an object is like says nothing without what it is called.
                score = other.score + _SIBLING_SCORE if is_named or not other.is_name else inf
                is_named |= other.is_name
                if score > LEAST_SCORE:
                    heappush(waiting, (-score, other.place))
        chosen[unit.group].append(unit)
    return "; ".join(_write_group(chosen[group]) for group in sorted(chosen))


def _list_units(found: JsonValues, text: str, scores: Mapping[str, float], shown_text: str) -> list[_Unit]:
    units: list[_Unit] = []
    left = dict(scores)
    names: dict[int, float] = {}
    shown_words = set(_WORD_ENDS.split(shown_text))
    seen = 0
    for group, key, value, is_name in found.values:
        if not _can_be_quoted(key, value):
            continue
        # Values come in the order of the text. To look for each from the top would be quadratic work.
        at = text.find(value, seen)
        if at >= 0:
            seen = at + len(value)
        elif value not in text:
            continue
        items = find_items_uncached(value)
        own = [scores[item] for item in (value, *items) if item in scores]
        for item in (value, *items):
            left.pop(item, None)
        if value in shown_words or (" " in value and value in shown_text):
            continue
        score = max(own) if own else _weigh_known(value, has_items=bool(items))
        if is_name:
            score += _NAMING_SCORE
            if own:
                names[group] = max(score, names.get(group, score))
        elif _MEASURING.match(key):
            score += _MEASURING_SCORE
        units.append(_Unit(group, len(units), key, value, score, is_name))
    for unit in units:
        # What an object is called comes before what it is like.
        if unit.group in names and not unit.is_name:
            unit.score = min(unit.score, names[unit.group] - _SIBLING_SCORE / 2)
    for item, score in left.items():
        if item not in found.fields:
            units.append(_Unit(_APART, len(units), "", item, score))
    return units


def _can_be_quoted(key: str, value: str) -> bool:
    """Return whether a gist may have this pair."""
    if not (0 < len(value) <= _LONGEST_VALUE and 0 < len(key) <= _LONGEST_KEY):
        return False
    return not (_UNQUOTABLE.search(value) or _UNQUOTABLE.search(key))


def _weigh_known(value: str, *, has_items: bool) -> float:
    """Return how informative a value is that names nothing unknown."""
    if has_items:
        return _KNOWN_SCORE
    return _NUMBER_SCORE if value[-1].isdigit() else _WORD_SCORE


def _write_group(units: Iterable[_Unit]) -> str:
    values: dict[str, list[str]] = {}
    for unit in sorted(units, key=attrgetter("place")):
        values.setdefault(unit.key, []).append(unit.text)
    return " ".join(_write_pair(key, texts) for key, texts in values.items())


def _write_pair(key: str, values: Sequence[str]) -> str:
    if not key:
        return " ".join(values)
    text = ",".join(f'"{value}"' if " " in value or "," in value else value for value in values)
    return f"{key.replace(' ', '_')}={text}"
