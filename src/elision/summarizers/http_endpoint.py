"""What HTTP endpoints share: one request, one answer, quirks of the model that are learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from elision.summarizers.model_endpoint import EndpointAnswer, EndpointFault, EndpointRequest
from elision.summarizers.request_quirks import ModelQuirks, post_until_accepted
from elision.summarizers.transport import Transport
from elision.trajectory.plan import LivePrefix


class HttpEndpoint(ABC):
    """A model that `transport` reaches.

    dialect: of the live prefixes that it may extend. extra: further fields of each request.
    """

    dialect: ClassVar[str]

    def __init__(self, model: str, transport: Transport, quirks: ModelQuirks, extra: Mapping[str, Any] | None) -> None:
        self.model = model
        self._transport = transport
        self._quirks = quirks
        self._extra = dict(extra or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, {self._transport!r})"

    def can_extend(self, live: LivePrefix) -> bool:
        return live.dialect == self.dialect and live.model == self.model

    def ask(self, request: EndpointRequest) -> EndpointAnswer | EndpointFault:
        reply = post_until_accepted(self._transport, self._quirks, lambda: self._build_body(request), request.seconds)
        if isinstance(reply, EndpointFault):
            return reply
        return self._parse_reply(reply)

    @abstractmethod
    def _build_body(self, request: EndpointRequest) -> dict[str, Any]:
        """Return the request's body, by the quirks learned so far."""

    @abstractmethod
    def _parse_reply(self, reply: Mapping[str, Any]) -> EndpointAnswer | EndpointFault:
        """Return the provider's JSON as an answer."""


def make_bearer_header(key: str) -> dict[str, str]:
    """Return the header of a key; none for "" (local servers)."""
    if key:
        return {"authorization": f"Bearer {key}"}
    return {}
