"""The seam to providers: bytes go out and come back as they are, and what fails has one name and one sentence."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from elision.gateway.upstream import Upstream, UpstreamError, UpstreamResponse, _slice_body
from tests.gateway.scripted_upstream import (
    ReceivedRequest,
    Script,
    ScriptedUpstream,
    answer_always,
    render_response,
    run_scripted_upstream,
)


@asynccontextmanager
async def open_upstream(
    script: Script, *, read_seconds: float = 5.0
) -> AsyncIterator[tuple[Upstream, ScriptedUpstream]]:
    upstream = Upstream(connect_seconds=5, read_seconds=read_seconds)
    async with run_scripted_upstream(script) as server:
        try:
            yield upstream, server
        finally:
            await upstream.close()


async def body_of(answer: UpstreamResponse) -> bytes:
    async with answer:
        return b"".join([part async for part in answer.iter_chunks()])


async def test_a_request_goes_out_as_it_is() -> None:
    """Path, query, doubled headers and body reach the provider as given; nothing is added but host and length."""
    async with open_upstream(answer_always(render_response(b"ok"))) as (upstream, server):
        headers = [(b"x-b", b"1"), (b"x-a", "é".encode()), (b"x-b", b"2"), (b"content-length", b"999")]
        url = server.url + "/v1/a%2Fb%20c//d/../e?q=%7B%7d&x=+1"
        assert await body_of(await upstream.open("POST", url, headers, b'{"a" : 1}')) == b"ok"
        (asked,) = server.requests
        assert asked.line == "POST /v1/a%2Fb%20c//d/../e?q=%7B%7d&x=+1 HTTP/1.1"
        assert asked.body == b'{"a" : 1}'
        sent = sorted((name.lower(), value) for name, value in asked.headers)
        host = server.url.removeprefix("http://")
        latin = "é".encode().decode("latin-1")
        assert sent == [("content-length", "9"), ("host", host), ("x-a", latin), ("x-b", "1"), ("x-b", "2")]


async def test_an_answer_comes_back_as_it_came() -> None:
    """Status, doubled headers in their case and order, and a compressed body are not touched; nor is a redirect."""
    raw = render_response(
        b"\x1f\x8b\x08 no gzip", "307 Elsewhere", "Location: /x", "X-A: 1", "Content-Encoding: gzip", "x-a: 2"
    )

    async with open_upstream(answer_always(raw)) as (upstream, server):
        got = await upstream.open("GET", server.url + "/v1/models", [])
        assert got.status == 307
        assert got.headers == [
            (b"content-length", b"11"),
            (b"Location", b"/x"),
            (b"X-A", b"1"),
            (b"Content-Encoding", b"gzip"),
            (b"x-a", b"2"),
        ]
        assert (got.content_type, got.content_encoding, got.is_event_stream) == ("", "gzip", False)
        assert await body_of(got) == b"\x1f\x8b\x08 no gzip"


@pytest.mark.parametrize("size", [2**18, 2**18 + 1, 5_000_000])
async def test_large_bodies_go_out_whole_with_their_length(size: int) -> None:
    """What a long history amounts to: in slices, without a warning, and not chunked."""
    raw = bytes(range(256)) * (size // 256) + bytes(size % 256)

    async with open_upstream(answer_always(render_response(b"ok"))) as (upstream, server):
        await body_of(await upstream.open("POST", server.url, [], raw))
        (asked,) = server.requests
        assert asked.body == raw
        assert {name.lower(): value for name, value in asked.headers}.keys() == {"host", "content-length"}


@pytest.mark.parametrize("length", [None, b"6"])
async def test_a_body_in_chunks(length: bytes | None) -> None:
    """A body that is not at hand goes out in chunks, or under the length that its client said."""

    async def parts() -> AsyncIterator[bytes]:
        yield b"abc"
        yield b"def"

    async with open_upstream(answer_always(render_response(b""))) as (upstream, server):
        headers = [(b"content-length", length)] if length else []
        await body_of(await upstream.open("POST", server.url, headers, parts()))
        assert server.requests[0].body == b"abcdef"
        assert server.requests[0].get_header("content-length") == (length.decode() if length else None)


async def test_connections_are_kept() -> None:
    """An answer read to its end leaves its connection to the next request; one that is left closes it."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if "/left" in asked.line:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
            await asyncio.Event().wait()
        writer.write(render_response(b"whole"))

    async with open_upstream(script) as (upstream, server):
        for _ in range(3):
            await body_of(await upstream.open("GET", server.url, []))
        assert server.connections == 1
        async with await upstream.open("GET", server.url + "/left", []):
            server.connection_lost.clear()
        await asyncio.wait_for(server.connection_lost.wait(), 5)
        await body_of(await upstream.open("GET", server.url, []))
        assert server.connections == 2


async def test_a_connection_that_is_closed_while_it_idles(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that meets it closing, before any answer, goes out once more over a new one, and no more than once."""
    # However busy the machine is.
    monkeypatch.setattr("elision.gateway.upstream.REUSE_SECONDS", 60.0)

    async def ask(upstream: Upstream, server: ScriptedUpstream) -> None:
        assert await body_of(await upstream.open("POST", server.url, [(b"x-a", b"b")], b"told")) == b"whole"

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if asked.connection in served:
            writer.close()
            return
        served.add(asked.connection)
        writer.write(render_response(b"whole"))

    served: set[int] = set()
    async with open_upstream(script) as (upstream, server):
        for _ in range(2):
            await asyncio.gather(*(ask(upstream, server) for _ in range(3)))
        assert [asked.body for asked in server.requests] == [b"told"] * (3 + 3 + 3)
        # Three connections served once, and were closed by the second request; three more are new.
        assert server.connections == 6


@pytest.mark.parametrize("reset", [False, True])
async def test_a_used_connection_that_is_closed_later(monkeypatch: pytest.MonkeyPatch, reset: bool) -> None:
    """A request that the provider may have worked on is not sent again: it would be done and billed twice."""
    monkeypatch.setattr("elision.gateway.upstream.REUSE_SECONDS", 0.0)

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if asked.body == b"first":
            writer.write(render_response(b"whole"))
        elif reset:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        else:
            writer.close()

    async with open_upstream(script) as (upstream, server):
        await body_of(await upstream.open("POST", server.url, [], b"first"))
        with pytest.raises(UpstreamError) as caught:
            await upstream.open("POST", server.url, [], b"second")
        assert caught.value.kind == "cut"
        assert [(asked.body, asked.connection) for asked in server.requests] == [(b"first", 1), (b"second", 1)]


async def test_a_new_connection_that_is_closed() -> None:
    """A request over it is not sent again: it may have been what the server fell over."""
    async with open_upstream(answer_always(b"", "close")) as (upstream, server):
        with pytest.raises(UpstreamError) as caught:
            await upstream.open("POST", server.url, [], b"told")
        assert caught.value.kind == "cut"
        assert len(server.requests) == 1


async def test_whoever_is_cancelled_lets_go_of_the_provider() -> None:
    """Before the answer has begun, and in its midst."""

    async def ask(upstream: Upstream, url: str) -> None:
        await body_of(await upstream.open("GET", url, []))

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        if "/half" in asked.line:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf")
        await asyncio.Event().wait()

    async with open_upstream(script) as (upstream, server):
        for path in ("/silent", "/half"):
            server.connection_lost.clear()
            server.requests.clear()
            asking = asyncio.ensure_future(ask(upstream, server.url + path))
            while not server.requests:
                await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.wait_for(server.connection_lost.wait(), 5)


# -- proxies that the surroundings name -------------------------------------------------------------------------------


def by_proxy(
    monkeypatch: pytest.MonkeyPatch, url: str, *, proxy_env: bool = True, **environ: str
) -> list[ReceivedRequest]:
    """What a proxy at loopback is asked, where `environ` names it as {proxy}."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)

    async def run() -> list[ReceivedRequest]:
        upstream = Upstream(connect_seconds=5, read_seconds=5, proxy_env=proxy_env)
        async with run_scripted_upstream(answer_always(render_response(b"ok"))) as server:
            place = server.url.removeprefix("http://")
            for name, text in environ.items():
                monkeypatch.setenv(name, text.format(proxy=place))
            got = await upstream.open("POST", url.format(proxy=place), [(b"x-api-key", b"mine")], b"told")
            assert await body_of(got) == b"ok"
            await upstream.close()
            return server.requests

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("named", "word"),
    [("http://{proxy}", None), ("http://us%40er:pa%3Ass@{proxy}", "Basic dXNAZXI6cGE6c3M=")],
)
def test_a_proxy(monkeypatch: pytest.MonkeyPatch, named: str, word: str | None) -> None:
    """Is asked for the whole address, with its own credential where its own address has one."""
    (asked,) = by_proxy(monkeypatch, "http://provider.invalid/v1?q=1", http_proxy=named)
    assert asked.line == "POST http://provider.invalid/v1?q=1 HTTP/1.1"
    assert (asked.get_header("proxy-authorization"), asked.get_header("authorization")) == (word, None)
    assert (asked.get_header("x-api-key"), asked.body) == ("mine", b"told")


@pytest.mark.parametrize(
    ("proxy_env", "environ"),
    [(True, {"no_proxy": "127.0.0.1"}), (True, {"https_proxy": "http://{proxy}"}), (False, {})],
)
def test_no_proxy(monkeypatch: pytest.MonkeyPatch, proxy_env: bool, environ: dict[str, str]) -> None:
    """A provider that is excepted is asked itself, and so is every one where proxies are not to be heeded."""
    environ = {"http_proxy": "http://127.0.0.1:1"} | environ if "https_proxy" not in environ else environ
    (asked,) = by_proxy(monkeypatch, "http://{proxy}/v1", proxy_env=proxy_env, **environ)
    assert asked.line == "POST /v1 HTTP/1.1"


@pytest.mark.parametrize("named", ["http://[nowhere", "proxy:3128", "socks5://127.0.0.1:1", "http://"])
def test_no_proxy_at_that_address(monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    """What is no address of a proxy is told as a failure to reach the provider."""
    with pytest.raises(UpstreamError):
        by_proxy(monkeypatch, "http://provider.invalid/v1", http_proxy=named)


def test_nobody_reads_netrc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What stands there is no credential of the client's, whose request goes out as it is."""
    (tmp_path / "netrc").write_text("default login bob password hunter2\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    for environ in ({"http_proxy": "http://{proxy}"}, {}):
        (asked,) = by_proxy(monkeypatch, "http://{proxy}/v1", **environ)
        assert (asked.get_header("authorization"), asked.get_header("proxy-authorization")) == (None, None)


async def test_others_are_served_between_two_slices() -> None:
    """Also where the provider reads so fast that no write ever waits."""
    steps: list[str] = []

    async def send() -> None:
        async for piece in _slice_body(bytes(1_000_000)):
            assert len(piece) <= 2**18
            steps.append("slice")

    async def serve_others() -> None:
        for _ in range(3):
            steps.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(send(), serve_others())
    assert steps == ["slice", "other", "slice", "other", "slice", "other", "slice"]
