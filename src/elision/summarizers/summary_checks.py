"""What a candidate must be before it may replace a history: a summary, of these turns, and shorter.

Elsewhere, apologies, error pages, tool calls and noise have replaced histories. Each check looks for a form, mostly at
the beginning of the text, so that a summary which *mentions* a refusal, an error or a rate limit passes. No check sees
what only a reader can see: a wrong fact, a wrong emphasis. A summary that was cut off at its limit passes if the rest
of it does: its end is missing, not its sense.

`SummaryResult` is the answer of a summarizer that knows its own bill.
"""

from __future__ import annotations

import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from elision.errors import Billed, SummaryCause, SummaryError
from elision.summarizers.call_lines import find_failure
from elision.summarizers.digest import count_source_tokens
from elision.trajectory.items import find_items
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.redact import DEFAULT
from elision.trajectory.tokens import make_counter
from elision.trajectory.trajectory import join_argument_text
from elision.trajectory.turn import Turn

#: Counts the tokens of a text.
Count = Callable[[str], int]

#: Tokens that a summary has at least: "ok", "Done." and "null" are none.
LEAST_TOKENS = 3
#: Characters from which on an answer is no summary; counting its tokens would take seconds.
LONGEST_ANSWER = 200_000
_BEGINNING = 200

# By language; pieces of regular expressions, words apart by one space.
_REFUSALS: Final = {
    "English": (
        r"(?:i['’]m|i am|we['’]re|we are) (?:(?:really|very|so|truly) )?sorry",
        r"sorry,? (?:but )?i",
        r"(?:my )?apologies",
        r"i apologi[sz]e",
        r"(?:i|we) (?:cannot|can['’]?t|could not|won['’]?t|will not|must decline|am unable|am not able|are unable)",
        r"i['’]m (?:unable|not able)",
        r"unfortunately,? i",
        r"as an ai",
    ),
    "German": (r"(?:es )?tut mir leid", r"leider kann ich", r"ich kann (?:\w+ ){0,4}nicht"),
    "French": (r"(?:je suis )?désolée?", r"je (?:ne )?peux pas"),
    "Spanish": (r"lo siento", r"no puedo"),
    "Portuguese": (r"desculpe", r"sinto muito", r"não posso"),
    "Italian": (r"mi dispiace", r"non posso"),
    "Dutch": (r"het spijt me", r"ik kan (?:\w+ ){0,4}niet"),
    "Swedish, Danish, Norwegian": (r"tyvärr", r"desværre", r"beklager"),
    "Polish, Czech": (r"przykro mi", r"nie mogę", r"omlouvám se"),
    "Turkish": (r"üzgünüm",),
    "Russian, Ukrainian": (r"извините", r"к сожалению", r"я не могу", r"вибачте", r"на жаль"),
    "Chinese": (r"(?:很|非常)?抱歉", r"对不起", r"對不起", r"我(?:无法|無法|不能)"),
    "Japanese": (r"申し訳", r"すみません", r"ごめんなさい"),
    "Korean": (r"죄송", r"미안"),
    "Arabic, Hindi": (r"عذر", r"آسف", r"क्षमा", r"मुझे खेद"),
    "Vietnamese, Indonesian": (r"xin lỗi", r"maaf"),
}
_ERRORS: Final = (
    r"<!doctype html",
    r"<html\b",
    r"<\?xml\b",
    r"\{ ?\"(?:error|errors|detail|message|type|code)\" ?:",
    r"traceback \(most recent call last\)",
    r"(?:\w{1,40}\.){0,6}\w{0,40}(?:Error|Exception) ?[:(]",
    r"(?:api |http |server |upstream )?(?:error|exception) ?(?:code|response|\d|[:(]|from|while|occurred)",
    r"(?:http/\d\S{0,3} |status:? |status code:? )?[45]\d\d\W{1,4}(?:bad|unauthor|forbidden|not|too|request|internal|"
    r"service|gateway|payload)",
    r"rate limit",
    r"too many requests",
    r"internal server error",
    r"service (?:temporarily )?unavailable",
    r"bad gateway",
    r"gateway time-?out",
    r"(?:the )?request (?:timed out|failed)",
    r"overloaded",
    r"insufficient[_ ]quota",
    r"context[_ ]length[_ ]exceeded",
    r"prompt is too long",
    r"this model's maximum",
    r"upstream connect",
    r"connection (?:error|reset|refused|aborted)",
    r"an? (?:unexpected |internal )?error (?:has )?occurred",
    r"you exceeded your",
    r"invalid (?:api key|request)",
)
_CALLS: Final = (
    r"<(?:tool_call|function_calls?|function=|invoke|tool_use|\|tool)",
    r"\[TOOL_CALLS\]",
    r"<\|python_tag\|>",
    r"\{\s?\"(?:name|tool|function|tool_calls?|command)\"\s?:",
    r"```(?:bash|sh|shell|python|tool_code|json)\s[^`]{1,4000}```\s*\Z",
    r"thought:[^`]{0,4000}\n(?:action|```)",
)
# What comes next, where a summary reports what was done.
_GOING_ON: Final = (
    r"(?:(?:okay|ok|sure|now|great|next|alright|perfect)[,.!:]? )?"
    r"(?:let me|let['’]s|i['’]ll|i will|i['’]m going to|i need to) (?!summar|provide|write|give|create)\w",
    r"lass mich",
    r"ich werde",
    r"je vais",
    r"voy a",
    r"我将",
    r"我会",
    r"让我",
)
# Orders to the reader: the agent would take them for a new request of the user.
_ORDERS: Final = (
    r"please ",
    r"you (?:must|should|need to|have to|will now) ",
    r"your (?:next )?task (?:is|now) ",
    r"continue (?:with|by|from) ",
    r"proceed (?:with|to) ",
    r"ignore (?:all|any|the|previous) ",
    r"new (?:task|instructions?):",
    r"bitte ",
    r"du musst ",
    r"请",
    r"veuillez ",
    r"por favor",
)

#: Turns that are searched, counted from the newest covered one.
NEWEST_TURNS = 5
#: Facts that are asked for; fewer than FEWEST_FACTS prove nothing.
MOST_FACTS = 12
FEWEST_FACTS = 4
#: The share of them that must be kept.
LEAST_KEPT_SHARE = 0.15
#: Characters of a fact. Longer ones are whole command lines and URLs, which a summary rightly shortens.
_LONGEST_FACT = 60
#: Tokens of a summary's limit for each fact that is asked for: a short summary keeps fewer.
_TOKENS_PER_FACT = 300

_ERROR_NAME = re.compile(r"\b[A-Z]\w{0,60}(?:Error|Exception|Warning|Failure)\b")

#: Tokens, or USD, that no summary takes: a larger figure is a mistake, and sums of it would overflow.
_LARGEST_FIGURE: Final = 10**12
_LONGEST_NAME: Final = 400
_ROUTES: Final = ("fresh", "extend", "model-free")


@dataclass(frozen=True, slots=True)
class SummaryProblem:
    """Why a candidate may not replace the turns, and what to ask for instead.

    correction: a sentence for the next request, so that it differs from this one.
    """

    cause: SummaryCause
    reason: str
    correction: str


def find_problem(text: str, request: SummaryRequest, count: Count) -> SummaryProblem | None:
    """Return the first thing that is wrong with `text` as an answer to `request`; None if it may replace the turns."""
    text = text.strip()
    if not text:
        return SummaryProblem("empty", "it is empty", "Write the summary as plain text.")
    if len(text) > LONGEST_ANSWER:
        correction = f"Write at most {request.asked_tokens} tokens."
        return SummaryProblem("too-long", f"it has {len(text):,} characters", correction)
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
        "facts-lost",
        f"it keeps {kept} of {len(facts)} facts of the newest turns; lost: {', '.join(lost[:6])}",
        f"The newest turns worked with these; name those that matter, as they stand: {', '.join(lost)}.",
    )


def _compile_beginning(pieces: Iterable[str], marks: str = r"[\W_]*") -> re.Pattern[str]:
    """Return a pattern for any of `pieces` at the beginning, after `marks`."""
    return re.compile(rf"{marks}(?:{'|'.join(pieces)})", re.IGNORECASE)


#: How a text that is no summary begins, why it is none, and what to ask for instead.
_FORMS: Final[Sequence[tuple[re.Pattern[str], SummaryCause, str, str]]] = (
    (
        # Where a script has spaces, a word ends with each of them.
        _compile_beginning(
            rf"{piece}\b" if piece[-1].isascii() else piece for piece in chain.from_iterable(_REFUSALS.values())
        ),
        "refusal",
        "it is a refusal",
        "Nothing is asked of you but a record of what the quoted turns did; write that record.",
    ),
    (_compile_beginning(_ERRORS, r"\s*"), "error-text", "it is an error text", "Write the summary itself."),
    (
        _compile_beginning(_CALLS, r"\s*"),
        "tool-call",
        "it is a tool call",
        "Call no tool; write the summary as text.",
    ),
    (
        _compile_beginning(_GOING_ON),
        "task-continued",
        "it goes on with the task",
        "Do not go on with the task; write down what was done, in the past tense.",
    ),
    (
        _compile_beginning(_ORDERS),
        "task-continued",
        "it gives orders",
        "Address nobody; report what was done and what is pending.",
    ),
)


def _check_form(text: str) -> SummaryProblem | None:
    start = " ".join(text[:_BEGINNING].split())
    for pattern, cause, words, correction in _FORMS:
        # A call in a block of code is one if nothing follows it.
        if pattern.match(text if cause == "tool-call" else start):
            return SummaryProblem(cause, f"{words}: {_quote_beginning(text)}", correction)
    noise = _describe_noise(text)
    if noise:
        return SummaryProblem("garbage", noise, "Write plain sentences, each fact once.")
    return None


def _check_length(text: str, request: SummaryRequest, count: Count) -> SummaryProblem | None:
    size = count(text)
    if size < LEAST_TOKENS:
        return SummaryProblem(
            "empty",
            f"it says next to nothing: {_quote_beginning(text)}",
            "Write down what was done, what came of it, and what is pending.",
        )
    replaced = count_source_tokens(request, count, size + 1)
    if size >= replaced:
        return SummaryProblem(
            "too-long",
            f"it is not shorter than what it replaces: {size:,} tokens for {replaced:,}",
            f"Write at most {max(1, replaced // 3)} tokens.",
        )
    # Whatever the model: other tokenizers count as many or more, so what a model was allowed to write is accepted.
    length = make_counter("o200k").count(text)
    if length > request.max_tokens:
        return SummaryProblem(
            "too-long",
            f"it is {length:,} tokens long where {request.max_tokens:,} are allowed",
            f"Write at most {request.asked_tokens} tokens: shorten the oldest first.",
        )
    return None


def _describe_noise(text: str) -> str:
    """Return what makes `text` noise; "" if it reads like text."""
    dense = [letter for letter in text if not letter.isspace()]
    if sum(map(str.isalnum, dense)) < 0.4 * len(dense):
        return "it is hardly made of letters"
    shown = sum(letter != "\ufffd" and (letter.isprintable() or letter in "\n\t\r") for letter in text)
    if shown < 0.98 * len(text):
        return "it is full of unprintable characters"
    data = text.encode("utf-8", "replace")
    if len(data) >= 400 and len(zlib.compress(data)) < 0.08 * len(data):
        return "it repeats itself"
    longest = [len(word) for word in text.split() if len(word) > 200 and word.isascii()]
    if sum(longest) > len(text) // 2:
        return "it is hardly made of words"
    return ""


def _quote_beginning(text: str) -> str:
    width = 80
    flat = " ".join(text[: 4 * width].split())
    if len(flat) > width:
        return f'"{flat[:width]}…"'
    return f'"{flat}"'


def find_key_facts(turns: Sequence[Turn]) -> tuple[str, ...]:
    """Return facts of the newest of `turns`, those used in most turns first, MOST_FACTS of them, without secrets."""
    uses: Counter[str] = Counter()
    for turn in turns[-NEWEST_TURNS:]:
        failures = (find_failure(observation) or "" for observation in turn.observations)
        facts = {error for failure in failures for error in _ERROR_NAME.findall(failure)}
        calls = (join_argument_text(action) for action in turn.actions if not action.implicit)
        for text in (turn.text, *calls):
            facts.update(find_items(DEFAULT.redact_text(text)))
        uses.update(fact for fact in facts if len(fact) <= _LONGEST_FACT)
    return tuple(sorted(uses, key=lambda fact: (-uses[fact], len(fact), fact))[:MOST_FACTS])


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
    if len(facts) < FEWEST_FACTS:
        return 0
    return min(math.ceil(LEAST_KEPT_SHARE * len(facts)), max_tokens // _TOKENS_PER_FACT)


def _list_forms(fact: str) -> Iterator[str]:
    yield fact
    tail = re.split(r"[/.]", fact.rstrip("/."))
    if "/" in fact:
        tail = fact.rstrip("/").rsplit("/", 1)
    if len(tail) > 1 and len(tail[-1]) > 3:
        yield tail[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    """A candidate.

    input, cached, output: tokens of all calls that it took (cached is part of input); 0 where they are not known.
    usd:      their cost, None where the price is not known.
    route:    "fresh" or "extend", as the request was really sent; "model-free".
    attempts: calls that it took. redacted: secrets that were taken out.
    covers:   turns 1 ... covers, where it was written for fewer than are requested now; 0 for all.
    seconds:  that it took, 0 where not measured.
    writer:   the model that wrote it, "" for none or where it is not known.
    """

    text: str
    input: int = 0
    cached: int = 0
    output: int = 0
    usd: float | None = None
    route: str = "fresh"
    attempts: int = 1
    redacted: int = 0
    covers: int = 0
    seconds: float = 0.0
    writer: str = ""


def parse_answer(answer: object) -> SummaryResult:
    """Return what a summarizer answered as a `SummaryResult`; a plain text becomes one with an unknown bill.

    Raises SummaryError ("malformed") for any other type, and for a `SummaryResult` with an invalid field: neither the
    view nor the bill may contain it.
    """
    if isinstance(answer, str):
        return SummaryResult(text=answer)
    if not isinstance(answer, SummaryResult):
        kind = type(answer).__name__
        raise SummaryError(f"the summarizer answered with a {kind}; give str or SummaryResult", cause="malformed")
    if wrong := _find_wrong_field(answer):
        raise SummaryError(f"the summarizer answered with a SummaryResult whose {wrong}", cause="malformed")
    return answer


def has_sound_usage(billed: Billed) -> bool:
    """Return whether tokens and USD of `billed`, which a summarizer reported, are figures that may be added up."""
    return not _find_wrong_usage(billed)


def _find_wrong_field(written: SummaryResult) -> str:
    if not isinstance(written.text, str):
        return f"text is a {type(written.text).__name__}; give str"
    if not isinstance(written.writer, str) or len(written.writer) > _LONGEST_NAME:
        return f"writer is {_describe(written.writer)}; give the model's name, at most {_LONGEST_NAME} characters"
    if written.route not in _ROUTES:
        return f"route is {_describe(written.route)}; give {', '.join(_ROUTES)}"
    for name in ("attempts", "redacted", "covers"):
        if not _is_count(getattr(written, name)):
            return f"{name} is {_describe(getattr(written, name))}; give a whole number, 0 or more"
    if not _is_amount(written.seconds):
        return f"seconds is {_describe(written.seconds)}; give a number, 0 or more"
    return _find_wrong_usage(written)


def _find_wrong_usage(billed: object) -> str:
    counts = {name: getattr(billed, name, None) for name in ("input", "cached", "output")}
    for name, count in counts.items():
        if not _is_count(count):
            return f"{name} is {_describe(count)}; give tokens, 0 or more"
    if counts["cached"] > counts["input"]:  # type: ignore[operator]
        return f"cached ({counts['cached']}) is more than input ({counts['input']}), of which it is a part"
    usd = getattr(billed, "usd", None)
    if usd is not None and not _is_amount(usd):
        return f"usd is {_describe(usd)}; give USD, 0 or more, or None"
    return ""


def _describe(value: object) -> str:
    try:
        return repr(value)[:60]
    except Exception:  # noqa: BLE001 - a value of others, or a number too long to be printed
        return f"a {type(value).__name__} that cannot be shown"


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST_FIGURE


def _is_amount(value: object) -> bool:
    """Return whether `value` is a finite number of 0 or more; a comparison with NaN is never true."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LARGEST_FIGURE
