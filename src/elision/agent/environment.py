"""What the agent acts on, tools and the results of actions, and what it needs of a context manager.

`elision.ContextManager` is such a context, and a test may bring its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from elision.agent.model import Json
from elision.telemetry.diagnostics import Costs, Diagnostics
from elision.trajectory.turn import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool in no provider's words. parameters: a JSON schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """The result of an action.

    text:      what the model is shown.
    exit_code: of a command; None where there is none. error: whether it failed.
    done:      the task is finished, and `text` is what there is to show for it.
    """

    text: str
    exit_code: int | None = None
    error: bool = False
    done: bool = False


class Environment(Protocol):
    """Anything an agent can act on. `execute` returns a mistake of the model as a result, so that the model sees it."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    def execute(self, action: Action) -> ActionResult: ...


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
