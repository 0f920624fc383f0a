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
from elision.gateway import headers as fields
from elision.gateway.body import RequestBody
from elision.gateway.budgets import Limit
from elision.gateway.exchanges import Said
from elision.gateway.forwarding import broken, cut, finish_tap, inflating, is_stream, tap_of, tell
from elision.gateway.loggable import loggable
from elision.gateway.recalling import Outcome, RecallCall, Relay, Replacement
from elision.gateway.rewriting import appended, rewritten, written
from elision.gateway.routes import Api
from elision.gateway.served import Served
from elision.gateway.sessions import LiveSession, plain
from elision.gateway.tap import Heard, Tap
from elision.gateway.transcript import Entry, answers
from elision.gateway.upstream import Answer, Upstream, UpstreamError
from elision.gateway.wire import Headers, Incoming, Reply
from elision.manager.context_view import ContextView, SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor
from elision.trajectory.usage import Usage

_log: Final = logging.getLogger("elision.gateway")

#: Seconds for which what a pass left unwritten waits for the answer's usage, to be written with it.
SOON: Final = 0.25
#: Seconds in which a request that went ahead may be answered before it is looked at: who is quicker does not wait.
AHEAD: Final = 0.005
#: Requests to the provider that one answer may take: a model that does nothing but recall is stopped there.
ROUNDS: Final = 8
#: Bytes of an error's body that are read before it is decided what becomes of it.
ERROR_BYTES: Final = 1_000_000
#: Bytes of a request that is put together at once.
SPLICED: Final = 256 * 1024
#: What stands beside the messages and says something about the context.
_BESIDE: Final = ("thinking", "context_management", "cache_control", "compaction")
#: What is read of a request apart from its messages.
FIELDS: Final = ("tools", "system", "instructions", "store", *_BESIDE)
_PLAIN: Final = (b"accept-encoding", b"identity")
_SYSTEM: Final[Mapping[Api, str]] = {"anthropic": "system", "openai-responses": "instructions"}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What goes to the provider.

    edited:  whether it is other than what the client sent. beta: values for the `anthropic-beta` header.
    offered: whether recall is offered, so that the answer must come in the plain.
    """

    body: bytes
    edited: bool = False
    beta: tuple[str, ...] = ()
    offered: bool = False


@dataclass(slots=True)
class Answering:
    """See the module.

    body: of `request`, taken apart. entries: its messages, as its session took them. hint: which limit was reached, for
    the client to read.

    limit: asked before the first request to the provider; says which the session has reached, or raises LimitError.
    shared: whether other processes serve from the same store: no answer comes before its call is in the log.
    """

    upstream: Upstream
    live: LiveSession
    api: Api
    url: str
    body: RequestBody
    entries: Sequence[Entry]
    request: Incoming
    reply: Reply
    served: Served
    hint: str = ""
    limit: Limit | None = None
    shared: bool = False
    relay: Relay | None = None
    #: What the model and the gateway said since the client's last message.
    hidden: list[Said] = field(default_factory=list)
    #: Whether the newest request offered recall.
    _offered: bool = False
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _settling: asyncio.Task[None] | None = None
    #: Where the request goes ahead: it being looked at, whether that is waited for, and what was reported before.
    _looking: asyncio.Task[None] | None = None
    _awaited: asyncio.Event = field(default_factory=asyncio.Event)
    _reported: Usage | None = None

    async def answer(self) -> bool:
        """Answer it; whether the answer came to its end. Raises LimitError where it is not admitted."""
        try:
            said = await self._said()
            if self._may_go_ahead(said):
                await self._ahead(said)
                return self.served.complete
            while (outcome := await self._round([*said, *self.hidden])) is not None:
                assert self.relay is not None
                await self._recalled(self.relay, outcome)
            return self.served.complete
        finally:
            self._over.set()
            await self._settled()

    async def _said(self) -> list[Said]:
        """The conversation as it stands upstream; the store is asked once for what this process has not heard."""
        live = self.live
        if live.cold or live.behind:
            await self._hear(live)
        try:
            return live.exchanges.expanded(self.entries)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._fault("exchanges", error)
            return [Said(entry.json, entry.raw) for entry in self.entries]

    async def _hear(self, live: LiveSession) -> None:
        """Learn what other gateways noted, and this one before it was restarted."""
        async with live.lock:
            try:
                if live.cold:
                    # Before the assistant's first word there was nothing to recall.
                    if any(entry.assistant for entry in self.entries):
                        await self._learn_recorded()
                elif live.behind:
                    live.exchanges.learn(await live.context.heard_exchanges_async())
                    said = live.exchanges.expanded(self.entries)
                    # The newest answer is in no log before this request.
                    if answers(list(map(_is_assistants, said))) > live.context.turns + 1:
                        # Others came to another process, where the session parted from this one.
                        await self._learn_recorded()
                live.cold = live.behind = False
            except Exception as error:  # noqa: BLE001 - the boundary of I9; the next request asks again
                # Without them the model misses what it recalled, and nothing else.
                self._fault("exchanges", error, "it goes on without what was recalled in it")

    async def _learn_recorded(self) -> None:
        """Exchanges of a stored session: each that is put in its place may show the way to later ones."""
        known = -1
        exchanges = self.live.exchanges
        while len(exchanges.known) > known:
            known = len(exchanges.known)
            said = plain(exchanges.expanded(self.entries))
            exchanges.learn(await self.live.context.recorded_exchanges_async(said))

    # -- one request to the provider -------------------------------------------------------------------------------

    async def _round(self, said: Sequence[Said]) -> Outcome | None:
        """Ask the provider once; the outcome where it goes on with a recall, None where the answer is over."""
        view = await self._prepared(said)
        return await self._exchange(await self._encode_view(view, said), said)

    async def _exchange(self, out: Outgoing, said: Sequence[Said]) -> Outcome | None:
        answer = await self._asked(out, said)
        if answer is None:
            return None
        if self.shared and self._settling is not None:
            # Whoever serves the next call must find in the log what this one was told.
            await asyncio.shield(self._settling)
        async with answer:
            try:
                return await self._told(answer)
            except UpstreamError as error:
                await broken(error, self.reply, self.api, self.served)
                return None

    def _may_go_ahead(self, said: Sequence[Said]) -> bool:
        """Whether the request goes out as it came, whatever is in it, and nobody is to be asked first."""
        live = self.live
        begun = any(entry.assistant for entry in self.entries)
        # Which session's it is, and what the client is told of that, must be known.
        known = live.straight and (live.newest is not None or not begun)
        if self.shared or self.limit is not None or not known or not self._is_own(said):
            return False
        return live.context.foregone(begun=begun, model=self.body.model)

    async def _ahead(self, said: Sequence[Said]) -> None:
        """Ask the provider, and look at the request while it works."""
        if (newest := self.live.newest) is not None:
            self.served.session = newest.branch or self.live.name
        self._looking = asyncio.ensure_future(self._look(said))
        try:
            await self._exchange(Outgoing(self.request.body), said)
        finally:
            await self._looked()

    async def _look(self, said: Sequence[Said]) -> None:
        # The lock first: the session's next request comes behind this one.
        async with self.live.lock:
            await _at_most(self._awaited, AHEAD)
            if await self._viewed(said) is None:
                self.served.how = "failed"
            if self._reported is not None:
                # Before the session's next request, which tells its turn what it was billed.
                self._note(self._reported)

    async def _looked(self) -> None:
        """Wait until a request that went ahead was looked at: what is said of its call comes behind that."""
        if self._looking is not None:
            self._awaited.set()
            await asyncio.shield(self._looking)

    def _is_own(self, said: Sequence[Said]) -> bool:
        """Whether that is the client's own conversation, without anything that it did not see."""
        return len(said) == len(self.body.messages) and not self.live.exchanges.known

    async def _prepared(self, said: Sequence[Said]) -> ContextView | None:
        """The view of the next call; None where it goes out as it came."""
        waited = time.perf_counter()
        async with self.live.lock:
            self.served.waited += time.perf_counter() - waited
            return await self._viewed(said)

    async def _viewed(self, said: Sequence[Said]) -> ContextView | None:
        """The same, with the session's lock held."""
        live = self.live
        try:
            view = await live.context.prepare_async(
                plain(said),
                tools=self.body.field("tools"),
                system=self.body.field(_SYSTEM[self.api]) if self.api in _SYSTEM else None,
                model=self.body.model,
                request={name: value for name in _BESIDE if (value := self.body.field(name)) is not None},
                # What is begun is brought to its end.
                admit=self._admit if self.limit is not None and not self.served.rounds else None,
            )
        except LimitError:
            self._begin_settling()
            raise
        except Exception as error:  # noqa: BLE001
            # The boundary of I9 on this side: what the library tells its caller is nothing to a client.
            self._fault("prepare", error)
            return None
        live.newest = view.diagnostics
        self.served.passes.append(view.diagnostics)
        self.served.session = view.diagnostics.branch or live.name
        self._begin_settling()
        return view

    def _admit(self, standing: SessionStatus) -> None:
        assert self.limit is not None
        self.hint = self.limit(standing) or self.hint

    async def _encode_view(self, view: ContextView | None, said: Sequence[Said]) -> Outgoing:
        """The bytes of `view`: the client's own where it changes nothing."""
        if view is None:
            return self._without_a_view(said)
        same = len(view.messages) == len(said) and all(map(is_, view.messages, plain(said)))
        if same and self._is_own(said) and not view.added_tools and not view.extra:
            return Outgoing(self.request.body)
        size = len(self.body.raw)
        # What was written for the session before is looked up, so one request of it at a time.
        async with self.live.lock:
            if size <= SPLICED:
                return self._outgoing(view, said)
            return await run_off_loop(partial(self._outgoing, view, said), choose_executor(size))

    def _outgoing(self, view: ContextView, said: Sequence[Said]) -> Outgoing:
        """The bytes of a view that changes something; in any thread."""
        try:
            raws = self.live.sent.messages(view.messages, said)
            body = self.body.with_changes(messages=raws, fields=self._fields(view))
        except Exception as error:  # noqa: BLE001
            # The same boundary.
            self._fault("render", error)
            return self._without_a_view(said)
        return Outgoing(body, edited=True, beta=view.betas, offered=view.offered)

    def _without_a_view(self, said: Sequence[Said]) -> Outgoing:
        """As it came; behind a recall with what that was."""
        self.served.how = "failed"
        if not self.hidden:
            return Outgoing(self.request.body)
        return Outgoing(self.body.with_changes(messages=[each.raw for each in said]), edited=True)

    def _fields(self, view: ContextView) -> dict[str, bytes]:
        """What changes beside the messages."""
        changed = {
            name: rewritten(self.body.raw_field(name) or b"null", self.body.field(name), value)
            for name, value in view.extra.items()
        }
        if view.added_tools:
            own = [msgspec.json.encode(tool) for tool in view.added_tools]
            changed["tools"] = appended(self.body.raw_field("tools"), own)
        return changed

    async def _asked(self, out: Outgoing, said: Sequence[Said]) -> Answer | None:
        """The provider's answer, asked again where what it refused is ours to mend; None where there is none."""
        answer = await self._open(out)
        if answer is None or answer.status not in (400, 413):
            return answer
        return await self._mended(answer, out, said)

    async def _open(self, out: Outgoing) -> Answer | None:
        names = fields.forwarded(self.request.headers, changed=out.edited, readable=True)
        if out.beta:
            names = _with_betas(names, out.beta)
        if out.offered:
            names = [*(pair for pair in names if pair[0].lower() != b"accept-encoding"), _PLAIN]
        if not self.served.rounds:
            self.served.added = time.perf_counter() - self.request.received_at
        self.served.rounds += 1
        self.served.bytes_up += len(out.body)
        self._offered = out.offered
        if out.edited and self.served.how == "same":
            self.served.how = "view"
        try:
            return await self.upstream.open(self.request.method, self.url, names, out.body)
        except UpstreamError as error:
            await broken(error, self.reply, self.api, self.served)
            return None

    # -- refusals --------------------------------------------------------------------------------------------------

    async def _mended(self, answer: Answer, out: Outgoing, said: Sequence[Said]) -> Answer | None:
        """A request that was refused: shortened where it was too long, as it came where our edits may be the cause."""
        async with answer:
            await self._looked()
            try:
                told = await _read(answer, ERROR_BYTES)
            except UpstreamError as error:
                await broken(error, self.reply, self.api, self.served)
                return None
            heard = await self._heard(answer, told)
            if heard.overflow is not None and (shorter := await self._shortened(heard, out, said)):
                self.served.cause = "overflow"
                return await self._open(shorter)
            if heard.overflow is None and out.edited and not self.hidden:
                return await self._as_it_came(answer, heard, told)
            await self._refused(answer, told)
            return None

    async def _shortened(self, heard: Heard, out: Outgoing, said: Sequence[Said]) -> Outgoing | None:
        """The same messages once more, now that the model's window is known; None where nothing becomes shorter."""
        async with self.live.lock:
            if not self.live.context.overflowed(heard.error):
                return None
        view = await self._prepared(said)
        if view is None:
            return None
        shorter = await self._encode_view(view, said)
        # By bytes: how many tokens it was thought to have goes by what was reported, and that has just proved wrong.
        if len(shorter.body) < len(out.body):
            return shorter
        return None

    async def _as_it_came(self, answer: Answer, heard: Heard, told: bytes) -> Answer | None:
        """What the client sent itself: if that is taken, what we made of it was wrong; the session is left alone then.

        Providers advise against hiding their error about thinking: it is in the log, and in the client's answer where
        its own request is refused as well.
        """
        own = await self._open(Outgoing(self.request.body))
        if own is None or own.status >= 400:
            return own
        self.live.leave_alone()
        self.served.how = "failed"
        self.served.cause = "unbound" if heard.unbound else "rejected"
        _log.error(
            "session %s: the provider refused what was made of a request and took it as it came; its next %d requests"
            " are left alone: %s",
            self.served.session,
            self.live.left_alone,
            loggable(heard.error, self.request.headers),
        )
        return own

    async def _refused(self, answer: Answer, read: bytes) -> None:
        """The provider's refusal, word for word; as an event where an answer has begun."""
        if not self.reply.started:
            heard = await tell(
                answer,
                self.reply,
                tap_of(self.api, answer),
                self.served,
                received_at=self.request.received_at,
                before=read,
                extra=self._extra(),
            )
            self.served.cause = self.served.cause or f"upstream-{answer.status}"
            self.served.why = loggable(heard.error, self.request.headers)
            return
        heard = await self._heard(answer, read or await _read(answer, ERROR_BYTES))
        await self._end_with_error(heard.error or f"the provider answered {answer.status}", f"upstream-{answer.status}")

    async def _end_with_error(self, message: str, cause: str) -> None:
        self.served.cause, self.served.why = cause, loggable(message, self.request.headers)
        await cut(self.reply, self.api, message)

    async def _heard(self, answer: Answer, read: bytes) -> Heard:
        tap = tap_of(self.api, answer)
        tap.feed(read)
        return await finish_tap(tap)

    # -- the way back ----------------------------------------------------------------------------------------------

    async def _told(self, answer: Answer) -> Outcome | None:
        """What the provider says, on its way to the client. Raises UpstreamError where it breaks off."""
        if answer.status >= 400:
            await self._refused(answer, b"")
            return None
        # One that comes compressed in a way that nobody asked for is the client's to read.
        if self.relay is None and self._offered and answer.status == 200 and inflating(answer) is not None:
            self.relay = Relay(self.api, stream=is_stream(answer), stored=self.body.field("store") is not False)
        return await (self._relayed(answer, self.relay) if self.relay is not None else self._passed(answer))

    async def _passed(self, answer: Answer) -> None:
        """The answer as it comes."""
        tap = tap_of(self.api, answer)
        try:
            await tell(answer, self.reply, tap, self.served, received_at=self.request.received_at, extra=self._extra())
        finally:
            await self._heard_of(tap)

    async def _relayed(self, answer: Answer, relay: Relay) -> Outcome | None:
        """The answer as it comes, but for calls of the recall tools: the outcome where it goes on behind them."""
        tap = tap_of(self.api, answer)
        inflated = inflating(answer)
        late = b""
        if inflated is None:
            raise UpstreamError("malformed", "the provider's answer is compressed in a way that nobody asked for")
        relay.begin_round()
        if is_stream(answer):
            await self._start(answer)
        try:
            async for chunk in answer.chunks():
                self.served.first = self.served.first or time.perf_counter() - self.request.received_at
                tap.feed(chunk)
                out = relay.feed(inflated(chunk))
                if self.hidden and relay.ended:
                    # The end is held until what the client is not shown is in the store.
                    late += out
                else:
                    await self._send(out)
            outcome = await self._end_round(relay)
        finally:
            await self._heard_of(tap)
        if outcome.calls and not outcome.done and len(relay.ids) < ROUNDS:
            await self._send(late + outcome.out)
            return outcome
        await self._close(relay, outcome, late, answer)
        return None

    async def _end_round(self, relay: Relay) -> Outcome:
        """The end of a round; a large body is read in a thread."""
        if relay.held <= INLINE_BYTES:
            return relay.end_round()
        return await run_off_loop(relay.end_round, choose_executor(relay.held))

    async def _close(self, relay: Relay, outcome: Outcome, late: bytes, answer: Answer) -> None:
        """The end of an answer in which something was recalled, or nothing."""
        ending = outcome.out
        if outcome.cut and not outcome.passed:
            await self._send(late + ending)
            await broken(UpstreamError("cut", "the provider's answer broke off"), self.reply, self.api, self.served)
            return
        if outcome.calls and outcome.others:
            await self._answered(relay, outcome)
        elif outcome.calls:
            # Nothing but recalls, for as long as an answer may take.
            outcome = relay.finish_without_recall()
            ending += outcome.out
        await self._remember(relay, outcome)
        if not self.reply.started:
            await self._start(answer, length=len(ending))
        await self._send(late + ending)
        self.served.complete = outcome.done
        self.served.whole = time.perf_counter() - self.request.received_at
        await self.reply.finish()

    async def _start(self, answer: Answer, length: int | None = None) -> None:
        """Status and headers of the first round's answer."""
        if self.reply.started:
            return
        self.served.status, self.served.stream = answer.status, is_stream(answer)
        if length is not None:
            own = [(b"content-length", str(length).encode())]
        else:
            own = []
        await self.reply.start(answer.status, [*fields.returned(answer.headers, changed=True), *own, *self._extra()])

    async def _send(self, chunk: bytes) -> None:
        if chunk:
            self.served.bytes_out += len(chunk)
            await self.reply.send(chunk)

    def _extra(self) -> Headers:
        """What we say of our own: whose session it is, and when a guard says stop."""
        told = [(b"x-elision-session", self.served.session.encode("ascii", "backslashreplace"))]
        return told + ([(b"x-elision-stop", self.hint.encode("ascii", "backslashreplace"))] if self.hint else [])

    # -- recalls ---------------------------------------------------------------------------------------------------

    async def _recalled(self, relay: Relay, outcome: Outcome) -> None:
        """Answer the model's recalls and take both for said."""
        # Word that something is under way, while nothing can be shown.
        await self._send(relay.keep_alive() if self.served.stream else b"")
        told = await self._answered(relay, outcome)
        self.hidden += [Said(message, written(message)) for message in (*outcome.said, *told)]

    async def _answered(self, relay: Relay, outcome: Outcome) -> tuple[dict[str, Any], ...]:
        """Recalls and what they found, as request messages."""
        found: list[tuple[RecallCall, str]] = []
        async with self.live.lock:
            for call in outcome.calls:
                text = await self._recall(call)
                found.append((call, text or "[not found]"))
        self.served.recalls += len(found)
        return relay.answered(found)

    async def _recall(self, call: RecallCall) -> str | None:
        try:
            return await self.live.context.handle_tool_call_async(call.name, call.arguments)
        except Exception as error:  # noqa: BLE001 - the same boundary
            self._fault("recall", error, "the model is told that nothing was found")
            return None

    async def _remember(self, relay: Relay, outcome: Outcome) -> None:
        """What the client is not shown, in the store before it has the end of the answer."""
        replaced = relay.replacements() if outcome.done else ()
        if not replaced:
            return
        async with self.live.lock:
            try:
                for each in replaced:
                    self._exchanged(each, outcome)
                self.live.exchanges.learn(self.live.context.exchanges())
            except Exception as error:  # noqa: BLE001 - the same boundary
                self._fault("exchanges", error, "what was recalled will not be there at the next request")
            await self.live.context.settle_async()

    def _exchanged(self, replaced: Replacement, outcome: Outcome) -> None:
        shown = outcome.shown[: replaced.place + 1]
        self.live.context.exchanged(
            node=self.live.transcript.after(self.entries, shown).hex(),
            messages=tuple(map(_text, replaced.messages)),
            results=tuple(map(_text, replaced.results)),
        )

    # -- the log ---------------------------------------------------------------------------------------------------

    def _begin_settling(self) -> None:
        if self.shared:
            self._settling = asyncio.ensure_future(self._settle())
        else:
            self._settling = self._settling or asyncio.ensure_future(self._settle_soon())

    async def _settle_soon(self) -> None:
        """Write what the pass left unwritten: while the provider works, or with the usage of a quick answer."""
        await _at_most(self._over, SOON)
        await self._settle()

    async def _settle(self) -> None:
        async with self.live.lock:
            if (fault := await self.live.context.settle_async()) is not None:
                self.served.cause = self.served.cause or fault.kind

    async def _settled(self) -> None:
        """All of it is in the store; cancelled or not, the log is not left in the midst of a write."""
        if self._settling is not None:
            await asyncio.shield(self._settling)
            await asyncio.shield(asyncio.ensure_future(self._settle()))

    async def _heard_of(self, tap: Tap) -> None:
        """Record what was reported, be it of an answer that broke off or a client that left: that is billed as well."""
        await asyncio.shield(asyncio.ensure_future(self._record(tap)))

    async def _record(self, tap: Tap) -> None:
        """What the provider reported for the newest call."""
        heard = await finish_tap(tap)
        if heard.usage is not None:
            if self.served.usage is None:
                self.served.usage = heard.usage
            else:
                self.served.usage = self.served.usage + heard.usage
        if heard.cache_miss:
            self.served.cache_miss = heard.cache_miss.reason
        else:
            self.served.cache_miss = ""
        self.served.thinking_dropped += sum(each.is_dropped for each in heard.transformations)
        if heard.cleared:
            self.served.cleared_tokens += heard.cleared.cleared_tokens
        else:
            self.served.cleared_tokens += 0
        if heard.usage is None:
            return
        if self._looking is not None and not self._looking.done():
            self._reported = heard.usage
            await self._looked()
            return
        async with self.live.lock:
            self._note(heard.usage)

    def _note(self, usage: Usage) -> None:
        """The same, with the session's lock held."""
        if (told := self.served.diagnostics) is not None:
            try:
                self.live.context.record(usage, call=told.call, branch=told.branch)
            except Exception as error:  # noqa: BLE001 - the same boundary; the client has its answer
                self._fault("usage", error, "the call has none")

    def _fault(self, what: str, error: Exception, then: str = "the request goes out as it came") -> None:
        self.served.cause, self.served.why = what, type(error).__name__
        _log.error("session %s: %s failed, %s", self.live.name, what, then, exc_info=error)


async def _at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for it, but no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _is_assistants(said: Said) -> bool:
    """Whether the assistant said it, of whatever API."""
    role = said.json.get("role")
    return role == "assistant" or (role is None and not text_in(said.json.get("type")).endswith("_output"))


def _text(message: Mapping[str, Any]) -> str:
    return written(message).decode()


async def _read(answer: Answer, limit: int) -> bytes:
    read = bytearray()
    async for chunk in answer.chunks():
        read += chunk
        if len(read) > limit:
            break
    return bytes(read)


def _with_betas(names: Headers, betas: Sequence[str]) -> Headers:
    asked = ",".join(value.decode("latin-1") for name, value in names if name.lower() == b"anthropic-beta")
    for beta in betas:
        asked = add_beta(asked, beta)
    kept = [pair for pair in names if pair[0].lower() != b"anthropic-beta"]
    return [*kept, (b"anthropic-beta", asked.encode("latin-1"))]
