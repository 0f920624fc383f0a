"""Read and relay a provider's refusal: a response with an error's status."""

from __future__ import annotations

import logging
import re
from typing import Final
from urllib.parse import quote

from elision.gateway.identity import list_credentials
from elision.gateway.reply_writer import ReplyWriter
from elision.gateway.response_observer import ResponseFacts, ResponseObserver
from elision.gateway.session_request import SessionRequest
from elision.gateway.upstream import UpstreamResponse
from elision.gateway.wire import ClientRequest

#: What stands between quotes is a name (`'tool_use'`) where it has no space and is no longer than this.
MAX_NAME_CHARS: Final = 60
#: Not the apostrophe within a word.
_QUOTED: Final = re.compile(r"(?<!\w)(['\"`])(.*?)\1(?!\w)", re.DOTALL)
#: Shorter values may be part of any word.
_MIN_CREDENTIAL_CHARS: Final = 4


def sanitize_error(error: str, request: ClientRequest) -> str:
    """Return `error` without the request's credentials and without words quoted of it."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
    for value in list_credentials(headers, request.query):
        # "Bearer sk-…": the key alone may be quoted; and what is quoted of the query may be as it was sent.
        for part in (value, *value.split(), quote(value, safe="", errors="surrogateescape")):
            if len(part) >= _MIN_CREDENTIAL_CHARS:
                error = error.replace(part, "[credential]")
    return _QUOTED.sub(_shorten_quote, error)


def _shorten_quote(found: re.Match[str]) -> str:
    quote, words = found.groups()
    if len(words) > MAX_NAME_CHARS or any(map(str.isspace, words)):
        return f"{quote}…{quote}"
    return found[0]


_log: Final = logging.getLogger("elision.gateway")

#: Bytes of an error's body that are read before its handling is decided.
MAX_ERROR_BYTES: Final = 1_000_000


async def read_refusal(sent: SessionRequest, response: UpstreamResponse) -> tuple[ResponseFacts, bytes]:
    """Return what a refusal says, and what was read of its body. Raises UpstreamError."""
    body_start = await _read_at_most(response, MAX_ERROR_BYTES)
    observer = ResponseObserver.for_response(sent.api, response)
    observer.feed(body_start)
    return await observer.finish_async(), body_start


async def relay_refusal(
    sent: SessionRequest, writer: ReplyWriter, response: UpstreamResponse, read_before: bytes = b""
) -> None:
    """Relay a refusal unchanged; as an event where the reply has begun. read_before: what was read of its body.

    Raises UpstreamError.
    """
    record = sent.record
    cause = f"upstream-{response.status}"
    if writer.is_started:
        facts, _ = await read_refusal(sent, response)
        message = facts.error or f"the provider answered {response.status}"
        record.cause = cause
        record.why = sanitize_error(message, sent.client)
        await writer.end_cut_reply(message)
        return
    facts = await writer.relay_response(response, ResponseObserver.for_response(sent.api, response), read_before)
    record.cause = record.cause or cause
    record.why = sanitize_error(facts.error, sent.client)


def bypass_session(sent: SessionRequest, facts: ResponseFacts) -> None:
    """Let the session's next requests pass: the provider refused an edited one, and took the client's own.

    Providers advise against hiding their error about thinking. It is in the log, and in the client's response where the
    client's own request is refused as well.
    """
    sent.session.begin_bypass()
    sent.record.how = "failed"
    sent.record.cause = "unbound" if facts.unbound_thinking else "rejected"
    _log.error(
        "session %s: the provider refused the edited request and accepted the original; the next %d "
        "requests are sent unchanged: %s",
        sent.record.session,
        sent.session.requests_to_bypass,
        sanitize_error(facts.error, sent.client),
    )


async def _read_at_most(response: UpstreamResponse, limit: int) -> bytes:
    """Read the body, up to the chunk that reaches beyond `limit` bytes."""
    read = bytearray()
    async for chunk in response.iter_chunks():
        read += chunk
        if len(read) > limit:
            break
    return bytes(read)
