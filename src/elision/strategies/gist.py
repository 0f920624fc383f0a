"""The gist of an observation: what in it the agent has not written itself and is most likely to need again."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from elision.strategies.json_gist import read_json, write_json_gist
from elision.strategies.known_identifiers import KnownIdentifiers
from elision.trajectory.gutters import find_gutters
from elision.trajectory.items import find_items, find_items_by_line, find_items_uncached
from elision.trajectory.tokens import TokenCounter

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


#: Texts whose lines are kept: what falls due at the next call of a few sessions, or a run's for its next strategy.
_TEXTS_KEPT: Final = 128
#: By text: the items that were looked for, and the lines that have any.
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


def score_items(text: str, known: KnownIdentifiers, shown_items: frozenset[str] = frozenset()) -> dict[str, float]:
    """Return how informative each unknown item of `text` is, in order of appearance; those that are not stay out."""
    seen_counts, written = known.seen_counts, known.written_by_agent
    left_out = shown_items | _PAGE_KEYS
    unknown = [
        item
        for item in find_items(text)
        if item not in written and item not in left_out and seen_counts.get(item, 0) < COMMONPLACE
    ]
    worths = _weigh_items(unknown, known)
    scores: dict[str, float] = {}
    for line in _read_lines(text, worths.keys()):
        base = line.score if written.isdisjoint(line.items) else line.score_if_known
        for item in line.items:
            # A line's own number moves with every edit.
            if item not in worths or item == line.margin:
                continue
            score = base + worths[item]
            if score > scores.get(item, -9.0):
                scores[item] = score
    return {item: scores[item] for item in _drop_repeated_parts(scores) if scores[item] > LEAST_SCORE}


#: Scores below this are not worth their tokens at every later call.
LEAST_SCORE = -0.7


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


def _weigh_items(items: Sequence[str], known: KnownIdentifiers) -> dict[str, float]:
    """Return how informative each item is by its own shape."""
    seen_counts = known.seen_counts
    worths: dict[str, float] = {}
    for item in items:
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


def _drop_repeated_parts(scores: dict[str, float]) -> list[str]:
    """Return the items that do not merely repeat the tail of another path or dotted name."""
    tails = {item.rsplit("/", 1)[1] for item in scores if "/" in item}
    tails |= {item.rsplit(".", 1)[1] for item in scores if "." in item and "/" not in item}
    return [item for item in scores if item not in tails]
