"""Errors of our own, in the shape of the provider that the client believes it speaks to.

A client's SDK turns them into the exception that it has for the status, with our words as its message: that they are
the gateway's, what happened, and what to do. They hold nothing of a request. `x-elision-error` tells them from the
provider's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from elision.gateway.routes import Api
from elision.gateway.sse import written

#: Characters of a message; it may quote what a network library or a provider says.
LONGEST: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    """How a status is said.

    kind: in one word, where whoever refuses has none. anthropic: the type of Anthropic's errors; openai: of OpenAI's.
    mend: what to do, where the message has no word of it.
    """

    kind: str
    anthropic: str
    openai: str
    mend: str


# Types: anthropic 2.12 `ErrorType` and the documented "request_too_large"; OpenAI's are strings without a list.
_STATUSES: Final[Mapping[int, _Status]] = {
    400: _Status(
        kind="bad-request",
        anthropic="invalid_request_error",
        openai="invalid_request_error",
        mend="Correct the request; nothing was sent to the provider.",
    ),
    401: _Status(
        kind="unauthorized",
        anthropic="authentication_error",
        openai="invalid_request_error",
        mend="Send the token that the gateway was started with.",
    ),
    403: _Status(
        kind="forbidden",
        anthropic="permission_error",
        openai="invalid_request_error",
        mend="Ask whoever runs the gateway to allow it.",
    ),
    404: _Status(
        kind="not-found",
        anthropic="not_found_error",
        openai="invalid_request_error",
        mend="Check the client's base URL: the gateway serves /v1, /openai/v1 and /anthropic/v1.",
    ),
    408: _Status(
        kind="request-timeout",
        anthropic="timeout_error",
        openai="invalid_request_error",
        mend="Send the request again; its body came too slowly.",
    ),
    413: _Status(
        kind="too-large",
        anthropic="request_too_large",
        openai="invalid_request_error",
        mend="Send a smaller request, or have the gateway's limit raised (max_body_bytes).",
    ),
    429: _Status(
        kind="limit",
        anthropic="rate_limit_error",
        openai="rate_limit_error",
        mend="Have it raised in the gateway's settings; it counts all that is in the log, so waiting does not help.",
    ),
    500: _Status(
        kind="internal",
        anthropic="api_error",
        openai="server_error",
        mend="Send the header `x-elision: off` to pass the gateway by, and report this.",
    ),
    502: _Status(
        kind="upstream",
        anthropic="api_error",
        openai="server_error",
        mend="Try again; if it stays so, `elision serve --check` tries the providers.",
    ),
    503: _Status(
        kind="unavailable",
        anthropic="api_error",
        openai="server_error",
        mend="Try again in a moment.",
    ),
    504: _Status(
        kind="upstream-timeout",
        anthropic="timeout_error",
        openai="server_error",
        mend="Try again; streamed answers need no long time limit.",
    ),
    529: _Status(
        kind="overloaded",
        anthropic="overloaded_error",
        openai="server_error",
        mend="Try again in a moment.",
    ),
}
_ANY_REQUEST: Final = _STATUSES[400]
_ANY_FAILURE: Final = _STATUSES[500]


def refusal(
    api: Api | None, status: int, message: str, kind: str = "", *, mend: str = "", retry_after: float | None = None
) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of an error of ours.

    message: what happened, as half a sentence, without anything of the request. kind: the cause in one word, for
    programs. mend: what to do, as a sentence. retry_after: seconds; a 429 without it is one that waiting does not mend,
    so official clients are told not to try again.
    """
    words = _STATUSES.get(status) or (_ANY_REQUEST if status < 500 else _ANY_FAILURE)
    kind = kind or words.kind
    body = _body(api, words, _sentence(message, mend or words.mend), kind)
    headers = {"content-type": "application/json", "x-elision-error": kind}
    if retry_after is not None:
        headers["retry-after"] = f"{retry_after:g}"
    elif status == 429:
        headers["x-should-retry"] = "false"
    return status, headers, json.dumps(body, ensure_ascii=False).encode()


def stream_error(api: Api | None, message: str, *, sequence: int = 0) -> bytes:
    """An event that says, in the midst of a stream, that it will not be completed; clients raise it.

    sequence: the number of the event, for Responses.
    """
    body = _body(api, _STATUSES[502], _sentence(message, "The answer is not complete: send the request again."), "cut")
    if api == "anthropic":
        return written(json.dumps(body, ensure_ascii=False).encode(), "error")
    if api == "openai-responses":
        # As their types say, and as they are: with an `error` inside, which is what clients look for.
        said = {name: body["error"][name] for name in ("code", "message", "param")}
        event = {"type": "error", **said, "error": body["error"], "sequence_number": sequence}
        return written(json.dumps(event, ensure_ascii=False).encode(), "error")
    return written(json.dumps(body, ensure_ascii=False).encode())


def _body(api: Api | None, words: _Status, sentence: str, kind: str) -> dict[str, Any]:
    if api == "anthropic":
        return {"type": "error", "error": {"type": words.anthropic, "message": sentence}}
    return {"error": {"message": sentence, "type": words.openai, "param": None, "code": f"elision_{kind}"}}


def _sentence(message: str, mend: str) -> str:
    """Printable, and of bounded length: the message may quote others."""
    told = " ".join("".join(each if each.isprintable() else " " for each in message[: 2 * LONGEST]).split())
    if len(told) <= LONGEST:
        told = told
    else:
        told = told[: LONGEST - 3] + "..."
    return f"Elision gateway: {told.rstrip('.') or 'the request was refused'}. {mend}"
