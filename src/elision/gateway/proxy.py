"""The path of one request. Read this first.

    request -> route -> body -> who asks -> session -> `Answering` -> client

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
from elision.gateway import spans
from elision.gateway.answering import FIELDS, Answering
from elision.gateway.body import RequestBody, Unreadable
from elision.gateway.budgets import Budgets
from elision.gateway.content import decompressed
from elision.gateway.forwarding import passed
from elision.gateway.identity import Identity, identity, namespace
from elision.gateway.limits import Refused
from elision.gateway.refusals import refusal
from elision.gateway.routes import Route, route, target
from elision.gateway.served import Served, Watch
from elision.gateway.sessions import LiveSession, Sessions
from elision.gateway.settings import GatewaySettings
from elision.gateway.transcript import Arrived, Transcript
from elision.gateway.upstream import Upstream
from elision.gateway.wire import Headers, Incoming, Reply
from elision.manager.context_view import SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor

_log: Final = logging.getLogger("elision.gateway")

#: The client's own switch for one request.
SWITCH: Final = b"x-elision"
#: Fields that name a history which the provider holds: what is not in the request cannot be hidden from it. Responses
#: have the first two, Anthropic's threads the third (`{"type": "create"}`, then only what is new).
_STATEFUL: Final = ("previous_response_id", "conversation", "thread")
#: The client fetches the answer later, by requests that pass through: a recall in it would be answered by nobody.
_BACKGROUND: Final = "background"


#: How often a compressed request's size it mostly is when decompressed.
_GROWTH: Final = 8


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request to a model that was taken apart. before: the session behind whose newest request it was read.
    arrived: its messages, where they were read with it."""

    route: Route
    body: RequestBody
    who: Identity
    before: LiveSession | None = None
    arrived: Arrived | None = None


class _Back:
    """The way back to a client."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    @property
    def started(self) -> bool:
        return self._reply.started

    @property
    def eventful(self) -> bool:
        return self._reply.eventful

    async def start(self, status: int, headers: Headers) -> None:
        await self._reply.start(status, headers)

    async def send(self, chunk: bytes) -> None:
        await self._reply.send(chunk)

    async def finish(self) -> None:
        await self._reply.finish()


class _Landing(_Back):
    """The same, where somebody is told when the answer has come to its end."""

    def __init__(self, reply: Reply, land: Callable[[], None]) -> None:
        super().__init__(reply)
        self._land = land
        self.landed = False

    async def finish(self) -> None:
        if not self.landed:
            self.landed = True
            self._land()
        await super().finish()


class _Hinting(_Back):
    """The same, where the answer's headers name a limit that was reached."""

    def __init__(self, reply: Reply, hint: str) -> None:
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
        sessions: Sessions,
        upstream: Upstream,
        budgets: Budgets,
        watch: Watch,
    ) -> None:
        self.settings = settings
        self._secret = secret
        self.sessions = sessions
        self.upstream = upstream
        self.budgets = budgets
        self._watch = watch

    async def serve(self, request: Incoming, reply: Reply) -> None:
        """Answer `request`. Raises CancelledError where the client is gone, and Refused or Gone where its body is not
        what it should be."""
        served = Served(path=request.raw_path.decode("latin-1"), bytes_in=len(request.body))
        try:
            await self._serve(request, reply, served)
        except asyncio.CancelledError:
            if not served.whole:
                if request.gone.is_set():
                    served.cause = "client-gone"
                else:
                    served.cause = "stopping"
            self._over(served, request)
            raise
        # Other errors are told of by whoever catches them.
        self._over(served, request)

    def _over(self, served: Served, request: Incoming) -> None:
        served.whole = served.whole or time.perf_counter() - request.received_at
        self._watch(served)

    async def _serve(self, request: Incoming, reply: Reply, served: Served) -> None:
        headers = _by_name(request.headers)
        found = route(request.method, request.raw_path, request.query, headers)
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
        url = target(base, found)
        asked = await self._read(found, request, headers, served)
        if asked is not None:
            live = self._live(asked, served)
        else:
            live = None
        if asked is not None and live is not None and not self._left_alone(live):
            await self._answer(asked, live, request, reply, url, served)
            return
        try:
            asks = found.kind == "complete" and not self._off(request)
            if asks:
                hint = await self._hint_of_passed(namespace(headers, self._secret), live, served)
            else:
                hint = ""
        except LimitError as error:
            if request.more is not None:
                # What of it is not read must be, or its client never reads why it was refused.
                raise Refused(429, "limit", str(error)) from None
            await self._stop(reply, served, found, error)
            return
        await passed(self.upstream, request, _Hinting(reply, hint) if hint else reply, url, found.api, served)

    async def _answer(
        self, asked: _Asked, live: LiveSession, request: Incoming, reply: Reply, url: str, served: Served
    ) -> None:
        complete, out = False, _Landing(reply, lambda: self.sessions.land(live))
        # Its next request may be taken while this one waits.
        entries = tuple(live.transcript.entries)
        try:
            hint = await self._hint(asked.who.namespace, served)
            assert asked.route.api is not None
            if self.settings.shadow:
                served.how = "shadow"
            else:
                served.how = "same"
            complete = await Answering(
                upstream=self.upstream,
                live=live,
                api=asked.route.api,
                url=url,
                body=asked.body,
                entries=entries,
                request=request,
                reply=out,
                served=served,
                hint=hint,
                limit=self.budgets.of_session,
                shared=self.settings.shared,
            ).answer()
        except LimitError as error:
            await self._stop(reply, served, asked.route, error)
        finally:
            self.sessions.release(live, answered=complete, landed=out.landed)

    async def _hint_of_passed(self, whose: str, live: LiveSession | None, served: Served) -> str:
        """The limit that what is passed on has reached; "" for none. Raises LimitError where it goes no further.

        live: whose it is where a session is left alone. What it cost is known as of its newest pass.
        """
        limit = self.budgets.of_session
        told = live.newest if live is not None else None
        said = ""
        if live is not None and told is not None and limit is not None:
            entries = live.transcript.entries
            # An answer that only begins is no turn.
            turns = live.transcript.answers(0) - bool(entries and entries[-1].assistant)
            said = limit(SessionStatus(turns=turns, costs=told.costs))
        of_key = await self._hint(whose, served, logged=False)
        return said or of_key

    async def _hint(self, whose: str, served: Served, *, logged: bool = True) -> str:
        """The limit that its key has reached; "" for none. Raises LimitError where it goes no further."""
        try:
            return await self.budgets.of_key(whose, logged=logged)
        except LimitError:
            raise
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._fault("what its key has spent", error, served)
            return ""

    async def _read(self, found: Route, request: Incoming, headers: Mapping[str, str], served: Served) -> _Asked | None:
        """The request taken apart; None where it is not ours to decide on."""
        if found.api is None or found.kind != "complete" or request.more is not None or self._off(request):
            return None
        try:
            raw = request.body
            coding = headers.get("content-encoding", "")
            if coding:
                most = self.settings.max_read_bytes
                # Several times as large when it is decompressed.
                raw = await run_off_loop(partial(decompressed, raw, coding, most), choose_executor(_GROWTH * len(raw)))
            live = self.sessions.before(namespace(headers, self._secret), found.api, raw)
            body = RequestBody.parse_new(raw, found.api, live.body if live is not None else None, most=INLINE_BYTES)
            if body is not None:
                asked = _take_apart(found, headers, body, self._secret)
            else:
                if live is not None:
                    before, known = (live.body, live.transcript.copy())
                else:
                    before, known = (None, None)
                read = partial(_read_aside, found, headers, raw, self._secret, before, known)
                asked = await run_off_loop(read, choose_executor(len(raw)))
            return asked and replace(asked, before=live)
        except Unreadable as error:
            served.cause = "unreadable"
            served.why = str(error)
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._fault("reading a request", error, served)
        return None

    def _off(self, request: Incoming) -> bool:
        return self.settings.off or (request.header(SWITCH) or b"").strip().lower() == b"off"

    def _live(self, asked: _Asked, served: Served) -> LiveSession | None:
        assert asked.route.api is not None
        try:
            live = self.sessions.find(
                asked.who, asked.route.api, asked.body, before=asked.before, arrived=asked.arrived
            )
        except Unreadable as error:
            served.cause = "unreadable"
            served.why = str(error)
            return None
        except Exception as error:  # noqa: BLE001 - the boundary of I9
            self._fault("finding its session", error, served)
            return None
        served.session = live.name
        served.model = asked.body.model
        return live

    def _left_alone(self, live: LiveSession) -> bool:
        """Whether this request of the session's passes as it came; then nothing waits for its answer."""
        if not live.left_alone:
            return False
        live.left_alone -= 1
        self.sessions.release(live, answered=True)
        return True

    async def _stop(self, reply: Reply, served: Served, found: Route, error: LimitError) -> None:
        served.cause = "limit"
        await self._refuse(reply, served, found, 429, str(error))

    async def _refuse(self, reply: Reply, served: Served, found: Route | None, status: int, why: str) -> None:
        served.how = "refused"
        served.status = status
        served.why = why
        status, headers, body = refusal(found.api if found else None, status, why)
        await reply.start(status, [(name.encode(), value.encode()) for name, value in headers.items()])
        await reply.send(body)
        await reply.finish()

    def _fault(self, what: str, error: Exception, served: Served) -> None:
        served.how, served.cause, served.why = "failed", "engine", type(error).__name__
        _log.error("%s failed, a request goes on without", what, exc_info=error)


def _take_apart(found: Route, headers: Mapping[str, str], body: RequestBody, secret: bytes) -> _Asked | None:
    """A request whose body was taken apart; None where it is not ours to decide on. Raises Unreadable."""
    if any(body.field(name) for name in (*_STATEFUL, _BACKGROUND)) or body.field("n") not in (None, 1):
        return None
    for name in FIELDS:
        # What cannot be decoded is the provider's to refuse.
        body.field(name)
    return _Asked(found, body, identity(found.api, headers, body, secret))


def _read_aside(
    found: Route,
    headers: Mapping[str, str],
    raw: bytes,
    secret: bytes,
    before: RequestBody | None,
    known: Transcript | None,
) -> _Asked | None:
    """The same from its bytes on, with all that costs time for a large one; in any thread. Raises Unreadable.

    before, known: the newest request of the session that it probably goes on from, and what was read of that.
    """
    assert found.api is not None
    if before is None:
        spans.survey(raw)
    else:
        before.survey(raw)
    body = RequestBody.parse(raw, found.api, before=before)
    body.measure()
    asked = _take_apart(found, headers, body, secret)
    if asked is None:
        return None
    arrived = Arrived(LIVE_DIALECTS[found.api], body.messages)
    line = Transcript.of_family(LIVE_DIALECTS[found.api], asked.who.family)
    arrived.read_ahead(known if known is not None and known.seed == line.seed else line)
    return replace(asked, arrived=arrived)


def _by_name(fields: Headers) -> dict[str, str]:
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
