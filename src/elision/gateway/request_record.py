"""The record of one request: the same facts for metrics and the log line.

A request has one line on the logger `elision.gateway.requests`: its outcome, never its content.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from elision.providers.provider import Api
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.logs import format_line
from elision.telemetry.metric_table import clean_model_name
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.usage import Usage

LOGGER_NAME: Final = "elision.gateway.requests"
#: Characters of a path or a reason.
MAX_FACT_CHARS: Final = 300
#: Redacted facts that are kept for the next lines.
MAX_REDACTED_FACTS: Final = 4_096
#: Facts whose text others chose; that of the rest is our own.
_FOREIGN_FACTS: Final = ("path", "session", "model", "cache_miss", "cause", "why")

#: How a request went out. view: as decided. same: nothing was to be hidden. shadow: decided and not done. passed: not
#: ours to decide on (off, another path, unreadable). failed: we failed, so it went as it came. refused: not sent.
Disposition: TypeAlias = Literal["view", "same", "shadow", "passed", "failed", "refused"]


@dataclass(slots=True, kw_only=True)
class RequestRecord:
    """One request, filled in while it is served.

    api:                None for what is passed through. session: its key in the store, "" where it has none.
    status:             of the response that the client got; 0 where the client left before there was one.
    added_seconds:      from the request's last byte to the first byte sent upstream. waited_seconds: the part of that
                        spent waiting for another request of the same session.
    first_byte_seconds: from the request's last byte to the response's first. total_seconds: to the response's last.
    cause:              one word for what went wrong, "" where nothing did. why: a sentence without secrets.
    is_complete:        whether the response reached its end.
    reached_limit:      the limit that the session or its key has reached, "" for none; the response's headers name it.
    hint:               that the agent makes no progress, as known before the response, whose headers have it.
    role:               of what asks: `main`, `sub-agent` or `side`; "" where it passed unread.
    namespace:          whose API key it has, as a hash. taken_usd: what was taken of its dollars for it.
    recalls:            recall calls that the gateway answered. rounds: requests to the provider.
    is_pinned:          whether its tools were sent as its session first had them.
    step_diagnostics:   one entry a step: a recall needs one more, and so does a prompt that was too long.
    """

    api: Api | None = None
    path: str = ""
    how: Disposition = "passed"
    session: str = ""
    status: int = 0
    bytes_in: int = 0
    bytes_up: int = 0
    bytes_out: int = 0
    added_seconds: float = 0.0
    waited_seconds: float = 0.0
    first_byte_seconds: float = 0.0
    total_seconds: float = 0.0
    is_stream: bool = False
    model: str = ""
    cause: str = ""
    why: str = field(default="", repr=False)
    is_complete: bool = False
    reached_limit: str = field(default="", repr=False)
    hint: str = field(default="", repr=False)
    recalls: int = 0
    rounds: int = 0
    is_pinned: bool = False
    cache_miss: str = ""
    cleared_tokens: int = 0
    thinking_dropped: int = 0
    usage: Usage | None = None
    role: str = ""
    namespace: str = field(default="", repr=False)
    taken_usd: float | None = None
    step_diagnostics: list[Diagnostics] = field(default_factory=list, repr=False)

    def add_step(self, diagnostics: Diagnostics) -> None:
        """Add the diagnostics of a step. A prompt that does not fit its budget is something that went wrong."""
        self.step_diagnostics.append(diagnostics)
        for fault in diagnostics.faults:
            if fault.kind == "budget" and not diagnostics.shadow:
                self.cause, self.why = "budget", fault.what

    @property
    def budget_note(self) -> str:
        """Return what was done to bring the prompt into its budget; "" for nothing, or where it went as it came."""
        if self.how in ("shadow", "failed"):
            return ""
        return "; ".join(each.budget_note for each in self.step_diagnostics if each.budget_note)

    @property
    def diagnostics(self) -> Diagnostics | None:
        """Return those of its newest step."""
        return self.step_diagnostics[-1] if self.step_diagnostics else None


#: Told of every request when it is over.
RequestListener: TypeAlias = Callable[[RequestRecord], None]


class RequestLog:
    """Logs each request: WARNING where something went wrong, else INFO. The facts are also `record.elision`.

    form: "text" (key=value) or "json". redaction: of secrets in text that others chose.
    """

    def __init__(self, form: Literal["text", "json"], *, redaction: Redaction = DEFAULT) -> None:
        self._form = form
        self._log = logging.getLogger(LOGGER_NAME)
        # A session's requests have the same session and model, line after line.
        self._redact_fact = lru_cache(MAX_REDACTED_FACTS)(
            lambda name, value: redaction.redact_tree({name: value})[name]
        )

    def log_request(self, record: RequestRecord) -> None:
        level = logging.WARNING if record.cause or record.status >= 500 else logging.INFO
        if self._log.isEnabledFor(level):
            facts = collect_facts(record)
            for name in _FOREIGN_FACTS:
                if name in facts:
                    facts[name] = self._redact_fact(name, facts[name])
            self._log.log(level, "%s", _LogLine(facts, self._form), extra={"elision": facts})


@dataclass(frozen=True, slots=True)
class _LogLine:
    """Facts as a line, formatted when a handler needs it."""

    facts: Mapping[str, Any]
    form: Literal["text", "json"]

    def __str__(self) -> str:
        return format_line(self.facts, self.form)


def collect_facts(record: RequestRecord) -> dict[str, Any]:
    """Return the facts of a line in order; empty ones are left out. Tokens, bytes, milliseconds."""
    diagnostics = record.diagnostics
    usage = record.usage
    facts: dict[str, Any] = {
        "event": "request",
        "api": record.api or "none",
        # The path of what is passed through is all that tells it; ours say it by their API.
        "path": "" if record.api else record.path[:MAX_FACT_CHARS],
        "status": record.status,
        "how": record.how,
        "session": record.session,
        "role": record.role if record.role != "main" else "",
        "call": diagnostics.call if diagnostics else 0,
        "model": clean_model_name(record.model),
        "tokens_in": diagnostics.raw if diagnostics else 0,
        "tokens_out": diagnostics.after if diagnostics else 0,
        "billed_tokens": usage.prompt if usage else 0,
        "cached_tokens": usage.cache_read if usage else 0,
        "answer_tokens": usage.output if usage else 0,
        "stream": record.is_stream,
        "complete": record.is_complete,
        "rounds": record.rounds if record.rounds != 1 else 0,
        "recalls": record.recalls,
        "cache_miss": record.cache_miss,
        "budget": record.budget_note,
        "cause": record.cause,
        "why": record.why[:MAX_FACT_CHARS],
        "bytes_in": record.bytes_in,
        "bytes_up": record.bytes_up,
        "bytes_out": record.bytes_out,
        "added_ms": _to_ms(record.added_seconds),
        "waited_ms": _to_ms(record.waited_seconds),
        "first_ms": _to_ms(record.first_byte_seconds),
        "ms": _to_ms(record.total_seconds),
    }
    always = ("status", "added_ms", "ms")
    return {name: value for name, value in facts.items() if value or name in always}


def _to_ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


# -- where lines go ---------------------------------------------------------------------------------------------------


def choose_form(form: Literal["auto", "none", "text", "json"]) -> Literal["none", "text", "json"]:
    """Return the form of log lines; auto: text if standard error is a terminal, JSON elsewhere."""
    if form != "auto":
        return form
    return "text" if sys.stderr.isatty() else "json"


def log_to_stderr(form: Literal["none", "text", "json"]) -> None:
    """Write all logs of `elision` to standard error, a line each. `none` writes only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LineFormatter(form))
    logger = logging.getLogger("elision")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.WARNING if form == "none" else logging.INFO)
    if form == "none":
        logging.getLogger(LOGGER_NAME).setLevel(logging.CRITICAL)


class _LineFormatter(logging.Formatter):
    """Formats records as lines: their facts, or else the message and a trace in the same line."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form: Literal["text", "json"] = "json" if form == "json" else "text"

    def format(self, record: logging.LogRecord) -> str:
        front = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"), "level": record.levelname.lower()}
        facts = getattr(record, "elision", None)
        if isinstance(facts, dict):
            return format_line({**front, **facts}, self._form)
        facts = {**front, "logger": record.name, "message": DEFAULT.redact_text(record.getMessage())}
        if record.exc_info:
            facts["trace"] = DEFAULT.redact_text(self.formatException(record.exc_info))
        return format_line(facts, self._form)
