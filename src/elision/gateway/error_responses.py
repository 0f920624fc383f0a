"""The gateway's own errors, in the format of the provider that the client addresses.

A client's SDK turns them into the exception for that status, with our message: that it is the gateway's, what happened,
and what to do. They hold nothing of a request. `x-elision-error` distinguishes them from the provider's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from elision.providers.provider import Api, Provider
from elision.providers.provider_table import DEFAULT_PROVIDER, PROVIDERS

#: Characters of a message; it may quote what a network library or a provider says.
MAX_MESSAGE_CHARS: Final = 1_000


class _StatusText(NamedTuple):
    """The texts of a status.

    kind: one word, where the cause has none. remedy: what to do, where the message does not say it.
    """

    kind: str
    remedy: str


_STATUS_TEXTS: Final[Mapping[int, _StatusText]] = {
    400: _StatusText("bad-request", "Correct the request; nothing was sent to the provider."),
    401: _StatusText("unauthorized", "Send the token that the gateway was started with."),
    403: _StatusText("forbidden", "Ask the operator of the gateway to allow it."),
    404: _StatusText("not-found", "Check the client's base URL: the gateway serves /v1, /openai/v1 and /anthropic/v1."),
    408: _StatusText("request-timeout", "Send the request again; its body came too slowly."),
    413: _StatusText("too-large", "Send a smaller request, or have the gateway's limit raised (max_body_bytes)."),
    429: _StatusText(
        "limit", "Raise it in the gateway's settings; it counts everything in the log, so waiting does not help."
    ),
    500: _StatusText("internal", "Send the header `x-elision: off` to bypass the gateway, and report this."),
    502: _StatusText("upstream", "Try again; if it persists, `elision serve --check` tries the providers."),
    503: _StatusText("unavailable", "Try again in a moment."),
    504: _StatusText("upstream-timeout", "Try again; streamed answers need no long time limit."),
    529: _StatusText("overloaded", "Try again in a moment."),
}
_ANY_REQUEST: Final = _STATUS_TEXTS[400]
_ANY_FAILURE: Final = _STATUS_TEXTS[500]


def make_error_response(
    api: Api | None,
    status: int,
    message: str,
    kind: str = "",
    *,
    remedy: str = "",
    retry_after: float | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Return (status, headers, body) of an error of the gateway.

    message: what happened, as half a sentence, without anything of the request. kind: the cause in one word, for
    programs. remedy: what to do, as a sentence. retry_after: seconds; without it a 429 tells official clients not to
    retry, since waiting does not help.
    """
    words = _STATUS_TEXTS.get(status) or (_ANY_REQUEST if status < 500 else _ANY_FAILURE)
    if status == 429 and retry_after is not None:
        remedy = remedy or "Try again after the seconds that `retry-after` names."
    kind = kind or words.kind
    body = _find_provider(api).host.make_error_body(
        status, _make_sentence(message, remedy or words.remedy), f"elision_{kind}"
    )
    headers = {"content-type": "application/json", "x-elision-error": kind}
    if retry_after is not None:
        headers["retry-after"] = f"{retry_after:g}"
    elif status == 429:
        headers["x-should-retry"] = "false"
    return status, headers, json.dumps(body, ensure_ascii=False).encode()


def make_stream_error(api: Api | None, message: str, *, sequence: int = 0) -> bytes:
    """Return an event that ends an incomplete stream; clients raise it. sequence: its number, for Responses."""
    provider = _find_provider(api)
    sentence = _make_sentence(message, "The answer is not complete: send the request again.")
    return provider.make_stream_error(provider.host.make_error_body(502, sentence, "elision_cut"), sequence)


def _find_provider(api: Api | None) -> Provider:
    """Return the provider whose format an error has; the default one's on a path of no API."""
    if api is None:
        return DEFAULT_PROVIDER
    return PROVIDERS[api]


def _make_sentence(message: str, remedy: str) -> str:
    """Return a printable sentence of bounded length: the message may quote others."""
    printable = [character if character.isprintable() else " " for character in message[: 2 * MAX_MESSAGE_CHARS]]
    text = " ".join("".join(printable).split())
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 3] + "..."
    return f"Elision gateway: {text.rstrip('.') or 'the request was refused'}. {remedy}"
