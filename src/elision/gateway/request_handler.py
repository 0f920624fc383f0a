"""One request of a client, answered: through its session, by one request to the provider or, where the model recalls
what was hidden, by several.

    said -> prepare -> view -> bytes -> provider -> client
              ^                           |
              +---- a recall answered ----+

What goes out as it came whatever is in it, a session's first request and all of them in shadow mode, goes out first,
and is prepared while the provider works.

The session's lock is held while its context manager works, never while the provider does. Whatever fails in here that
is ours, the client's bytes go out as they came (I9).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import is_
from typing import Any, Final

import msgspec

from elision.dialects import text_in
from elision.dialects.bound_thinking import add_beta
from elision.errors import LimitError
from elision.gateway import header_fields as fields
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
from elision.trajectory.usage import Usage

_log: Final = logging.getLogger("elision.gateway")

#: Seconds for which what a pass left unwritten waits for the answer's usage, to be written with it.
SAVE_WAIT_SECONDS: Final = 0.25
#: Seconds in which a request that went ahead may be answered before it is looked at: who is quicker does not wait.
PREPARE_WAIT_SECONDS: Final = 0.005
#: Requests to the provider that one answer may take: a model that does nothing but recall is stopped there.
MAX_ROUNDS: Final = 8
#: Bytes of an error's body that are read before it is decided what becomes of it.
MAX_ERROR_BYTES: Final = 1_000_000
#: Bytes of a request that is put together at once.
MAX_INLINE_BYTES: Final = 256 * 1024
#: What stands beside the messages and says something about the context.
_CONTEXT_FIELDS: Final = ("thinking", "context_management", "cache_control", "compaction")
#: What is read of a request apart from its messages.
READ_FIELDS: Final = ("tools", "system", "instructions", "store", *_CONTEXT_FIELDS)
_ACCEPT_PLAIN: Final = (b"accept-encoding", b"identity")
_SYSTEM_FIELDS: Final[Mapping[Api, str]] = {"anthropic": "system", "openai-responses": "instructions"}


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """What goes to the provider.

    is_edited: whether it is other than what the client sent. betas: values for the `anthropic-beta` header.
    offers_recall: whether recall is offered, so that the answer must come in the plain.
    """

    body: bytes
    is_edited: bool = False
    betas: tuple[str, ...] = ()
    offers_recall: bool = False


@dataclass(slots=True)
class RequestHandler:
    """See the module.

    body: of `request`, taken apart. entries: its messages, as its session took them. hint: which limit was reached, for
    the client to read.

    limit: asked before the first request to the provider; says which the session has reached, or raises LimitError.
    shared: whether other processes serve from the same store: no answer comes before its call is in the log.
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
    #: What the model and the gateway said since the client's last message.
    hidden_messages: list[UpstreamMessage] = field(default_factory=list)
    #: Whether the newest request offered recall.
    _recall_offered: bool = False
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)
    _save_task: asyncio.Task[None] | None = None
    #: Where the request goes ahead: it being looked at, whether that is waited for, and what was reported before.
    _prepare_task: asyncio.Task[None] | None = None
    _prepare_awaited: asyncio.Event = field(default_factory=asyncio.Event)
    _early_usage: Usage | None = None

    async def handle(self) -> bool:
        """Answer it; whether the answer came to its end. Raises LimitError where it is not admitted."""
        try:
            said = await self._load_conversation()
            if self._can_send_first(said):
                await self._send_first(said)
                return self.record.is_complete
            while (outcome := await self._run_round([*said, *self.hidden_messages])) is not None:
                assert self.merger is not None
                await self._continue_after_recall(self.merger, outcome)
            return self.record.is_complete
        finally:
            self._is_over.set()
            await self._await_save()

    async def _load_conversation(self) -> list[UpstreamMessage]:
        """The conversation as it stands upstream; the store is asked once for what this process has not heard."""
        live = self.session
        if live.is_unloaded or live.is_stale:
            await self._load_hidden_rounds(live)
        try:
            return live.hidden_rounds.expand_messages(self.entries)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._log_fault("exchanges", error)
            return [UpstreamMessage(entry.json, entry.raw) for entry in self.entries]

    async def _load_hidden_rounds(self, live: LiveSession) -> None:
        """Learn what other gateways noted, and this one before it was restarted."""
        async with live.lock:
            try:
                if live.is_unloaded:
                    # Before the assistant's first word there was nothing to recall.
                    if any(entry.is_from_assistant for entry in self.entries):
                        await self._load_recorded_rounds()
                elif live.is_stale:
                    live.hidden_rounds.add_events(await live.context.heard_exchanges_async())
                    said = live.hidden_rounds.expand_messages(self.entries)
                    # The newest answer is in no log before this request.
                    if count_answers(list(map(_is_from_assistant, said))) > live.context.turns + 1:
                        # Others came to another process, where the session parted from this one.
                        await self._load_recorded_rounds()
                live.is_unloaded = live.is_stale = False
            except Exception as error:  # noqa: BLE001 - the boundary of I9; the next request asks again
                # Without them the model misses what it recalled, and nothing else.
                self._log_fault("exchanges", error, "it goes on without what was recalled in it")

    async def _load_recorded_rounds(self) -> None:
        """Exchanges of a stored session: each that is put in its place may show the way to later ones."""
        known = -1
        exchanges = self.session.hidden_rounds
        while len(exchanges.events_by_node) > known:
            known = len(exchanges.events_by_node)
            said = to_plain_messages(exchanges.expand_messages(self.entries))
            exchanges.add_events(await self.session.context.recorded_exchanges_async(said))

    # -- one request to the provider -------------------------------------------------------------------------------

    async def _run_round(self, said: Sequence[UpstreamMessage]) -> RoundOutcome | None:
        """Ask the provider once; the outcome where it goes on with a recall, None where the answer is over."""
        view = await self._prepare_view(said)
        return await self._exchange_upstream(await self._encode_view(view, said), said)

    async def _exchange_upstream(self, out: UpstreamRequest, said: Sequence[UpstreamMessage]) -> RoundOutcome | None:
        answer = await self._send_upstream(out, said)
        if answer is None:
            return None
        if self.shared and self._save_task is not None:
            # Whoever serves the next call must find in the log what this one was told.
            await asyncio.shield(self._save_task)
        async with answer:
            try:
                return await self._relay_response(answer)
            except UpstreamError as error:
                await reply_upstream_error(error, self.reply, self.api, self.record)
                return None

    def _can_send_first(self, said: Sequence[UpstreamMessage]) -> bool:
        """Whether the request goes out as it came, whatever is in it, and nobody is to be asked first."""
        live = self.session
        begun = any(entry.is_from_assistant for entry in self.entries)
        # Which session's it is, and what the client is told of that, must be known.
        known = live.steady_requests and (live.newest_diagnostics is not None or not begun)
        if self.shared or self.limit is not None or not known or not self._is_client_conversation(said):
            return False
        return live.context.foregone(begun=begun, model=self.body.model)

    async def _send_first(self, said: Sequence[UpstreamMessage]) -> None:
        """Ask the provider, and look at the request while it works."""
        if (newest := self.session.newest_diagnostics) is not None:
            self.record.session = newest.branch or self.session.name
        self._prepare_task = asyncio.ensure_future(self._prepare_alongside(said))
        try:
            await self._exchange_upstream(UpstreamRequest(self.request.body), said)
        finally:
            await self._await_prepare()

    async def _prepare_alongside(self, said: Sequence[UpstreamMessage]) -> None:
        # The lock first: the session's next request comes behind this one.
        async with self.session.lock:
            await _wait_at_most(self._prepare_awaited, PREPARE_WAIT_SECONDS)
            if await self._prepare_locked(said) is None:
                self.record.how = "failed"
            if self._early_usage is not None:
                # Before the session's next request, which tells its turn what it was billed.
                self._log_usage(self._early_usage)

    async def _await_prepare(self) -> None:
        """Wait until a request that went ahead was looked at: what is said of its call comes behind that."""
        if self._prepare_task is not None:
            self._prepare_awaited.set()
            await asyncio.shield(self._prepare_task)

    def _is_client_conversation(self, said: Sequence[UpstreamMessage]) -> bool:
        """Whether that is the client's own conversation, without anything that it did not see."""
        return len(said) == len(self.body.messages) and not self.session.hidden_rounds.events_by_node

    async def _prepare_view(self, said: Sequence[UpstreamMessage]) -> ContextView | None:
        """The view of the next call; None where it goes out as it came."""
        waited = time.perf_counter()
        async with self.session.lock:
            self.record.waited_seconds += time.perf_counter() - waited
            return await self._prepare_locked(said)

    async def _prepare_locked(self, said: Sequence[UpstreamMessage]) -> ContextView | None:
        """The same, with the session's lock held."""
        live = self.session
        try:
            view = await live.context.prepare_async(
                to_plain_messages(said),
                tools=self.body.get_field("tools"),
                system=self.body.get_field(_SYSTEM_FIELDS[self.api]) if self.api in _SYSTEM_FIELDS else None,
                model=self.body.model,
                request={name: value for name in _CONTEXT_FIELDS if (value := self.body.get_field(name)) is not None},
                # What is begun is brought to its end.
                admit=self._check_limit if self.limit is not None and not self.record.rounds else None,
            )
        except LimitError:
            self._begin_save()
            raise
        except Exception as error:  # noqa: BLE001
            # The boundary of I9 on this side: what the library tells its caller is nothing to a client.
            self._log_fault("prepare", error)
            return None
        live.newest_diagnostics = view.diagnostics
        self.record.step_diagnostics.append(view.diagnostics)
        self.record.session = view.diagnostics.branch or live.name
        self._begin_save()
        return view

    def _check_limit(self, standing: SessionStatus) -> None:
        assert self.limit is not None
        self.hint = self.limit(standing) or self.hint

    async def _encode_view(self, view: ContextView | None, said: Sequence[UpstreamMessage]) -> UpstreamRequest:
        """The bytes of `view`: the client's own where it changes nothing."""
        if view is None:
            return self._encode_fallback(said)
        same = len(view.messages) == len(said) and all(map(is_, view.messages, to_plain_messages(said)))
        if same and self._is_client_conversation(said) and not view.added_tools and not view.extra:
            return UpstreamRequest(self.request.body)
        size = len(self.body.raw)
        # What was written for the session before is looked up, so one request of it at a time.
        async with self.session.lock:
            if size <= MAX_INLINE_BYTES:
                return self._encode_changes(view, said)
            return await run_off_loop(partial(self._encode_changes, view, said), choose_executor(size))

    def _encode_changes(self, view: ContextView, said: Sequence[UpstreamMessage]) -> UpstreamRequest:
        """The bytes of a view that changes something; in any thread."""
        try:
            raws = self.session.encoder.encode_messages(view.messages, said)
            body = self.body.render_changes(messages=raws, fields=self._encode_fields(view))
        except Exception as error:  # noqa: BLE001
            # The same boundary.
            self._log_fault("render", error)
            return self._encode_fallback(said)
        return UpstreamRequest(body, is_edited=True, betas=view.betas, offers_recall=view.offered)

    def _encode_fallback(self, said: Sequence[UpstreamMessage]) -> UpstreamRequest:
        """As it came; behind a recall with what that was."""
        self.record.how = "failed"
        if not self.hidden_messages:
            return UpstreamRequest(self.request.body)
        return UpstreamRequest(self.body.render_changes(messages=[each.raw for each in said]), is_edited=True)

    def _encode_fields(self, view: ContextView) -> dict[str, bytes]:
        """What changes beside the messages."""
        changed = {
            name: patch_json(self.body.get_raw_field(name) or b"null", self.body.get_field(name), value)
            for name, value in view.extra.items()
        }
        if view.added_tools:
            own = [msgspec.json.encode(tool) for tool in view.added_tools]
            changed["tools"] = append_elements(self.body.get_raw_field("tools"), own)
        return changed

    async def _send_upstream(self, out: UpstreamRequest, said: Sequence[UpstreamMessage]) -> UpstreamResponse | None:
        """The provider's answer, asked again where what it refused is ours to mend; None where there is none."""
        answer = await self._open_upstream(out)
        if answer is None or answer.status not in (400, 413):
            return answer
        return await self._retry_refused(answer, out, said)

    async def _open_upstream(self, out: UpstreamRequest) -> UpstreamResponse | None:
        names = fields.filter_request_fields(self.request.headers, is_changed=out.is_edited, is_read=True)
        if out.betas:
            names = _add_betas(names, out.betas)
        if out.offers_recall:
            names = [*(pair for pair in names if pair[0].lower() != b"accept-encoding"), _ACCEPT_PLAIN]
        if not self.record.rounds:
            self.record.added_seconds = time.perf_counter() - self.request.received_at
        self.record.rounds += 1
        self.record.bytes_up += len(out.body)
        self._recall_offered = out.offers_recall
        if out.is_edited and self.record.how == "same":
            self.record.how = "view"
        try:
            return await self.upstream.open(self.request.method, self.url, names, out.body)
        except UpstreamError as error:
            await reply_upstream_error(error, self.reply, self.api, self.record)
            return None

    # -- refusals --------------------------------------------------------------------------------------------------

    async def _retry_refused(
        self, answer: UpstreamResponse, out: UpstreamRequest, said: Sequence[UpstreamMessage]
    ) -> UpstreamResponse | None:
        """A request that was refused: shortened where it was too long, as it came where our edits may be the cause."""
        async with answer:
            await self._await_prepare()
            try:
                told = await _read_at_most(answer, MAX_ERROR_BYTES)
            except UpstreamError as error:
                await reply_upstream_error(error, self.reply, self.api, self.record)
                return None
            heard = await self._parse_response(answer, told)
            if heard.overflow is not None and (shorter := await self._shorten_request(heard, out, said)):
                self.record.cause = "overflow"
                return await self._open_upstream(shorter)
            if heard.overflow is None and out.is_edited and not self.hidden_messages:
                return await self._retry_unmodified(answer, heard, told)
            await self._relay_refusal(answer, told)
            return None

    async def _shorten_request(
        self, heard: ResponseFacts, out: UpstreamRequest, said: Sequence[UpstreamMessage]
    ) -> UpstreamRequest | None:
        """The same messages once more, now that the model's window is known; None where nothing becomes shorter."""
        async with self.session.lock:
            if not self.session.context.overflowed(heard.error):
                return None
        view = await self._prepare_view(said)
        if view is None:
            return None
        shorter = await self._encode_view(view, said)
        # By bytes: how many tokens it was thought to have goes by what was reported, and that has just proved wrong.
        if len(shorter.body) < len(out.body):
            return shorter
        return None

    async def _retry_unmodified(
        self, answer: UpstreamResponse, heard: ResponseFacts, told: bytes
    ) -> UpstreamResponse | None:
        """What the client sent itself: if that is taken, what we made of it was wrong; the session is left alone then.

        Providers advise against hiding their error about thinking: it is in the log, and in the client's answer where
        its own request is refused as well.
        """
        own = await self._open_upstream(UpstreamRequest(self.request.body))
        if own is None or own.status >= 400:
            return own
        self.session.begin_bypass()
        self.record.how = "failed"
        self.record.cause = "unbound" if heard.unbound_thinking else "rejected"
        _log.error(
            "session %s: the provider refused what was made of a request and took it as it came; its next %d requests"
            " are left alone: %s",
            self.record.session,
            self.session.requests_to_bypass,
            sanitize_error(heard.error, self.request.headers),
        )
        return own

    async def _relay_refusal(self, answer: UpstreamResponse, read: bytes) -> None:
        """The provider's refusal, word for word; as an event where an answer has begun."""
        if not self.reply.is_started:
            heard = await stream_response(
                answer,
                self.reply,
                make_observer(self.api, answer),
                self.record,
                received_at=self.request.received_at,
                read_before=read,
                extra_headers=self._make_headers(),
            )
            self.record.cause = self.record.cause or f"upstream-{answer.status}"
            self.record.why = sanitize_error(heard.error, self.request.headers)
            return
        heard = await self._parse_response(answer, read or await _read_at_most(answer, MAX_ERROR_BYTES))
        await self._end_with_error(heard.error or f"the provider answered {answer.status}", f"upstream-{answer.status}")

    async def _end_with_error(self, message: str, cause: str) -> None:
        self.record.cause, self.record.why = cause, sanitize_error(message, self.request.headers)
        await end_cut_reply(self.reply, self.api, message)

    async def _parse_response(self, answer: UpstreamResponse, read: bytes) -> ResponseFacts:
        tap = make_observer(self.api, answer)
        tap.feed(read)
        return await finish_observer(tap)

    # -- the way back ----------------------------------------------------------------------------------------------

    async def _relay_response(self, answer: UpstreamResponse) -> RoundOutcome | None:
        """What the provider says, on its way to the client. Raises UpstreamError where it breaks off."""
        if answer.status >= 400:
            await self._relay_refusal(answer, b"")
            return None
        # One that comes compressed in a way that nobody asked for is the client's to read.
        if (
            self.merger is None
            and self._recall_offered
            and answer.status == 200
            and make_decompressor(answer) is not None
        ):
            self.merger = ResponseMerger(
                self.api, stream=is_event_stream(answer), stored=self.body.get_field("store") is not False
            )
        return await (
            self._merge_response(answer, self.merger) if self.merger is not None else self._pass_response(answer)
        )

    async def _pass_response(self, answer: UpstreamResponse) -> None:
        """The answer as it comes."""
        tap = make_observer(self.api, answer)
        try:
            await stream_response(
                answer,
                self.reply,
                tap,
                self.record,
                received_at=self.request.received_at,
                extra_headers=self._make_headers(),
            )
        finally:
            await self._record_usage(tap)

    async def _merge_response(self, answer: UpstreamResponse, relay: ResponseMerger) -> RoundOutcome | None:
        """The answer as it comes, but for calls of the recall tools: the outcome where it goes on behind them."""
        tap = make_observer(self.api, answer)
        inflated = make_decompressor(answer)
        late = b""
        if inflated is None:
            raise UpstreamError("malformed", "the provider's answer is compressed in a way that nobody asked for")
        relay.begin_round()
        if is_event_stream(answer):
            await self._start_reply(answer)
        try:
            async for chunk in answer.iter_chunks():
                self.record.first_byte_seconds = (
                    self.record.first_byte_seconds or time.perf_counter() - self.request.received_at
                )
                tap.feed(chunk)
                out = relay.feed(inflated(chunk))
                if self.hidden_messages and relay.has_ended:
                    # The end is held until what the client is not shown is in the store.
                    late += out
                else:
                    await self._send_chunk(out)
            outcome = await self._end_round(relay)
        finally:
            await self._record_usage(tap)
        if outcome.recall_calls and not outcome.is_done and len(relay.response_ids) < MAX_ROUNDS:
            await self._send_chunk(late + outcome.output)
            return outcome
        await self._finish_response(relay, outcome, late, answer)
        return None

    async def _end_round(self, relay: ResponseMerger) -> RoundOutcome:
        """The end of a round; a large body is read in a thread."""
        if relay.held_bytes <= INLINE_BYTES:
            return relay.end_round()
        return await run_off_loop(relay.end_round, choose_executor(relay.held_bytes))

    async def _finish_response(
        self, relay: ResponseMerger, outcome: RoundOutcome, late: bytes, answer: UpstreamResponse
    ) -> None:
        """The end of an answer in which something was recalled, or nothing."""
        ending = outcome.output
        if outcome.is_cut and not outcome.nothing_held:
            await self._send_chunk(late + ending)
            await reply_upstream_error(
                UpstreamError("cut", "the provider's answer broke off"), self.reply, self.api, self.record
            )
            return
        if outcome.recall_calls and outcome.has_client_calls:
            await self._answer_recalls(relay, outcome)
        elif outcome.recall_calls:
            # Nothing but recalls, for as long as an answer may take.
            outcome = relay.finish_without_recall()
            ending += outcome.output
        await self._save_hidden_rounds(relay, outcome)
        if not self.reply.is_started:
            await self._start_reply(answer, length=len(ending))
        await self._send_chunk(late + ending)
        self.record.is_complete = outcome.is_done
        self.record.total_seconds = time.perf_counter() - self.request.received_at
        await self.reply.finish()

    async def _start_reply(self, answer: UpstreamResponse, length: int | None = None) -> None:
        """Status and headers of the first round's answer."""
        if self.reply.is_started:
            return
        self.record.status, self.record.is_stream = answer.status, is_event_stream(answer)
        if length is not None:
            own = [(b"content-length", str(length).encode())]
        else:
            own = []
        await self.reply.start(
            answer.status,
            [*fields.filter_response_fields(answer.headers, is_changed=True), *own, *self._make_headers()],
        )

    async def _send_chunk(self, chunk: bytes) -> None:
        if chunk:
            self.record.bytes_out += len(chunk)
            await self.reply.send(chunk)

    def _make_headers(self) -> Headers:
        """What we say of our own: whose session it is, and when a guard says stop."""
        told = [(b"x-elision-session", self.record.session.encode("ascii", "backslashreplace"))]
        return told + ([(b"x-elision-stop", self.hint.encode("ascii", "backslashreplace"))] if self.hint else [])

    # -- recalls ---------------------------------------------------------------------------------------------------

    async def _continue_after_recall(self, relay: ResponseMerger, outcome: RoundOutcome) -> None:
        """Answer the model's recalls and take both for said."""
        # Word that something is under way, while nothing can be shown.
        await self._send_chunk(relay.keep_alive() if self.record.is_stream else b"")
        told = await self._answer_recalls(relay, outcome)
        self.hidden_messages += [
            UpstreamMessage(message, encode_json(message)) for message in (*outcome.messages, *told)
        ]

    async def _answer_recalls(self, relay: ResponseMerger, outcome: RoundOutcome) -> tuple[dict[str, Any], ...]:
        """Recalls and what they found, as request messages."""
        found: list[tuple[RecallCall, str]] = []
        async with self.session.lock:
            for call in outcome.recall_calls:
                text = await self._answer_recall(call)
                found.append((call, text or "[not found]"))
        self.record.recalls += len(found)
        return relay.add_results(found)

    async def _answer_recall(self, call: RecallCall) -> str | None:
        try:
            return await self.session.context.handle_tool_call_async(call.name, call.arguments)
        except Exception as error:  # noqa: BLE001 - the same boundary
            self._log_fault("recall", error, "the model is told that nothing was found")
            return None

    async def _save_hidden_rounds(self, relay: ResponseMerger, outcome: RoundOutcome) -> None:
        """What the client is not shown, in the store before it has the end of the answer."""
        replaced = relay.find_replacements() if outcome.is_done else ()
        if not replaced:
            return
        async with self.session.lock:
            try:
                for each in replaced:
                    self._record_replacement(each, outcome)
                self.session.hidden_rounds.add_events(self.session.context.exchanges())
            except Exception as error:  # noqa: BLE001 - the same boundary
                self._log_fault("exchanges", error, "what was recalled will not be there at the next request")
            await self.session.context.settle_async()

    def _record_replacement(self, replaced: Replacement, outcome: RoundOutcome) -> None:
        shown = outcome.visible[: replaced.index + 1]
        self.session.context.exchanged(
            node=self.session.transcript.name_history(self.entries, shown).hex(),
            messages=tuple(map(_encode_text, replaced.messages)),
            results=tuple(map(_encode_text, replaced.results)),
        )

    # -- the log ---------------------------------------------------------------------------------------------------

    def _begin_save(self) -> None:
        if self.shared:
            self._save_task = asyncio.ensure_future(self._save_log())
        else:
            self._save_task = self._save_task or asyncio.ensure_future(self._save_soon())

    async def _save_soon(self) -> None:
        """Write what the pass left unwritten: while the provider works, or with the usage of a quick answer."""
        await _wait_at_most(self._is_over, SAVE_WAIT_SECONDS)
        await self._save_log()

    async def _save_log(self) -> None:
        async with self.session.lock:
            if (fault := await self.session.context.settle_async()) is not None:
                self.record.cause = self.record.cause or fault.kind

    async def _await_save(self) -> None:
        """All of it is in the store; cancelled or not, the log is not left in the midst of a write."""
        if self._save_task is not None:
            await asyncio.shield(self._save_task)
            await asyncio.shield(asyncio.ensure_future(self._save_log()))

    async def _record_usage(self, tap: ResponseObserver) -> None:
        """Record what was reported, be it of an answer that broke off or a client that left: that is billed as well."""
        await asyncio.shield(asyncio.ensure_future(self._record_response(tap)))

    async def _record_response(self, tap: ResponseObserver) -> None:
        """What the provider reported for the newest call."""
        heard = await finish_observer(tap)
        if heard.usage is not None:
            if self.record.usage is None:
                self.record.usage = heard.usage
            else:
                self.record.usage = self.record.usage + heard.usage
        if heard.cache_miss:
            self.record.cache_miss = heard.cache_miss.reason
        else:
            self.record.cache_miss = ""
        self.record.thinking_dropped += sum(each.is_dropped for each in heard.transformations)
        if heard.cleared:
            self.record.cleared_tokens += heard.cleared.cleared_tokens
        else:
            self.record.cleared_tokens += 0
        if heard.usage is None:
            return
        if self._prepare_task is not None and not self._prepare_task.done():
            self._early_usage = heard.usage
            await self._await_prepare()
            return
        async with self.session.lock:
            self._log_usage(heard.usage)

    def _log_usage(self, usage: Usage) -> None:
        """The same, with the session's lock held."""
        if (told := self.record.diagnostics) is not None:
            try:
                self.session.context.record(usage, call=told.call, branch=told.branch)
            except Exception as error:  # noqa: BLE001 - the same boundary; the client has its answer
                self._log_fault("usage", error, "the call has none")

    def _log_fault(self, what: str, error: Exception, then: str = "the request goes out as it came") -> None:
        self.record.cause, self.record.why = what, type(error).__name__
        _log.error("session %s: %s failed, %s", self.session.name, what, then, exc_info=error)


async def _wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for it, but no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _is_from_assistant(said: UpstreamMessage) -> bool:
    """Whether the assistant said it, of whatever API."""
    role = said.json.get("role")
    return role == "assistant" or (role is None and not text_in(said.json.get("type")).endswith("_output"))


def _encode_text(message: Mapping[str, Any]) -> str:
    return encode_json(message).decode()


async def _read_at_most(answer: UpstreamResponse, limit: int) -> bytes:
    read = bytearray()
    async for chunk in answer.iter_chunks():
        read += chunk
        if len(read) > limit:
            break
    return bytes(read)


def _add_betas(names: Headers, betas: Sequence[str]) -> Headers:
    asked = ",".join(value.decode("latin-1") for name, value in names if name.lower() == b"anthropic-beta")
    for beta in betas:
        asked = add_beta(asked, beta)
    kept = [pair for pair in names if pair[0].lower() != b"anthropic-beta"]
    return [*kept, (b"anthropic-beta", asked.encode("latin-1"))]
