"""Relay a response in which the model may recall: its recall calls are answered here, the client gets one response.

    response -> recall calls? -> answered -> another request -> response -> ... -> the client's end

`ResponseMerger` makes one response of all rounds. It has no I/O: bytes and values in, bytes and values out. The events
of each API are in its `stream.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from elision.gateway import wire
from elision.gateway.body_reader import ENCODINGS, StreamDecompressor
from elision.gateway.call_recorder import CallRecorder, SessionRequest
from elision.gateway.json_bytes import encode_json
from elision.gateway.reply_writer import ReplyWriter
from elision.gateway.response_observer import ResponseObserver
from elision.gateway.upstream import UpstreamError, UpstreamResponse
from elision.manager.drivers import run_off_loop
from elision.manager.think_time import INLINE_BYTES, LARGE_BYTES, choose_executor
from elision.providers.live.client_messages import ParsedMessage
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.providers.streaming.rounds import AnswerRound, Json, RecallCall, Replacement, RoundOutcome
from elision.providers.streaming.streamed_response import JsonResponse, ResponseWriter
from elision.trajectory.tool_definitions import FIND_TOOL, OWN_TOOLS

#: Requests to the provider for one response: a model that does nothing but recall is stopped there.
MAX_ROUNDS: Final = 8
_OWN_NAMES: Final = tuple(name.encode() for name in OWN_TOOLS)


class RecallRounds:
    """The rounds of one response: requests to the provider, all but the last of which end with recall calls.

    hidden_messages: recall calls and their results since the client's last message.
    unrecorded:      observes the response whose usage is not recorded yet.
    """

    def __init__(self, sent: SessionRequest, writer: ReplyWriter, recorder: CallRecorder) -> None:
        self._sent = sent
        self._writer = writer
        self._recorder = recorder
        self._merger: ResponseMerger | None = None
        self.hidden_messages: list[ParsedMessage] = []
        self.unrecorded: ResponseObserver | None = None

    def takes_response(self, response: UpstreamResponse, *, offers_recall: bool) -> bool:
        """Return whether the response is relayed here: recall was offered, or this is a later round."""
        if self._merger is not None:
            return True
        # A response whose compression the gateway cannot read passes: the client may know it.
        return offers_recall and response.status == 200 and _make_decompressor(response) is not None

    async def relay_round(self, response: UpstreamResponse) -> bool:
        """Relay the response without its recall calls; return whether they continue it. Raises UpstreamError."""
        decompress = _make_decompressor(response)
        if decompress is None:
            raise UpstreamError("malformed", "the provider's answer has a compression that was not requested")
        observer = self.unrecorded = ResponseObserver.for_response(self._sent.api, response)
        whole = b""
        if self._merger is None:
            if not response.is_event_stream:
                whole = await self._read_whole(response, decompress, observer)
                if not _may_call_recall(whole):
                    await self._start_reply(response, length=len(whole))
                    await self._writer.send_chunk(whole)
                    self._sent.record.is_complete = True
                    await self._writer.finish()
                    return False
            stored = self._sent.body.get_field("store") is not False
            self._merger = ResponseMerger(self._sent.api, stream=response.is_event_stream, stored=stored)
        merger = self._merger
        merger.begin_round()
        if response.is_event_stream:
            await self._start_reply(response)
        late = merger.feed(whole)
        try:
            async for chunk in response.iter_chunks():
                self._writer.note_first_byte()
                output = merger.feed(decompress(chunk))
                if self.hidden_messages and merger.has_ended:
                    # The end is held until the hidden rounds are stored.
                    late += output
                else:
                    await self._writer.send_chunk(output)
                observer.feed(chunk)
            if merger.held_bytes <= INLINE_BYTES:
                outcome = merger.end_round()
            else:
                outcome = await run_off_loop(merger.end_round, choose_executor(merger.held_bytes))
        finally:
            self.unrecorded = None
            await self._recorder.record_round(observer)
        if outcome.recall_calls and not outcome.is_done and len(merger.response_ids) < MAX_ROUNDS:
            await self._writer.send_chunk(late + outcome.output)
            await self._continue_response(merger, outcome)
            return True
        await self._finish_response(merger, outcome, late, response)
        return False

    async def _read_whole(
        self, response: UpstreamResponse, decompress: Callable[[bytes], bytes], observer: ResponseObserver
    ) -> bytes:
        """Return a whole body, of which the client gets nothing before its end: it may be replaced."""
        parts: list[bytes] = []
        async for chunk in response.iter_chunks():
            self._writer.note_first_byte()
            observer.feed(chunk)
            parts.append(decompress(chunk))
        return b"".join(parts)

    async def _start_reply(self, response: UpstreamResponse, length: int | None = None) -> None:
        """Send status and headers of the first round's response."""
        if self._writer.is_started:
            return
        headers = wire.filter_response_fields(response.headers, is_changed=True)
        if length is not None:
            headers.append((b"content-length", str(length).encode()))
        await self._writer.start(response, headers)

    async def _continue_response(self, merger: ResponseMerger, outcome: RoundOutcome) -> None:
        """Answer the model's recall calls, and add calls and results to the conversation."""
        if self._sent.record.is_stream:
            # The client gets a sign of life while nothing else can be sent.
            await self._writer.send_chunk(merger.keep_alive_bytes)
        results = await self._answer_recalls(merger, outcome)
        for message in (*outcome.messages, *results):
            self.hidden_messages.append(self._sent.session.hidden_rounds.make_message(message, encode_json(message)))

    async def _finish_response(
        self, merger: ResponseMerger, outcome: RoundOutcome, late: bytes, response: UpstreamResponse
    ) -> None:
        """Finish the client's response, whether something was recalled in it or not."""
        ending = outcome.output
        if outcome.is_cut and not outcome.nothing_held:
            await self._writer.send_chunk(late + ending)
            raise UpstreamError("cut", "the provider's answer broke off")
        if outcome.recall_calls and outcome.has_client_calls:
            await self._answer_recalls(merger, outcome)
        elif outcome.recall_calls:
            # The model did nothing but recall, for as many rounds as one response may take.
            outcome = merger.finish_without_recall()
            ending += outcome.output
        await self._save_rounds(merger, outcome)
        if not self._writer.is_started:
            await self._start_reply(response, length=len(ending))
        await self._writer.send_chunk(late + ending)
        self._sent.record.is_complete = outcome.is_done
        await self._writer.finish()

    async def _answer_recalls(self, merger: ResponseMerger, outcome: RoundOutcome) -> tuple[dict[str, Any], ...]:
        """Answer the recall calls; return the results as request messages."""
        results: list[tuple[RecallCall, str]] = []
        async with self._sent.session.lock:
            for call in outcome.recall_calls:
                try:
                    text = await self._sent.session.context.handle_tool_call_async(call.name, call.arguments)
                except Exception as error:  # noqa: BLE001 - the boundary of I9
                    self._sent.log_fault("recall", error, "the model is told that nothing was found")
                    text = None
                results.append((call, text or "[not found]"))
        self._sent.record.recalls += sum(call.name != FIND_TOOL for call, _ in results)
        return merger.add_results(results)

    async def _save_rounds(self, merger: ResponseMerger, outcome: RoundOutcome) -> None:
        """Store what the client does not see, before the client has the end of the response."""
        replacements = merger.find_replacements() if outcome.is_done else ()
        if not replacements:
            return
        session = self._sent.session
        async with session.lock:
            try:
                await session.opened.end_work_async()
                for replacement in replacements:
                    visible = outcome.visible[: replacement.index + 1]
                    session.exchanges.record(
                        node=self._sent.conversation.name_continuation(visible).hex(),
                        messages=tuple(encode_json(message).decode() for message in replacement.messages),
                        results=tuple(encode_json(message).decode() for message in replacement.results),
                    )
                session.hidden_rounds.add_events(session.exchanges.list_events())
            except Exception as error:  # noqa: BLE001 - the boundary of I9
                self._sent.log_fault("exchanges", error, "what was recalled will not be there at the next request")
            await session.opened.settle_async()


def _may_call_recall(whole: bytes) -> bool:
    """Return whether a body may call a recall tool; False is certain. JSON may escape a letter of a name."""
    return len(whole) > LARGE_BYTES or b"\\u00" in whole or any(name in whole for name in _OWN_NAMES)


def _make_decompressor(response: UpstreamResponse) -> Callable[[bytes], bytes] | None:
    """Return a function that decompresses the body's chunks; None for an unknown encoding.

    The function raises UpstreamError for broken bytes.
    """
    coding = response.content_encoding.strip().lower()
    if coding in ("", "identity"):
        return bytes
    if coding not in ENCODINGS:
        return None
    decompressor = StreamDecompressor(coding)

    def decompress_chunk(chunk: bytes) -> bytes:
        try:
            return b"".join(decompressor.feed(chunk))
        except ValueError as error:
            raise UpstreamError("malformed", f"the provider's answer cannot be read: {error}") from error

    return decompress_chunk


class ResponseMerger:
    """Merges several upstream responses ("rounds") into one response for the client.

        begin_round, feed ..., end_round -> recall calls? -> add_results, begin_round ... -> done

    Instead of another round, `finish_without_recall` ends the response.

    stream: whether the response is a stream of events; else a JSON body. Either must be uncompressed, with status 200.
    Without a recall call the client gets the upstream bytes.

    stored: whether the provider stores the response (Responses: false where the request says `store: false`). If not,
    requests refer to nothing there by its id, and reasoning that is only an id is left out.
    """

    def __init__(self, api: Api, *, stream: bool, names: frozenset[str] = OWN_TOOLS, stored: bool = True) -> None:
        provider = PROVIDERS[api]
        self._format = provider.response_format if stored else provider.unstored_format
        self._writer: ResponseWriter = provider.make_stream(names) if stream else JsonResponse(self._format)
        self._tool_names = names
        self._rounds: list[AnswerRound] = []
        #: Whether the client got an error instead, which will be in no history.
        self._has_failed = False
        #: The ids of the upstream responses, in order. The client knows only the first one (a body of Responses: only
        #: the last one).
        self.response_ids: list[str] = []

    @property
    def has_ended(self) -> bool:
        """Return whether the end of this round's response has arrived: what follows adds nothing."""
        return self._writer.has_ended

    @property
    def held_bytes(self) -> int:
        """Return how many bytes of this round `end_round` has yet to read."""
        return self._writer.held_bytes

    def begin_round(self) -> None:
        """Begin another upstream response."""
        self._writer.begin_round(self._rounds)

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of it; return what the client may get now."""
        return self._writer.feed(chunk)

    def end_round(self) -> RoundOutcome:
        """End the upstream response, which may have ended early; return what is to be done."""
        end = self._writer.end_round()
        self._has_failed = end.has_failed or end.content is None
        if end.content is None:
            return RoundOutcome(
                output=end.output, is_done=end.has_failed, is_cut=end.is_cut, nothing_held=end.nothing_held
            )
        round_ = self._format.split_content(end.content, self._tool_names, end.is_truncated)
        self._rounds.append(round_)
        self.response_ids.append(end.id)
        another_follows = bool(round_.recall_calls) and not round_.has_client_calls
        output = end.output + self._writer.release_held(self._rounds, another_follows)
        visible: tuple[Json, ...] = ()
        if not another_follows and not self._has_failed:
            visible = self._format.render_visible(self._rounds)
        return RoundOutcome(
            output=output,
            recall_calls=round_.recall_calls,
            has_client_calls=round_.has_client_calls,
            messages=round_.messages,
            visible=visible,
            is_done=not another_follows,
        )

    def add_results(self, pairs: Sequence[tuple[RecallCall, str]]) -> tuple[Json, ...]:
        """Take the results of the last round's calls; return them as request messages."""
        self._rounds[-1] = replace(self._rounds[-1], results=tuple(pairs))
        return self._format.render_results(pairs)

    def finish_without_recall(self) -> RoundOutcome:
        """End a response that would need another round, as if the model had stopped by itself."""
        output = self._writer.write_ending(self._rounds)
        return RoundOutcome(
            output=output,
            messages=self._rounds[-1].messages,
            visible=self._format.render_visible(self._rounds),
            is_done=True,
        )

    def find_replacements(self) -> tuple[Replacement, ...]:
        """Find what replaces the client's messages in requests: at most one (Responses: one an item).

        Calls without a result are left out. () where the client saw everything or nothing, or a response that failed or
        was cut.
        """
        if self._has_failed:
            return ()
        return self._format.find_replacements(self._rounds)

    @property
    def keep_alive_bytes(self) -> bytes:
        """Return bytes without meaning, for a client that waits; b"" where there are none."""
        return self._writer.keep_alive_bytes
