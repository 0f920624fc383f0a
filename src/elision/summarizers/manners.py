"""What a model does not take, learned from the first request it turns down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elision.summarizers.endpoint import Fault
from elision.summarizers.transport import Transport


class Manners:
    """A model's limits as far as they are known.

    temperature: whether it may be set; reasoning models reject it.
    limit:       the field that limits the answer, where there are two names for it.
    """

    def __init__(self, *, temperature: bool = True, limit: str = "max_tokens") -> None:
        self.temperature = temperature
        self.limit = limit

    def fields(self, max_tokens: int) -> dict[str, Any]:
        """The fields of a request that depend on it."""
        return {self.limit: max_tokens, **({"temperature": 0} if self.temperature else {})}

    def learn(self, fault: Fault) -> bool:
        """Whether `fault` says what to do otherwise, so that asking again makes sense."""
        if fault.cause != "rejected":
            return False
        if self.temperature and "temperature" in fault.reason:
            self.temperature = False
            return True
        if self.limit == "max_tokens":
            other = "max_completion_tokens"
        else:
            other = "max_tokens"
        if "max_completion_tokens" in fault.reason and self.limit != other and self.limit != "max_output_tokens":
            self.limit = other
            return True
        return False


def asked(
    transport: Transport, manners: Manners, body: Callable[[], Mapping[str, Any]], seconds: float
) -> Mapping[str, Any] | Fault:
    """The reply to `body`, made again where the model's refusal of a field taught something."""
    reply = transport.post(body(), seconds)
    while isinstance(reply, Fault) and manners.learn(reply):
        reply = transport.post(body(), seconds)
    return reply
