"""What endpoints behind HTTP share: one request, one answer, manners that are learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from elision.summarizers.endpoint import Answer, Fault, Question
from elision.summarizers.manners import Manners, asked
from elision.summarizers.transport import Transport
from elision.trajectory.plan import LivePrefix


class Served(ABC):
    """A model behind `transport`.

    dialect: whose live prefix it may extend. extra: further fields of each request.
    """

    dialect: ClassVar[str]

    def __init__(self, model: str, transport: Transport, manners: Manners, extra: Mapping[str, Any] | None) -> None:
        self.model = model
        self._transport = transport
        self._manners = manners
        self._extra = dict(extra or {})

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, {self._transport!r})"

    def extends(self, live: LivePrefix) -> bool:
        return live.dialect == self.dialect and live.model == self.model

    def ask(self, question: Question) -> Answer | Fault:
        reply = asked(self._transport, self._manners, lambda: self._body(question), question.seconds)
        if isinstance(reply, Fault):
            return reply
        return self._answer(reply)

    @abstractmethod
    def _body(self, question: Question) -> dict[str, Any]:
        """The request's body, with the manners as they are known by then."""

    @abstractmethod
    def _answer(self, reply: Mapping[str, Any]) -> Answer | Fault:
        """What the provider's JSON says."""


def bearer(key: str) -> dict[str, str]:
    """The header of a key; none for "" (local servers)."""
    if key:
        return {"authorization": f"Bearer {key}"}
    return {}
