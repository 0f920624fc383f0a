"""What the agent acts on: tools, and the result of an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
