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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress
from operator import is_not
from typing import Any, Final

import msgspec

from elision.errors import LimitError, SpecError
from elision.gateway import wire
from elision.gateway.budgets import LimitCheck
from elision.gateway.call_recorder import CallRecorder, SessionRequest
from elision.gateway.json_bytes import append_elements, patch_json
from elision.gateway.recall_rounds import RecallRounds
from elision.gateway.reply_writer import ReplyWriter, bypass_session, read_refusal, relay_refusal
from elision.gateway.response_observer import ResponseFacts, ResponseObserver
from elision.gateway.upstream import Upstream, UpstreamError, UpstreamResponse
from elision.gateway.wire import Headers
from elision.manager.context_view import ContextView, SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.think_time import INLINE_BYTES, choose_executor
from elision.providers.anthropic.bound_thinking import add_beta
from elision.providers.live.client_messages import ParsedMessage
from elision.providers.provider_table import PROVIDERS

_log: Final = logging.getLogger("elision.gateway")

#: Seconds before a request that was sent first is prepared: a response within them does not wait for that.
PREPARE_WAIT_SECONDS: Final = 0.005
#: The client's wish for one request: "hide" all that may be hidden, or a "summary" of all but the tail.
COMPACT_HEADER: Final = b"x-elision-compact"
#: Fields beside the messages that concern the context.
_CONTEXT_FIELDS: Final = (
    "thinking",
    "context_management",
    "cache_control",
    "compaction",
    "prompt_cache_options",
    "tool_choice",
    "toolConfig",
)
#: Fields of a request that are read, apart from its messages.
READ_FIELDS: Final = ("tools", "system", "instructions", "store", *_CONTEXT_FIELDS)

#: Bytes of a request that is put together on the event loop, of messages that keep their bytes or were encoded before.
MAX_INLINE_BYTES: Final = 4 * 1024 * 1024
_ACCEPT_PLAIN: Final = (b"accept-encoding", b"identity")


class RequestHandler:
    """Handles one request; see the module.

    limit:   asked before the first request to the provider. It returns the limit that the session has reached, or
             raises LimitError.
    shared:  whether other processes use the same store.
    """

    def __init__(
        self,
        sent: SessionRequest,
        writer: ReplyWriter,
        upstream: Upstream,
        *,
        limit: LimitCheck | None = None,
        shared: bool = False,
    ) -> None:
        self._sent = sent
        self._record = sent.record
        self._session = sent.session
        self._writer = writer
        self._upstream = upstream
        self._limit = limit
        self._shared = shared
        self._recorder = CallRecorder(sent, shared=shared)
        self._rounds = RecallRounds(sent, writer, self._recorder)
        #: Of the response that passes unchanged.
        self._observer: ResponseObserver | None = None
        #: Of a request that is sent first: its preparation, and whether something waits for that.
        self._prepare_task: asyncio.Task[None] | None = None
        self._prepare_awaited = asyncio.Event()

    async def handle(self) -> bool:
        """Handle the request; return whether the response reached its end. Raises LimitError where it is refused."""
        try:
            messages = await self._load_messages()
            if self._can_send_first(messages):
                self._send_first(messages)
                await self._exchange(encode_own_request(self._sent), messages)
                return self._record.is_complete
            continues = True
            while continues:
                conversation = [*messages, *self._rounds.hidden_messages]
                view = await self._prepare_view(conversation)
                continues = await self._exchange(await self._encode_request(view, conversation), conversation)
            return self._record.is_complete
        finally:
            self._prepare_awaited.set()
            await self._recorder.finish(self._observer or self._rounds.unrecorded, self._prepare_task)

    async def _exchange(self, out: UpstreamRequest, messages: Sequence[ParsedMessage]) -> bool:
        """Send `out` and relay the response; return whether recall results are to be sent after it."""
        try:
            response = await self._send_upstream(out)
            if response.status in (400, 413):
                async with response:
                    retried = await self._retry_refused(response, out, messages)
                if retried is None:
                    return False
                out, response = retried
            await self._recorder.wait_until_shared()
            async with response:
                if response.status >= 400:
                    await relay_refusal(self._sent, self._writer, response)
                elif self._rounds.takes_response(response, offers_recall=out.offers_recall):
                    return await self._rounds.relay_round(response)
                else:
                    self._observer = ResponseObserver.for_response(self._sent.api, response)
                    await self._writer.relay_response(response, self._observer)
        except UpstreamError as error:
            await self._writer.reply_upstream_error(error)
        return False

    async def _load_messages(self) -> list[ParsedMessage]:
        """Return the client's messages with everything that the client did not see."""
        try:
            if self._session.is_unloaded or self._session.is_stale:
                await self._session.load_hidden_rounds(self._sent.conversation)
        except Exception as error:  # noqa: BLE001 - the boundary of I9; the next request tries again
            # Without them the model misses only what it recalled.
            self._sent.log_fault("exchanges", error, "it continues without what was recalled in it")
        try:
            return self._session.hidden_rounds.expand_messages(self._sent.conversation)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._sent.log_fault("exchanges", error)
            return self._sent.conversation.messages.copy()

    # -- sent before it is prepared --------------------------------------------------------------------------------

    def _can_send_first(self, messages: Sequence[ParsedMessage]) -> bool:
        """Return whether the request is forwarded unchanged in any case, and needs no check before."""
        session = self._session
        if self._shared or self._limit is not None or not self._sent.is_client_conversation(messages):
            return False
        has_answers = self._sent.conversation.has_answers
        # The response's headers name the session, so it must be known.
        if not session.steady_requests or (has_answers and session.newest_diagnostics is None):
            return False
        return session.opened.is_pass_through(begun=has_answers, model=self._sent.body.model)

    def _send_first(self, messages: Sequence[ParsedMessage]) -> None:
        """Begin to prepare the request while it is sent."""
        newest = self._session.newest_diagnostics
        if newest is not None:
            self._record.session = newest.branch or self._session.name
            # The response does not wait for the hint of its own call.
            self._record.hint = str(newest.hint or "")
        self._prepare_task = asyncio.ensure_future(self._prepare_alongside(messages))

    async def _prepare_alongside(self, messages: Sequence[ParsedMessage]) -> None:
        # The lock comes first: the session's next request waits for this one.
        async with self._session.lock:
            timer = asyncio.get_running_loop().call_later(PREPARE_WAIT_SECONDS, self._prepare_awaited.set)
            await self._prepare_awaited.wait()
            timer.cancel()
            if await self._prepare_locked(messages) is None:
                self._record.how = "failed"
            # Before the session's next request, whose turn gets this bill.
            self._recorder.log_usage()

    # -- one request to the provider -------------------------------------------------------------------------------

    async def _prepare_view(self, messages: Sequence[ParsedMessage]) -> ContextView | None:
        """Return the view of the next call; None where it fails, so that the request is forwarded unchanged."""
        waited = time.perf_counter()
        async with self._session.lock:
            self._record.waited_seconds += time.perf_counter() - waited
            return await self._prepare_locked(messages)

    async def _prepare_locked(self, messages: Sequence[ParsedMessage]) -> ContextView | None:
        """Prepare the view. The caller holds the session's lock."""
        session, body = self._session, self._sent.body
        # Only the first request to the provider may be refused: a response that has begun is finished.
        is_limited = self._limit is not None and not self._record.rounds
        try:
            system_field = PROVIDERS[self._sent.api].system_field
            context_fields = {name: body.get_field(name) for name in _CONTEXT_FIELDS}
            if not self._record.rounds:
                self._compact_if_asked()
            view = await session.context.prepare_async(
                messages,
                # Every request goes out with what the view adds, also one that has no tools yet.
                tools=[] if (tools := body.get_field("tools")) is None else tools,
                system=body.get_field(system_field) if system_field else None,
                model=body.model,
                request={name: value for name, value in context_fields.items() if value is not None},
                admit=self._check_limit if is_limited else None,
            )
        except LimitError:
            self._recorder.note_prepared()
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._sent.log_fault("prepare", error)
            return None
        # They count what is new, and wait for those of other sessions.
        if body.new_bytes > INLINE_BYTES or not view.deferred.try_read():
            await run_off_loop(view.deferred.read, choose_executor(0))
        session.newest_diagnostics = view.diagnostics
        self._record.add_step(view.diagnostics)
        self._record.hint = str(view.diagnostics.hint or "")
        self._record.session = view.diagnostics.branch or session.name
        self._record.role = session.opened.role
        self._recorder.note_prepared()
        return view

    def _compact_if_asked(self) -> None:
        """Have this call hide all, or summarize, where the client's header asks for it; other values do nothing."""
        wanted = (self._sent.client.header(COMPACT_HEADER) or b"").strip().lower()
        if wanted not in (b"hide", b"summary"):
            return
        try:
            self._session.context.compact(summary=wanted == b"summary")
        except SpecError as error:
            # A header must not cost the agent its request.
            _log.warning("session %s: %s", self._session.name, error)
            self._session.context.compact()

    def _check_limit(self, standing: SessionStatus) -> None:
        assert self._limit is not None
        self._record.reached_limit = self._limit(standing) or self._record.reached_limit

    async def _encode_request(self, view: ContextView | None, messages: Sequence[ParsedMessage]) -> UpstreamRequest:
        """Encode the request of `view`; the client's own where there is none."""
        if view is not None:
            try:
                return await encode_view(self._sent, view, messages)
            except Exception as error:  # noqa: BLE001 - the boundary of I9
                self._sent.log_fault("render", error)
        self._record.how = "failed"
        if self._rounds.hidden_messages:
            return encode_after_recall(self._sent, messages)
        return encode_own_request(self._sent)

    async def _send_upstream(self, out: UpstreamRequest) -> UpstreamResponse:
        """Send the request, and return its response. Raises UpstreamError."""
        record, client = self._record, self._sent.client
        headers = out.filter_headers(client.headers)
        if not record.rounds:
            record.added_seconds = time.perf_counter() - client.received_at
        record.rounds += 1
        record.bytes_up += len(out.body)
        if out.is_edited and record.how == "same":
            record.how = "view"
        return await self._upstream.open(client.method, self._sent.url, headers, out.body)

    # -- refusals --------------------------------------------------------------------------------------------------

    async def _retry_refused(
        self, response: UpstreamResponse, out: UpstreamRequest, messages: Sequence[ParsedMessage]
    ) -> tuple[UpstreamRequest, UpstreamResponse] | None:
        """Retry a refused request: shortened where it was too long, unmodified where our edits may be the cause.

        Returns the request and its response; None where the refusal was relayed. Raises UpstreamError.
        """
        if self._prepare_task is not None:
            self._prepare_awaited.set()
            await asyncio.shield(self._prepare_task)
        facts, body_start = await read_refusal(self._sent, response)
        if facts.overflow is not None:
            shorter = await self._shorten_request(facts, out, messages)
            if shorter is not None:
                self._record.cause = "overflow"
                return shorter, await self._send_upstream(shorter)
        elif out.is_edited and not self._rounds.hidden_messages:
            own = encode_own_request(self._sent)
            taken = await self._send_upstream(own)
            if taken.status < 400:
                bypass_session(self._sent, facts)
            return own, taken
        await relay_refusal(self._sent, self._writer, response, body_start)
        return None

    async def _shorten_request(
        self, facts: ResponseFacts, out: UpstreamRequest, messages: Sequence[ParsedMessage]
    ) -> UpstreamRequest | None:
        """Prepare the same messages again, now that the model's window is known; None where nothing becomes shorter."""
        async with self._session.lock:
            if not self._session.context.overflowed(facts.error):
                return None
        view = await self._prepare_view(messages)
        if view is None:
            return None
        shorter = await self._encode_request(view, messages)
        # By bytes: the estimate of tokens has just proved wrong.
        return shorter if len(shorter.body) < len(out.body) else None


# -- the request to the provider ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request to the provider: the client's own bytes, or as many of them as a view leaves unchanged.

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

    def filter_headers(self, headers: Headers) -> Headers:
        """Return the client's header fields as they are sent with this request."""
        kept = wire.filter_request_fields(headers, is_changed=self.is_edited or self.is_rewritten, is_read=True)
        if self.betas:
            kept = _add_betas(kept, self.betas)
        if self.offers_recall:
            kept = [*(pair for pair in kept if pair[0].lower() != b"accept-encoding"), _ACCEPT_PLAIN]
        return kept


async def encode_view(sent: SessionRequest, view: ContextView, messages: Sequence[ParsedMessage]) -> UpstreamRequest:
    """Encode the request of `view`: the client's own bytes where it changes nothing."""
    if not (view.added_tools or view.sent.defers_tools or view.extra) and _is_unchanged(sent, view, messages):
        return encode_own_request(sent)
    # The session's encoder reuses what it encoded before, so it takes one request at a time.
    async with sent.session.lock:
        new = sent.session.encoder.list_new(view.messages, messages)
        size = sum(len(messages[source].raw) for _, source in new if source is not None)
        if size <= INLINE_BYTES and len(sent.body.raw) <= MAX_INLINE_BYTES:
            return _encode_changes(sent, view, messages, new)
        encode = partial(_encode_changes, sent, view, messages, new)
        return await run_off_loop(encode, choose_executor(len(sent.body.raw)))


def encode_own_request(sent: SessionRequest) -> UpstreamRequest:
    """Return the client's own request: its very bytes, unless its tools are kept as they were, or it has tags, which no
    provider knows."""
    if not sent.record.is_pinned and all(message.untagged is None for message in sent.conversation.messages):
        return UpstreamRequest(sent.client.body)
    raws = [message.sent.raw for message in sent.conversation.messages]
    return UpstreamRequest(sent.body.render_changes(messages=raws), is_rewritten=True)


def encode_after_recall(sent: SessionRequest, messages: Sequence[ParsedMessage]) -> UpstreamRequest:
    """Encode the client's messages with the recall calls and results of this response, and nothing hidden."""
    raws = [message.sent.raw for message in messages]
    return UpstreamRequest(sent.body.render_changes(messages=raws), is_edited=True)


def _is_unchanged(sent: SessionRequest, view: ContextView, messages: Sequence[ParsedMessage]) -> bool:
    """Return whether the view has the client's own messages, all of them, but for their tags."""
    if len(view.messages) != len(messages) or not sent.is_client_conversation(messages):
        return False
    replaced = compress(range(len(messages)), map(is_not, view.messages, messages))
    return all(view.messages[place] is messages[place].untagged for place in replaced)


def _encode_changes(
    sent: SessionRequest, view: ContextView, messages: Sequence[ParsedMessage], new: Sequence[tuple[Any, int | None]]
) -> UpstreamRequest:
    """Encode the request of a view that changes something; runs in any thread."""
    raws = sent.session.encoder.encode_messages(view.messages, messages, new)
    body = sent.body.render_changes(messages=raws, fields=_encode_fields(sent, view))
    return UpstreamRequest(body, is_edited=True, betas=view.betas, offers_recall=view.offered)


def _encode_fields(sent: SessionRequest, view: ContextView) -> dict[str, bytes]:
    """Encode the fields that change beside the messages."""
    changed: dict[str, bytes] = {}
    for name, value in view.extra.items():
        raw = sent.body.get_raw_field(name) or b"null"
        changed[name] = patch_json(raw, sent.body.get_field(name), value)
    if view.sent.defers_tools:
        changed["tools"] = patch_json(
            sent.body.get_raw_field("tools") or b"[]", sent.body.get_field("tools"), view.tools
        )
    elif view.added_tools:
        own = [msgspec.json.encode(tool) for tool in view.added_tools]
        changed["tools"] = append_elements(sent.body.get_raw_field("tools"), own)
    return changed


def _add_betas(headers: Headers, betas: Sequence[str]) -> Headers:
    values = ",".join(value.decode("latin-1") for name, value in headers if name.lower() == b"anthropic-beta")
    for beta in betas:
        values = add_beta(values, beta)
    others = [pair for pair in headers if pair[0].lower() != b"anthropic-beta"]
    return [*others, (b"anthropic-beta", values.encode("latin-1"))]
