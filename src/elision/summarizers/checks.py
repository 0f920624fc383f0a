"""What a candidate must be before it may replace a history: a summary, of these turns, and shorter.

An answer that is an apology, an error page, a tool call or noise has replaced histories elsewhere. Each check looks
for a form, mostly at the beginning of the text, so that a summary which *tells* of a refusal, an error or a rate limit
passes. What only a reader could see (a wrong fact, a wrong emphasis) no check sees.

A summary that was cut off at its limit passes if the rest of it does: its end is missing, not its sense.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from elision.errors import SummaryCause, SummaryError
from elision.summarizers import phrases
from elision.summarizers.digest import replaced
from elision.summarizers.telling import missing, needed, telling
from elision.trajectory.plan import SummaryRequest

#: Counts the tokens of a text.
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Why a candidate may not stand, and what to ask for instead.

    mend: a sentence for the next request, so that it is never the same one again.
    """

    cause: SummaryCause
    reason: str
    mend: str


#: Tokens that a summary has at least: "ok", "Done." and "null" are none.
LEAST = 3
#: Longer than its limit by this factor: providers count tokens differently, by up to a third.
SLACK = 1.5
#: Characters from which on an answer is no summary, whatever it says; counting its tokens would take seconds.
LONGEST = 200_000
_BEGINNING = 200


def problem(text: str, request: SummaryRequest, count: Count) -> Problem | None:
    """The first thing that is wrong with `text` as an answer to `request`; None if it may stand."""
    return next(_problems(text.strip(), request, count), None)


def check(text: str, request: SummaryRequest, count: Count) -> None:
    """Raise SummaryError if `text` may not answer `request`."""
    found = problem(text, request, count)
    if found:
        raise SummaryError(found.reason, cause=found.cause)


def _problems(text: str, request: SummaryRequest, count: Count) -> Iterator[Problem]:
    if not text:
        yield Problem(cause="empty", reason="it is empty", mend="Write the summary as plain text.")
        return
    if len(text) > LONGEST:
        mend = f"Write at most {request.max_tokens} tokens."
        yield Problem(cause="too-long", reason=f"it has {len(text):,} characters", mend=mend)
        return
    yield from _form(text)
    yield from _length(text, request, count)
    facts = telling(request.turns)
    lost = missing(facts, text)
    if len(facts) - len(lost) < needed(facts, request.max_tokens):
        reason = (
            f"it keeps {len(facts) - len(lost)} of {len(facts)} facts of the newest turns; lost: {', '.join(lost[:6])}"
        )
        yield Problem(cause="facts-lost", reason=reason, mend=_wanted(lost))


def _wanted(lost: tuple[str, ...]) -> str:
    return f"The newest turns worked with these; name those that matter, as they stand: {', '.join(lost)}."


def _form(text: str) -> Iterator[Problem]:
    start = " ".join(text[:_BEGINNING].split())
    if phrases.refuses(start):
        yield Problem(
            cause="refusal",
            reason=f"it is a refusal: {_quoted(text)}",
            mend="Nothing is asked of you but a record of what the quoted turns did; write that record.",
        )
    if phrases.is_error(start):
        yield Problem(
            cause="error-text", reason=f"it is an error text: {_quoted(text)}", mend="Write the summary itself."
        )
    if phrases.is_call(text):
        yield Problem(
            cause="tool-call",
            reason=f"it is a tool call: {_quoted(text)}",
            mend="Call no tool; write the summary as text.",
        )
    if phrases.goes_on(start):
        yield Problem(
            cause="task-continued",
            reason=f"it goes on with the task: {_quoted(text)}",
            mend="Do not go on with the task; write down what was done, in the past tense.",
        )
    if phrases.orders(start):
        yield Problem(
            cause="task-continued",
            reason=f"it gives orders: {_quoted(text)}",
            mend="Address nobody; report what was done and what is pending.",
        )
    if noise := _noise(text):
        yield Problem(cause="garbage", reason=noise, mend="Write plain sentences, each fact once.")


def _length(text: str, request: SummaryRequest, count: Count) -> Iterator[Problem]:
    size = count(text)
    if size < LEAST:
        yield Problem(
            cause="empty",
            reason=f"it says next to nothing: {_quoted(text)}",
            mend="Write down what was done, what came of it, and what is pending.",
        )
    whole = replaced(request, count, size + 1)
    if size >= whole:
        yield Problem(
            cause="too-long",
            reason=f"it is not shorter than what it replaces: {size:,} tokens for {whole:,}",
            mend=f"Write at most {max(1, whole // 3)} tokens.",
        )
    if size > SLACK * request.max_tokens:
        yield Problem(
            cause="too-long",
            reason=f"it is {size:,} tokens long where {request.max_tokens:,} are allowed",
            mend=f"Write at most {request.max_tokens} tokens: shorten the oldest first.",
        )


def _noise(text: str) -> str:
    """What makes `text` noise; "" if it reads like text."""
    dense = [letter for letter in text if not letter.isspace()]
    if sum(map(str.isalnum, dense)) < 0.4 * len(dense):
        return "it is hardly made of letters"
    if sum(letter == "\ufffd" or not (letter.isprintable() or letter in "\n\t\r") for letter in text) > 0.02 * len(
        text
    ):
        return "it is full of unprintable characters"
    data = text.encode("utf-8", "replace")
    if len(data) >= 400 and len(zlib.compress(data)) < 0.08 * len(data):
        return "it repeats itself"
    longest = [len(word) for word in text.split() if len(word) > 200 and word.isascii()]
    if sum(longest) > len(text) // 2:
        return "it is hardly made of words"
    return ""


def _quoted(text: str, width: int = 80) -> str:
    flat = " ".join(text[: 4 * width].split())
    if len(flat) > width:
        return f'"{flat[:width]}…"'
    return f'"{flat}"'
