"""What the agent needs of a context manager: `elision.ContextManager` has it, and a test may bring its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from elision.agent.model import Json
from elision.telemetry.diagnostics import Costs, Diagnostics


class PreparedContext(Protocol):
    """The context of one call."""

    @property
    def messages(self) -> list[Any]: ...

    @property
    def system(self) -> Any: ...

    @property
    def tools(self) -> Any: ...

    @property
    def extra(self) -> Mapping[str, Any]: ...

    @property
    def betas(self) -> tuple[str, ...]: ...

    @property
    def diagnostics(self) -> Diagnostics: ...


class Context(Protocol):
    """Prepares every call, and answers its own tools."""

    def prepare(self, messages: Sequence[Json], *, system: Any = None, tools: Any = None) -> PreparedContext: ...

    def record(self, usage: Any) -> None:
        """Record what the provider reported for the call prepared last."""
        ...

    def overflowed(self, error: object) -> bool:
        """Return whether `error` says that the prompt was too long. Preparing it again then makes it shorter."""
        ...

    def tool_definitions(self, dialect: str) -> Sequence[Json]: ...

    def handle_tool_call(self, name: str, arguments: str) -> str | None:
        """Return the answer of a tool of the context's own; None for any other tool."""
        ...


@runtime_checkable
class ConversationKeeper(Protocol):
    """A context with a store, which keeps a conversation after its last call, and returns what it cost."""

    def keep(self, messages: Sequence[Json], *, system: Any = None, tools: Any = None) -> Costs: ...
