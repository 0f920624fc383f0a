"""One line for each pass on the logger `elision.context`, for people (key=value) or programs (JSON)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from elision.errors import SettingError
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.readings import SESSIONS, Collector
from elision.trajectory.redact import DEFAULT, Redaction

Form: TypeAlias = Literal["text", "json"]
LOGGER: Final = "elision.context"
#: Handles and faults that a line names; the rest is counted.
NAMED: Final = 5
_PLAIN: Final = re.compile(r"[\w.:/@+*-]+", re.ASCII)


class PassLog(Collector):
    """Writes each pass: WARNING if something failed or a guard begins to speak, INFO if it hid something, else DEBUG.

    form: "text" or "json". redaction: of secrets in names and messages. The facts also stand at the record, as
    `record.elision`. Where lines go, and from which level on, is the application's to say: logging is set up there.
    """

    def __init__(self, form: Form = "text", *, redaction: Redaction = DEFAULT) -> None:
        super().__init__()
        if form not in ("text", "json"):
            raise SettingError(f"log form {form!r}: give text or json")
        self._form: Form = form
        self._redaction = redaction
        self._log = logging.getLogger(LOGGER)
        self._spoken: set[tuple[str, str]] = set()

    def take(self, diagnostics: Diagnostics) -> None:
        level = self._level(diagnostics)
        if self._log.isEnabledFor(level):
            found = self._redaction.tree(facts(diagnostics))
            self._log.log(level, "%s", line(found, self._form), extra={"elision": found})

    def _level(self, told: Diagnostics) -> int:
        """How loud a pass is. A guard says the same at each later call; once is enough to be loud."""
        new = _guards(told) - self._spoken
        if len(self._spoken) > SESSIONS:
            self._spoken.clear()
        self._spoken |= new
        if told.faults or new:
            return logging.WARNING
        if told.acted:
            return logging.INFO
        return logging.DEBUG


def _guards(told: Diagnostics) -> set[tuple[str, str]]:
    """Which guards speak, by session."""
    spoken = [told.stop.guard] if told.stop else []
    return {(told.session, guard) for guard in [*spoken, *(["plateau_window"] if told.hint else [])]}


def facts(told: Diagnostics) -> dict[str, Any]:
    """What a line says, in its order; what is nothing is left out. Tokens, USD, milliseconds."""
    found = {
        "event": "pass",
        "session": told.session,
        "branch": told.branch if told.branch != told.session else "",
        "model": told.model,
        "call": told.call,
        "turns": told.turns,
        "tokens_in": told.raw,
        "tokens_out": told.after,
        "delta": told.after - told.raw,
        "freed": told.before - told.after,
        "reason": told.reason,
        "epoch": told.epoch,
        "masked": len(told.masked),
        "clipped": len(told.clipped),
        "hidden": _named([each.handle for each in (*told.masked, *told.clipped)]),
        "summary": _summary(told),
        "history": told.history if told.history != "continue" else "",
        "cost_usd": round(told.costs.ours, 6),
        "hiding_saved_usd": round(told.costs.hiding, 6),
        "caching_saved_usd": round(told.costs.caching, 6),
        "stop": str(told.stop or ""),
        "hint": str(told.hint or ""),
        "faults": _named([f"{fault.kind}/{fault.cause}: {fault.what}" for fault in told.faults]),
        "estimated": told.estimated,
        "ms": round(told.seconds * 1e3, 3),
        "summarizer_ms": round(told.summarizer_seconds * 1e3, 3),
    }
    always = ("tokens_in", "tokens_out", "delta", "cost_usd", "hiding_saved_usd", "ms")
    return {name: value for name, value in found.items() if value or name in always}


def _summary(told: Diagnostics) -> str:
    done = told.summarized
    if done:
        return f"t{done.first}-t{done.last} {done.tokens}->{done.left} {done.route}"
    return ""


def _named(names: list[str]) -> str:
    if len(names) > NAMED:
        more = f" and {len(names) - NAMED} more"
    else:
        more = ""
    return "; ".join(names[:NAMED]) + more


def line(found: Mapping[str, Any], form: Form) -> str:
    """Facts as one line of ASCII: JSON, or key=value."""
    if form == "json":
        return json.dumps(found, default=str)
    return " ".join(f"{name}={_value(value)}" for name, value in found.items())


def _value(value: object) -> str:
    """A value that stands on one line whatever is in it: quoted as JSON, unless it is one plain word."""
    if isinstance(value, float):
        text = f"{value:.6f}".rstrip("0").rstrip(".")
    else:
        text = str(value)
    # ASCII: U+2028 and the like end a line for many readers.
    if _PLAIN.fullmatch(text):
        return text
    return json.dumps(text)
