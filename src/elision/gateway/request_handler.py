"""Handle one request of a client: through its session, with one request to the provider, or with several where the
model recalls what was hidden.

    conversation -> prepare -> view -> bytes -> provider -> client
                      ^                            |
                      +------ recall results ------+

A request that is forwarded unchanged in any case is sent first, and prepared while the provider works: the first one of
a session, and all of them in shadow mode.

The session's lock is held while its context manager works, never while the provider does. Where something of ours
fails, the client's bytes are forwarded unchanged (I9).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, Final

import msgspec

from elision.errors import LimitError, SpecError
from elision.gateway import header_fields
from elision.gateway.budgets import LimitCheck
from elision.gateway.forwarding import (
    end_cut_reply,
    finish_observer,
    is_event_stream,
    make_decompressor,
    make_observer,
    reply_upstream_error,
    stream_response,
)
from elision.gateway.hidden_rounds import UpstreamMessage
from elision.gateway.json_patch import append_elements, encode_json, patch_json
from elision.gateway.live_sessions import LiveSession, to_plain_messages
from elision.gateway.log_sanitizer import sanitize_error
from elision.gateway.recalling import RecallCall, Replacement, ResponseMerger, RoundOutcome
from elision.gateway.request_body import RequestBody
from elision.gateway.request_record import RequestRecord
from elision.gateway.response_observer import ResponseFacts, ResponseObserver
from elision.gateway.routes import Api
from elision.gateway.transcript import TranscriptEntry, count_answers
from elision.gateway.upstream import Upstream, UpstreamError, UpstreamResponse
from elision.gateway.wire import ClientReply, ClientRequest, Headers
from elision.manager.context_view import ContextView, SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor
from elision.providers.anthropic.bound_thinking import add_beta
from elision.providers.shared.json_reading import text_in
from elision.trajectory.usage import Usage

_log: Final = logging.getLogger("elision.gateway")

#: Seconds that unwritten events wait for the response's usage, to be written with it.
SAVE_WAIT_SECONDS: Final = 0.25
#: Seconds before a request that was sent first is prepared: a response within them does not wait for that.
PREPARE_WAIT_SECONDS: Final = 0.005
#: Requests to the provider for one response: a model that does nothing but recall is stopped there.
MAX_ROUNDS: Final = 8
#: Bytes of an error's body that are read before its handling is decided.
MAX_ERROR_BYTES: Final = 1_000_000
#: Bytes of a request that is encoded on the event loop.
MAX_INLINE_BYTES: Final = 256 * 1024
#: The client's wish for one request: "hide" all that may be hidden, or a "summary" of all but the tail.
COMPACT_HEADER: Final = b"x-elision-compact"
#: Fields beside the messages that concern the context.
_CONTEXT_FIELDS: Final = ("thinking", "context_management", "cache_control", "compaction")
#: Fields of a request that are read, apart from its messages.
READ_FIELDS: Final = ("tools", "system", "instructions", "store", *_CONTEXT_FIELDS)
_UNTAGGED: Final = attrgetter("untagged")
_ACCEPT_PLAIN: Final = (b"accept-encoding", b"identity")
_SYSTEM_FIELDS: Final[Mapping[Api, str]] = {"anthropic": "system", "openai-responses": "instructions"}


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to the provider.

    is_edited:     whether it says something else than what the client sent. betas: values for the `anthropic-beta`
                   header.
    is_rewritten:  whether its bytes differ from the client's: it is edited, or tags were taken out.
    offers_recall: whether it offers recall, so that the response must not be compressed.
    """

    body: bytes
    is_edited: bool = False
    is_rewritten: bool = False
    betas: tuple[str, ...] = ()
    offers_recall: bool = False


@dataclass(slots=True)
class RequestHandler:
    """Handles one request; see the module.

    body:    the parsed body of `request`. entries: its messages in the session's transcript.
    hint:    the limit that was reached, for a header of the response.
    limit:   asked before the first request to the provider. It returns the limit that the session has reached, or
             raises LimitError.
    shared:  whether other processes use the same store: then a call is stored before its response is relayed.
    """

    upstream: Upstream
    session: LiveSession
    api: Api
    url: str
    body: RequestBody
    entries: Sequence[TranscriptEntry]
    request: ClientRequest
    reply: ClientReply
    record: RequestRecord
    hint: str = ""
    limit: LimitCheck | None = None
    shared: bool = False
    merger: ResponseMerger | None = None
    #: Recall calls and their results since the client's last message.
    hidden_messages: list[UpstreamMessage] = field(default_factory=list)
    #: Whether the newest request offered recall.
    _recall_offered: bool = False
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)
    _save_task: asyncio.Task[None] | None = None
    #: Of a request that is sent first: its preparation, whether something waits for that, and usage reported before.
    _prepare_task: asyncio.Task[None] | None = None
    _prepare_awaited: asyncio.Event = field(default_factory=asyncio.Event)
    _early_usage: Usage | None = None

    async def handle(self) -> bool:
        """Handle the request; return whether the response reached its end. Raises LimitError where it is refused."""
        try:
            messages = await self._load_conversation()
            if self._can_send_first(messages):
                await self._send_first(messages)
                return self.record.is_complete
            while True:
                outcome = await self._run_round([*messages, *self.hidden_messages])
                if outcome is None:
                    return self.record.is_complete
                assert self.merger is not None
                await self._continue_after_recall(self.merger, outcome)
        finally:
            self._is_over.set()
            await self._await_save()

    async def _load_conversation(self) -> list[UpstreamMessage]:
        """Return the client's messages with everything that the client did not see."""
        session = self.session
        if session.is_unloaded or session.is_stale:
            await self._load_hidden_rounds(session)
        try:
            return session.hidden_rounds.expand_messages(self.entries)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("exchanges", error)
            return [UpstreamMessage(entry.json, entry.raw) for entry in self.entries]

    async def _load_hidden_rounds(self, session: LiveSession) -> None:
        """Load the rounds that other gateways stored, or this one before it was restarted."""
        async with session.lock:
            try:
                if session.is_unloaded:
                    # Nothing was recalled before the assistant's first message.
                    if any(entry.is_from_assistant for entry in self.entries):
                        await self._load_recorded_rounds()
                elif session.is_stale:
                    session.hidden_rounds.add_events(await session.context.heard_exchanges_async())
                    messages = session.hidden_rounds.expand_messages(self.entries)
                    # The newest answer is in no log before this request.
                    if count_answers(list(map(_is_from_assistant, messages))) > session.context.turns + 1:
                        # Another process served the requests after the one at which the session diverged from this one.
                        await self._load_recorded_rounds()
                session.is_unloaded = False
                session.is_stale = False
            except Exception as error:  # noqa: BLE001 - the boundary of I9; the next request tries again
                # Without them the model misses only what it recalled.
                self._log_fault("exchanges", error, "it goes on without what was recalled in it")

    async def _load_recorded_rounds(self) -> None:
        """Load the rounds of a stored session until no more are found: each one may identify later ones."""
        rounds = self.session.hidden_rounds
        known = -1
        while len(rounds.events_by_node) > known:
            known = len(rounds.events_by_node)
            messages = to_plain_messages(rounds.expand_messages(self.entries))
            rounds.add_events(await self.session.context.recorded_exchanges_async(messages))

    # -- one request to the provider -------------------------------------------------------------------------------

    async def _run_round(self, messages: Sequence[UpstreamMessage]) -> RoundOutcome | None:
        """Send one request; return the outcome where a recall continues it, None where the response is over."""
        view = await self._prepare_view(messages)
        return await self._exchange_upstream(await self._encode_view(view, messages), messages)

    async def _exchange_upstream(
        self, out: UpstreamRequest, messages: Sequence[UpstreamMessage]
    ) -> RoundOutcome | None:
        """Send `out` and relay the response; return its outcome where a recall continues it."""
        response = await self._send_upstream(out, messages)
        if response is None:
            return None
        if self.shared and self._save_task is not None:
            # Another process may serve the next call, and must find this one in the log.
            await asyncio.shield(self._save_task)
        async with response:
            try:
                return await self._relay_response(response)
            except UpstreamError as error:
                await reply_upstream_error(error, self.reply, self.api, self.record)
                return None

    def _can_send_first(self, messages: Sequence[UpstreamMessage]) -> bool:
        """Return whether the request is forwarded unchanged in any case, and needs no check before."""
        session = self.session
        begun = any(entry.is_from_assistant for entry in self.entries)
        if self.shared or self.limit is not None or not self._is_client_conversation(messages):
            return False
        # The response's headers name the session, so it must be known.
        if not session.steady_requests or (begun and session.newest_diagnostics is None):
            return False
        return session.context.foregone(begun=begun, model=self.body.model)

    async def _send_first(self, messages: Sequence[UpstreamMessage]) -> None:
        """Send the request, and prepare it while the provider works."""
        newest = self.session.newest_diagnostics
        if newest is not None:
            self.record.session = newest.branch or self.session.name
        self._prepare_task = asyncio.ensure_future(self._prepare_alongside(messages))
        try:
            await self._exchange_upstream(self._encode_own_request(), messages)
        finally:
            await self._await_prepare()

    async def _prepare_alongside(self, messages: Sequence[UpstreamMessage]) -> None:
        # The lock comes first: the session's next request waits for this one.
        async with self.session.lock:
            await _wait_at_most(self._prepare_awaited, PREPARE_WAIT_SECONDS)
            if await self._prepare_locked(messages) is None:
                self.record.how = "failed"
            if self._early_usage is not None:
                # Before the session's next request, whose turn gets this bill.
                self._log_usage(self._early_usage)

    async def _await_prepare(self) -> None:
        """Wait until a request that was sent first is prepared: usage is recorded after that."""
        if self._prepare_task is not None:
            self._prepare_awaited.set()
            await asyncio.shield(self._prepare_task)

    def _is_client_conversation(self, messages: Sequence[UpstreamMessage]) -> bool:
        """Return whether the client saw all of these messages."""
        return len(messages) == len(self.body.messages) and not self.session.hidden_rounds.events_by_node

    async def _prepare_view(self, messages: Sequence[UpstreamMessage]) -> ContextView | None:
        """Return the view of the next call; None where it fails, so that the request is forwarded unchanged."""
        waited = time.perf_counter()
        async with self.session.lock:
            self.record.waited_seconds += time.perf_counter() - waited
            return await self._prepare_locked(messages)

    async def _prepare_locked(self, messages: Sequence[UpstreamMessage]) -> ContextView | None:
        """Do the same with the session's lock held."""
        session = self.session
        # Only the first request to the provider may be refused: a response that has begun is finished.
        is_limited = self.limit is not None and not self.record.rounds
        try:
            system = self.body.get_field(_SYSTEM_FIELDS[self.api]) if self.api in _SYSTEM_FIELDS else None
            context_fields = {name: self.body.get_field(name) for name in _CONTEXT_FIELDS}
            if not self.record.rounds:
                self._compact_if_asked()
            view = await session.context.prepare_async(
                to_plain_messages(messages),
                tools=self.body.get_field("tools"),
                system=system,
                model=self.body.model,
                request={name: value for name, value in context_fields.items() if value is not None},
                admit=self._check_limit if is_limited else None,
            )
        except LimitError:
            self._begin_save()
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("prepare", error)
            return None
        session.newest_diagnostics = view.diagnostics
        self.record.step_diagnostics.append(view.diagnostics)
        self.record.session = view.diagnostics.branch or session.name
        self._begin_save()
        return view

    def _compact_if_asked(self) -> None:
        """Have this call hide all, or summarize, where the client's header asks for it; other values do nothing."""
        wanted = (self.request.header(COMPACT_HEADER) or b"").strip().lower()
        if wanted not in (b"hide", b"summary"):
            return
        context = self.session.context
        try:
            context.compact(summary=wanted == b"summary")
        except SpecError as error:
            # A header must not cost the agent its request.
            _log.warning("session %s: %s", self.session.name, error)
            context.compact()

    def _check_limit(self, standing: SessionStatus) -> None:
        assert self.limit is not None
        self.hint = self.limit(standing) or self.hint

    async def _encode_view(self, view: ContextView | None, messages: Sequence[UpstreamMessage]) -> UpstreamRequest:
        """Encode the request of `view`: the client's own bytes where it changes nothing."""
        if view is None:
            return self._encode_fallback(messages)
        if self._is_unchanged(view, messages) and not view.added_tools and not view.extra:
            return self._encode_own_request()
        size = len(self.body.raw)
        # The session's encoder reuses what it encoded before, so it takes one request at a time.
        async with self.session.lock:
            if size <= MAX_INLINE_BYTES:
                return self._encode_changes(view, messages)
            return await run_off_loop(partial(self._encode_changes, view, messages), choose_executor(size))

    def _is_unchanged(self, view: ContextView, messages: Sequence[UpstreamMessage]) -> bool:
        """Return whether the view has the client's own messages, all of them, but for their tags."""
        if len(view.messages) != len(messages) or not self._is_client_conversation(messages):
            return False
        replaced = compress(range(len(messages)), map(is_not, view.messages, to_plain_messages(messages)))
        for place in replaced:
            untagged = self.entries[place].untagged
            if untagged is None or untagged.json != view.messages[place]:
                return False
        return True

    def _encode_own_request(self) -> UpstreamRequest:
        """Return the client's own request: its very bytes, unless it has tags, which no provider knows."""
        if not any(map(_UNTAGGED, self.entries)):
            return UpstreamRequest(self.request.body)
        raws = [entry.untagged.raw if entry.untagged else entry.raw for entry in self.entries]
        return UpstreamRequest(self.body.render_changes(messages=raws), is_rewritten=True)

    def _encode_changes(self, view: ContextView, messages: Sequence[UpstreamMessage]) -> UpstreamRequest:
        """Encode the request of a view that changes something; runs in any thread."""
        try:
            raws = self.session.encoder.encode_messages(view.messages, messages)
            body = self.body.render_changes(messages=raws, fields=self._encode_fields(view))
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("render", error)
            return self._encode_fallback(messages)
        return UpstreamRequest(body, is_edited=True, betas=view.betas, offers_recall=view.offered)

    def _encode_fallback(self, messages: Sequence[UpstreamMessage]) -> UpstreamRequest:
        """Encode the client's own request; after a recall, with the recall calls and results."""
        self.record.how = "failed"
        if not self.hidden_messages:
            return self._encode_own_request()
        untagged = {id(entry.raw): entry.untagged.raw for entry in self.entries if entry.untagged}
        raws = [untagged.get(id(each.raw), each.raw) for each in messages]
        return UpstreamRequest(self.body.render_changes(messages=raws), is_edited=True)

    def _encode_fields(self, view: ContextView) -> dict[str, bytes]:
        """Encode the fields that change beside the messages."""
        changed: dict[str, bytes] = {}
        for name, value in view.extra.items():
            raw = self.body.get_raw_field(name) or b"null"
            changed[name] = patch_json(raw, self.body.get_field(name), value)
        if view.added_tools:
            own = [msgspec.json.encode(tool) for tool in view.added_tools]
            changed["tools"] = append_elements(self.body.get_raw_field("tools"), own)
        return changed

    async def _send_upstream(
        self, out: UpstreamRequest, messages: Sequence[UpstreamMessage]
    ) -> UpstreamResponse | None:
        """Send the request; retry it where our edits may be the cause of a refusal. None without a response."""
        response = await self._open_upstream(out)
        if response is None or response.status not in (400, 413):
            return response
        return await self._retry_refused(response, out, messages)

    async def _open_upstream(self, out: UpstreamRequest) -> UpstreamResponse | None:
        is_changed = out.is_edited or out.is_rewritten
        headers = header_fields.filter_request_fields(self.request.headers, is_changed=is_changed, is_read=True)
        if out.betas:
            headers = _add_betas(headers, out.betas)
        if out.offers_recall:
            headers = [*(pair for pair in headers if pair[0].lower() != b"accept-encoding"), _ACCEPT_PLAIN]
        if not self.record.rounds:
            self.record.added_seconds = time.perf_counter() - self.request.received_at
        self.record.rounds += 1
        self.record.bytes_up += len(out.body)
        self._recall_offered = out.offers_recall
        if out.is_edited and self.record.how == "same":
            self.record.how = "view"
        try:
            return await self.upstream.open(self.request.method, self.url, headers, out.body)
        except UpstreamError as error:
            await reply_upstream_error(error, self.reply, self.api, self.record)
            return None

    # -- refusals --------------------------------------------------------------------------------------------------

    async def _retry_refused(
        self, response: UpstreamResponse, out: UpstreamRequest, messages: Sequence[UpstreamMessage]
    ) -> UpstreamResponse | None:
        """Retry a refused request: shortened where it was too long, unmodified where our edits may be the cause."""
        async with response:
            await self._await_prepare()
            try:
                body_start = await _read_at_most(response, MAX_ERROR_BYTES)
            except UpstreamError as error:
                await reply_upstream_error(error, self.reply, self.api, self.record)
                return None
            facts = await self._parse_response(response, body_start)
            if facts.overflow is not None:
                shorter = await self._shorten_request(facts, out, messages)
                if shorter is not None:
                    self.record.cause = "overflow"
                    return await self._open_upstream(shorter)
            elif out.is_edited and not self.hidden_messages:
                return await self._retry_unmodified(facts)
            await self._relay_refusal(response, body_start)
            return None

    async def _shorten_request(
        self, facts: ResponseFacts, out: UpstreamRequest, messages: Sequence[UpstreamMessage]
    ) -> UpstreamRequest | None:
        """Prepare the same messages again, now that the model's window is known; None where nothing becomes shorter."""
        async with self.session.lock:
            if not self.session.context.overflowed(facts.error):
                return None
        view = await self._prepare_view(messages)
        if view is None:
            return None
        shorter = await self._encode_view(view, messages)
        # By bytes: the estimate of tokens has just proved wrong.
        if len(shorter.body) < len(out.body):
            return shorter
        return None

    async def _retry_unmodified(self, facts: ResponseFacts) -> UpstreamResponse | None:
        """Send the client's own request. If the provider takes it, our edits were wrong, and the session is bypassed.

        Providers advise against hiding their error about thinking. It is in the log, and in the client's response where
        the client's own request is refused as well.
        """
        own = await self._open_upstream(self._encode_own_request())
        if own is None or own.status >= 400:
            return own
        self.session.begin_bypass()
        self.record.how = "failed"
        self.record.cause = "unbound" if facts.unbound_thinking else "rejected"
        _log.error(
            "session %s: the provider refused what was made of a request and took it as it came; its next %d requests"
            " are left alone: %s",
            self.record.session,
            self.session.requests_to_bypass,
            sanitize_error(facts.error, self.request.headers),
        )
        return own

    async def _relay_refusal(self, response: UpstreamResponse, read: bytes) -> None:
        """Relay the provider's refusal unchanged; as an event where the reply has begun. read: what was read of it."""
        cause = f"upstream-{response.status}"
        if not self.reply.is_started:
            facts = await stream_response(
                response,
                self.reply,
                make_observer(self.api, response),
                self.record,
                received_at=self.request.received_at,
                read_before=read,
                extra_headers=self._make_headers(),
            )
            self.record.cause = self.record.cause or cause
            self.record.why = sanitize_error(facts.error, self.request.headers)
            return
        facts = await self._parse_response(response, read or await _read_at_most(response, MAX_ERROR_BYTES))
        await self._end_with_error(facts.error or f"the provider answered {response.status}", cause)

    async def _end_with_error(self, message: str, cause: str) -> None:
        self.record.cause = cause
        self.record.why = sanitize_error(message, self.request.headers)
        await end_cut_reply(self.reply, self.api, message)

    async def _parse_response(self, response: UpstreamResponse, read: bytes) -> ResponseFacts:
        observer = make_observer(self.api, response)
        observer.feed(read)
        return await finish_observer(observer)

    # -- the way back ----------------------------------------------------------------------------------------------

    async def _relay_response(self, response: UpstreamResponse) -> RoundOutcome | None:
        """Relay a response to the client; return its outcome where a recall continues it.

        Raises UpstreamError where it breaks off.
        """
        if response.status >= 400:
            await self._relay_refusal(response, b"")
            return None
        may_recall = self._recall_offered and response.status == 200
        # A response whose compression the gateway cannot read passes: the client may know it.
        if self.merger is None and may_recall and make_decompressor(response) is not None:
            stored = self.body.get_field("store") is not False
            self.merger = ResponseMerger(self.api, stream=is_event_stream(response), stored=stored)
        if self.merger is None:
            await self._pass_response(response)
            return None
        return await self._merge_response(response, self.merger)

    async def _pass_response(self, response: UpstreamResponse) -> None:
        """Relay the response unchanged."""
        observer = make_observer(self.api, response)
        try:
            await stream_response(
                response,
                self.reply,
                observer,
                self.record,
                received_at=self.request.received_at,
                extra_headers=self._make_headers(),
            )
        finally:
            await self._record_usage(observer)

    async def _merge_response(self, response: UpstreamResponse, merger: ResponseMerger) -> RoundOutcome | None:
        """Relay the response without its recall calls; return its outcome where they continue it."""
        observer = make_observer(self.api, response)
        decompress = make_decompressor(response)
        late = b""
        if decompress is None:
            raise UpstreamError("malformed", "the provider's answer is compressed in a way that nobody asked for")
        merger.begin_round()
        if is_event_stream(response):
            await self._start_reply(response)
        try:
            async for chunk in response.iter_chunks():
                if not self.record.first_byte_seconds:
                    self.record.first_byte_seconds = time.perf_counter() - self.request.received_at
                observer.feed(chunk)
                output = merger.feed(decompress(chunk))
                if self.hidden_messages and merger.has_ended:
                    # The end is held until the hidden rounds are stored.
                    late += output
                else:
                    await self._send_chunk(output)
            outcome = await self._end_round(merger)
        finally:
            await self._record_usage(observer)
        if outcome.recall_calls and not outcome.is_done and len(merger.response_ids) < MAX_ROUNDS:
            await self._send_chunk(late + outcome.output)
            return outcome
        await self._finish_response(merger, outcome, late, response)
        return None

    async def _end_round(self, merger: ResponseMerger) -> RoundOutcome:
        """End the round; a large body is read in a thread."""
        if merger.held_bytes <= INLINE_BYTES:
            return merger.end_round()
        return await run_off_loop(merger.end_round, choose_executor(merger.held_bytes))

    async def _finish_response(
        self, merger: ResponseMerger, outcome: RoundOutcome, late: bytes, response: UpstreamResponse
    ) -> None:
        """Finish the client's response, whether something was recalled in it or not."""
        ending = outcome.output
        if outcome.is_cut and not outcome.nothing_held:
            await self._send_chunk(late + ending)
            error = UpstreamError("cut", "the provider's answer broke off")
            await reply_upstream_error(error, self.reply, self.api, self.record)
            return
        if outcome.recall_calls and outcome.has_client_calls:
            await self._answer_recalls(merger, outcome)
        elif outcome.recall_calls:
            # The model did nothing but recall, for as many rounds as one response may take.
            outcome = merger.finish_without_recall()
            ending += outcome.output
        await self._save_hidden_rounds(merger, outcome)
        if not self.reply.is_started:
            await self._start_reply(response, length=len(ending))
        await self._send_chunk(late + ending)
        self.record.is_complete = outcome.is_done
        self.record.total_seconds = time.perf_counter() - self.request.received_at
        await self.reply.finish()

    async def _start_reply(self, response: UpstreamResponse, length: int | None = None) -> None:
        """Send status and headers of the first round's response."""
        if self.reply.is_started:
            return
        self.record.status = response.status
        self.record.is_stream = is_event_stream(response)
        headers = header_fields.filter_response_fields(response.headers, is_changed=True)
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        await self.reply.start(response.status, [*headers, *self._make_headers()])

    async def _send_chunk(self, chunk: bytes) -> None:
        if chunk:
            self.record.bytes_out += len(chunk)
            await self.reply.send(chunk)

    def _make_headers(self) -> Headers:
        """Return the gateway's own headers: the session's name, and the limit that was reached."""
        headers = [(b"x-elision-session", self.record.session.encode("ascii", "backslashreplace"))]
        if self.hint:
            headers.append((b"x-elision-stop", self.hint.encode("ascii", "backslashreplace")))
        return headers

    # -- recalls ---------------------------------------------------------------------------------------------------

    async def _continue_after_recall(self, merger: ResponseMerger, outcome: RoundOutcome) -> None:
        """Answer the model's recall calls, and add calls and results to the conversation."""
        if self.record.is_stream:
            # The client gets a sign of life while nothing else can be sent.
            await self._send_chunk(merger.keep_alive())
        results = await self._answer_recalls(merger, outcome)
        for message in (*outcome.messages, *results):
            self.hidden_messages.append(UpstreamMessage(message, encode_json(message)))

    async def _answer_recalls(self, merger: ResponseMerger, outcome: RoundOutcome) -> tuple[dict[str, Any], ...]:
        """Answer the recall calls; return the results as request messages."""
        results: list[tuple[RecallCall, str]] = []
        async with self.session.lock:
            for call in outcome.recall_calls:
                try:
                    text = await self.session.context.handle_tool_call_async(call.name, call.arguments)
                except Exception as error:  # noqa: BLE001 - the boundary of I9
                    self._log_fault("recall", error, "the model is told that nothing was found")
                    text = None
                results.append((call, text or "[not found]"))
        self.record.recalls += len(results)
        return merger.add_results(results)

    async def _save_hidden_rounds(self, merger: ResponseMerger, outcome: RoundOutcome) -> None:
        """Store what the client does not see, before the client has the end of the response."""
        replacements = merger.find_replacements() if outcome.is_done else ()
        if not replacements:
            return
        async with self.session.lock:
            try:
                for replacement in replacements:
                    self._record_replacement(replacement, outcome)
                self.session.hidden_rounds.add_events(self.session.context.exchanges())
            except Exception as error:  # noqa: BLE001 - the boundary of I9
                self._log_fault("exchanges", error, "what was recalled will not be there at the next request")
            await self.session.context.settle_async()

    def _record_replacement(self, replacement: Replacement, outcome: RoundOutcome) -> None:
        visible = outcome.visible[: replacement.index + 1]
        self.session.context.record_exchange(
            node=self.session.transcript.name_history(self.entries, visible).hex(),
            messages=tuple(encode_json(message).decode() for message in replacement.messages),
            results=tuple(encode_json(message).decode() for message in replacement.results),
        )

    # -- the log ---------------------------------------------------------------------------------------------------

    def _begin_save(self) -> None:
        if self.shared:
            self._save_task = asyncio.ensure_future(self._save_log())
        else:
            self._save_task = self._save_task or asyncio.ensure_future(self._save_soon())

    async def _save_soon(self) -> None:
        """Write pending events: while the provider works, or with the usage of a quick response."""
        await _wait_at_most(self._is_over, SAVE_WAIT_SECONDS)
        await self._save_log()

    async def _save_log(self) -> None:
        async with self.session.lock:
            fault = await self.session.context.settle_async()
            if fault is not None:
                self.record.cause = self.record.cause or fault.kind

    async def _await_save(self) -> None:
        """Wait until all events are stored, even where the request is cancelled: a write is never left half done."""
        if self._save_task is not None:
            await asyncio.shield(self._save_task)
            await asyncio.shield(asyncio.ensure_future(self._save_log()))

    async def _record_usage(self, observer: ResponseObserver) -> None:
        """Record the reported usage, also of a response that broke off or a client that left: it is billed as well."""
        await asyncio.shield(asyncio.ensure_future(self._record_response(observer)))

    async def _record_response(self, observer: ResponseObserver) -> None:
        """Record what the provider reported for the newest call."""
        record = self.record
        facts = await finish_observer(observer)
        record.cache_miss = facts.cache_miss.reason if facts.cache_miss else ""
        record.thinking_dropped += sum(each.is_dropped for each in facts.transformations)
        if facts.cleared:
            record.cleared_tokens += facts.cleared.cleared_tokens
        if facts.usage is None:
            return
        record.usage = facts.usage if record.usage is None else record.usage + facts.usage
        if self._prepare_task is not None and not self._prepare_task.done():
            self._early_usage = facts.usage
            await self._await_prepare()
            return
        async with self.session.lock:
            self._log_usage(facts.usage)

    def _log_usage(self, usage: Usage) -> None:
        """Record the usage in the session's log, with the session's lock held."""
        diagnostics = self.record.diagnostics
        if diagnostics is None:
            return
        try:
            self.session.context.record(usage, call=diagnostics.call, branch=diagnostics.branch)
        except Exception as error:  # noqa: BLE001 - the boundary of I9; the client has its response
            self._log_fault("usage", error, "the call has none")

    def _log_fault(self, what: str, error: Exception, then: str = "the request goes out as it came") -> None:
        self.record.cause = what
        self.record.why = type(error).__name__
        _log.error("session %s: %s failed, %s", self.session.name, what, then, exc_info=error)


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _is_from_assistant(message: UpstreamMessage) -> bool:
    """Return whether the assistant said it, in any API."""
    role = message.json.get("role")
    return role == "assistant" or (role is None and not text_in(message.json.get("type")).endswith("_output"))


async def _read_at_most(response: UpstreamResponse, limit: int) -> bytes:
    read = bytearray()
    async for chunk in response.iter_chunks():
        read += chunk
        if len(read) > limit:
            break
    return bytes(read)


def _add_betas(headers: Headers, betas: Sequence[str]) -> Headers:
    values = ",".join(value.decode("latin-1") for name, value in headers if name.lower() == b"anthropic-beta")
    for beta in betas:
        values = add_beta(values, beta)
    others = [pair for pair in headers if pair[0].lower() != b"anthropic-beta"]
    return [*others, (b"anthropic-beta", values.encode("latin-1"))]
