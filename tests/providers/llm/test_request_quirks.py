"""What a model does not accept is learned from its refusals, in a limited number of requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from elision.providers.llm.answers import EndpointFault, parse_refusal
from elision.providers.llm.client import ModelQuirks, post_until_accepted
from elision.providers.llm.transport import Transport

NO_MAX_TOKENS = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
NO_COMPLETION_TOKENS = "Unsupported parameter: 'max_completion_tokens'."
TOO_LARGE = "max_completion_tokens is too large: 513250. This model supports at most 16384 completion tokens"


class Refusing(Transport):
    """A server that refuses each field with its message."""

    def __init__(self, messages: Mapping[str, str]) -> None:
        super().__init__("http://127.0.0.1:9/v1", {})
        self.messages = messages
        self.bodies: list[Mapping[str, Any]] = []

    def post_json(self, body: Mapping[str, Any], seconds: float) -> Mapping[str, Any] | EndpointFault:
        self.bodies.append(body)
        assert len(self.bodies) < 10, "requests without end"
        for field, message in self.messages.items():
            if field in body:
                return parse_refusal(400, message, {})
        return {}


@pytest.mark.parametrize("refusal", [TOO_LARGE, NO_COMPLETION_TOKENS])
@pytest.mark.parametrize("limit_field", ["max_tokens", "max_completion_tokens"])
def test_a_server_that_refuses_both_limits_is_not_asked_without_end(limit_field: str, refusal: str) -> None:
    """Each name of the limit is tried at most once; then the refusal is returned."""
    server = Refusing({"max_tokens": NO_MAX_TOKENS, "max_completion_tokens": refusal})
    quirks = ModelQuirks(takes_temperature=False, limit_field=limit_field)
    reply = post_until_accepted(server, quirks, lambda: quirks.build_fields(513_250), 1.0)
    assert isinstance(reply, EndpointFault)
    fields = [field for body in server.bodies for field in body]
    assert len(fields) == len(set(fields))


def test_what_another_thread_learned_meanwhile_is_used() -> None:
    """Two requests were on their way with the old name: the second refusal does not bring it back."""
    server = Refusing({"max_tokens": NO_MAX_TOKENS})
    quirks = ModelQuirks(takes_temperature=False)

    def build_fields() -> Mapping[str, Any]:
        fields = quirks.build_fields(900)
        if not server.bodies:
            quirks.learn_from(parse_refusal(400, NO_MAX_TOKENS, {}))
        return fields

    assert post_until_accepted(server, quirks, build_fields, 1.0) == {}
    assert [list(body) for body in server.bodies] == [["max_tokens"], ["max_completion_tokens"]]


def test_a_limit_that_is_too_large_is_no_reason_to_rename_it() -> None:
    """The fault names the largest answer, which the caller asks for next under the same name."""
    quirks = ModelQuirks(limit_field="max_completion_tokens")
    fault = parse_refusal(400, TOO_LARGE, {})
    quirks.learn_from(fault)
    assert (quirks.limit_field, fault.max_output_tokens) == ("max_completion_tokens", 16_384)
