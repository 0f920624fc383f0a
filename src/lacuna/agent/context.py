"""What the agent needs of a context manager: `lacuna.ContextManager` has it, and a test may bring its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from lacuna.agent.model import Json
from lacuna.telemetry.diagnostics import Diagnostics


class View(Protocol):
    """The context of one call, as `lacuna.ContextManager` prepares it."""

    messages: list[Any]
    system: Any
    tools: Any
    extra: Any
    betas: Any
    diagnostics: Diagnostics


class Context(Protocol):
    """What the agent needs of a `lacuna.ContextManager`."""

    def prepare(self, messages: Sequence[Json], *, system: Any = None, tools: Any = None) -> View: ...

    def record(self, usage: Any) -> None: ...

    def handle_tool_call(self, name: str, arguments: Any) -> str | None:
        """The answer of a tool of the context's own; None if `name` is none."""
        ...
