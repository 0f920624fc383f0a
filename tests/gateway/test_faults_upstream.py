"""Providers that fail, on real sockets: the client gets what the provider said, or one clear error in its shape.

Every fault is tried for all three APIs, streaming and not, where the request passes unread, where it is read and goes
out as it came, and where something of it is hidden: each pair of these, and in a soak all of them.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import pytest

from elision import zstd
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import (
    APIS,
    HIDING_STEPS,
    LIST_FIELDS,
    PATHS,
    PLACEHOLDER_PART,
    is_streamed,
    make_body,
    render_frames,
    render_refusal,
    render_whole,
)
from tests.gateway.gateway_trial import (
    EVENTS_HEADER,
    JSON_HEADER,
    LOOKS,
    find_api,
    open_trial,
    refuse_edited,
    render_sound,
)
from tests.gateway.loopback_gateway import HttpResponse, RunningGateway
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    answer_always,
    render_chunk,
    render_response,
)
from tests.soak import SOAK, pair_cases, sample_cases


class Way(NamedTuple):
    """How a request is made. mode: passed (unread), same (nothing to hide) or view (something hidden)."""

    api: Api
    stream: bool
    mode: str

    @property
    def answer(self) -> bytes:
        return b"".join(render_frames(self.api)) if self.stream else render_whole(self.api)

    def make_body(self, more_steps: int = 0) -> bytes:
        # Agents that say the same messages behind different tasks would be taken for one that rewrote its history.
        name = f"{self.api} {self.stream} {self.mode}"
        steps = (HIDING_STEPS if self.mode == "view" else 1) + more_steps
        return make_body(self.api, steps, stream=self.stream, task=name, word=name)


MODES = ("passed", "same", "view")
WAYS = [
    Way(api, stream, mode)
    for (place, api), (other, mode), stream in product(enumerate(APIS), enumerate(MODES), (False, True))
    if SOAK or stream == (place + other) % 2
]

Check = Callable[[Way, HttpResponse], None]


async def ask_every_way(gateway: RunningGateway, check: Check, *fields: str, **body: int) -> None:
    """Ask in every way, each over a connection of its own, which is good for another request behind a whole answer."""
    for way in WAYS:
        client = await gateway.connect()
        off = ("x-elision: off",) if way.mode == "passed" else ()
        try:
            got = await client.request("POST", PATHS[way.api], way.make_body(**body), JSON_HEADER, *fields, *off)
            check(way, got)
            if got.is_complete:
                assert (await client.request("GET", "/healthz")).status == 200
        finally:
            client.close()


async def check_every_way(script: Script, check: Check, cause: str = "", **given: Any) -> ScriptedUpstream:
    """cause: what the records of all requests say; "" if that is not looked at."""
    async with open_trial(script, **given) as (gateway, upstream, _):
        await ask_every_way(gateway, check)
        assert not cause or {record.cause for record in gateway.records} == {cause}
        return upstream


def read_error(got: HttpResponse) -> str:
    """The message of an error body, whose shape is looked at."""
    error: dict[str, Any] = got.json()["error"]
    assert {"type", "message"} <= error.keys()
    return str(error["message"])


def expect_error(status: int, words: str) -> Check:
    def check(way: Way, got: HttpResponse) -> None:
        assert got.status == status, (way, got)
        assert got.headers["x-elision-error"]
        assert words in read_error(got)
        assert "\n" not in read_error(got)
        assert (got.json().get("type") == "error") is (way.api == "anthropic")

    return check


def begin_answer(asked: ReceivedRequest, kind: str, length: int, raw: bytes, *fields: str) -> bytes:
    """The head of an answer and a part of its body: under that length, or chunked where it is 0."""
    sized = f"content-length: {length}" if length else "transfer-encoding: chunked"
    head = "\r\n".join(["HTTP/1.1 200 OK", kind, sized, *fields, "", ""]).encode()
    return head + (raw if length else render_chunk(raw))


@pytest.fixture(autouse=True)
def _no_traceback(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """A provider that fails is nothing that failed here."""
    caplog.set_level(logging.INFO)
    yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", sample_cases([400, 401, 413, 403, 429, 404, 529, 422, 500, 503], 2))
async def test_refusals_word_for_word(status: int) -> None:
    """Status, headers and body of a provider's error reach the client as they are, however often it was asked."""
    named = ("retry-after: 17", "x-should-retry: true", "request-id: req_1")

    def refuse(asked: ReceivedRequest) -> bytes:
        return render_response(render_refusal(find_api(asked), status), f"{status} No", JSON_HEADER, *named)

    def check(way: Way, got: HttpResponse) -> None:
        assert (got.status, got.body) == (status, render_refusal(way.api, status)), way
        assert (got.headers["retry-after"], got.headers["request-id"]) == ("17", "req_1"), way
        assert "x-elision-error" not in got.headers

    upstream = await check_every_way(answer_always(refuse), check)
    # What was hidden is sent as it came before a refusal of the request itself is believed.
    # Too many bytes for Anthropic are too many as they came.
    edited = [way for way in WAYS if way.mode == "view" and (status, way.api) != (413, "anthropic")]
    assert len(upstream.requests) == len(WAYS) + (len(edited) if status in (400, 413) else 0)
    for asked in upstream.requests:
        assert b'"name" :  "bash"' in asked.body, "what is not changed keeps its bytes"


async def test_refusals_that_break_off() -> None:
    """An error whose body is cut is the error as far as it came, or one of ours: never a failure of ours."""

    def break_off(asked: ReceivedRequest) -> bytes:
        status = asked.get_header("x-status")
        return f'HTTP/1.1 {status} No\r\n{JSON_HEADER}\r\ncontent-length: 90\r\n\r\n{{"error": '.encode()

    async with open_trial(answer_always(break_off, "close")) as (gateway, *_):
        for status in (400, 413, 429):

            def check(way: Way, got: HttpResponse, status: int = status) -> None:
                if got.status == 502:
                    assert "closed the connection before its answer was complete" in read_error(got)
                else:
                    assert (got.status, got.body, got.is_complete) == (status, b'{"error": ', False), way

            await ask_every_way(gateway, check, f"x-status: {status}")


async def test_large_refusals_word_for_word() -> None:
    """An error of megabytes passes whole, also where its beginning was read."""
    large = json.dumps({"error": {"message": "x" * 3_000_000, "type": "invalid_request_error"}}).encode()

    def check(way: Way, got: HttpResponse) -> None:
        assert (got.status, got.body == large) == (400, True), way

    await check_every_way(answer_always(render_response(large, "400 No", JSON_HEADER)), check)


async def test_what_is_refused_as_edited_goes_out_as_it_came() -> None:
    """Where the provider takes the client's own bytes and not ours the client hears nothing of it, now and later."""

    def check(way: Way, got: HttpResponse) -> None:
        assert (got.status, got.body) == (200, way.answer), way

    async with open_trial(answer_always(refuse_edited)) as (gateway, upstream, _):
        await ask_every_way(gateway, check)
        count = len(upstream.requests)
        await ask_every_way(gateway, check, more_steps=1)
        later = [asked.body for asked in upstream.requests[count:]]
        assert later == [way.make_body(1) for way in WAYS], "each was asked once"


# -- nobody there ------------------------------------------------------------------------------------------------------


async def test_providers_that_are_not_there() -> None:
    """A closed port, a name without a host and a port without TLS are a 502 that says so, in each API's shape."""

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(render_response(b"", "400 Bad Request"))
        writer.close()
        await writer.wait_closed()

    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        closed = f"http://127.0.0.1:{unused.getsockname()[1]}"
        async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
            tls = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for url, words, cause in (
                (closed, f"nothing listens at {closed}. ", "refused"),
                ("http://nowhere.invalid", "the name of http://nowhere.invalid is not known: ", "dns"),
                (tls, "no TLS", "tls"),
            ):
                upstreams = {f"gateway_upstream_{name}": url for name in ("openai", "anthropic")}
                await check_every_way(answer_always(b""), expect_error(502, words), cause, **upstreams)


async def test_providers_that_are_silent() -> None:
    """One that says nothing in its time is a 504."""
    check = expect_error(504, "was silent for too long")
    await check_every_way(answer_always(b"", "silent"), check, "read-timeout", gateway_read_seconds=0.02)


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (b"", "cut"),
        (b"HTTP/1.1 200 OK\r\ncontent-ty", "cut"),
        (b"nonsense\r\n\r\n", "malformed"),
        (b"HTTP/1.1 9 x\r\n\r\n", "malformed"),
    ],
)
async def test_no_head_of_an_answer(raw: bytes, cause: str) -> None:
    """A connection that closes before an answer's head is there, and a head that is none, are a 502."""
    await check_every_way(answer_always(raw, "close"), expect_error(502, "127.0.0.1"), cause)


# -- answers that break off --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 500])
async def test_bodies_that_break_off(length: int) -> None:
    """A plain answer that is cut in its midst is cut for the client too, or a 502 where nothing was sent yet."""

    def break_off(asked: ReceivedRequest) -> bytes:
        return begin_answer(asked, JSON_HEADER, length, render_whole(find_api(asked))[:90])

    def check(way: Way, got: HttpResponse) -> None:
        if got.status == 502:
            assert way.mode == "view", "only what may recall is read to its end before it is sent"
            assert "closed the connection before its answer was complete" in read_error(got)
        else:
            assert (got.status, got.body, got.is_complete) == (200, render_whole(way.api)[:90], False), way

    await check_every_way(answer_always(break_off, "close"), check, "cut")


@pytest.mark.parametrize("length", [0, 99_999])
@pytest.mark.parametrize("then", ["close", "silent"])
async def test_streams_that_break_off_between_events(length: int, then: str) -> None:
    """Cut or gone silent behind a whole event: the client gets all of it, and an error event that its SDK raises."""

    def break_off(asked: ReceivedRequest) -> bytes:
        return begin_answer(asked, EVENTS_HEADER, length, b"".join(render_frames(find_api(asked))[:2]))

    def check(way: Way, got: HttpResponse) -> None:
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

    seconds = 0.1 if then == "silent" else 60.0
    await check_every_way(answer_always(break_off, then), check, gateway_read_seconds=seconds)


async def test_streams_that_break_off_within_an_event() -> None:
    """Half an event can neither be taken back nor completed: the client's connection is cut there as the provider's."""

    def break_off(asked: ReceivedRequest) -> bytes:
        return begin_answer(asked, EVENTS_HEADER, 0, b"".join(render_frames(find_api(asked)))[:250])

    def check(way: Way, got: HttpResponse) -> None:
        sent = b"".join(render_frames(way.api))[:250]
        assert got.status == 200, way
        if got.is_complete:
            assert way.mode == "view", "only where a recall may come events are held until they are whole"
            front, _, behind = got.body.rpartition(b"data: ")
            assert "error" in json.loads(behind), way
            assert sent.startswith(front.removesuffix(b"event: error\n")), way
        else:
            assert got.body == sent, way

    await check_every_way(answer_always(break_off, "close"), check)


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


@pytest.mark.parametrize(("raw", "kind"), pair_cases(NAUGHT.values(), [JSON_HEADER, EVENTS_HEADER, "x-none: 1"]))
async def test_malformed_answers(raw: bytes, kind: str) -> None:
    """What a provider says with status 200 passes byte for byte, be it JSON or not, whatever type it says it has."""

    def check(way: Way, got: HttpResponse) -> None:
        assert (got.status, got.body, got.is_complete) == (200, raw, True), way

    await check_every_way(answer_always(render_response(raw, "200 OK", kind)), check)


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
async def test_malformed_streams(raw: bytes) -> None:
    """Events that are none pass byte for byte; where they break off before an answer's end that may be said behind."""

    def begin(asked: ReceivedRequest) -> bytes:
        return begin_answer(asked, EVENTS_HEADER, 0, raw[:5]) + render_chunk(raw[5:]) + render_chunk(b"")

    def check(way: Way, got: HttpResponse) -> None:
        assert (got.status, got.is_complete) == (200, True), way
        front, error, _ = got.body.partition(b'data: {"error"' if way.api == "openai" else b"event: error")
        # What may be a recall is held, and is nothing where its end does not come.
        assert raw.startswith(front) if error and way.mode == "view" else got.body == raw, way

    await check_every_way(answer_always(begin), check)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("stream", [False, True])
async def test_no_answer_behind_a_recall(api: Api, stream: bool) -> None:
    """What the client was shown instead of an answer stands for nothing: its own call, the last it sent, stays."""
    whole_one = json.loads(make_body(api, HIDING_STEPS + 1, stream=stream))
    without_result = {**whole_one, LIST_FIELDS[api]: whole_one[LIST_FIELDS[api]][:-1]}

    def answer(asked: ReceivedRequest) -> bytes:
        if b"I look." in asked.body:
            nothing = b'event: error\ndata: {"type": "error", "error": {"message": "overloaded"}}\n\n'
            return render_response(nothing if stream else b"null", "200 OK", EVENTS_HEADER if stream else JSON_HEADER)
        return render_sound(asked, LOOKS if asked.body.count(b"call_7") == 1 else None)

    async with open_trial(answer_always(answer)) as (_, upstream, client):
        for each in (without_result, whole_one):
            await client.request("POST", PATHS[api], json.dumps(each).encode(), JSON_HEADER)
        recalled, sent = upstream.requests[1].body, upstream.requests[-1].body
        assert (b"I look." in recalled, len(upstream.requests)) == (True, 3)
        assert (b"I look." in sent, sent.count(b"cat f7.py"), PLACEHOLDER_PART in sent) == (False, 1, True)


@pytest.mark.parametrize(("api", "stream", "behind"), sample_cases(product(APIS, [False, True], [False, True]), 5))
async def test_prompts_that_are_too_long(api: Api, stream: bool, behind: bool) -> None:
    """They are asked again shorter, also where it is what was recalled that made them too long; the client wrote none
    of that."""
    limits: list[int] = []

    def answer(asked: ReceivedRequest) -> bytes:
        size, is_behind = len(asked.body), b"I look." in asked.body
        if not limits and is_behind is behind:
            limits.append(int(size * 0.7))
        if limits and size > limits[0]:
            has, most = size // 3, limits[0] // 3
            words = f"This model's maximum context length is {most} tokens. However, your messages resulted in {has}."
            if api == "anthropic":
                words = f"prompt is too long: {has} tokens > {most} maximum"
            told = {"message": words, "type": "invalid_request_error", "code": "context_length_exceeded"}
            return render_response(json.dumps({"type": "error", "error": told}).encode(), "400 No", JSON_HEADER)
        return render_sound(asked, LOOKS if behind and not is_behind else None)

    async with open_trial(answer_always(answer)) as (gateway, *_):
        got = await gateway.ask(make_body(api, HIDING_STEPS, stream=stream, lines=400), api=api)
        assert (got.status, b"All is done." in got.body, len(limits)) == (200, True, 1)


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified", "307 Elsewhere", "299 Odd"])
async def test_other_statuses(status: str) -> None:
    """Answers without a body, and redirects, pass as they are: the gateway follows none."""
    length = () if status[:3] in ("204", "304") else ("content-length: 0",)
    raw = "\r\n".join([f"HTTP/1.1 {status}", "location: /elsewhere", *length, "", ""]).encode()

    def check(way: Way, got: HttpResponse) -> None:
        assert (got.status, got.body, got.headers["location"]) == (int(status[:3]), b"", "/elsewhere"), way

    upstream = await check_every_way(answer_always(raw), check)
    assert len(upstream.requests) == len(WAYS)


@pytest.mark.parametrize("status", ["101 Switching Protocols", "600 Odd", "999 Odd"])
async def test_statuses_that_are_none(status: str) -> None:
    """A status that HTTP does not have, or that nobody asked for, is a 502 that names it."""
    raw = render_response(b"odd", status, JSON_HEADER, "connection: upgrade", "upgrade: odd")
    await check_every_way(answer_always(raw), expect_error(502, "no HTTP exchange with"), "malformed")


async def test_huge_headers() -> None:
    """Header fields of tens of kilobytes pass; beyond what is taken it is a 502 that says so, and nothing breaks."""

    def check(way: Way, got: HttpResponse) -> None:
        assert (got.status, len(got.headers["x-huge"])) == (200, 30_000), way

    for size, expected in ((30_000, check), (200_000, expect_error(502, "no HTTP exchange with"))):
        raw = render_response(b"{}", "200 OK", JSON_HEADER, f"x-huge: {'h' * size}")
        await check_every_way(answer_always(raw), expected)


CODED: dict[str, Callable[[bytes], bytes]] = {
    # The same whenever it is packed.
    "gzip": lambda raw: gzip.compress(raw, mtime=0),
    "zstd": zstd.compress,
    # Nothing here can read it.
    "br": lambda raw: b"\x8b" + raw[::-1],
}


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("coding", CODED)
async def test_compressed_answers(coding: str, cut: bool) -> None:
    """An answer that comes compressed, asked for or not, can be read by the client as its headers say."""

    def answer(asked: ReceivedRequest) -> bytes:
        way = Way(find_api(asked), is_streamed(asked.body), "")
        packed = CODED[coding](way.answer)
        kind = EVENTS_HEADER if way.stream else JSON_HEADER
        begun = begin_answer(asked, kind, 0, packed[:50], f"content-encoding: {coding}")
        return begun if cut else begun + render_chunk(packed[50:]) + render_chunk(b"")

    def check(way: Way, got: HttpResponse) -> None:
        plain, packed = way.answer, CODED[coding](way.answer)
        if got.status == 502:
            assert cut
            assert "closed the connection" in read_error(got)
        elif "content-encoding" in got.headers:
            assert got.headers["content-encoding"] == coding
            assert (got.body, got.is_complete) == (packed[:50], False) if cut else (packed, True), way
        elif not cut:
            assert (got.body, got.is_complete) == (plain, True), way
        else:
            assert plain.startswith(got.body.partition(b"event: error")[0].partition(b'data: {"error"')[0]), way

    await check_every_way(answer_always(answer, "close" if cut else ""), check)


async def test_an_early_answer() -> None:
    """A provider that refuses before it has read a large request, and closes: its refusal is what the client gets."""
    left = asyncio.Event()

    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(render_response(render_refusal("openai", 413), "413 Too large", JSON_HEADER, "connection: close"))
        await writer.drain()
        # As servers do it: what is still sent is read for a while, else the other end is reset.
        while await reader.read(1 << 20):
            pass
        writer.close()
        await writer.wait_closed()
        left.set()

    async with await asyncio.start_server(early, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with open_trial(gateway_upstream_openai=url) as (gateway, *_):
            got = await gateway.ask(make_body("openai", 1, task="x" * 8_000_000), "x-elision: off")
            assert (got.status, got.body) == (413, render_refusal("openai", 413))
        await left.wait()
