"""Recorded requests against the rules: what was accepted breaks none, what was refused for its structure breaks one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from elision.providers.request_rules import list_violations
from elision.providers.shared.violation import Violation
from tests.recorded.cassettes import Api, Exchange

#: What a refusal is about. structure: what stands where in the request, which rules are about. model: a model that does
#: not exist or lacks something. setting: the value of a field beside the messages. reference: what a URL or an id
#: leads to, which is not in the request.
Cause: TypeAlias = Literal["structure", "model", "setting", "reference"]

#: Endpoints that read a request as an answer's endpoint does.
_ALSO: Final[Mapping[str, Api]] = {
    "/v1/messages/count_tokens": "anthropic",
    "/v1/responses/input_tokens": "openai-responses",
    "/v1/responses/compact": "openai-responses",
}
_CAUSES: Final[tuple[tuple[re.Pattern[str], Cause], ...]] = (
    (re.compile(r"does not exist|^model: |with this model"), "model"),
    (re.compile(r"(above|below) (minimum|maximum) value|Unsupported (parameter|value)"), "setting"),
    (re.compile(r"The file type you uploaded|not found"), "reference"),
)


def find_api(exchange: Exchange) -> Api | None:
    """Return whose rules a request is under; None where it has no messages."""
    return exchange.api or (_ALSO.get(exchange.path) if exchange.provider and exchange.method == "POST" else None)


def find_violations(exchange: Exchange) -> list[Violation]:
    """Return what the rules hold against a request."""
    api = find_api(exchange)
    assert api is not None
    return list_violations(api, exchange.request_json())


def find_cause(exchange: Exchange) -> Cause:
    """Return what a refusal is about, by the provider's words; of a new kind it is taken to be the structure."""
    said = read_error(exchange)
    return next((cause for words, cause in _CAUSES if words.search(said)), "structure")


def read_error(exchange: Exchange) -> str:
    """Return the message of a refusal."""
    error: dict[str, Any] = exchange.response_json()["error"]
    return str(error["message"])


def check_rules(exchange: Exchange) -> Iterator[str]:
    """Say where the rules and the provider disagree about a request: false alarms, and reasons that were missed."""
    found = find_violations(exchange)
    about_structure = exchange.status == 400 and find_cause(exchange) == "structure"
    if found and not about_structure:
        yield from (f"false: {each}" for each in found)
    if about_structure and not found:
        yield f"missed: {read_error(exchange)}"
