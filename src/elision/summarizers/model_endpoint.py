"""What an endpoint is asked and what it may answer, whoever serves it: values, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Literal, Protocol, TypeAlias

from elision.errors import SummaryCause
from elision.trajectory.plan import LivePrefix
from elision.trajectory.redact import DEFAULT
from elision.trajectory.usage import Usage

#: Why a model stopped; "length" where max_tokens cut it off.
StopReason: TypeAlias = Literal["end", "length", "refusal", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRequest:
    """One request.

    text:       the user message; the last one where `live` stands in front of it.
    max_tokens: of the answer, reasoning included.
    seconds:    how long it may take.
    """

    text: str
    max_tokens: int
    seconds: float
    live: LivePrefix | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointAnswer:
    """What the model said, what its provider reports for it (None for nothing), and why it stopped."""

    text: str
    usage: Usage | None = None
    stop: StopReason = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFault:
    """No answer.

    wait: seconds that the server asks to be left alone, None where it does not say.
    sent, room: tokens of the prompt and of what the model takes, from an overflow's message; None where unsaid.
    longest: tokens of an answer that the model writes at most, from a refusal of more; None where unsaid.
    """

    cause: SummaryCause
    reason: str
    wait_seconds: float | None = None
    prompt_tokens: int | None = None
    window_tokens: int | None = None
    max_output_tokens: int | None = None


class Endpoint(Protocol):
    """A model that can be asked. `ask` never raises for what a server does: it returns a Fault."""

    @property
    def model(self) -> str: ...

    def can_extend(self, live: LivePrefix) -> bool:
        """Whether a question behind `live` would be read from the cache that `live` is in."""
        ...

    def ask(self, question: EndpointRequest) -> EndpointAnswer | EndpointFault: ...


#: Status of an HTTP answer -> cause; what is not listed is "rejected" below 500 and "server" above.
_CAUSES: Final[Mapping[int, SummaryCause]] = {408: "timeout", 413: "overflow", 429: "rate-limited", 504: "timeout"}
_OVERFLOW: Final = re.compile(
    r"prompt is too long|context[_ ]length[_ ]exceeded|context[_ ]window|maximum context length|maximum prompt length"
    r"|exceeds the (?:maximum|model'?s) (?:number of|context)|request_too_large|input is too long"
    r"|too many (?:input )?tokens",
    re.IGNORECASE,
)
# "prompt is too long: 213462 tokens > 200000 maximum" (Anthropic); "maximum context length is 128000 tokens. However,
# your messages resulted in 130204 tokens" (OpenAI, vLLM); "input token count (1200000) exceeds the maximum number of
# tokens allowed (1048576)" (Gemini).
_SENT_FIRST: Final = re.compile(r"(\d[\d,]*)\D{1,40}?(?:>|exceeds?)\D{1,60}?(\d[\d,]*)")
_ROOM_FIRST: Final = re.compile(
    r"maximum (?:context|prompt) length is (\d[\d,]*)(?:\D{1,120}(\d[\d,]*))?", re.IGNORECASE
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
#: Characters of a server's words that are kept.
_WIDTH: Final = 200


def parse_refusal(status: int, body: str, headers: Mapping[str, str]) -> EndpointFault:
    """An HTTP answer that is no success, as a fault; secrets in the server's words are redacted."""
    said = DEFAULT.text(" ".join(body[:2_000].split()))[:_WIDTH]
    if said:
        reason = f"HTTP {status}: {said}"
    else:
        reason = f"HTTP {status}"
    if status < 500 and (longest := _LONGEST.search(body[:2_000])):
        exclusive = longest[3] is not None
        tokens = _parse_number(next(filter(None, longest.groups()))) - exclusive
        return EndpointFault(cause="rejected", reason=reason, max_output_tokens=tokens)
    if status < 500 and _OVERFLOW.search(body[:2_000]):
        sent, room = parse_overflow(body[:2_000])
        return EndpointFault(cause="overflow", reason=reason, prompt_tokens=sent, window_tokens=room)
    cause: SummaryCause = _CAUSES.get(status, "server" if status >= 500 else "rejected")
    if "insufficient_quota" in body[:2_000]:
        # Sent as 429, and no waiting mends it.
        cause = "rejected"
    return EndpointFault(
        cause=cause, reason=reason, wait_seconds=_parse_wait(headers.get("retry-after", ""), headers.get("date", ""))
    )


def parse_overflow(message: str) -> tuple[int | None, int | None]:
    """Tokens sent and tokens taken, as an overflow's message tells them; None where it does not."""
    if found := _ROOM_FIRST.search(message):
        return (_parse_number(found[2]) if found[2] else None), _parse_number(found[1])
    if found := _SENT_FIRST.search(message):
        return _parse_number(found[1]), _parse_number(found[2])
    return None, None


def _parse_number(text: str) -> int:
    return int(text.replace(",", ""))


def _parse_wait(after: str, date: str) -> float | None:
    """Seconds of a Retry-After header: a number, or a date, which is read against the server's own clock."""
    if after.strip().replace(".", "", 1).isdigit():
        return float(after)
    try:
        return max(0.0, (parsedate_to_datetime(after) - parsedate_to_datetime(date)).total_seconds())
    except (ValueError, TypeError):
        return None
