"""Answers and faults of a model behind HTTP, the same for all providers: values, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, Literal, TypeAlias

from elision.errors import SummaryCause
from elision.providers.shared.signals import Overflow, parse_overflow
from elision.trajectory.redact import DEFAULT
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage

#: Why a model stopped; "length" where max_tokens cut it off.
StopReason: TypeAlias = Literal["end", "length", "refusal", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAnswer:
    """A model's answer.

    usage:    what its provider reports, in our form; None for nothing. reported: the same as the provider wrote it.
    stop:     why it stopped.
    message:  the assistant message as it goes back in the next request, with everything the provider wants back.
    """

    text: str = ""
    usage: Usage | None = None
    stop: StopReason = "end"
    reasoning: str = ""
    calls: tuple[Action, ...] = ()
    message: Mapping[str, Any] = field(default_factory=dict)
    reported: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFault:
    """No answer, and why. None stands for what the server does not report.

    wait_seconds: until the server accepts another request.
    prompt_tokens, window_tokens: of the prompt and of the model, from an overflow's message.
    max_output_tokens: the most that the model writes, from a refusal of more.
    """

    cause: SummaryCause
    reason: str
    wait_seconds: float | None = None
    prompt_tokens: int | None = None
    window_tokens: int | None = None
    max_output_tokens: int | None = None


#: Status of an HTTP answer -> cause; what is not listed is "rejected" below 500 and "server" above.
_CAUSES: Final[Mapping[int, SummaryCause]] = {408: "timeout", 413: "overflow", 429: "rate-limited", 504: "timeout"}
#: Refusals of a prompt that is too long, beside those that `parse_overflow` knows.
_OVERFLOW: Final = re.compile(
    r"prompt is too long|context[_ ]length[_ ]exceeded|context[_ ]window|maximum context length|maximum prompt length"
    r"|exceeds the (?:maximum|model'?s) (?:number of|context)|request_too_large|input is too long"
    r"|too many (?:input )?tokens",
    re.IGNORECASE,
)
# "max_tokens: 513250 > 64000, which is the maximum allowed number of output tokens" (Anthropic); "max_tokens is too
# large: 513250. This model supports at most 16384 completion tokens" (OpenAI); "a maxOutputTokens value of 513250 but
# the supported range is from 1 (inclusive) to 65537 (exclusive)" (Gemini).
_LONGEST: Final = re.compile(
    r"max_tokens: [\d,]{1,12} > (\d[\d,]{0,12}), which is the maximum"
    r"|at most (\d[\d,]{0,12}) (?:completion|output) tokens"
    r"|maxOutputTokens\b.{1,80} to (\d[\d,]{0,12}) \(exclusive\)",
    re.IGNORECASE,
)
#: Characters of a server's message that are kept.
_WIDTH: Final = 200


def parse_refusal(status: int, body: str, headers: Mapping[str, str]) -> EndpointFault:
    """Return the fault of an HTTP answer that is no success; secrets in the server's text are redacted."""
    body = body[:2_000]
    words = DEFAULT.redact_text(" ".join(body.split()))[:_WIDTH]
    reason = f"HTTP {status}: {words}" if words else f"HTTP {status}"
    if status < 500:
        limit = _parse_output_limit(body)
        if limit is not None:
            return EndpointFault(cause="rejected", reason=reason, max_output_tokens=limit)
        overflow = parse_overflow(body)
        if overflow is not None or _OVERFLOW.search(body):
            named = overflow or Overflow()
            return EndpointFault(cause="overflow", reason=reason, prompt_tokens=named.tokens, window_tokens=named.limit)
    cause: SummaryCause = _CAUSES.get(status, "server" if status >= 500 else "rejected")
    if "insufficient_quota" in body:
        # Sent as 429, and no waiting helps.
        cause = "rejected"
    wait_seconds = _parse_wait(headers.get("retry-after", ""), headers.get("date", ""))
    return EndpointFault(cause=cause, reason=reason, wait_seconds=wait_seconds)


def _parse_output_limit(message: str) -> int | None:
    """Return the most tokens that the model writes, if a refusal of more names them."""
    match = _LONGEST.search(message)
    if not match:
        return None
    if match[3] is not None:
        # Gemini's limit is exclusive.
        return _parse_number(match[3]) - 1
    return _parse_number(match[1] or match[2])


def _parse_number(text: str) -> int:
    return int(text.replace(",", ""))


def _parse_wait(after: str, date: str) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date, which is read against the server's own clock."""
    if after.strip().replace(".", "", 1).isdigit():
        return float(after)
    try:
        return max(0.0, (parsedate_to_datetime(after) - parsedate_to_datetime(date)).total_seconds())
    except (ValueError, TypeError):
        return None
