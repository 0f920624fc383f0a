"""What a model does not accept, learned from its refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from elision.providers.llm.answers import EndpointFault
from elision.providers.llm.transport import Transport


class ModelQuirks:
    """Fields that a model accepts, as far as they are known.

    takes_temperature: whether `temperature` may be set; reasoning models reject it.
    limit_field:       the name of the field that limits the answer; servers differ.
    group:             the field that holds both; "" where they are fields of the request itself.
    """

    def __init__(self, *, takes_temperature: bool = True, limit_field: str = "max_tokens", group: str = "") -> None:
        self.takes_temperature = takes_temperature
        self.limit_field = limit_field
        self._group = group
        self._has_switched_limit = False

    def build_fields(self, max_tokens: int, temperature: float | None = 0) -> dict[str, Any]:
        """Return the fields of a request that depend on the model. temperature: None for none."""
        fields: dict[str, Any] = {self.limit_field: max_tokens}
        if self.takes_temperature and temperature is not None:
            fields["temperature"] = temperature
        return {self._group: fields} if self._group else fields

    def learn_from(self, fault: EndpointFault) -> None:
        """Change the fields that `fault`, a refusal, names."""
        if self.takes_temperature and "temperature" in fault.reason:
            self.takes_temperature = False
            return
        if fault.max_output_tokens is not None or self._has_switched_limit or self.limit_field == "max_output_tokens":
            return
        if "max_completion_tokens" in fault.reason:
            # Once: a server that refuses both names would be asked in turn without end.
            self._has_switched_limit = True
            self.limit_field = "max_tokens" if self.limit_field == "max_completion_tokens" else "max_completion_tokens"


def post_until_accepted(
    transport: Transport, quirks: ModelQuirks, build_body: Callable[[], Mapping[str, Any]], seconds: float
) -> Mapping[str, Any] | EndpointFault:
    """Return the reply to the body that `build_body` makes.

    A refused body is sent again if `quirks` changed since: by this refusal, or by that of another thread.
    """
    body = build_body()
    reply = transport.post_json(body, seconds)
    while isinstance(reply, EndpointFault) and reply.cause == "rejected":
        quirks.learn_from(reply)
        changed = build_body()
        if changed == body:
            break
        body = changed
        reply = transport.post_json(body, seconds)
    return reply
