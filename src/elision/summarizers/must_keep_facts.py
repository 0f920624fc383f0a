"""What a summary must not lose: the facts the newest covered turns worked with.

They come from what the agent wrote itself (arguments of calls, text) and from the errors it got; names, paths and
numbers that it uses in several turns come first. They distinguish a summary of these turns from a polite sentence and
from a summary of something else. Measured with `SHARE` of twelve:

- 20 summaries by a model, as recorded in five OpenHands runs: 25-92 % kept, none refused;
- 89 digests of the sample corpus at 2,000 tokens: 42-100 % kept, none refused; at 500 tokens: 33-100 %;
- the model's summaries against turns of runs on other tasks: half of them keep nothing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from elision.summarizers.outcomes import find_failure
from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.items import find_items
from elision.trajectory.redact import DEFAULT
from elision.trajectory.turn import Turn

#: Turns that are searched, counted from the newest covered one.
NEWEST = 5
#: Facts that are asked for; fewer than FEWEST prove nothing.
MOST = 12
FEWEST = 4
#: The share of them that must be kept.
SHARE = 0.15
#: Characters of a fact. Longer ones are whole command lines and URLs, which a summary rightly shortens.
_LONGEST = 60
#: Tokens of a summary's limit for each fact that is asked for: a short summary keeps fewer.
_ROOM = 300

_ERROR = re.compile(r"\b[A-Z]\w{0,60}(?:Error|Exception|Warning|Failure)\b")


def find_key_facts(turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return facts of the newest of `turns`, those used in most turns first; at most MOST. Secrets are excluded."""
    uses: Counter[str] = Counter()
    for turn in turns[-NEWEST:]:
        facts = set(_find_errors(turn))
        for text in _list_agent_texts(turn):
            facts.update(find_items(DEFAULT.redact_text(text)))
        uses.update(fact for fact in facts if len(fact) <= _LONGEST)
    return tuple(sorted(uses, key=lambda fact: (-uses[fact], len(fact), fact))[:MOST])


def find_missing_facts(facts: Sequence[str], text: str) -> tuple[str, ...]:
    """Return the `facts` that `text` does not name; a path's last component and a dotted name's last part will do."""
    lower = text.lower()
    missing = []
    for fact in facts:
        if not any(form in lower for form in _list_forms(fact.lower())):
            missing.append(fact)
    return tuple(missing)


def count_needed_facts(facts: Sequence[str], max_tokens: int) -> int:
    """Return how many of `facts` a summary of at most `max_tokens` must keep."""
    if len(facts) < FEWEST:
        return 0
    return min(math.ceil(SHARE * len(facts)), max_tokens // _ROOM)


def _list_agent_texts(turn: Turn) -> Iterator[str]:
    yield turn.text
    for action in turn.actions:
        if not action.implicit:
            yield join_argument_text(action)


def _find_errors(turn: Turn) -> Iterator[str]:
    for observation in turn.observations:
        yield from _ERROR.findall(find_failure(observation) or "")


def _list_forms(fact: str) -> Iterator[str]:
    yield fact
    tail = re.split(r"[/.]", fact.rstrip("/."))
    if "/" in fact:
        tail = fact.rstrip("/").rsplit("/", 1)
    if len(tail) > 1 and len(tail[-1]) > 3:
        yield tail[-1]
