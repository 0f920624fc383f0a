"""Facts: code-like items that the agent saw and has not written yet, the most telling first.

The weights were set by hand after rates measured on 28 recorded coding runs: of the items seen but not yet written,
which did the agent first write more than ten turns later? Names 5 %, paths and numbers 1.6 %; seen in one turn 1.8 %,
in two 4.5 %, in five 11 %; last seen within 10 turns 6 %, more than 40 turns ago 1.6 %; in results of over 500 items
below 0.4 %. The place within a result made no difference. Overall recall moved by about two points over the values that
were tried; no runs were held out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from elision.summarizers.actions import find_command_line, find_path
from elision.summarizers.prose import join_lines
from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.items import find_items
from elision.trajectory.turn import Observation, Turn

_NUMBER = re.compile(r"\d{3,}(?:\.\d+)?")
_HASH = re.compile(r"[0-9a-f-]{7,}|.*[0-9a-f]{16}.*|.{60,}")
_CAMEL = re.compile(r".*[a-z][A-Z]")
_FILE = re.compile(r".*\.[A-Za-z]{1,4}")
# A number or code needs the name before it: `"price": 120`, `line 617`, `count=3100`.
_KEYED = re.compile(
    r"\"([A-Za-z_]\w{1,30})\":\s?\"?([\w./@#-]{3,60})\"?|\b([a-z_]\w{1,30})=(\d{3,})\b|\b(line) (\d{3,})\b"
)
# A part of every match of `_KEYED`, found 15 times faster; three texts of four have none.
_KEYED_AT_ALL = re.compile(r"\":\s?\"?[\w./@#-]{3}|=\d{3}|line \d{3}")
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
_PER_TURNS = 0.9
_PER_AGE = 0.02
_PER_SIZE = 0.15
_OLDEST = 60


@dataclass(frozen=True, slots=True)
class Fact:
    """An item under its label: the key before it, or the file or tool it was seen in."""

    label: str
    text: str


@dataclass(slots=True)
class _Sighting:
    """Where an item was seen: in how many turns, how long ago (turns), and in how small a result (items) of what."""

    turns: int
    age: int
    size: int
    source: str


def collect_facts(turns: Sequence[Turn], known: str, before: Sequence[Fact] = ()) -> list[Fact]:
    """Return the facts of `turns` and those of `before` that still are facts, most telling first.

    known: text whose items need not be repeated: the task.
    """
    sightings = {fact.text: _Sighting(1, min(_OLDEST, len(turns)), 10, fact.label) for fact in before}
    for turn in turns:
        _record_sightings(turn, turns[-1].index - turn.index, sightings)
    keys = _find_keys(turns)
    excluded = _collect_written_items(turns, known) | set(keys.values()) | _find_consecutive_numbers(sightings)
    weights = {}
    for text, sighting in sightings.items():
        if text not in excluded and _is_telling(text):
            weights[text] = _weigh_item(text, sighting, text in keys)
    ranked = sorted(weights, key=lambda text: (-weights[text], text))
    return [Fact(keys.get(text) or sightings[text].source, text) for text in ranked]


def parse_facts(line: str) -> Iterator[Fact]:
    """Yield the facts of one line that `render_facts` wrote."""
    label, colon, rest = line.partition(": ")
    if not colon or " " in label:
        return
    for quoted in rest.split(", "):
        text = quoted.strip('"')
        if text:
            yield Fact(label, text)


def render_facts(chosen: Iterable[Fact]) -> list[str]:
    """Return lines that hold `chosen`, one a label, in the order of their first fact.

    A label of one fact is not worth its line: such facts share the line of OTHER.
    """
    groups: dict[str, list[str]] = {}
    for fact in chosen:
        groups.setdefault(fact.label, []).append(fact.text)
    others = groups.pop(OTHER, [])
    lines = []
    for label, texts in groups.items():
        if len(texts) == 1:
            others += texts
        else:
            lines.append(f"{label}: {', '.join(map(quote_fact, texts))}")
    if others:
        lines.append(f"{OTHER}: {', '.join(map(quote_fact, others))}")
    return lines


def quote_fact(text: str) -> str:
    """Return `text` as the digest writes it."""
    if _classify_item(text)[0] == "words" or re.search(r"[^\w./~@:#$%+\\-]", text):
        return f'"{text}"'
    return text


def list_tails(text: str) -> Iterator[str]:
    """Yield the items that `text` shows too: a path's last component, a dotted name's last part."""
    for separator in "/:.":
        head, found, tail = text.rpartition(separator)
        if found and head:
            yield tail


def _collect_written_items(turns: Iterable[Turn], known: str) -> set[str]:
    """Return the items that the task, the agent or a user wrote."""
    written = set(find_items(known))
    for turn in turns:
        written.update(find_items(join_assistant_text(turn)))
        for message in turn.interjections:
            written.update(find_items(message.text))
    return written


def _record_sightings(turn: Turn, age: int, sightings: dict[str, _Sighting]) -> None:
    """Add what `turn` shows to `sightings`. age: turns since then."""
    seen_in_turn: set[str] = set()
    age = min(age, _OLDEST)
    for observation in turn.observations:
        texts = find_items(observation.text)
        source = name_source(turn, observation)
        for text in texts:
            sighting = sightings.get(text)
            if sighting is None:
                sightings[text] = _Sighting(1, age, len(texts), source)
                continue
            if len(texts) <= sighting.size:
                sighting.size = len(texts)
                sighting.source = source
            if text not in seen_in_turn:
                sighting.turns += 1
            sighting.age = age
        seen_in_turn.update(texts)


@lru_cache(maxsize=16_384)
def _is_telling(text: str) -> bool:
    return bool(_PLAIN.fullmatch(text)) and any(map(str.isalnum, text)) and not _DURATION.fullmatch(text)


def _find_consecutive_numbers(texts: Iterable[str]) -> set[str]:
    """Return numbers between two neighbours: the line numbers in a file's margin, not numbers that anybody looks up."""
    numbers = {int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 9}
    return {str(number) for number in numbers if number - 1 in numbers and number + 1 in numbers}


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
            text = observation.text
            if not _KEYED_AT_ALL.search(text):
                continue
            for groups in _KEYED.findall(text):
                key, value = filter(None, groups)
                keys[value] = key
    return keys


@lru_cache(maxsize=16_384)
def _classify_item(text: str) -> tuple[str, float]:
    """Return kind and weight of an item."""
    for kind, has_kind, weight in _KINDS:
        if has_kind(text):
            return kind, weight
    raise AssertionError("the last kind takes any text")


def _weigh_item(text: str, sighting: _Sighting, labelled: bool) -> float:
    weight = _classify_item(text)[1] + _PER_TURNS * math.log2(min(8, sighting.turns)) - _PER_AGE * sighting.age
    weight -= _PER_SIZE * max(0.0, math.log2((sighting.size + 1) / 10))
    # Per token: what is short leaves room for more.
    return weight + 0.3 * labelled - math.log(1 + len(text) / 4)


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
        cost = count(f" {quote_fact(fact.text)},")
        if fact.label not in labels:
            cost += count(f"- {fact.label}:\n")
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
