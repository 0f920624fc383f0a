"""Providers that fail, on real sockets: the client gets what the provider said, or one clear error in its shape.

Every fault is tried for all three APIs, streaming and not, where the request passes unread, where it is read and goes
out as it came, and where something of it is hidden.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import product
from typing import Any, NamedTuple

import pytest

from elision import zstd
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import (
    APIS,
    EAGER,
    HIDING_STEPS,
    LIST_FIELDS,
    PATHS,
    PLACEHOLDER_PART,
    is_streamed,
    make_body,
    make_reply,
    render_frames,
    render_refusal,
    render_whole,
)
from tests.gateway.loopback_gateway import HttpClient, HttpResponse, RunningGateway, make_settings, run_gateway
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    render_chunk,
    render_response,
    run_scripted_upstream,
)
from tests.soak import pair_cases, sample_cases

JSON, EVENTS = "content-type: application/json", "content-type: text/event-stream; charset=utf-8"


class Way(NamedTuple):
    """How a request is made. mode: passed (unread), same (nothing to hide) or view (something hidden)."""

    api: Api
    stream: bool
    mode: str

    @property
    def body(self) -> bytes:
        return self.behind(HIDING_STEPS if self.mode == "view" else 1)

    def behind(self, steps: int) -> bytes:
        # Agents that say the same messages behind different tasks would be taken for one that rewrote its history.
        name = f"{self.api} {self.stream} {self.mode}"
        return make_body(self.api, steps, stream=self.stream, task=name, word=name)

    def ask(self, client: HttpClient) -> Awaitable[HttpResponse]:
        off = ("x-elision: off",) if self.mode == "passed" else ()
        return client.request("POST", PATHS[self.api], self.body, "content-type: application/json", *off)


WAYS = [Way(api, stream, mode) for api in APIS for stream in (False, True) for mode in ("passed", "same", "view")]


@asynccontextmanager
async def between(script: Script, **given: Any) -> AsyncIterator[tuple[RunningGateway, ScriptedUpstream]]:
    usual = {"gateway_off": False, "strategy": EAGER}
    async with (
        run_scripted_upstream(script) as upstream,
        run_gateway(make_settings(upstream.url, **(usual | given))) as gateway,
    ):
        yield gateway, upstream


async def each(gateway: RunningGateway, what: Callable[[Way, HttpResponse, HttpClient], Awaitable[None]]) -> None:
    """Ask in every way, each over a connection of its own."""
    for way in WAYS:
        client = await gateway.connect()
        try:
            await what(way, await way.ask(client), client)
        finally:
            client.close()


def said(got: HttpResponse) -> str:
    """The message of an error body, whose shape is looked at."""
    error: dict[str, Any] = got.json()["error"]
    assert {"type", "message"} <= error.keys()
    return str(error["message"])


async def served(client: HttpClient) -> None:
    """The connection is good for another request."""
    assert (await client.request("GET", "/healthz")).status == 200


@pytest.fixture(autouse=True)
def _no_traceback(caplog: pytest.LogCaptureFixture) -> Any:
    """A provider that fails is nothing that failed here."""
    caplog.set_level(logging.INFO)
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 429, 500, 503, 529])
def test_refusals_word_for_word(status: int) -> None:
    """Status, headers and body of a provider's error reach the client as they are, however often it was asked."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        api = next(api for api in APIS if PATHS[api] in asked.line)
        named = ("retry-after: 17", "x-should-retry: true", "request-id: req_1")
        writer.write(render_response(render_refusal(api, status), f"{status} No", JSON, *named))

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert (got.status, got.body) == (status, render_refusal(way.api, status)), way
        assert (got.headers["retry-after"], got.headers["request-id"]) == ("17", "req_1"), way
        assert "x-elision-error" not in got.headers
        await served(client)

    async def run() -> None:
        async with between(script) as (gateway, upstream):
            await each(gateway, what)
            # What was hidden is sent as it came before a refusal of the request itself is believed.
            # Too many bytes for Anthropic are too many as they came.
            edited = [way for way in WAYS if way.mode == "view" and (status, way.api) != (413, "anthropic")]
            again = len(edited) if status in (400, 413) else 0
            assert len(upstream.requests) == len(WAYS) + again
            for asked in upstream.requests:
                assert b'"name" :  "bash"' in asked.body, "what is not changed keeps its bytes"

    asyncio.run(run())


def test_refusals_that_break_off() -> None:
    """An error whose body is cut is the error as far as it came, or one of ours: never a failure of ours."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        status = asked.get_header("x-status")
        writer.write(f"HTTP/1.1 {status} No\r\n{JSON}\r\ncontent-length: 90\r\n\r\n".encode() + b'{"error": ')
        writer.close()

    async def run() -> None:
        async with between(script) as (gateway, _):
            for way in WAYS:
                for status in ("400", "413", "429", "500"):
                    client = await gateway.connect()
                    off = ("x-elision: off",) if way.mode == "passed" else ()
                    got = await client.request("POST", PATHS[way.api], way.body, f"x-status: {status}", *off)
                    if got.status == 502:
                        assert "closed the connection before its answer was complete" in said(got)
                    else:
                        assert (got.status, got.body, got.is_complete) == (int(status), b'{"error": ', False), way
                    client.close()

    asyncio.run(run())


def test_large_refusals_word_for_word() -> None:
    """An error of megabytes passes whole, also where its beginning was read."""
    large = json.dumps({"error": {"message": "x" * 3_000_000, "type": "invalid_request_error"}}).encode()

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(large, "400 No", JSON))

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert (got.status, got.body == large) == (400, True), way

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, what)

    asyncio.run(run())


def test_what_is_refused_as_edited_goes_out_as_it_came() -> None:
    """Where the provider takes the client's own bytes and not ours the client hears nothing of it, now and later."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        api = next(api for api in APIS if PATHS[api] in asked.line)
        if PLACEHOLDER_PART in asked.body:
            writer.write(render_response(render_refusal(api, 400), "400 No", JSON))
        elif is_streamed(asked.body):
            writer.write(render_response(b"".join(render_frames(api)), "200 OK", EVENTS))
        else:
            writer.write(render_response(render_whole(api), "200 OK", JSON))

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert got.status == 200, way
        assert got.body == (b"".join(render_frames(way.api)) if way.stream else render_whole(way.api))

    async def run() -> None:
        async with between(script) as (gateway, upstream):
            await each(gateway, what)
            count = len(upstream.requests)
            for way in WAYS:
                client = await gateway.connect()
                longer = way.behind(HIDING_STEPS + 1)
                if way.mode == "view":
                    assert (await client.request("POST", PATHS[way.api], longer)).status == 200
                    assert upstream.requests[-1].body == longer
                client.close()
            assert len(upstream.requests) == count + sum(way.mode == "view" for way in WAYS), "each was asked once"

    asyncio.run(run())


# -- nobody there ------------------------------------------------------------------------------------------------------


def test_providers_that_are_not_there() -> None:
    """A closed port, a name without a host and a port without TLS are a 502 that says so, in each API's shape."""

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(b"", "400 Bad Request"))
        writer.close()
        await writer.wait_closed()

    async def run() -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
            async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
                tls = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
                wheres = {closed: "nothing listens at", "http://nowhere.invalid": "is not known", tls: "no TLS"}
                for url, words in wheres.items():
                    given = make_settings(url, gateway_off=False, strategy=EAGER)
                    async with run_gateway(given) as gateway:
                        await each(gateway, told(502, words))

    asyncio.run(run())


def told(status: int, words: str) -> Callable[[Way, HttpResponse, HttpClient], Awaitable[None]]:
    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert got.status == status, (way, got)
        assert words in said(got)
        assert (got.json().get("type") == "error") is (way.api == "anthropic")
        assert got.headers["x-elision-error"]
        await served(client)

    return what


def test_providers_that_are_silent() -> None:
    """One that says nothing in its time is a 504."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        async with between(script, gateway_read_seconds=0.02) as (gateway, _):
            await each(gateway, told(504, "was silent for too long"))

    asyncio.run(run())


@pytest.mark.parametrize("raw", [b"", b"HTTP/1.1 200 OK\r\ncontent-ty", b"nonsense\r\n\r\n", b"HTTP/1.1 9 x\r\n\r\n"])
def test_no_head_of_an_answer(raw: bytes) -> None:
    """A connection that closes before an answer's head is there, and a head that is none, are a 502."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        writer.close()

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, told(502, "127.0.0.1"))

    asyncio.run(run())


# -- answers that break off --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_that_break_off(chunked: bool) -> None:
    """A plain answer that is cut in its midst is cut for the client too, or a 502 where nothing was sent yet."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        api = next(api for api in APIS if PATHS[api] in asked.line)
        length = "transfer-encoding: chunked" if chunked else f"content-length: {len(render_whole(api))}"
        writer.write(f"HTTP/1.1 200 OK\r\n{JSON}\r\n{length}\r\n\r\n".encode())
        writer.write(render_chunk(render_whole(api)[:90]) if chunked else render_whole(api)[:90])
        writer.close()

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        if got.status == 502:
            assert way.mode == "view", "only what may recall is read to its end before it is sent"
            assert "closed the connection before its answer was complete" in said(got)
        else:
            assert (got.status, got.body, got.is_complete) == (200, render_whole(way.api)[:90], False), way

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, what)

    asyncio.run(run())


@pytest.mark.parametrize("length", [False, True])
@pytest.mark.parametrize("silent", [False, True])
def test_streams_that_break_off_between_events(length: bool, silent: bool) -> None:
    """Cut or gone silent behind a whole event: the client gets all of it, and an error event that its SDK raises."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        api = next(api for api in APIS if PATHS[api] in asked.line)
        sized = "content-length: 99999" if length else "transfer-encoding: chunked"
        part = b"".join(render_frames(api)[:2])
        writer.write(
            f"HTTP/1.1 200 OK\r\n{EVENTS}\r\n{sized}\r\n\r\n".encode() + (part if length else render_chunk(part))
        )
        if silent:
            await asyncio.Event().wait()
        writer.close()

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        part = b"".join(render_frames(way.api)[:2])
        assert got.status == 200, way
        if length and not got.is_complete:
            # Under a length nothing can be added.
            assert got.body == part
            return
        assert got.body.startswith(part), way
        assert got.is_complete, way
        last = got.body[len(part) :].strip().rpartition(b"data: ")
        assert "error" in json.loads(last[2])
        assert (b"event: error" in last[0]) is (way.api != "openai")

    async def run() -> None:
        async with between(script, gateway_read_seconds=0.05) as (gateway, _):
            await each(gateway, what)

    asyncio.run(run())


def test_streams_that_break_off_within_an_event() -> None:
    """Half an event can neither be taken back nor completed: the client's connection is cut there as the provider's."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        api = next(api for api in APIS if PATHS[api] in asked.line)
        writer.write(f"HTTP/1.1 200 OK\r\n{EVENTS}\r\ntransfer-encoding: chunked\r\n\r\n".encode())
        writer.write(render_chunk(b"".join(render_frames(api))[:250]))
        writer.close()

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        sent = b"".join(render_frames(way.api))[:250]
        assert got.status == 200, way
        if got.is_complete:
            assert way.mode == "view", "only where a recall may come events are held until they are whole"
            front, _, behind = got.body.rpartition(b"data: ")
            assert "error" in json.loads(behind), way
            assert sent.startswith(front.removesuffix(b"event: error\n")), way
        else:
            assert got.body == sent, way

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, what)

    asyncio.run(run())


# -- odd answers -------------------------------------------------------------------------------------------------------

NAUGHT = {
    "no JSON": b'{"choices": [',
    "nothing": b"",
    "another type": b"[1, 2]",
    "text": b"<html>Bad gateway</html>",
    "wrong within": b'{"choices": {"0": 1}, "content": 7, "output": "x", "usage": [null]}',
    "worse": b'{"choices": [{"message": {"tool_calls": [null, 7, {"function": 3}]}}], "content": [1, {"type": []}],'
    b' "output": [null, {"type": "function_call", "name": 4}], "usage": {"input_tokens": "many"}}',
    "no UTF-8": b'{"content": "\xff\xfe"}',
}


@pytest.mark.parametrize(("raw", "kind"), pair_cases(NAUGHT.values(), [JSON, EVENTS, "x-none: 1"]))
def test_malformed_answers(raw: bytes, kind: str) -> None:
    """What a provider says with status 200 passes byte for byte, be it JSON or not, whatever type it says it has."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(raw, "200 OK", kind))

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert (got.status, got.body, got.is_complete) == (200, raw, True), way
        await served(client)

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, what)

    asyncio.run(run())


STREAMS = {
    "no JSON": b"event: message_start\ndata: {\n\ndata: [1]\n\ndata: {}\n\nevent: x\n\n: silence\n\n",
    "no ends": b"data: {}\ndata: {}\nfield\nid: 7",
    "CRs": b'data: {"choices": []}\r\rdata: {"choices": [{"delta": {"tool_calls": [{"index": "x"}]}}]}\r\r',
    "junk": b"\xff\xfe\x00\n\n\xef\xbb\xbf",
    "wrong types": b"event: content_block_start\n"
    b'data: {"type": "content_block_start", "index": "a", "content_block": 3}\n'
    b'\ndata: {"type": "content_block_delta", "index": {}, "delta": []}\n\n'
    b'data: {"type": "response.output_item.added", "output_index": null, "item": "x"}\n\n'
    b'data: {"choices": [{"index": null, "delta": {"tool_calls": {"a": 1}}}], "usage": "x"}\n\n',
}


@pytest.mark.parametrize("raw", STREAMS.values(), ids=STREAMS)
def test_malformed_streams(raw: bytes) -> None:
    """Events that are none pass byte for byte; where they break off before an answer's end that may be said behind."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode() + render_chunk(raw[:5]) + render_chunk(raw[5:]) + render_chunk(b""))

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert (got.status, got.is_complete) == (200, True), way
        front, error, _ = got.body.partition(b'data: {"error"' if way.api == "openai" else b"event: error")
        # What may be a recall is held, and is nothing where its end does not come.
        assert raw.startswith(front) if error and way.mode == "view" else got.body == raw, way
        await served(client)

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, what)

    asyncio.run(run())


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
def test_no_answer_behind_a_recall(api: Api, stream: bool) -> None:
    """What the client was shown instead of an answer stands for nothing: its own call, the last it sent, stays."""
    looks = make_reply("I look.", [("r1", "elision_recall", {"handle": "t1.1"})])
    whole_one = json.loads(make_body(api, HIDING_STEPS + 1, stream=stream))
    without_result = {**whole_one, LIST_FIELDS[api]: whole_one[LIST_FIELDS[api]][:-1]}

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        kind = EVENTS if stream else JSON
        if b"I look." in asked.body:
            nothing = b'event: error\ndata: {"type": "error", "error": {"message": "overloaded"}}\n\n'
            writer.write(render_response(nothing if stream else b"null", "200 OK", kind))
        elif asked.body.count(b"call_7") == 1:
            writer.write(
                render_response(
                    b"".join(render_frames(api, looks)) if stream else render_whole(api, looks), "200 OK", kind
                )
            )
        else:
            writer.write(render_response(b"".join(render_frames(api)) if stream else render_whole(api), "200 OK", kind))

    async def run() -> None:
        async with between(script) as (gateway, upstream):
            client = await gateway.connect()
            for each in (without_result, whole_one):
                await client.request("POST", PATHS[api], json.dumps(each).encode(), JSON)
            client.close()
            recalled, sent = upstream.requests[1].body, upstream.requests[-1].body
            assert (b"I look." in recalled, len(upstream.requests)) == (True, 3)
            assert (b"I look." in sent, sent.count(b"cat f7.py"), PLACEHOLDER_PART in sent) == (False, 1, True)

    asyncio.run(run())


@pytest.mark.parametrize(("api", "stream", "behind"), sample_cases(product(APIS, [False, True], [False, True]), 5))
def test_prompts_that_are_too_long(api: Api, stream: bool, behind: bool) -> None:
    """They are asked again shorter, also where it is what was recalled that made them too long; the client wrote none
    of that."""
    looks = make_reply("I look.", [("r1", "elision_recall", {"handle": "t1.1"})])
    limits: list[int] = []

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        size, is_behind = len(asked.body), b"I look." in asked.body
        if not limits and is_behind is behind:
            limits.append(int(size * 0.7))
        if limits and size > limits[0]:
            has, most = size // 3, limits[0] // 3
            words = f"prompt is too long: {has} tokens > {most} maximum"
            if api != "anthropic":
                words = (
                    f"This model's maximum context length is {most} tokens. However, your messages resulted in {has}."
                )
            told = {"message": words, "type": "invalid_request_error", "code": "context_length_exceeded"}
            writer.write(render_response(json.dumps({"type": "error", "error": told}).encode(), "400 No", JSON))
            return
        said = looks if behind and not is_behind else make_reply()
        events = b"".join(render_frames(api, said)) if stream else render_whole(api, said)
        writer.write(render_response(events, "200 OK", EVENTS if stream else JSON))

    async def run() -> None:
        async with between(script) as (gateway, _):
            client = await gateway.connect()
            got = await client.request("POST", PATHS[api], make_body(api, HIDING_STEPS, stream=stream, lines=400), JSON)
            client.close()
            assert (got.status, b"All is done." in got.body, len(limits)) == (200, True, 1)

    asyncio.run(run())


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified", "307 Elsewhere", "202 Accepted", "299 Odd"])
def test_other_statuses(status: str) -> None:
    """Answers without a body, and redirects, pass as they are: the gateway follows none."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        length = () if status[:3] in ("204", "304") else ("content-length: 0",)
        writer.write("\r\n".join([f"HTTP/1.1 {status}", "location: /elsewhere", *length, "", ""]).encode())

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert (got.status, got.body, got.headers["location"]) == (int(status[:3]), b"", "/elsewhere"), way
        await served(client)

    async def run() -> None:
        async with between(script) as (gateway, upstream):
            await each(gateway, what)
            assert len(upstream.requests) == len(WAYS)

    asyncio.run(run())


@pytest.mark.parametrize("status", ["101 Switching Protocols", "600 Odd", "799 Odd", "999 Odd"])
def test_statuses_that_are_none(status: str) -> None:
    """A status that HTTP does not have, or that nobody asked for, is a 502 that names it."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(b"odd", status, JSON, "connection: upgrade", "upgrade: odd"))

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, told(502, "no HTTP exchange with"))

    asyncio.run(run())


def test_huge_headers() -> None:
    """Header fields of tens of kilobytes pass; beyond what is taken it is a 502 that says so, and nothing breaks."""
    sizes = [30_000]

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(b"{}", "200 OK", JSON, f"x-huge: {'h' * sizes[0]}"))

    async def passes(way: Way, got: HttpResponse, client: HttpClient) -> None:
        assert (got.status, len(got.headers["x-huge"])) == (200, 30_000), way

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, passes)
            sizes[0] = 200_000
            await each(gateway, told(502, "no HTTP exchange with"))

    asyncio.run(run())


CODED: dict[str, Callable[[bytes], bytes]] = {
    # The same whenever it is packed.
    "gzip": lambda raw: gzip.compress(raw, mtime=0),
    "zstd": zstd.compress,
    # Nothing here can read it.
    "br": lambda raw: b"\x8b" + raw[::-1],
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("coding", CODED)
def test_compressed_answers(coding: str, cut: bool) -> None:
    """An answer that comes compressed, asked for or not, can be read by the client as its headers say."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        api = next(api for api in APIS if PATHS[api] in asked.line)
        stream = is_streamed(asked.body)
        packed = CODED[coding](b"".join(render_frames(api)) if stream else render_whole(api))
        kind = EVENTS if stream else JSON
        head = f"HTTP/1.1 200 OK\r\n{kind}\r\ncontent-encoding: {coding}\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head.encode() + render_chunk(packed[:50]))
        if cut:
            writer.close()
        else:
            writer.write(render_chunk(packed[50:]) + render_chunk(b""))

    async def what(way: Way, got: HttpResponse, client: HttpClient) -> None:
        plain = b"".join(render_frames(way.api)) if way.stream else render_whole(way.api)
        packed = CODED[coding](plain)
        if got.status == 502:
            assert cut
            assert "closed the connection" in said(got)
        elif "content-encoding" in got.headers:
            assert got.headers["content-encoding"] == coding
            assert (got.body, got.is_complete) == (packed[:50], False) if cut else (packed, True), way
        elif not cut:
            assert (got.body, got.is_complete) == (plain, True), way
        else:
            assert plain.startswith(got.body.partition(b"event: error")[0].partition(b'data: {"error"')[0]), way

    async def run() -> None:
        async with between(script) as (gateway, _):
            await each(gateway, what)

    asyncio.run(run())


def test_an_early_answer() -> None:
    """A provider that refuses before it has read a large request, and closes: its refusal is what the client gets."""
    large = make_body("openai", 1, task="x" * 8_000_000)

    left = asyncio.Event()

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(render_response(render_refusal("openai", 413), "413 Too large", JSON, "connection: close"))
        await writer.drain()
        # As servers do it: what is still sent is read for a while, else the other end is reset.
        while await reader.read(1 << 20):
            pass
        writer.close()
        await writer.wait_closed()
        left.set()

    async def run() -> None:
        async with await asyncio.start_server(early, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with run_gateway(make_settings(url, gateway_off=False, strategy=EAGER)) as gateway:
                client = await gateway.connect()
                got = await client.request("POST", PATHS["openai"], large, "x-elision: off")
                assert (got.status, got.body) == (413, render_refusal("openai", 413))
                client.close()
            await left.wait()

    asyncio.run(run())
