"""A context that hides nothing, for tests of the loop alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from elision.telemetry.diagnostics import Diagnostics


@dataclass
class PassThroughView:
    """One view: everything as it was given."""

    messages: list[Any]
    system: Any
    tools: Any
    diagnostics: Diagnostics
    extra: dict[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()


class PassThroughContext:
    """Passes everything on. stop, hint: what the diagnostics of the third call and later ones say.

    After `overflowed` only the last message is shown."""

    def __init__(self, **diagnostics: Any) -> None:
        self.extra_diagnostics = diagnostics
        self.calls = 0
        self.recorded: list[Any] = []
        self.prepared: list[list[Any]] = []
        self.learned: list[str] = []
        self.kept: list[Any] = []

    def prepare(self, messages: Sequence[Any], *, system: Any = None, tools: Any = None) -> PassThroughView:
        self.calls += 1
        self.prepared.append(list(messages))
        diagnostics = Diagnostics(
            session="s",
            branch="s",
            call=self.calls,
            turns=self.calls - 1,
            before=100,
            after=80,
            raw=100,
            reason="nothing to hide",
            **{name: value for name, value in self.extra_diagnostics.items() if self.calls >= 3},
        )
        shown = list(messages)[-1:] if self.learned else list(messages)
        return PassThroughView(messages=shown, system=system, tools=tools, diagnostics=diagnostics)

    def record(self, usage: Any) -> None:
        self.recorded.append(usage)

    def handle_tool_call(self, name: str, arguments: Any) -> str | None:
        return "as it was" if name == "recall" else None

    def overflowed(self, error: object) -> bool:
        if "too long" in str(error):
            self.learned.append(str(error))
        return "too long" in str(error)

    def tool_definitions(self, dialect: str) -> list[Any]:
        return []

    def keep(self, messages: Sequence[Any], *, system: Any = None, tools: Any = None) -> None:
        self.kept = list(messages)
