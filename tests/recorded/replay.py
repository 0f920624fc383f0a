"""Send recorded exchanges through a gateway: a client repeats each request, a provider repeats its response.

Gateway, provider and client live in one event loop and talk over loopback sockets. All exchanges go through one
gateway with one API key, one after another, so that its sessions grow as a real gateway's do.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle, zip_longest
from typing import Any, Final

from elision.gateway.request_record import LOGGER_NAME
from tests.gateway.loopback_gateway import TIMEOUT_SECONDS, HttpClient, HttpResponse, make_settings, run_gateway
from tests.gateway.scripted_upstream import ReceivedRequest, render_chunk, run_scripted_upstream
from tests.recorded.bills import add_up_bill
from tests.recorded.cassettes import Exchange, Headers
from tests.recorded.edits import HIDING, explain_edits

#: Sizes of the pieces in which a chunked response is written: events are cut anywhere.
PIECES: Final = (1, 7, 64, 900, 3_000)
#: Fields that describe one connection, or the body's length on it.
OF_THE_CONNECTION: Final = ("connection", "keep-alive", "transfer-encoding", "content-length")
#: Credentials, and the version that every request to Anthropic names: the recorder left them out.
CREDENTIALS: Final = {
    "openai": ("authorization: Bearer sk-recorded",),
    "anthropic": ("x-api-key: sk-recorded", "anthropic-version: 2023-06-01"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How the gateway serves.

    given:      settings of the gateway.
    compressed: whether the provider compresses responses, as real ones do; the recorder unpacked them.
    hides:      whether results are hidden, so that requests may differ from the client's in that.
    """

    name: str
    given: dict[str, Any]
    compressed: bool = False
    hides: bool = False


MODES: Final = (
    Mode(name="pass-through", given={"gateway_off": True}),
    Mode(name="raw", given={"gateway_off": False, "strategy": "raw"}),
    Mode(name="shadow", given={"gateway_off": False, "gateway_shadow": True}),
    Mode(name="default", given={"gateway_off": False}),
    Mode(name="default, gzip", given={"gateway_off": False}, compressed=True),
    Mode(name="hiding", given={"gateway_off": False, "strategy": HIDING}, hides=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """One exchange as it went through.

    requests: all that the provider got for it. got: what the client got. warned: what the gateway warned of.
    facts:    of the request, as the gateway logged them.
    """

    exchange: Exchange
    mode: Mode
    requests: tuple[ReceivedRequest, ...] = field(repr=False)
    got: HttpResponse = field(repr=False)
    warned: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_upstream_equal(self) -> bool:
        """Whether the provider got the client's very bytes, once."""
        return [each.body for each in self.requests] == [self.exchange.request_body]

    @property
    def is_returned_equal(self) -> bool:
        """Whether the client got the provider's very bytes."""
        return self.got.is_complete and self.got.body == written_body(self.exchange, self.mode)

    def differences(self) -> Iterator[str]:
        """Say everything that is not as recorded, one sentence each."""
        if len(self.requests) != 1:
            yield f"the provider was asked {len(self.requests)} times"
        for asked in self.requests:
            yield from self._differences_in_request(asked)
        yield from self._differences_in_response()
        yield from self._differences_in_bill()
        yield from (f"the gateway warned: {each}" for each in self.warned)

    def _differences_in_request(self, asked: ReceivedRequest) -> Iterator[str]:
        line = f"{self.exchange.method} /{self.exchange.provider}{self.exchange.target} HTTP/1.1"
        if asked.line != line:
            yield f"the provider was asked for {asked.line!r}, recorded {line!r}"
        if asked.body != self.exchange.request_body:
            if self.mode.hides and self.exchange.api:
                yield from explain_edits(self.exchange, asked.body)
            else:
                yield f"the request's body is {asked.body[:200]!r}"
        left = ("host", *OF_THE_CONNECTION)
        found = [f"{name.lower()}: {value}" for name, value in asked.headers if name.lower() not in left]
        expected = request_fields(self.exchange)
        for one, other in zip_longest(sorted(expected), sorted(found)):
            if one != other and not self._asks_for_readable(one, other):
                yield f"request header {other!r}, the client's {one!r}"

    def _asks_for_readable(self, one: str | None, other: str | None) -> bool:
        """Whether it is the one field that may differ: a gateway that reads responses asks for what it can read."""
        if not self.exchange.api or self.mode.given["gateway_off"] or not one or not one.startswith("accept-encoding"):
            return False
        readable = ", ".join(each for each in one.partition(": ")[2].split(", ") if each != "br")
        # Where recall is offered, a response may have to be rewritten.
        allowed = (readable, "identity") if self.mode.hides else (readable,)
        return other in {f"accept-encoding: {each}" for each in allowed}

    def _differences_in_response(self) -> Iterator[str]:
        exchange, got = self.exchange, self.got
        if got.status != exchange.status:
            yield f"status {got.status}, recorded {exchange.status}"
        if not self.is_returned_equal:
            yield f"the response's body has {len(got.body):,} other bytes: {got.body[:200]!r}"
        own = {name for name in got.headers if name.startswith("x-elision-")}
        if unexpected := own - {"x-elision-session"}:
            yield f"headers of ours: {sorted(unexpected)}"
        found = {name: value for name, value in got.headers.items() if name not in (*OF_THE_CONNECTION, *own)}
        expected = dict(written_headers(exchange, self.mode))
        for name in sorted(found.keys() | expected.keys()):
            if found.get(name) != expected.get(name):
                yield f"response header {name}: {found.get(name)!r}, recorded {expected.get(name)!r}"

    def _differences_in_bill(self) -> Iterator[str]:
        """Hold the tokens that the gateway logged against those that the response reports."""
        if self.exchange.api is None or self.exchange.status != 200:
            return
        bill = add_up_bill(self.exchange) or Counter()
        answered = sum(count for (_, kind), count in bill.items() if kind == "output")
        found = (self.facts.get("billed_tokens", 0), self.facts.get("answer_tokens", 0))
        if found != (bill.total() - answered, answered):
            yield f"logged {found} tokens in and out, billed {(bill.total() - answered, answered)}"


def request_fields(exchange: Exchange) -> list[str]:
    """The headers that the client sends: the recorded ones, and what the recorder left out."""
    assert exchange.provider is not None
    left = ("host", *OF_THE_CONNECTION)
    recorded = [f"{name}: {value}" for name, value in exchange.request_headers if name not in left]
    return [*recorded, *CREDENTIALS[exchange.provider]]


def written_headers(exchange: Exchange, mode: Mode) -> Headers:
    """The headers that the provider sends, but for those of the connection."""
    kept = tuple(pair for pair in exchange.response_headers if pair[0] not in OF_THE_CONNECTION)
    return (*kept, ("content-encoding", "gzip")) if mode.compressed else kept


def written_body(exchange: Exchange, mode: Mode) -> bytes:
    """The body that the provider sends."""
    if not mode.compressed:
        return exchange.response_body
    packer = zlib.compressobj(wbits=31)
    return packer.compress(exchange.response_body) + packer.flush()


@dataclass(slots=True)
class _Delivery:
    """How far a response has come: bytes of its body that the client has."""

    exchange: Exchange
    received_bytes: int = 0
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def note_arrival(self, size: int) -> None:
        """The client has so many bytes of the body."""
        self.received_bytes = size
        self._moved.set()

    async def wait_for(self, size: int) -> None:
        """Wait until the client has so many bytes."""
        while self.received_bytes < size:
            self._moved.clear()
            await self._moved.wait()


def replay_exchanges(exchanges: Sequence[Exchange], mode: Mode) -> list[ReplayResult]:
    """Send each exchange through one gateway, in order. Exchanges without a provider are left out."""
    return asyncio.run(_replay([each for each in exchanges if each.provider is not None], mode))


async def _replay(exchanges: Sequence[Exchange], mode: Mode) -> list[ReplayResult]:
    deliveries: list[_Delivery] = []

    async def respond(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await _write_response(deliveries[-1], mode, writer)

    replayed: list[ReplayResult] = []
    async with run_scripted_upstream(respond) as upstream:
        addresses = {f"gateway_upstream_{name}": f"{upstream.url}/{name}" for name in CREDENTIALS}
        async with run_gateway(make_settings(**(addresses | mode.given), gateway_log="json")) as gateway:
            client = await gateway.connect()
            for exchange in exchanges:
                deliveries.append(_Delivery(exchange))
                upstream.requests.clear()
                with _collect_log() as log:
                    got = await _ask(client, deliveries[-1])
                    await asyncio.wait_for(log.complete.wait(), TIMEOUT_SECONDS)
                asked, warned = tuple(upstream.requests), tuple(log.warned)
                replayed.append(
                    ReplayResult(exchange=exchange, mode=mode, requests=asked, got=got, warned=warned, facts=log.facts)
                )
            client.close()
    return replayed


class _Log(logging.Handler):
    """What the gateway logs of one request. complete: set when its line came."""

    def __init__(self) -> None:
        super().__init__()
        self.warned: list[str] = []
        self.facts: Mapping[str, Any] = {}
        self.complete = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == LOGGER_NAME:
            self.facts = record.elision  # type: ignore[attr-defined]
            self.complete.set()
        elif record.levelno >= logging.WARNING and not _is_said_once(record):
            self.warned.append(record.getMessage())


def _is_said_once(record: logging.LogRecord) -> bool:
    """Whether the gateway says it once in a process, so not with every replay: that such a request passes unchanged,
    that no prices of its model are known, as for the misspelt models of some recordings, or that a prompt is a fifth of
    its estimate, as one whose only page of a PDF has three words."""
    said = record.getMessage()
    known = ("the provider holds its history", "no prices are known for ", "281 tokens were reported for a prompt of ")
    return any(each in said for each in known)


@contextmanager
def _collect_log() -> Iterator[_Log]:
    """Listen to all that the gateway logs in the meantime."""
    log, logger = _Log(), logging.getLogger("elision")
    level = logger.level
    logger.addHandler(log)
    logger.setLevel(logging.INFO)
    try:
        yield log
    finally:
        logger.setLevel(level)
        logger.removeHandler(log)


async def _ask(client: HttpClient, delivery: _Delivery) -> HttpResponse:
    exchange = delivery.exchange
    # A request without a body has no length either.
    length = None if exchange.request_body else -1
    client.send_request(
        exchange.method, exchange.target, exchange.request_body, *request_fields(exchange), length=length
    )
    if not exchange.is_stream:
        return await client.read_response()
    got = await client.read_head()
    try:
        while piece := await client.read_chunk():
            got.body += piece
            delivery.note_arrival(len(got.body))
    except asyncio.IncompleteReadError:
        got.is_complete = False
    except TimeoutError:
        raise TimeoutError(f"{exchange.name}: a piece of the stream that was sent does not reach the client") from None
    return got


async def _write_response(delivery: _Delivery, mode: Mode, writer: asyncio.StreamWriter) -> None:
    """Write a response as it was framed: in chunks, or with its length."""
    exchange, body = delivery.exchange, written_body(delivery.exchange, mode)
    is_chunked = exchange.is_stream or ("transfer-encoding", "chunked") in exchange.response_headers
    length = ("transfer-encoding", "chunked") if is_chunked else ("content-length", str(len(body)))
    fields = [f"{name}: {value}" for name, value in (*written_headers(exchange, mode), length)]
    head = [f"HTTP/1.1 {exchange.status} {exchange.reason}", *fields, "", ""]
    writer.write("\r\n".join(head).encode())
    if not is_chunked:
        writer.write(body)
        await writer.drain()
        return
    written = 0
    for piece in split_body(body):
        writer.write(render_chunk(piece))
        await writer.drain()
        written += len(piece)
        # Where recall is offered, a call is held until it is known whose it is.
        if exchange.is_stream and not mode.hides:
            await delivery.wait_for(written)
    writer.write(render_chunk(b""))
    await writer.drain()


def split_body(body: bytes) -> Iterator[bytes]:
    """Split a body as a stream is split on its way: anywhere."""
    sizes, start = cycle(PIECES), 0
    while start < len(body):
        size = next(sizes)
        yield body[start : start + size]
        start += size
