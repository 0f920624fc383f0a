"""The result of preparing a call: the request's parts in the provider's own shape, and what was done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from elision.manager.prompt_text import PromptSource, render_messages, render_prompt
from elision.manager.think_time import Deferred
from elision.providers.provider_table import find_provider
from elision.telemetry.diagnostics import Costs, Diagnostics


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStatus:
    """A session before its next call, as its log has it.

    turns: so far. costs: in USD. due_usd: each call as it was reported, else what its prompt costs; 0 where that
    is not known.
    """

    turns: int
    costs: Costs
    due_usd: float = 0.0


#: Asked before a call is decided on; raises LimitError where it is not to be made.
AdmissionCheck: TypeAlias = Callable[[SessionStatus], None]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ContextView:
    """The context of the next call.

    messages: for `messages` (Responses: `input`). What was not touched is the very object that was given; the others
              are not to be changed.
    origins:  for each of `messages` the index of the given message that it stands for; None for a summary, and for
              turns that were added by hand. A message that joins several stands for the first of them.
    system, tools: as given, or as they must be sent instead.
    extra:    more fields of the request that a provider needs (`context_management`, `thinking`).
    betas:    values for the `anthropic-beta` header.
    deferred: the diagnostics, which are built when they are first read.
    source:   what `text()` renders; None where a failed preparation passed the messages on.
    added_tools: those of `tools` that we put there, behind the client's own: the recall tools. offered: whether we did.
    """

    messages: list[Any]
    dialect: str
    deferred: Deferred[Diagnostics] = field(compare=False)
    origins: list[int | None] = field(default_factory=list)
    system: Any = None
    tools: Any = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    betas: tuple[str, ...] = ()
    added_tools: list[dict[str, Any]] = field(default_factory=list)
    source: PromptSource | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        parts = {"dialect": self.dialect, "diagnostics": self.diagnostics, "extra": self.extra, "betas": self.betas}
        return f"ContextView({', '.join(f'{name}={value!r}' for name, value in parts.items())})"

    @property
    def diagnostics(self) -> Diagnostics:
        """What the call did: tokens, costs, what it hid and why, and what failed."""
        return self.deferred.read()

    def text(self) -> str:
        """Return the context as one text, for an agent that sends a single prompt string instead of messages.

        System prompt and task, then `Turn n:` with `Reasoning:`, `Action:` and `Observation:` a turn, and
        `[Summary through turn n: ...]` in place of what a summary covers. Hidden results are placeholders. Tool
        definitions are left out. Raises DialectError where what was passed on unread are no messages.
        """
        if self.source is not None:
            return render_prompt(self.source, self.dialect)
        return render_messages(self.messages, self.system, self.dialect)

    @property
    def offered(self) -> bool:
        return bool(self.added_tools)

    @property
    def request(self) -> dict[str, Any]:
        """Keyword arguments for the provider's package: the messages under their name, and the other parts given."""
        provider = find_provider(self.dialect)
        given = {provider.system_field or "system": self.system, "tools": self.tools}
        kept = {name: value for name, value in given.items() if value is not None}
        return {provider.list_field: self.messages, **kept, **self.extra}
