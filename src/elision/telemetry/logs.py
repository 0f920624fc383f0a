"""Log one line for each pass on the logger `elision.context`, for people (key=value) or programs (JSON)."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

from elision.errors import SettingError
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import MAX_SESSIONS, PassCollector, list_reporting_guards
from elision.trajectory.redact import DEFAULT, Redaction

LogForm: TypeAlias = Literal["text", "json"]
LOGGER: Final = "elision.context"
#: Handles and faults that a line names; the rest is counted.
MAX_NAMED: Final = 5
#: Texts of lines that are not redacted again.
REMEMBERED_TEXTS: Final = 128
_PLAIN_WORD: Final = re.compile(r"[\w.:/@+*-]+", re.ASCII)

#: Made once: `json.dumps` makes one a line.
_JSON_LINES: Final = json.JSONEncoder(default=str)


class PassLog(PassCollector):
    """Writes each pass: WARNING if something failed or a guard begins to speak, INFO if it hid something, else DEBUG.

    form: "text" or "json". redaction: of secrets in names and messages. The record also has the facts, as
    `record.elision`. Where lines go, and from which level on, is the application's to say: logging is set up there.
    """

    def __init__(self, form: LogForm = "text", *, redaction: Redaction = DEFAULT) -> None:
        super().__init__()
        if form not in ("text", "json"):
            raise SettingError(f"log form {form!r}: give text or json")
        self._form: LogForm = form
        #: Names and reasons are the same at most calls.
        self._redact_text = lru_cache(REMEMBERED_TEXTS)(lambda name, text: redaction.redact_tree({name: text})[name])
        self._log = logging.getLogger(LOGGER)
        self._reported_guards: set[tuple[str, str]] = set()

    def report_pass(self, diagnostics: Diagnostics) -> None:
        level = self._choose_level(diagnostics)
        if self._log.isEnabledFor(level):
            found = {
                name: self._redact_text(name, value) if isinstance(value, str) else value
                for name, value in collect_facts(diagnostics).items()
            }
            self._log.log(level, "%s", format_line(found, self._form), extra={"elision": found})

    def _choose_level(self, diagnostics: Diagnostics) -> int:
        """Return the level of a pass. A guard reports the same at each later call, so only its first report is loud."""
        guards = {(diagnostics.session, guard) for guard in list_reporting_guards(diagnostics)}
        new = guards - self._reported_guards
        if len(self._reported_guards) > MAX_SESSIONS:
            self._reported_guards.clear()
        self._reported_guards |= new
        if diagnostics.faults or new:
            return logging.WARNING
        if diagnostics.acted:
            return logging.INFO
        return logging.DEBUG


def collect_facts(diagnostics: Diagnostics) -> dict[str, Any]:
    """Return what a line says, in its order, without what is empty. Tokens, USD, milliseconds."""
    made = diagnostics.summarized
    found = {
        "event": "pass",
        "session": diagnostics.session,
        "branch": diagnostics.branch if diagnostics.branch != diagnostics.session else "",
        "model": diagnostics.model,
        "call": diagnostics.call,
        "turns": diagnostics.turns,
        "phase": diagnostics.phase if diagnostics.call else "",
        "tokens_in": diagnostics.raw,
        "tokens_out": diagnostics.after,
        "delta": diagnostics.after - diagnostics.raw,
        "freed": diagnostics.before - diagnostics.after,
        "reason": diagnostics.reason,
        "epoch": diagnostics.epoch,
        "masked": len(diagnostics.masked),
        "clipped": len(diagnostics.clipped),
        "folded": len(diagnostics.folded),
        "unfolded": len(diagnostics.unfolded),
        "hidden": _join_names([each.handle for each in (*diagnostics.masked, *diagnostics.clipped)]),
        "summary": f"t{made.first}-t{made.last} {made.tokens}->{made.left} {made.route}" if made else "",
        "history": diagnostics.history if diagnostics.history != "continue" else "",
        "cost_usd": round(diagnostics.costs.ours, 6),
        "hiding_saved_usd": round(diagnostics.costs.hiding, 6),
        "caching_saved_usd": round(diagnostics.costs.caching, 6),
        "stop": str(diagnostics.stop or ""),
        "hint": str(diagnostics.hint or ""),
        "faults": _join_names([f"{fault.kind}/{fault.cause}: {fault.what}" for fault in diagnostics.faults]),
        "estimated": diagnostics.estimated,
        "ms": round(diagnostics.seconds * 1e3, 3),
        "summarizer_ms": round(diagnostics.summarizer_seconds * 1e3, 3),
    }
    always = ("tokens_in", "tokens_out", "delta", "cost_usd", "hiding_saved_usd", "ms")
    return {name: value for name, value in found.items() if value or name in always}


def _join_names(names: list[str]) -> str:
    if len(names) > MAX_NAMED:
        more = f" and {len(names) - MAX_NAMED} more"
    else:
        more = ""
    return "; ".join(names[:MAX_NAMED]) + more


def format_line(facts: Mapping[str, Any], form: LogForm) -> str:
    """Format facts as one line of ASCII: JSON, or key=value."""
    if form == "json":
        return _JSON_LINES.encode(facts)
    return " ".join(f"{name}={_format_value(value)}" for name, value in facts.items())


def _format_value(value: object) -> str:
    """Format a value so that it stays on one line: quoted as JSON, unless it is one plain word."""
    if isinstance(value, float):
        text = f"{value:.6f}".rstrip("0").rstrip(".")
    else:
        text = str(value)
    # ASCII: U+2028 and the like end a line for many readers.
    if _PLAIN_WORD.fullmatch(text):
        return text
    return json.dumps(text)
