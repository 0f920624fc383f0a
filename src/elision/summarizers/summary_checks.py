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
from elision.summarizers.digest import count_source_tokens
from elision.summarizers.must_keep_facts import count_needed_facts, find_key_facts, find_missing_facts
from elision.trajectory.plan import SummaryRequest

#: Counts the tokens of a text.
Count = Callable[[str], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryProblem:
    """Why a candidate may not stand, and what to ask for instead.

    mend: a sentence for the next request, so that it is never the same one again.
    """

    cause: SummaryCause
    reason: str
    correction: str


#: Tokens that a summary has at least: "ok", "Done." and "null" are none.
LEAST = 3
#: Longer than its limit by this factor: providers count tokens differently, by up to a third.
SLACK = 1.5
#: Characters from which on an answer is no summary, whatever it says; counting its tokens would take seconds.
LONGEST = 200_000
_BEGINNING = 200


def find_problem(text: str, request: SummaryRequest, count: Count) -> SummaryProblem | None:
    """The first thing that is wrong with `text` as an answer to `request`; None if it may stand."""
    return next(_find_problems(text.strip(), request, count), None)


def check_summary(text: str, request: SummaryRequest, count: Count) -> None:
    """Raise SummaryError if `text` may not answer `request`."""
    found = find_problem(text, request, count)
    if found:
        raise SummaryError(found.reason, cause=found.cause)


def _find_problems(text: str, request: SummaryRequest, count: Count) -> Iterator[SummaryProblem]:
    if not text:
        yield SummaryProblem(cause="empty", reason="it is empty", correction="Write the summary as plain text.")
        return
    if len(text) > LONGEST:
        mend = f"Write at most {request.max_tokens} tokens."
        yield SummaryProblem(cause="too-long", reason=f"it has {len(text):,} characters", correction=mend)
        return
    yield from _check_form(text)
    yield from _check_length(text, request, count)
    facts = find_key_facts(request.turns)
    lost = find_missing_facts(facts, text)
    if len(facts) - len(lost) < count_needed_facts(facts, request.max_tokens):
        reason = (
            f"it keeps {len(facts) - len(lost)} of {len(facts)} facts of the newest turns; lost: {', '.join(lost[:6])}"
        )
        yield SummaryProblem(cause="facts-lost", reason=reason, correction=_ask_for_facts(lost))


def _ask_for_facts(lost: tuple[str, ...]) -> str:
    return f"The newest turns worked with these; name those that matter, as they stand: {', '.join(lost)}."


def _check_form(text: str) -> Iterator[SummaryProblem]:
    start = " ".join(text[:_BEGINNING].split())
    if phrases.is_refusal(start):
        yield SummaryProblem(
            cause="refusal",
            reason=f"it is a refusal: {_quote_beginning(text)}",
            correction="Nothing is asked of you but a record of what the quoted turns did; write that record.",
        )
    if phrases.is_error_text(start):
        yield SummaryProblem(
            cause="error-text",
            reason=f"it is an error text: {_quote_beginning(text)}",
            correction="Write the summary itself.",
        )
    if phrases.is_tool_call(text):
        yield SummaryProblem(
            cause="tool-call",
            reason=f"it is a tool call: {_quote_beginning(text)}",
            correction="Call no tool; write the summary as text.",
        )
    if phrases.is_continuing_task(start):
        yield SummaryProblem(
            cause="task-continued",
            reason=f"it goes on with the task: {_quote_beginning(text)}",
            correction="Do not go on with the task; write down what was done, in the past tense.",
        )
    if phrases.is_giving_orders(start):
        yield SummaryProblem(
            cause="task-continued",
            reason=f"it gives orders: {_quote_beginning(text)}",
            correction="Address nobody; report what was done and what is pending.",
        )
    if noise := _describe_noise(text):
        yield SummaryProblem(cause="garbage", reason=noise, correction="Write plain sentences, each fact once.")


def _check_length(text: str, request: SummaryRequest, count: Count) -> Iterator[SummaryProblem]:
    size = count(text)
    if size < LEAST:
        yield SummaryProblem(
            cause="empty",
            reason=f"it says next to nothing: {_quote_beginning(text)}",
            correction="Write down what was done, what came of it, and what is pending.",
        )
    whole = count_source_tokens(request, count, size + 1)
    if size >= whole:
        yield SummaryProblem(
            cause="too-long",
            reason=f"it is not shorter than what it replaces: {size:,} tokens for {whole:,}",
            correction=f"Write at most {max(1, whole // 3)} tokens.",
        )
    if size > SLACK * request.max_tokens:
        yield SummaryProblem(
            cause="too-long",
            reason=f"it is {size:,} tokens long where {request.max_tokens:,} are allowed",
            correction=f"Write at most {request.max_tokens} tokens: shorten the oldest first.",
        )


def _describe_noise(text: str) -> str:
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


def _quote_beginning(text: str, width: int = 80) -> str:
    flat = " ".join(text[: 4 * width].split())
    if len(flat) > width:
        return f'"{flat[:width]}…"'
    return f'"{flat}"'
