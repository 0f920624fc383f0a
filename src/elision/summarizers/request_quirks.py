"""What a model does not accept, learned from its refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elision.summarizers.model_endpoint import EndpointFault
from elision.summarizers.transport import Transport


class ModelQuirks:
    """Fields that a model accepts, as far as they are known.

    takes_temperature: whether `temperature` may be set; reasoning models reject it.
    limit_field:       the name of the field that limits the answer; servers differ.
    """

    def __init__(self, *, takes_temperature: bool = True, limit_field: str = "max_tokens") -> None:
        self.takes_temperature = takes_temperature
        self.limit_field = limit_field

    def build_fields(self, max_tokens: int) -> dict[str, Any]:
        """Return the fields of a request that depend on the model."""
        fields: dict[str, Any] = {self.limit_field: max_tokens}
        if self.takes_temperature:
            fields["temperature"] = 0
        return fields

    def learn_from(self, fault: EndpointFault) -> bool:
        """Learn from `fault`, and return whether that makes another request worth trying."""
        if fault.cause != "rejected":
            return False
        if self.takes_temperature and "temperature" in fault.reason:
            self.takes_temperature = False
            return True
        if "max_completion_tokens" in fault.reason and self.limit_field != "max_output_tokens":
            if self.limit_field == "max_tokens":
                self.limit_field = "max_completion_tokens"
            else:
                self.limit_field = "max_tokens"
            return True
        return False


def post_until_accepted(
    transport: Transport, quirks: ModelQuirks, build_body: Callable[[], Mapping[str, Any]], seconds: float
) -> Mapping[str, Any] | EndpointFault:
    """Return the reply to the body that `build_body` makes, sent again when a refusal changed `quirks`."""
    reply = transport.post_json(build_body(), seconds)
    while isinstance(reply, EndpointFault) and quirks.learn_from(reply):
        reply = transport.post_json(build_body(), seconds)
    return reply
