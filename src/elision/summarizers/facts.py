"""Facts: code-like items that the agent saw, or wrote in the turns that go, the most telling first.

The weights were set by hand after rates measured on 28 recorded coding runs: of the items seen but not yet written,
which did the agent first write more than ten turns later? Names 5 %, paths and numbers 1.6 %; seen in one turn 1.8 %,
in two 4.5 %, in five 11 %; last seen within 10 turns 6 %, more than 40 turns ago 1.6 %; in results of over 500 items
below 0.4 %. The place within a result made no difference. Overall recall moved by about two points over the values that
were tried; no runs were held out. Weights that were fitted to one half of 106 recordings by logistic regression, with
recency and the files touched beside these, kept no more facts on the other half.

A summary covers the agent's own words too, so they are among the facts. `python -m benchmarks choice` counts the turns
that miss one, and those that miss a fact: the more weight for one, the more of the other.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import NamedTuple

from elision.summarizers.call_lines import find_command_line, find_path, join_lines
from elision.trajectory.items import find_items
from elision.trajectory.trajectory import join_assistant_text
from elision.trajectory.turn import Observation, Turn

_NUMBER = re.compile(r"\d{3,}(?:\.\d+)?")
_HASH = re.compile(r"[0-9a-f-]{7,}|.*[0-9a-f]{16}.*|.{60,}")
_CAMEL = re.compile(r".*[a-z][A-Z]")
_FILE = re.compile(r".*\.[A-Za-z]{1,4}")
# A number or code needs the name before it: `"price": 120`, `line 617`, `count=3100`.
_KEYED = re.compile(
    r"\"([A-Za-z_]\w{1,30})\":\s?\"?([\w./@#-]{3,60})\"?|\b([a-z_]\w{1,30})=(\d{3,})\b|\b(line) (\d{3,})\b"
)
# What every match of `_KEYED` has behind its key, or begins with: `_KEYED` is tried there alone.
_AFTER_KEY = re.compile(r"\":|=(?=\d{3})|line (?=\d{3})")
_LONGEST_KEY = 31
_WORD_END = re.compile(rf"\w{{1,{_LONGEST_KEY}}}\Z")
_FILE_WORD = re.compile(r"[\w./~@+-]*\w\.[A-Za-z]\w{0,4}(?![\w(])|[\w.~@+-]*/[\w./@+-]+")

# What is quoted may also be a format string or a fragment of code.
_PLAIN = re.compile(r"[\w./@~$-][\w./@~:#+$&?-]*")
_DURATION = re.compile(r"[\d.]+(?:m?s|min|[kMG]?B|%)")

# Kind, its test, its weight (log odds against a plain file name).
_KINDS: tuple[tuple[str, Callable[[str], object], float], ...] = (
    ("numbers", _NUMBER.fullmatch, -0.5),
    ("hashes", _HASH.fullmatch, -2.5),
    ("paths", lambda text: "/" in text, -0.3),
    ("files", _FILE.fullmatch, 0.0),
    ("names", lambda text: "." in text, 0.1),
    ("names", lambda text: "_" in text, 1.0),
    ("names", _CAMEL.match, 0.9),
    ("codes", lambda text: any(letter.isdigit() for letter in text), -0.2),
    ("words", lambda text: True, 0.6),
)
#: The label of facts whose source is no help.
OTHER = "other"
#: What the number of turns adds that showed an item.
_TURNS_WEIGHTS = [0.0, *(0.9 * math.log2(turns) for turns in range(1, 9))]
_PER_AGE = 0.02
#: Own words of these kinds, and names of several words, need memory: not `line.strip`, "EOF" or `880p`.
_OWN_KINDS = frozenset({"paths", "files", "numbers"})
#: What own words add, what each doubling of the turns that wrote them does, and what each turn of age costs.
_OWN_WEIGHT = 1.0
_OWN_TURNS_WEIGHT = 0.9
_OWN_PER_AGE = 0.04
_PER_SIZE = 0.15
#: Added to what stands after a key.
_LABELLED = 0.3
_OLDEST = 60
#: Items of the result that a fact of an earlier digest is taken to come from.
_OLD_SIZE = 10


class Fact(NamedTuple):
    """An item under its label: the key before it, or the file or tool it was seen in."""

    label: str
    text: str


class _Traits(NamedTuple):
    """What the text of an item says of it. length_cost: what is short leaves room for more."""

    kind: str
    weight: float
    length_cost: float
    is_telling: bool


class _Result(NamedTuple):
    """A result: the items that it shows, and its source. size: how many items there are, where not all are known."""

    size: int
    source: str
    items: Sequence[str]


class _Sightings:
    """Where items were seen. Its methods take all items of a result or a turn at once: there are 40 in one.

    turns: in how many turns, by item. ages: how many turns ago the newest was, at most `_OLDEST`.
    """

    def __init__(self, before: Sequence[Fact], age: int) -> None:
        seen = [fact.text for fact in before]
        self.turns = Counter(dict.fromkeys(seen, 1))
        self.ages = dict.fromkeys(seen, min(_OLDEST, age))
        self._results = [_Result(_OLD_SIZE, fact.label, [fact.text]) for fact in before]

    def add_turn(self, turn: Turn, age: int) -> None:
        shown: set[str] = set()
        for observation in turn.observations:
            items = find_items(observation.text)
            shown.update(items)
            self._results.append(_Result(len(items), name_source(turn, observation), items))
        self.turns.update(shown)
        self.ages.update(dict.fromkeys(shown, min(age, _OLDEST)))

    def find_sources(self) -> dict[str, tuple[float, str]]:
        """Return by item what the size of the smallest result that showed it costs, and the source of that result."""
        sources: dict[str, tuple[float, str]] = {}
        for result in sorted(self._results, key=lambda result: -result.size):
            cost = _PER_SIZE * max(0.0, math.log2((result.size + 1) / 10))
            sources.update(dict.fromkeys(result.items, (cost, result.source)))
        return sources


class _OwnWords:
    """What the agent wrote in the turns that go.

    turns: in how many of them, by item. ages: how many turns ago the newest was, at most `_OLDEST`.
    """

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.turns = Counter[str]()
        self.ages: dict[str, int] = {}
        for turn in turns:
            written = set(find_items(join_assistant_text(turn)))
            self.turns.update(written)
            self.ages.update(dict.fromkeys(written, min(turns[-1].index - turn.index, _OLDEST)))

    def weigh(self, text: str) -> float:
        return _OWN_WEIGHT + _OWN_TURNS_WEIGHT * math.log2(self.turns[text]) - _OWN_PER_AGE * self.ages[text]


def collect_facts(
    turns: Sequence[Turn], known: str, before: Sequence[Fact] = (), shown: Set[str] = frozenset()
) -> list[Fact]:
    """Return the facts of `turns` and those of `before` that still are facts, most telling first.

    known: text whose items need not be repeated: the task. shown: items that the view shows beside the digest.
    """
    sightings = _Sightings(before, age=len(turns))
    for turn in turns:
        sightings.add_turn(turn, turns[-1].index - turn.index)
    sources = sightings.find_sources()
    own = _OwnWords(turns)
    # A digest names a number by its key alone.
    keys = {fact.text: fact.label for fact in before if _is_number(fact.text)} | _find_keys(turns)
    told = _collect_told_items(turns, known)
    excluded = told.union(shown, keys.values(), _find_consecutive_numbers(sources))
    weighed = []
    for text in (sources.keys() | own.turns.keys()) - excluded:
        traits = _find_traits(text)
        if not traits.is_telling or (traits.kind == "numbers" and text not in keys):
            continue
        if text in own.turns:
            if not _needs_memory(text, traits):
                continue
            weight = own.weigh(text)
        else:
            size_cost = sources[text][0]
            weight = _TURNS_WEIGHTS[min(8, sightings.turns[text])] - _PER_AGE * sightings.ages[text] - size_cost
        weighed.append((traits.length_cost - traits.weight - weight - _LABELLED * (text in keys), text))
    labels = keys | {text: source for text, (_, source) in sources.items() if text not in keys}
    return [Fact(labels.get(text, OTHER), text) for _, text in sorted(weighed)]


def parse_facts(line: str) -> Iterator[Fact]:
    """Yield the facts of one line that `render_facts` wrote."""
    label, colon, rest = line.partition(": ")
    if not colon or " " in label:
        return
    for quoted in rest.split():
        text = quoted.strip('"')
        key, equals, number = text.partition("=")
        if equals and _is_number(number):
            yield Fact(key, number)
        elif text:
            yield Fact(label, text)


def render_facts(chosen: Iterable[Fact]) -> list[str]:
    """Return lines that hold `chosen`, one a label, in the order of their first fact.

    A label of one fact is not worth its line: such facts share the line of OTHER, a number with its key. Between facts
    is a blank, as in a gist: a comma would be a fifth of their tokens.
    """
    groups: dict[str, list[str]] = {}
    for fact in chosen:
        groups.setdefault(fact.label, []).append(fact.text)
    others = groups.pop(OTHER, [])
    lines = []
    for label, texts in groups.items():
        if len(texts) == 1:
            others += [f"{label}={text}" if _is_number(text) else text for text in texts]
        else:
            lines.append(f"{label}: {' '.join(map(quote_fact, texts))}")
    if others:
        lines.append(f"{OTHER}: {' '.join(text if '=' in text else quote_fact(text) for text in others)}")
    return lines


def quote_fact(text: str) -> str:
    """Return `text` as the digest writes it."""
    if _find_traits(text).kind == "words" or re.search(r"[^\w./~@:#$%+\\-]", text):
        return f'"{text}"'
    return text


def list_tails(text: str) -> Iterator[str]:
    """Yield the items that `text` shows too: a path's last component, a dotted name's last part."""
    for separator in "/:.":
        head, found, tail = text.rpartition(separator)
        if found and head:
            yield tail


def _is_number(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text))


def _needs_memory(text: str, traits: _Traits) -> bool:
    """Whether an agent that wrote `text` can hardly write it again without seeing it."""
    return traits.kind in _OWN_KINDS or "_" in text or bool(_CAMEL.match(text))


def _collect_told_items(turns: Iterable[Turn], known: str) -> set[str]:
    """Return the items that the task or a user wrote: those words stay."""
    told = set(find_items(known))
    for turn in turns:
        for message in turn.interjections:
            told.update(find_items(message.text))
    return told


def _find_consecutive_numbers(texts: Iterable[str]) -> set[str]:
    """Return numbers between two neighbours: the line numbers in a file's margin, not numbers that anybody looks up."""
    numbers = {int(text) for text in texts if text.isdigit() and text.isascii() and len(text) < 9}
    return {str(number) for number in numbers if number - 1 in numbers and number + 1 in numbers}


@lru_cache(maxsize=128)
def name_source(turn: Turn, observation: Observation) -> str:
    """Return what an observation shows, in one word: the file its call names, else the program, else the tool."""
    action = turn.find_action(observation)
    names: list[str] = []
    if action:
        path = find_path(action)
        if path:
            names = [path]
        else:
            names = [name for name in _FILE_WORD.findall(find_command_line(action)) if not name.startswith("/dev/")]
    word = ""
    if names:
        word = names[-1].rstrip("/").rpartition("/")[2]
    return join_lines(word or observation.tool or OTHER).replace(" ", "_").replace(":", "_")[:40]


def _find_keys(turns: Iterable[Turn]) -> dict[str, str]:
    """Return the keys that results show before values, by value; the newest key where there are several."""
    keys: dict[str, str] = {}
    for turn in turns:
        for observation in turn.observations:
            keys.update(find_keyed_values(observation.text))
    return keys


@lru_cache(maxsize=128)
def find_keyed_values(text: str) -> tuple[tuple[str, str], ...]:
    """Return (value, key) of the values in `text` that follow a key, in order, without overlaps."""
    found = []
    done = 0
    for after in _AFTER_KEY.finditer(text):
        start = after.start()
        if after[0] == '":':
            start = text.rfind('"', max(0, start - _LONGEST_KEY - 1), start)
        elif after[0] == "=":
            word = _WORD_END.search(text, max(0, start - _LONGEST_KEY), start)
            start = word.start() if word else start
        match = _KEYED.match(text, start) if start >= done else None
        if match:
            done = match.end()
            key_text, value = filter(None, match.groups())
            found.append((value, key_text))
    return tuple(found)


@lru_cache(maxsize=16_384)
def _find_traits(text: str) -> _Traits:
    is_telling = bool(_PLAIN.fullmatch(text)) and any(map(str.isalnum, text)) and not _DURATION.fullmatch(text)
    for kind, has_kind, weight in _KINDS:
        if has_kind(text):
            return _Traits(kind, weight, math.log(1 + len(text) / 4), is_telling)
    raise AssertionError("the last kind takes any text")


def pick_facts(
    ranked: Sequence[Fact], budget: int, count: Callable[[str], int], already_shown: Mapping[str, object]
) -> list[Fact]:
    """Return the facts, in order of weight, that fit `budget` tokens, without those in `already_shown`."""
    chosen: list[Fact] = []
    shown = set(already_shown)
    labels = set[str]()
    misses = 0
    for fact in ranked:
        if fact.text.strip("/") in shown:
            continue
        cost = count(f" {quote_fact(fact.text)}")
        if fact.label not in labels:
            # The end of the line follows the facts: after the colon it would be part of the same token.
            cost += count(f"- {fact.label}:") + count("\n")
        if cost > budget:
            misses += 1
            if misses > 8:
                break
            continue
        budget -= cost
        labels.add(fact.label)
        shown.update((fact.text, fact.text.strip("/"), *list_tails(fact.text)))
        chosen.append(fact)
    return chosen
