"""What a model does not take, learned from the first request it turns down."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elision.summarizers.model_endpoint import EndpointFault
from elision.summarizers.transport import Transport


class ModelQuirks:
    """A model's limits as far as they are known.

    temperature: whether it may be set; reasoning models reject it.
    limit:       the field that limits the answer, where there are two names for it.
    """

    def __init__(self, *, takes_temperature: bool = True, limit_field: str = "max_tokens") -> None:
        self.takes_temperature = takes_temperature
        self.limit_field = limit_field

    def build_fields(self, max_tokens: int) -> dict[str, Any]:
        """The fields of a request that depend on it."""
        return {self.limit_field: max_tokens, **({"temperature": 0} if self.takes_temperature else {})}

    def learn_from(self, fault: EndpointFault) -> bool:
        """Whether `fault` says what to do otherwise, so that asking again makes sense."""
        if fault.cause != "rejected":
            return False
        if self.takes_temperature and "temperature" in fault.reason:
            self.takes_temperature = False
            return True
        if self.limit_field == "max_tokens":
            other = "max_completion_tokens"
        else:
            other = "max_tokens"
        if (
            "max_completion_tokens" in fault.reason
            and self.limit_field != other
            and self.limit_field != "max_output_tokens"
        ):
            self.limit_field = other
            return True
        return False


def post_until_accepted(
    transport: Transport, quirks: ModelQuirks, build_body: Callable[[], Mapping[str, Any]], seconds: float
) -> Mapping[str, Any] | EndpointFault:
    """The reply to `body`, made again where the model's refusal of a field taught something."""
    reply = transport.post_json(build_body(), seconds)
    while isinstance(reply, EndpointFault) and quirks.learn_from(reply):
        reply = transport.post_json(build_body(), seconds)
    return reply
