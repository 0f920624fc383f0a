"""The path of one request. Read this first.

    request -> route -> body -> who asks -> session -> `RequestHandler` -> client

What is not ours to decide on (another path, the off switch, a body that cannot be taken apart) is passed through as it
came, and so is everything in which something of ours fails before the provider was asked (I9). What a model is asked
counts towards its key's limits all the same, unless it is switched off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from elision.dialects.live.detect import LIVE_DIALECTS
from elision.errors import LimitError
from elision.gateway import json_spans
from elision.gateway.body_decompression import decompress_body
from elision.gateway.budgets import Budgets
from elision.gateway.error_responses import make_error_response
from elision.gateway.forwarding import forward_unmodified
from elision.gateway.identity import ClientIdentity, derive_namespace, identify_client
from elision.gateway.limits import RequestRefused
from elision.gateway.live_sessions import LiveSession, SessionRegistry
from elision.gateway.request_body import RequestBody, UnreadableBody
from elision.gateway.request_handler import READ_FIELDS, RequestHandler
from elision.gateway.request_record import RequestListener, RequestRecord
from elision.gateway.routes import Route, build_url, find_route
from elision.gateway.settings import GatewaySettings
from elision.gateway.transcript import ClientTranscript, IncomingMessages
from elision.gateway.upstream import Upstream
from elision.gateway.wire import ClientReply, ClientRequest, Headers
from elision.manager.context_view import SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor

_log: Final = logging.getLogger("elision.gateway")

#: The client's own switch for one request.
OFF_HEADER: Final = b"x-elision"
#: Fields that name a history which the provider holds: what is not in the request cannot be hidden from it. Responses
#: have the first two, Anthropic's threads the third (`{"type": "create"}`, then only what is new).
_STATEFUL_FIELDS: Final = ("previous_response_id", "conversation", "thread")
#: The client fetches the answer later, by requests that pass through: a recall in it would be answered by nobody.
_BACKGROUND_FIELD: Final = "background"


#: How often a compressed request's size it mostly is when decompressed.
_DECOMPRESSION_FACTOR: Final = 8


@dataclass(frozen=True, slots=True)
class _ModelRequest:
    """A request to a model that was taken apart. previous: the session behind whose newest request it was read.
    messages: its messages, where they were read with it."""

    route: Route
    body: RequestBody
    identity: ClientIdentity
    previous: LiveSession | None = None
    messages: IncomingMessages | None = None


class _WrappedReply:
    """The way back to a client."""

    def __init__(self, reply: ClientReply) -> None:
        self._reply = reply

    @property
    def is_started(self) -> bool:
        return self._reply.is_started

    @property
    def can_send_event(self) -> bool:
        return self._reply.can_send_event

    async def start(self, status: int, headers: Headers) -> None:
        await self._reply.start(status, headers)

    async def send(self, chunk: bytes) -> None:
        await self._reply.send(chunk)

    async def finish(self) -> None:
        await self._reply.finish()


class _NotifyingReply(_WrappedReply):
    """The same, where somebody is told when the answer has come to its end."""

    def __init__(self, reply: ClientReply, on_finish: Callable[[], None]) -> None:
        super().__init__(reply)
        self._on_finish = on_finish
        self.has_finished = False

    async def finish(self) -> None:
        if not self.has_finished:
            self.has_finished = True
            self._on_finish()
        await super().finish()


class _HintingReply(_WrappedReply):
    """The same, where the answer's headers name a limit that was reached."""

    def __init__(self, reply: ClientReply, hint: str) -> None:
        super().__init__(reply)
        self._hint = (b"x-elision-stop", hint.encode("ascii", "backslashreplace"))

    async def start(self, status: int, headers: Headers) -> None:
        await super().start(status, [*headers, self._hint])


class Proxy:
    """Serves requests. watch: told of each when it is over."""

    def __init__(
        self,
        settings: GatewaySettings,
        secret: bytes,
        sessions: SessionRegistry,
        upstream: Upstream,
        budgets: Budgets,
        listener: RequestListener,
    ) -> None:
        self.settings = settings
        self._secret = secret
        self.sessions = sessions
        self.upstream = upstream
        self.budgets = budgets
        self._listener = listener

    async def serve(self, request: ClientRequest, reply: ClientReply) -> None:
        """Answer `request`. Raises CancelledError where the client is gone, and Refused or Gone where its body is not
        what it should be."""
        served = RequestRecord(path=request.raw_path.decode("latin-1"), bytes_in=len(request.body))
        try:
            await self._serve_route(request, reply, served)
        except asyncio.CancelledError:
            if not served.total_seconds:
                if request.disconnected.is_set():
                    served.cause = "client-gone"
                else:
                    served.cause = "stopping"
            self._report_record(served, request)
            raise
        # Other errors are told of by whoever catches them.
        self._report_record(served, request)

    def _report_record(self, served: RequestRecord, request: ClientRequest) -> None:
        served.total_seconds = served.total_seconds or time.perf_counter() - request.received_at
        self._listener(served)

    async def _serve_route(self, request: ClientRequest, reply: ClientReply, served: RequestRecord) -> None:
        headers = _index_headers(request.headers)
        found = find_route(request.method, request.raw_path, request.query, headers)
        if found is None:
            await self._refuse(reply, served, None, 404, "there is nothing at this path; OpenAI clients use /v1")
            return
        served.api = found.api
        if found.upstream == "openai":
            base = self.settings.upstream_openai
        else:
            base = self.settings.upstream_anthropic
        if base is None:
            why = f"no provider is configured for this path; start it with --upstream-{found.upstream}"
            await self._refuse(reply, served, found, 404, why)
            return
        url = build_url(base, found)
        asked = await self._parse_request(found, request, headers, served)
        if asked is not None:
            live = self._claim_session(asked, served)
        else:
            live = None
        if asked is not None and live is not None and not self._takes_bypass(live):
            await self._serve_session(asked, live, request, reply, url, served)
            return
        try:
            asks = found.kind == "complete" and not self._is_off(request)
            if asks:
                hint = await self._find_passed_limit(derive_namespace(headers, self._secret), live, served)
            else:
                hint = ""
        except LimitError as error:
            if request.rest is not None:
                # What of it is not read must be, or its client never reads why it was refused.
                raise RequestRefused(429, "limit", str(error)) from None
            await self._refuse_at_limit(reply, served, found, error)
            return
        await forward_unmodified(
            self.upstream, request, _HintingReply(reply, hint) if hint else reply, url, found.api, served
        )

    async def _serve_session(
        self,
        asked: _ModelRequest,
        live: LiveSession,
        request: ClientRequest,
        reply: ClientReply,
        url: str,
        served: RequestRecord,
    ) -> None:
        complete, out = False, _NotifyingReply(reply, lambda: self.sessions.mark_answered(live))
        # Its next request may be taken while this one waits.
        entries = tuple(live.transcript.entries)
        try:
            hint = await self._find_key_limit(asked.identity.namespace, served)
            assert asked.route.api is not None
            if self.settings.shadow:
                served.how = "shadow"
            else:
                served.how = "same"
            complete = await RequestHandler(
                upstream=self.upstream,
                session=live,
                api=asked.route.api,
                url=url,
                body=asked.body,
                entries=entries,
                request=request,
                reply=out,
                record=served,
                hint=hint,
                limit=self.budgets.session_check,
                shared=self.settings.shared,
            ).handle()
        except LimitError as error:
            await self._refuse_at_limit(reply, served, asked.route, error)
        finally:
            self.sessions.release_session(live, answered=complete, already_marked=out.has_finished)

    async def _find_passed_limit(self, whose: str, live: LiveSession | None, served: RequestRecord) -> str:
        """The limit that what is passed on has reached; "" for none. Raises LimitError where it goes no further.

        live: whose it is where a session is left alone. What it cost is known as of its newest pass.
        """
        limit = self.budgets.session_check
        told = live.newest_diagnostics if live is not None else None
        said = ""
        if live is not None and told is not None and limit is not None:
            entries = live.transcript.entries
            # An answer that only begins is no turn.
            turns = live.transcript.count_answers_from(0) - bool(entries and entries[-1].is_from_assistant)
            said = limit(SessionStatus(turns=turns, costs=told.costs))
        of_key = await self._find_key_limit(whose, served, logged=False)
        return said or of_key

    async def _find_key_limit(self, whose: str, served: RequestRecord, *, logged: bool = True) -> str:
        """The limit that its key has reached; "" for none. Raises LimitError where it goes no further."""
        try:
            return await self.budgets.check_key(whose, is_logged=logged)
        except LimitError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("what its key has spent", error, served)
            return ""

    async def _parse_request(
        self, found: Route, request: ClientRequest, headers: Mapping[str, str], served: RequestRecord
    ) -> _ModelRequest | None:
        """The request taken apart; None where it is not ours to decide on."""
        if found.api is None or found.kind != "complete" or request.rest is not None or self._is_off(request):
            return None
        try:
            raw = request.body
            coding = headers.get("content-encoding", "")
            if coding:
                most = self.settings.max_read_bytes
                # Several times as large when it is decompressed.
                raw = await run_off_loop(
                    partial(decompress_body, raw, coding, most), choose_executor(_DECOMPRESSION_FACTOR * len(raw))
                )
            live = self.sessions.find_continued(derive_namespace(headers, self._secret), found.api, raw)
            body = RequestBody.parse_if_small(
                raw, found.api, live.newest_body if live is not None else None, max_new_bytes=INLINE_BYTES
            )
            if body is not None:
                asked = _build_model_request(found, headers, body, self._secret)
            else:
                if live is not None:
                    before, known = (live.newest_body, live.transcript.copy())
                else:
                    before, known = (None, None)
                read = partial(_parse_large_request, found, headers, raw, self._secret, before, known)
                asked = await run_off_loop(read, choose_executor(len(raw)))
            return asked and replace(asked, previous=live)
        except UnreadableBody as error:
            served.cause = "unreadable"
            served.why = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("reading a request", error, served)
        return None

    def _is_off(self, request: ClientRequest) -> bool:
        return self.settings.off or (request.header(OFF_HEADER) or b"").strip().lower() == b"off"

    def _claim_session(self, asked: _ModelRequest, served: RequestRecord) -> LiveSession | None:
        assert asked.route.api is not None
        try:
            live = self.sessions.claim_session(
                asked.identity, asked.route.api, asked.body, before=asked.previous, arrived=asked.messages
            )
        except UnreadableBody as error:
            served.cause = "unreadable"
            served.why = str(error)
            return None
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("finding its session", error, served)
            return None
        served.session = live.name
        served.model = asked.body.model
        return live

    def _takes_bypass(self, live: LiveSession) -> bool:
        """Whether this request of the session's passes as it came; then nothing waits for its answer."""
        if not live.requests_to_bypass:
            return False
        live.requests_to_bypass -= 1
        self.sessions.release_session(live, answered=True)
        return True

    async def _refuse_at_limit(
        self, reply: ClientReply, served: RequestRecord, found: Route, error: LimitError
    ) -> None:
        served.cause = "limit"
        await self._refuse(reply, served, found, 429, str(error))

    async def _refuse(
        self, reply: ClientReply, served: RequestRecord, found: Route | None, status: int, why: str
    ) -> None:
        served.how = "refused"
        served.status = status
        served.why = why
        status, headers, body = make_error_response(found.api if found else None, status, why)
        await reply.start(status, [(name.encode(), value.encode()) for name, value in headers.items()])
        await reply.send(body)
        await reply.finish()

    def _log_fault(self, what: str, error: Exception, served: RequestRecord) -> None:
        served.how, served.cause, served.why = "failed", "engine", type(error).__name__
        _log.error("%s failed, a request goes on without", what, exc_info=error)


def _build_model_request(
    found: Route, headers: Mapping[str, str], body: RequestBody, secret: bytes
) -> _ModelRequest | None:
    """A request whose body was taken apart; None where it is not ours to decide on. Raises Unreadable."""
    if any(body.get_field(name) for name in (*_STATEFUL_FIELDS, _BACKGROUND_FIELD)) or body.get_field("n") not in (
        None,
        1,
    ):
        return None
    for name in READ_FIELDS:
        # What cannot be decoded is the provider's to refuse.
        body.get_field(name)
    return _ModelRequest(found, body, identify_client(found.api, headers, body, secret))


def _parse_large_request(
    found: Route,
    headers: Mapping[str, str],
    raw: bytes,
    secret: bytes,
    before: RequestBody | None,
    known: ClientTranscript | None,
) -> _ModelRequest | None:
    """The same from its bytes on, with all that costs time for a large one; in any thread. Raises Unreadable.

    before, known: the newest request of the session that it probably goes on from, and what was read of that.
    """
    assert found.api is not None
    if before is None:
        json_spans.check_size(raw)
    else:
        before.check_size(raw)
    body = RequestBody.parse(raw, found.api, previous=before)
    body.locate_messages()
    asked = _build_model_request(found, headers, body, secret)
    if asked is None:
        return None
    arrived = IncomingMessages(LIVE_DIALECTS[found.api], body.messages)
    line = ClientTranscript.for_family(LIVE_DIALECTS[found.api], asked.identity.family)
    arrived.read_all(known if known is not None and known.seed == line.seed else line)
    return replace(asked, messages=arrived)


def _index_headers(fields: Headers) -> dict[str, str]:
    """Header fields as a mapping; those that came several times are one list, as HTTP means it."""
    found: dict[str, str] = {}
    for name, value in fields:
        key = name.decode("latin-1")
        text = value.decode("latin-1")
        if key in found:
            found[key] = f"{found[key]}, {text}"
        else:
            found[key] = text
    return found
