"""One line for each request on the logger `elision.gateway.requests`: what became of it, never what was in it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from elision.gateway.served import Served
from elision.telemetry.logs import format_line
from elision.telemetry.samples import clean_model_name
from elision.trajectory.redact import DEFAULT, Redaction

LOGGER: Final = "elision.gateway.requests"
#: Characters of a path or a reason.
LONGEST: Final = 300
#: Facts whose text others chose; that of the rest is our own.
_OTHERS: Final = ("path", "session", "model", "cache_miss", "cause", "why")


class RequestLog:
    """Writes each request: WARNING where something went wrong, else INFO. The facts also stand at `record.elision`.

    form: "text" (key=value) or "json". redaction: of secrets in whatever text others chose.
    """

    def __init__(self, form: Literal["text", "json"], *, redaction: Redaction = DEFAULT) -> None:
        self._form = form
        self._redaction = redaction
        self._log = logging.getLogger(LOGGER)

    def take(self, served: Served) -> None:
        if served.cause or served.status >= 500:
            level = logging.WARNING
        else:
            level = logging.INFO
        if self._log.isEnabledFor(level):
            found = facts(served)
            found |= self._redaction.tree({name: found[name] for name in _OTHERS if name in found})
            self._log.log(level, "%s", _Line(found, self._form), extra={"elision": found})


@dataclass(frozen=True, slots=True)
class _Line:
    """Facts as a line, written where somebody reads it."""

    found: Mapping[str, Any]
    form: Literal["text", "json"]

    def __str__(self) -> str:
        return format_line(self.found, self.form)


def facts(served: Served) -> dict[str, Any]:
    """What a line says, in its order; what is nothing is left out. Tokens, bytes, milliseconds."""
    told = served.diagnostics
    usage = served.usage
    found: dict[str, Any] = {
        "event": "request",
        "api": served.api or "none",
        # The path of what is passed through is all that tells it; ours say it by their API.
        "path": "" if served.api else served.path[:LONGEST],
        "status": served.status,
        "how": served.how,
        "session": served.session,
        "call": told.call if told else 0,
        "model": clean_model_name(served.model),
        "tokens_in": told.raw if told else 0,
        "tokens_out": told.after if told else 0,
        "billed_tokens": usage.prompt if usage else 0,
        "cached_tokens": usage.cache_read if usage else 0,
        "answer_tokens": usage.output if usage else 0,
        "stream": served.stream,
        "complete": served.complete,
        "rounds": served.rounds if served.rounds != 1 else 0,
        "recalls": served.recalls,
        "cache_miss": served.cache_miss,
        "cause": served.cause,
        "why": served.why[:LONGEST],
        "bytes_in": served.bytes_in,
        "bytes_up": served.bytes_up,
        "bytes_out": served.bytes_out,
        "added_ms": _ms(served.added),
        "waited_ms": _ms(served.waited),
        "first_ms": _ms(served.first),
        "ms": _ms(served.whole),
    }
    always = ("status", "added_ms", "ms")
    return {name: value for name, value in found.items() if value or name in always}


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)


# -- where lines go ---------------------------------------------------------------------------------------------------


def log_to_stderr(form: Literal["none", "text", "json"]) -> None:
    """Have everything on `elision` written to standard error, a line each. `none` leaves warnings and errors alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(form))
    logger = logging.getLogger("elision")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.WARNING if form == "none" else logging.INFO)
    if form == "none":
        logging.getLogger(LOGGER).setLevel(logging.CRITICAL)


class _Lines(logging.Formatter):
    """Records as lines: the facts of those that have some; of others the message, and a trace in the same line."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self._form: Literal["text", "json"] = "json" if form == "json" else "text"

    def format(self, record: logging.LogRecord) -> str:
        front = {"time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"), "level": record.levelname.lower()}
        found = getattr(record, "elision", None)
        if isinstance(found, dict):
            return format_line({**front, **found}, self._form)
        told = {**front, "logger": record.name, "message": DEFAULT.text(record.getMessage())}
        if record.exc_info:
            told["trace"] = DEFAULT.text(self.formatException(record.exc_info))
        return format_line(told, self._form)
