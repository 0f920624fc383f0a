"""The path of one request. Read this first.

    request -> route -> body -> client -> session -> `RequestHandler` -> client

Some requests pass unchanged: another path, the off switch, a body that cannot be parsed, and everything in which
something of ours fails before the provider was asked (I9). A request to a model counts towards its key's limits all
the same, unless it is switched off.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from elision.errors import LimitError
from elision.gateway.body_reader import BodyDecompressor
from elision.gateway.budgets import Budgets
from elision.gateway.call_recorder import SessionRequest
from elision.gateway.identity import ClientIdentity, derive_namespace, find_role, identify_client
from elision.gateway.incoming_messages import IncomingMessages
from elision.gateway.json_bytes import check_size
from elision.gateway.limits import RequestRefused
from elision.gateway.live_sessions import LiveSession, SessionRegistry
from elision.gateway.reply_writer import ReplyWriter
from elision.gateway.request_body import PreviousBody, RequestBody, UnreadableBody, remove_body_tags
from elision.gateway.request_handler import READ_FIELDS, RequestHandler
from elision.gateway.request_record import RequestListener, RequestRecord
from elision.gateway.response_observer import ResponseObserver
from elision.gateway.routes import Route, build_url, find_route
from elision.gateway.settings import GatewaySettings
from elision.gateway.upstream import Upstream, UpstreamError
from elision.gateway.wire import BODY_FIELDS, ClientReply, ClientRequest, Headers, filter_request_fields
from elision.manager.context_view import SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.think_time import INLINE_BYTES, choose_executor
from elision.providers.live.conversation import Conversation
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS

_log: Final = logging.getLogger("elision.gateway")

#: The client's own switch for one request.
OFF_HEADER: Final = b"x-elision"
#: Fields that name a history which the provider holds: what is not in the request cannot be hidden from it. Responses
#: have the first two, Anthropic's threads the third (`{"type": "create"}`, then only what is new).
_STATEFUL_FIELDS: Final = ("previous_response_id", "conversation", "thread")
#: How a client of each is told to send its whole history.
_WHOLE_HISTORY: Final = {"thread": "with thread=False the client sends its whole history"}
#: The client fetches the answer later, by requests that pass through: a recall in it would be answered by nobody.
_BACKGROUND_FIELD: Final = "background"
#: What a compressed request mostly becomes at most: times its size, and in bytes. So much is made in a
#: first step. For more, there must be room for the largest body that is read: an attack ends before it costs much.
_USUAL_GROWTH: Final = 32
_USUAL_BYTES: Final = 16 * 1024 * 1024
#: Memory that a decompressed body takes while it is served, in its own size: its messages and their text are copies.
_READING_FACTOR: Final = 4


@dataclass(frozen=True, slots=True)
class _ModelRequest:
    """A parsed request to a model. previous: the session whose newest request was parsed before.

    messages: its messages, where they were parsed with it.
    """

    route: Route
    body: RequestBody
    identity: ClientIdentity
    previous: LiveSession | None = None
    messages: IncomingMessages | None = None


class Proxy:
    """Serves requests. listener: called with the record of each request when it is over."""

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
        #: One body at a time is decompressed: they share a thread, and each has buffers of some MB meanwhile.
        self._decompressing = asyncio.Lock()

    async def serve(self, request: ClientRequest, reply: ClientReply) -> None:
        """Serve `request`. Raises CancelledError where the client disconnects.

        Raises RequestRefused or ClientDisconnected where the rest of its body is not complete.
        """
        record = RequestRecord(path=request.raw_path.decode("latin-1"), bytes_in=len(request.body))
        try:
            await self._serve_route(request, reply, record)
        except asyncio.CancelledError:
            if not record.total_seconds:
                record.cause = "client-gone" if request.disconnected.is_set() else "stopping"
            self._report_record(record, request)
            raise
        # Other errors are told of by whoever catches them.
        self._report_record(record, request)

    def _report_record(self, record: RequestRecord, request: ClientRequest) -> None:
        record.total_seconds = record.total_seconds or time.perf_counter() - request.received_at
        if record.taken_usd is not None:
            self.budgets.settle(record)
        self._listener(record)

    async def _serve_route(self, request: ClientRequest, reply: ClientReply, record: RequestRecord) -> None:
        headers = _index_headers(request.headers)
        route = find_route(request.method, request.raw_path, request.query, headers)
        api: Api | None = route.api if route is not None else None
        writer = ReplyWriter(reply, api, record, received_at=request.received_at)
        if route is None:
            await _refuse(writer, record, 404, "there is nothing at this path; OpenAI clients use /v1")
            return
        if headers.get("upgrade", "").lower() == "websocket":
            # Clients that try WebSockets first use plain requests as soon as they have this answer.
            await _refuse(writer, record, 426, "WebSockets are served at /v1/responses only; send plain HTTP requests")
            return
        record.api = api
        base = self.settings.upstreams.get(route.upstream)
        if base is None:
            why = f"no provider is configured for this path; start it with --upstream-{route.upstream}"
            await _refuse(writer, record, 404, why)
            return
        url = build_url(base, route)
        try:
            session: LiveSession | None = None
            plain = await self._decompress_request(route, request, headers, record)
            model_request = await self._parse_request(route, request, plain, headers, record)
            if model_request is not None:
                session = self._claim_session(model_request, record)
                if session is not None and not session.take_bypass():
                    await self._serve_session(model_request, session, request, reply, url, record)
                    return
                if session is not None:
                    self.sessions.release_session(session, answered=True)
            if route.kind == "complete" and not self._is_off(request):
                await self._check_passed_limit(derive_namespace(headers, request.query, self._secret), session, record)
        except LimitError as error:
            if request.rest is not None:
                # What of it is not read must be, or its client never reads why it was refused.
                raise RequestRefused(429, "limit", str(error)) from None
            record.cause = "limit"
            await _refuse(writer, record, 429, str(error))
            return
        request = await self._remove_tags(request, route, plain, record)
        await self._forward_unmodified(request, writer, url, api, record)

    async def _serve_session(
        self,
        model_request: _ModelRequest,
        session: LiveSession,
        request: ClientRequest,
        reply: ClientReply,
        url: str,
        record: RequestRecord,
    ) -> None:
        """Serve a request through its claimed session. Raises LimitError where it is refused."""
        writer = ReplyWriter(
            reply,
            session.api,
            record,
            received_at=request.received_at,
            on_finish=lambda: self.sessions.mark_answered(session),
            names_session=True,
        )
        complete = False
        # Its next request may be taken while this one waits.
        conversation = session.conversation.copy()
        try:
            record.reached_limit = await self._find_key_limit(model_request.identity.namespace, record)
            record.how = "shadow" if self.settings.shadow else "same"
            body = model_request.body
            if self.settings.pin_tools and not self.settings.shadow:
                body = await self._pin_tools(session, body, record)
            sent = SessionRequest(session, session.api, url, body, conversation, request, record)
            complete = await RequestHandler(
                sent,
                writer,
                self.upstream,
                limit=self.budgets.session_check,
                shared=self.settings.shared,
            ).handle()
        finally:
            self.sessions.release_session(session, answered=complete, already_marked=writer.is_finished)

    @staticmethod
    async def _pin_tools(session: LiveSession, body: RequestBody, record: RequestRecord) -> RequestBody:
        """Return `body` with the tools that the session keeps."""
        pins = session.tool_pins
        if pins.knows(body):
            return body
        try:
            if len(body.raw) <= INLINE_BYTES:
                pinned = pins.pin_tools(body)
            else:
                pinned = await run_off_loop(partial(pins.pin_tools, body), choose_executor(len(body.raw)))
        except Exception:  # noqa: BLE001 - the boundary of I9: the request goes out as it came
            _log.exception("session %s: its tools could not be compared", session.name)
            return body
        record.is_pinned = pinned is not body
        return pinned

    async def _forward_unmodified(
        self, request: ClientRequest, writer: ReplyWriter, url: str, api: Api | None, record: RequestRecord
    ) -> None:
        """Forward `request` byte for byte, and relay its response, or an error in the provider's format."""
        record.added_seconds = time.perf_counter() - request.received_at
        record.bytes_up = len(request.body)
        record.rounds = 1
        headers = filter_request_fields(request.headers)
        try:
            response = await self.upstream.open(request.method, url, headers, request.stream_body())
            async with response:
                observer = ResponseObserver.for_response(api, response)
                try:
                    await writer.relay_response(response, observer)
                finally:
                    record.usage = (await observer.finish_async()).usage
        except UpstreamError as error:
            await writer.reply_upstream_error(error)

    async def _check_passed_limit(self, namespace: str, session: LiveSession | None, record: RequestRecord) -> None:
        """Record the limit that a passed request has reached. Raises LimitError where it is refused.

        session: the bypassed session, if it has one. Its cost is known as of its newest step.
        """
        limit = self.budgets.session_check
        newest = session.newest_diagnostics if session is not None else None
        reached = ""
        if session is not None and newest is not None and limit is not None:
            messages = session.conversation.messages
            # An answer that only begins is no turn.
            turns = session.conversation.count_answers_from(0) - bool(messages and messages[-1].is_from_assistant)
            reached = limit(SessionStatus(turns=turns, costs=newest.costs))
        of_key = await self._find_key_limit(namespace, record, logged=False)
        record.reached_limit = reached or of_key

    async def _find_key_limit(self, namespace: str, record: RequestRecord, *, logged: bool = True) -> str:
        """Return the limit that its key has reached; "" for none. Raises LimitError or RequestRefused where it is
        refused."""
        if not self.budgets.limits_keys:
            return ""
        try:
            return await self.budgets.check_key(namespace, is_logged=logged, record=record)
        except (LimitError, RequestRefused):
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("what its key has spent", error, record)
            return ""

    async def _parse_request(
        self,
        route: Route,
        request: ClientRequest,
        raw: bytes | None,
        headers: Mapping[str, str],
        record: RequestRecord,
    ) -> _ModelRequest | None:
        """Parse the request; None where it passes unread. raw: its body without content codings."""
        if route.api is None or route.kind != "complete" or raw is None or self._is_off(request):
            return None
        try:
            namespace = record.namespace = derive_namespace(headers, request.query, self._secret)
            record.role = find_role(headers) or "main"
            session = self.sessions.find_continued(namespace, route.api, raw)
            body = RequestBody.parse_if_small(
                raw,
                route.api,
                session.previous_body if session is not None else None,
                max_new_bytes=INLINE_BYTES,
                target=route.target,
            )
            if body is not None:
                record.model = body.model
                model_request = _build_model_request(route, headers, body, namespace)
            else:
                before = session.previous_body if session is not None else None
                known = session.conversation.copy() if session is not None else None
                read = partial(_parse_large_request, route, headers, raw, namespace, before, known)
                model_request = await run_off_loop(read, choose_executor(len(raw)))
            return model_request and replace(model_request, previous=session)
        except UnreadableBody as error:
            record.cause = "unreadable"
            record.why = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("reading a request", error, record)
        return None

    async def _remove_tags(
        self, request: ClientRequest, route: Route, raw: bytes | None, record: RequestRecord
    ) -> ClientRequest:
        """Return a request that no session takes without tags; the very request where it has none.

        raw: its body without content codings.
        """
        if route.api is None or raw is None:
            return request
        try:
            remove_tags = partial(remove_body_tags, raw, route.api)
            if len(raw) <= INLINE_BYTES:
                bare = remove_tags()
            else:
                bare = await run_off_loop(remove_tags, choose_executor(len(raw)))
        except UnreadableBody:
            return request
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("taking tags out of a request", error, record)
            return request
        if bare is raw:
            return request
        return replace(
            request, body=bare, headers=[pair for pair in request.headers if pair[0].lower() not in BODY_FIELDS]
        )

    async def _decompress_request(
        self, route: Route, request: ClientRequest, headers: Mapping[str, str], record: RequestRecord
    ) -> bytes | None:
        """Return a request's body without content codings; None if nothing of it is read."""
        coding = headers.get("content-encoding", "")
        if route.api is None or request.rest is not None:
            return None
        if not coding:
            return request.body
        if self._is_off(request):
            # Switched off, the gateway decompresses nothing.
            return None
        try:
            async with self._decompressing:
                return await self._decompress_body(request, coding)
        except UnreadableBody as error:
            record.cause = "unreadable"
            record.why = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("decompressing a request", error, record)
        return None

    async def _decompress_body(self, request: ClientRequest, coding: str) -> bytes:
        """Decompress a body off the event loop, and reserve memory as it grows. Raises UnreadableBody."""
        limit = self.settings.max_read_bytes
        decompressor = BodyDecompressor(request.body, coding, limit)
        step = min(_USUAL_GROWTH * len(request.body), _USUAL_BYTES, limit)
        raw: bytes | None = None
        held = 0
        try:
            while True:
                needed = _READING_FACTOR * (decompressor.made_bytes + (step if raw is None else 0))
                if not request.reserve_decompressed(needed - held):
                    raise UnreadableBody("there is no room for it when it is decompressed (memory_bytes)")
                held = needed
                if raw is not None:
                    return raw
                make = partial(decompressor.make_more, step)
                raw = await run_off_loop(make, choose_executor(decompressor.made_bytes + step))
                step = max(limit - decompressor.made_bytes, 1)
        except BaseException:
            request.reserve_decompressed(-held)
            raise

    def _is_off(self, request: ClientRequest) -> bool:
        return self.settings.off or (request.header(OFF_HEADER) or b"").strip().lower() == b"off"

    def _claim_session(self, model_request: _ModelRequest, record: RequestRecord) -> LiveSession | None:
        assert model_request.route.api is not None
        try:
            session = self.sessions.claim_session(
                model_request.identity,
                model_request.route.api,
                model_request.body,
                before=model_request.previous,
                incoming=model_request.messages,
            )
        except UnreadableBody as error:
            record.cause = "unreadable"
            record.why = str(error)
            return None
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("finding its session", error, record)
            return None
        record.session = session.name
        record.model = model_request.body.model
        return session

    def _log_fault(self, what: str, error: Exception, record: RequestRecord) -> None:
        record.how, record.cause, record.why = "failed", "engine", type(error).__name__
        _log.error("%s failed, the request continues without it", what, exc_info=error)


async def _refuse(writer: ReplyWriter, record: RequestRecord, status: int, why: str) -> None:
    record.how = "refused"
    record.why = why
    await writer.reply_error(status, why)


@cache
def _log_held_history(field: str) -> None:
    """Log, once in this process for each field, that the provider holds a history, and how a client sends it itself."""
    _log.warning(
        "a request has %r, so the provider holds its history: such requests pass unchanged, and nothing is hidden; %s",
        field,
        _WHOLE_HISTORY.get(field, "have the client send its whole history"),
    )


def _build_model_request(
    route: Route, headers: Mapping[str, str], body: RequestBody, namespace: str
) -> _ModelRequest | None:
    """Return the parsed request; None where the gateway does not decide on it. Raises UnreadableBody."""
    for name in _STATEFUL_FIELDS:
        if body.get_field(name):
            _log_held_history(name)
            return None
    if body.get_field(_BACKGROUND_FIELD) or body.get_field("n") not in (None, 1):
        return None
    for name in READ_FIELDS:
        # What cannot be decoded is the provider's to refuse.
        body.get_field(name)
    return _ModelRequest(route, body, identify_client(route.api, headers, body, namespace))


def _parse_large_request(
    route: Route,
    headers: Mapping[str, str],
    raw: bytes,
    namespace: str,
    before: PreviousBody | None,
    known: Conversation | None,
) -> _ModelRequest | None:
    """Parse a request and its messages, which is slow for a large one; in any thread.

    before, known: the newest request of the session that it probably continues, and its conversation. Raises
    UnreadableBody.
    """
    assert route.api is not None
    check_size(raw, before.find_end(before.count_shared(raw)) if before is not None else 0)
    body = RequestBody.parse(raw, route.api, previous=before, target=route.target)
    model_request = _build_model_request(route, headers, body, namespace)
    if model_request is None:
        return None
    arrived = IncomingMessages(PROVIDERS[route.api].live, body.messages, known.messages if known is not None else ())
    empty = Conversation.for_family(PROVIDERS[route.api].live, model_request.identity.family)
    arrived.parse_new(known if known is not None and known.seed == empty.seed else empty)
    return replace(model_request, messages=arrived)


def _index_headers(fields: Headers) -> dict[str, str]:
    """Return header fields as a mapping; repeated fields are one list, as HTTP defines it."""
    by_name: dict[str, str] = {}
    for raw_name, raw_value in fields:
        name = raw_name.decode("latin-1")
        value = raw_value.decode("latin-1")
        by_name[name] = f"{by_name[name]}, {value}" if name in by_name else value
    return by_name
