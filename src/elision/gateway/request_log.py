"""Write one line for each request on the logger `elision.gateway.requests`: its outcome, never its content."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from elision.gateway.request_record import RequestRecord
from elision.telemetry.logs import format_line
from elision.telemetry.samples import clean_model_name
from elision.trajectory.redact import DEFAULT, Redaction

LOGGER_NAME: Final = "elision.gateway.requests"
#: Characters of a path or a reason.
MAX_FACT_CHARS: Final = 300
#: Redacted facts that are kept for the next lines.
MAX_REDACTED_FACTS: Final = 4_096
#: Facts whose text others chose; that of the rest is our own.
_FOREIGN_FACTS: Final = ("path", "session", "model", "cache_miss", "cause", "why")


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
        if record.cause or record.status >= 500:
            level = logging.WARNING
        else:
            level = logging.INFO
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
    if sys.stderr.isatty():
        return "text"
    return "json"


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
