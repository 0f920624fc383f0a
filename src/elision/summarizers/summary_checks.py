"""What a candidate must be before it may replace a history: a summary, of these turns, and shorter.

Elsewhere, apologies, error pages, tool calls and noise have replaced histories. Each check looks for a form, mostly at
the beginning of the text, so that a summary which *mentions* a refusal, an error or a rate limit passes. No check sees
what only a reader can see: a wrong fact, a wrong emphasis.

A summary that was cut off at its limit passes if the rest of it does: its end is missing, not its sense.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from elision.errors import SummaryCause, SummaryError
from elision.summarizers import phrases
from elision.summarizers.digest import count_source_tokens
from elision.summarizers.outcomes import find_failure
from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.items import find_items
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.redact import DEFAULT
from elision.trajectory.tokens import make_counter
from elision.trajectory.turn import Turn

#: Counts the tokens of a text.
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryProblem:
    """Why a candidate may not replace the turns, and what to ask for instead.

    correction: a sentence for the next request, so that it differs from this one.
    """

    cause: SummaryCause
    reason: str
    correction: str


#: Tokens that a summary has at least: "ok", "Done." and "null" are none.
LEAST = 3
#: Characters from which on an answer is no summary; counting its tokens would take seconds.
LONGEST = 200_000
_BEGINNING = 200


def find_problem(text: str, request: SummaryRequest, count: Count) -> SummaryProblem | None:
    """Return the first thing that is wrong with `text` as an answer to `request`; None if it may replace the turns."""
    text = text.strip()
    if not text:
        return SummaryProblem(cause="empty", reason="it is empty", correction="Write the summary as plain text.")
    if len(text) > LONGEST:
        correction = f"Write at most {request.asked_tokens} tokens."
        return SummaryProblem(cause="too-long", reason=f"it has {len(text):,} characters", correction=correction)
    return _check_form(text) or _check_length(text, request, count) or _check_facts(text, request)


def check_summary(text: str, request: SummaryRequest, count: Count) -> None:
    """Raise SummaryError if `text` may not answer `request`."""
    problem = find_problem(text, request, count)
    if problem:
        raise SummaryError(problem.reason, cause=problem.cause)


def _check_facts(text: str, request: SummaryRequest) -> SummaryProblem | None:
    facts = find_key_facts(request.turns)
    lost = find_missing_facts(facts, text)
    kept = len(facts) - len(lost)
    if kept >= count_needed_facts(facts, request.max_tokens):
        return None
    return SummaryProblem(
        cause="facts-lost",
        reason=f"it keeps {kept} of {len(facts)} facts of the newest turns; lost: {', '.join(lost[:6])}",
        correction=f"The newest turns worked with these; name those that matter, as they stand: {', '.join(lost)}.",
    )


def _check_form(text: str) -> SummaryProblem | None:
    start = " ".join(text[:_BEGINNING].split())
    if phrases.is_refusal(start):
        return SummaryProblem(
            cause="refusal",
            reason=f"it is a refusal: {_quote_beginning(text)}",
            correction="Nothing is asked of you but a record of what the quoted turns did; write that record.",
        )
    if phrases.is_error_text(start):
        return SummaryProblem(
            cause="error-text",
            reason=f"it is an error text: {_quote_beginning(text)}",
            correction="Write the summary itself.",
        )
    if phrases.is_tool_call(text):
        return SummaryProblem(
            cause="tool-call",
            reason=f"it is a tool call: {_quote_beginning(text)}",
            correction="Call no tool; write the summary as text.",
        )
    if phrases.is_continuing_task(start):
        return SummaryProblem(
            cause="task-continued",
            reason=f"it goes on with the task: {_quote_beginning(text)}",
            correction="Do not go on with the task; write down what was done, in the past tense.",
        )
    if phrases.is_giving_orders(start):
        return SummaryProblem(
            cause="task-continued",
            reason=f"it gives orders: {_quote_beginning(text)}",
            correction="Address nobody; report what was done and what is pending.",
        )
    noise = _describe_noise(text)
    if noise:
        return SummaryProblem(cause="garbage", reason=noise, correction="Write plain sentences, each fact once.")
    return None


def _check_length(text: str, request: SummaryRequest, count: Count) -> SummaryProblem | None:
    size = count(text)
    if size < LEAST:
        return SummaryProblem(
            cause="empty",
            reason=f"it says next to nothing: {_quote_beginning(text)}",
            correction="Write down what was done, what came of it, and what is pending.",
        )
    replaced = count_source_tokens(request, count, size + 1)
    if size >= replaced:
        return SummaryProblem(
            cause="too-long",
            reason=f"it is not shorter than what it replaces: {size:,} tokens for {replaced:,}",
            correction=f"Write at most {max(1, replaced // 3)} tokens.",
        )
    # Whatever the model: other tokenizers count as many or more, so what a model was allowed to write is accepted.
    length = make_counter("o200k").count(text)
    if length > request.max_tokens:
        return SummaryProblem(
            cause="too-long",
            reason=f"it is {length:,} tokens long where {request.max_tokens:,} are allowed",
            correction=f"Write at most {request.asked_tokens} tokens: shorten the oldest first.",
        )
    return None


def _describe_noise(text: str) -> str:
    """Return what makes `text` noise; "" if it reads like text."""
    dense = [letter for letter in text if not letter.isspace()]
    if sum(map(str.isalnum, dense)) < 0.4 * len(dense):
        return "it is hardly made of letters"
    if sum(map(_is_unprintable, text)) > 0.02 * len(text):
        return "it is full of unprintable characters"
    data = text.encode("utf-8", "replace")
    if len(data) >= 400 and len(zlib.compress(data)) < 0.08 * len(data):
        return "it repeats itself"
    longest = [len(word) for word in text.split() if len(word) > 200 and word.isascii()]
    if sum(longest) > len(text) // 2:
        return "it is hardly made of words"
    return ""


def _is_unprintable(letter: str) -> bool:
    return letter == "\ufffd" or not (letter.isprintable() or letter in "\n\t\r")


def _quote_beginning(text: str, width: int = 80) -> str:
    flat = " ".join(text[: 4 * width].split())
    if len(flat) > width:
        return f'"{flat[:width]}…"'
    return f'"{flat}"'


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
