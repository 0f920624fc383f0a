"""Recorded requests against the rules: what was accepted breaks none, what was refused for its structure breaks one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from elision.testing.request_rules import Violation, list_violations
from tests.recorded.cassettes import Api, Exchange

#: What a refusal is about. structure: what stands where in the request, which rules are about. model: a model that does
#: not exist or lacks something. setting: the value of a field beside the messages. reference: what a URL or an id
#: leads to, which is not in the request. size: more tokens than the model takes. account: what the key may do.
Cause: TypeAlias = Literal["structure", "model", "setting", "reference", "size", "account"]

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
    (
        re.compile(r"maximum context length|context window|prompt is too long|exceeds the maximum number of tokens"),
        "size",
    ),
    (re.compile(r"credit balance|API key|quota|location is not supported"), "account"),
)
#: Where the words begin with the place of the fault, as Anthropic's do: `temperature: …`, `messages.1.content: …`.
_PLACE: Final = re.compile(r"([a-z_]+)(?:\.[\w.-]+)?: ")
#: The fields that rules are about.
_RULED_FIELDS: Final = frozenset(("messages", "input", "contents", "system", "instructions", "tools"))


def find_api(exchange: Exchange) -> Api | None:
    """Return whose rules a request is under; None where it has no messages."""
    return exchange.api or (_ALSO.get(exchange.path) if exchange.provider and exchange.method == "POST" else None)


def find_violations(exchange: Exchange) -> list[Violation]:
    """Return what the rules hold against a request."""
    api = find_api(exchange)
    assert api is not None
    return list_violations(api, exchange.request_json())


def find_cause(exchange: Exchange) -> Cause:
    """Return what a refusal is about."""
    return read_cause(_read_error(exchange))


def read_cause(error: Mapping[str, Any]) -> Cause:
    """Return what an error is about, by the provider's words, and by the field that it names. Of a new kind that names
    none it is taken to be the structure."""
    said = str(error["message"])
    for words, cause in _CAUSES:
        if words.search(said):
            return cause
    place = _PLACE.match(said)
    named = str(error.get("param") or (place[1] if place else ""))
    field = re.split(r"[.\[]", named)[0]
    return "setting" if field and field not in _RULED_FIELDS else "structure"


def read_error(exchange: Exchange) -> str:
    """Return the message of a refusal."""
    return str(_read_error(exchange)["message"])


def _read_error(exchange: Exchange) -> Mapping[str, Any]:
    error: Mapping[str, Any] = exchange.response_json()["error"]
    return error


def check_rules(exchange: Exchange) -> Iterator[str]:
    """Say where the rules and the provider disagree about a request: false alarms, and reasons that were missed."""
    found = find_violations(exchange)
    about_structure = exchange.status == 400 and find_cause(exchange) == "structure"
    if found and not about_structure:
        yield from (f"false: {each}" for each in found)
    if about_structure and not found:
        yield f"missed: {read_error(exchange)}"
