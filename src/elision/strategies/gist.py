"""The gist of an observation: what in it the agent has not written itself and is most likely to need again.

`KnownIdentifiers` are the code-like items that the log knows: written by the agent or its user, or seen in
observations, and how often. Of JSON, values are told under their keys, those of one object side by side:

    name="Desk Lamp" product_id=6817146515 item_id=8384507844; payment_method_id=paypal_7644869

A value without its key says nothing: agents took a `product_id` for an `item_id`. A key without a value says less.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf
from operator import attrgetter
from typing import Any, Final, NamedTuple

from elision.strategies.extractors.result_text import decode_json, unwrap_output
from elision.trajectory.items import find_gutters, find_items, find_items_by_line, find_items_uncached
from elision.trajectory.tokens import TokenCounter
from elision.trajectory.trajectory import join_assistant_text
from elision.trajectory.turn import Head, Turn

#: A line that says what went wrong names what is looked up next.
_ALARMS = ("error", "exception", "traceback", "fail", "warning", "assert", "undefined", "not found")
_KEYWORDS = ("def", "class", "func", "fn", "function", "interface", "type", "const", "struct")
_DEFINITION = re.compile(
    r"^\W*(?:\d+\W+)?(?:(?:export|pub|async|public|private|static) )*"
    rf"(?:{'|'.join(_KEYWORDS)})\s"
)
#: A line's own number in a file view or a search result.
_LINE_NUMBER: Final = re.compile(r"^(?:[^\s:]{1,300}:|[Ll]ine |[ \t]{0,10})(\d{1,9})[:|\t\u2192-]", re.MULTILINE)
#: Keys of a page's metadata.
_PAGE_KEYS: Final = frozenset({"meta_tags", "viewport", "description", "keywords", "robots", "referrer"})
#: 153ms, 10px, 4.2k: measured once, never looked up again.
_QUANTITY = re.compile(r"^\d+(?:\.\d+)?[A-Za-z]{1,2}$")
#: Characters that are looked at from either end of an observation.
CHARS_PER_END = 60_000
#: Items seen in this many observations, and not written by the agent, are of no use: prompts, interpreters, banners.
COMMONPLACE = 5
#: Scores below this are not worth their tokens at every later call.
LEAST_SCORE = -0.7
#: Texts whose lines are kept: what falls due at the next call of a few sessions, or a run's for its next strategy.
_TEXTS_KEPT: Final = 128
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
_LEAST_VALUE_SCORE: Final = -0.3
#: Levels of objects and lists that are looked at.
_DEEPEST: Final = 40
#: The group of items that stand in prose or for keys: they are told last.
_APART: Final = 1 << 30
#: A rest of the budget that holds no pair.
_FEWEST_TOKENS: Final = 3


class KnownIdentifiers:
    """A fold over head and turns; costs what a turn brings."""

    def __init__(self) -> None:
        self.written_by_agent: set[str] = set()
        self.seen_counts: Counter[str] = Counter()
        #: What is known from the user's words after the newest turn alone.
        self._newest_words: set[str] = set()

    def add_head(self, head: Head) -> None:
        for message in head.messages:
            items = find_items(message.text)
            self.written_by_agent.update(items)
            self._newest_words.difference_update(items)

    def add_turn(self, turn: Turn) -> None:
        self.written_by_agent.update(find_items(join_assistant_text(turn)))
        for observation in turn.observations:
            self.seen_counts.update(find_items(observation.text))
        self._newest_words.clear()
        if turn.interjections:
            self._add_words(turn)

    def replace_newest_words(self, turn: Turn) -> None:
        """Know the user's words of `turn`, the newest one added, in place of those that it had."""
        self.written_by_agent -= self._newest_words
        self._newest_words.clear()
        self._add_words(turn)

    def _add_words(self, turn: Turn) -> None:
        for message in turn.interjections:
            new = set(find_items(message.text)) - self.written_by_agent
            self.written_by_agent |= new
            self._newest_words |= new


class _Line(NamedTuple):
    """A line with items.

    score: how informative it is: it may name an error, or a definition. score_if_known: the same where it names
    something that the agent wrote.
    margin: its own number in a file view or a search; "" for none.
    """

    items: tuple[str, ...]
    score: float
    score_if_known: float
    margin: str


#: By text:the items that were looked for, and the lines that have any.
_LINES_READ: Final[OrderedDict[str, tuple[frozenset[str], Sequence[_Line]]]] = OrderedDict()


def write_gist(text: str, known: KnownIdentifiers, budget: int, counter: TokenCounter, shown_text: str = "") -> str:
    """Return the most informative code-like items of `text`, joined by spaces, within `budget` tokens; "" for none.

    shown_text: what the placeholder says already; nothing of it is repeated.
    The result depends on `text`, `shown_text` and the log that `known` was made from alone (design 5).
    """
    if budget <= 0:
        return ""
    if len(text) > 2 * CHARS_PER_END:
        text = text[:CHARS_PER_END] + "\n" + text[-CHARS_PER_END:]
    shown_items = frozenset(find_items_uncached(shown_text))
    scores = score_items(text, known, shown_items)
    values = read_json(text)
    if values is not None:
        return write_json_gist(values, text, scores, shown_text, budget, counter)
    chosen: list[str] = []
    spent = 0
    for item in sorted(scores, key=scores.__getitem__, reverse=True):
        cost = counter.count(" " + item)
        if spent + cost > budget:
            if budget - spent < 3:
                break
            continue
        chosen.append(item)
        spent += cost
    return " ".join(chosen)


def score_items(text: str, known: KnownIdentifiers, shown_items: frozenset[str]) -> dict[str, float]:
    """Return how informative each unknown item of `text` is, in order of appearance; those that are not stay out."""
    written = known.written_by_agent
    worths = _weigh_unknown_items(text, known, shown_items | _PAGE_KEYS)
    scores: dict[str, float] = {}
    for line in _read_lines(text, worths.keys()):
        base = line.score if written.isdisjoint(line.items) else line.score_if_known
        for item in line.items:
            # A line's own number moves with every edit.
            if item not in worths or item == line.margin:
                continue
            score = base + worths[item]
            scores[item] = max(score, scores.get(item, score))
    # What merely repeats the tail of another path or dotted name is left out.
    tails = {item.rsplit("/", 1)[1] for item in scores if "/" in item}
    tails |= {item.rsplit(".", 1)[1] for item in scores if "." in item and "/" not in item}
    return {item: score for item, score in scores.items() if item not in tails and score > LEAST_SCORE}


def _read_lines(text: str, unknown: Set[str]) -> Sequence[_Line]:
    """Return the lines of `text` that have one of the `unknown` items, and perhaps more of them.

    A text is read once while the model thinks, and again by the call that masks it. What is unknown only gets less.
    """
    wanted, lines = _LINES_READ.get(text, (frozenset(), ()))
    if unknown <= wanted:
        return lines
    lower = text.lower()
    # No other need be looked for in its lines.
    alarms = [word for word in _ALARMS if word in lower]
    defines = any(word in text for word in _KEYWORDS)
    margins = _find_margins(text) if any(map(str.isdigit, unknown)) else {}
    read = []
    for number, line, items in find_items_by_line(text, unknown):
        score, score_if_known = 0.0, 1.0
        if alarms and any(map(line.lower().__contains__, alarms)):
            score, score_if_known = score + 0.7, score_if_known + 0.7
        if defines and _DEFINITION.match(line):
            score, score_if_known = score + 0.7, score_if_known + 0.7
        if number < 3:
            score, score_if_known = score + 0.3, score_if_known + 0.3
        read.append(_Line(items, score, score_if_known, margins.get(number, "")))
    _LINES_READ[text] = frozenset(unknown), read
    # One by one: the next strategy of a study reads the same texts in the same order.
    if len(_LINES_READ) > _TEXTS_KEPT:
        _LINES_READ.popitem(last=False)
    return read


def _find_margins(text: str) -> dict[int, str]:
    """Return the line numbers that a tool put in front of lines, by the line's place from 0.

    Where a tool numbers lines, what looks like a number in front of one is one, though it be alone.
    """
    if not find_gutters(text):
        return {}
    margins = {}
    place = seen = 0
    for match in _LINE_NUMBER.finditer(text):
        place += text.count("\n", seen, match.start())
        seen = match.start()
        margins[place] = match[1]
    return margins


def _weigh_unknown_items(text: str, known: KnownIdentifiers, left_out: Set[str]) -> dict[str, float]:
    """Return the items of `text` that the agent has neither written nor seen often, and how much their shape says."""
    seen_counts, written = known.seen_counts, known.written_by_agent
    worths: dict[str, float] = {}
    for item in find_items(text):
        if item in written or item in left_out or seen_counts.get(item, 0) >= COMMONPLACE:
            continue
        score = 0.0
        if "/" in item:
            score += 0.6
        if item[0].isdigit():
            if item.isdigit():
                score -= 0.6
            elif _QUANTITY.match(item):
                score -= 1.0
        if len(item) > 40:
            score -= 0.5
        more = seen_counts.get(item, 0) - 1
        if more:
            score += 0.25 * min(more, 3)
        worths[item] = score
    return worths


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
    chosen = _choose_units(_list_units(found, text, scores, shown_text), budget, counter)
    groups = []
    for _, units in sorted(chosen.items()):
        values: dict[str, list[str]] = {}
        for unit in sorted(units, key=attrgetter("place")):
            values.setdefault(unit.key, []).append(unit.text)
        groups.append(" ".join(_write_pair(key, texts) for key, texts in values.items()))
    return "; ".join(groups)


def _choose_units(units: Sequence[_Unit], budget: int, counter: TokenCounter) -> dict[int, list[_Unit]]:
    """Return the units with the highest scores that fit the budget, by object.

    Once one value of an object is told, the others of it are worth more.
    """
    by_group: dict[int, list[_Unit]] = {}
    for unit in units:
        by_group.setdefault(unit.group, []).append(unit)
    waiting = [(-unit.score, unit.place) for unit in units if unit.score > _LEAST_VALUE_SCORE]
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
                if score > _LEAST_VALUE_SCORE:
                    heappush(waiting, (-score, other.place))
        chosen[unit.group].append(unit)
    return chosen


def _list_units(found: JsonValues, text: str, scores: Mapping[str, float], shown_text: str) -> list[_Unit]:
    """Return what may be told of a result: its values, then items that are part of none of them."""
    units: list[_Unit] = []
    told: set[str] = set()
    #: By object: the highest score of what other calls are made with, where the agent does not know it.
    names: dict[int, float] = {}
    shown_words = set(_WORD_ENDS.split(shown_text))
    for value in _list_quotable_values(found.values, text):
        items = (value.text, *find_items_uncached(value.text))
        told.update(items)
        if value.text in shown_words or (" " in value.text and value.text in shown_text):
            continue
        score = _score_value(value, items, scores)
        if value.is_name and not scores.keys().isdisjoint(items):
            names[value.group] = max(score, names.get(value.group, score))
        units.append(_Unit(value.group, len(units), value.key, value.text, score, value.is_name))
    for unit in units:
        # What an object is called comes before what it is like.
        if unit.group in names and not unit.is_name:
            unit.score = min(unit.score, names[unit.group] - _SIBLING_SCORE / 2)
    for item, score in scores.items():
        if item not in told and item not in found.fields:
            units.append(_Unit(_APART, len(units), "", item, score))
    return units


def _list_quotable_values(values: Iterable[_Value], text: str) -> Iterator[_Value]:
    """Yield the values that a gist may have and that `text` has as they are."""
    seen = 0
    for value in values:
        if not (0 < len(value.text) <= _LONGEST_VALUE and 0 < len(value.key) <= _LONGEST_KEY):
            continue
        if _UNQUOTABLE.search(value.text) or _UNQUOTABLE.search(value.key):
            continue
        # Values come in the order of the text. To look for each from the top would be quadratic work.
        at = text.find(value.text, seen)
        if at >= 0:
            seen = at + len(value.text)
        elif value.text not in text:
            continue
        yield value


def _score_value(value: _Value, items: tuple[str, ...], scores: Mapping[str, float]) -> float:
    """Return how informative a value is. items: its text, and the items in it; scores: of items that are not known."""
    unknown = [scores[item] for item in items if item in scores]
    if unknown:
        score = max(unknown)
    elif len(items) > 1:
        score = _KNOWN_SCORE
    else:
        score = _NUMBER_SCORE if value.text[-1].isdigit() else _WORD_SCORE
    if value.is_name:
        score += _NAMING_SCORE
    elif _MEASURING.match(value.key):
        score += _MEASURING_SCORE
    return score


def _write_pair(key: str, values: Sequence[str]) -> str:
    if not key:
        return " ".join(values)
    text = ",".join(f'"{value}"' if " " in value or "," in value else value for value in values)
    return f"{key.replace(' ', '_')}={text}"
