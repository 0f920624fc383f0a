"""A model as summaries see it: a request, and an answer or a fault."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from elision.providers.llm.answers import EndpointAnswer, EndpointFault
from elision.trajectory.plan import LivePrefix


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRequest:
    """One request.

    text:       the user message; the last one where `live` comes before it.
    max_tokens: of the answer, reasoning included.
    seconds:    how long it may take.
    temperature: 0 or more; None leaves it to the server.
    """

    text: str
    max_tokens: int
    seconds: float
    live: LivePrefix | None = None
    temperature: float | None = 0


class Endpoint(Protocol):
    """A model. `ask` does not raise for what a server does: it returns an EndpointFault."""

    @property
    def model(self) -> str: ...

    def can_extend(self, live: LivePrefix) -> bool:
        """Return whether a request that extends `live` would read the cache that holds `live`."""
        ...

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault: ...
