"""Requests end where their framing says, whatever they ask the connection to become."""

from __future__ import annotations

import pytest

from elision.gateway import http_protocol
from tests.gateway.connection_bytes import ServedConnection, serve_bytes, serve_pieces
from tests.soak import pair_cases

BODY = b'{"model": "gpt-4.1"}'
#: A body that is a request itself, for whoever loses count.
HIDDEN = b"POST /v1/hidden HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"
OFFERS = {
    "h2c as Java sends it": b"Connection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAEAAEAA\r\nUpgrade: h2c\r\n",
    "unknown": b"connection: upgrade\r\nupgrade: foo\r\n",
    "TLS": b"upgrade: TLS/1.0\r\nconnection: Upgrade\r\n",
    "websocket": b"connection: keep-alive, Upgrade\r\nupgrade: websocket\r\n",
    "in two fields": b"connection: keep-alive\r\nCONNECTION: UPGRADE\r\nUPGRADE: h2c\r\nUpgrade: foo\r\n",
    "not said to the connection": b"upgrade: h2c\r\n",
    "of no protocol": b"connection: upgrade\r\nupgrade:\r\n",
}


def make_request(fields: bytes, framed: bytes, line: bytes = b"POST /v1/chat/completions HTTP/1.1") -> bytes:
    return line + b"\r\nhost: x\r\n" + fields + framed


def frame_length(body: bytes) -> bytes:
    return b"content-length: %d\r\n\r\n%b" % (len(body), body)


def frame_chunks(body: bytes) -> bytes:
    half = len(body) // 2
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:half], body[half:], b"") if part)
    return b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


FRAMES = {"content-length": frame_length, "chunked": frame_chunks}
offers = pytest.mark.parametrize(("offer", "frame"), pair_cases(OFFERS, FRAMES))


def list_bodies(connection: ServedConnection) -> list[bytes]:
    return [request.body for request in connection.requests]


@offers
async def test_a_request_that_offers_an_upgrade_keeps_its_body(offer: str, frame: str) -> None:
    """It is served as HTTP/1.1, however its bytes are split; the next request on its connection is served, too."""
    raw, other = make_request(OFFERS[offer], FRAMES[frame](HIDDEN)), make_request(b"", FRAMES[frame](BODY))

    for place in range(len(raw) + 1):
        found = await serve_pieces([raw[:place], raw[place:] + other])
        assert list_bodies(found) == [HIDDEN, BODY], place
        assert found.written.count(b"HTTP/1.1 200 ") == 2
        assert not found.is_closed


@offers
def test_the_bytes_of_an_offer_come_one_by_one(offer: str, frame: str) -> None:
    """No byte is lost where each arrives alone."""
    raw = make_request(OFFERS[offer], FRAMES[frame](HIDDEN)) * 2
    assert list_bodies(serve_bytes([raw[place : place + 1] for place in range(len(raw))])) == [HIDDEN, HIDDEN]


@offers
def test_pipelined_offers_are_served_in_their_order(offer: str, frame: str) -> None:
    """Several requests in one piece, each with an offer, each with a body of its own."""
    bodies = [HIDDEN, b"", BODY, b"x" * 5_000]
    raw = b"".join(make_request(OFFERS[offer], FRAMES[frame](body)) for body in bodies)
    assert list_bodies(serve_bytes([raw])) == bodies


def test_an_offer_reaches_the_application() -> None:
    """The proxy refuses WebSockets by this field; all fields have their values, and none is there twice."""
    (request,) = serve_bytes(
        [make_request(OFFERS["websocket"], b"\r\n", b"GET /v1/responses?a=%20b HTTP/1.1")]
    ).requests
    assert (request.method, request.target, request.body) == ("GET", b"/v1/responses?a=%20b", b"")
    assert sorted(request.fields) == [
        (b"connection", b"keep-alive, Upgrade"),
        (b"host", b"x"),
        (b"upgrade", b"websocket"),
    ]


def test_an_offer_of_the_last_request_ends_its_connection() -> None:
    """`close` beside an offer still means that nothing follows."""
    raw = make_request(b"connection: close, upgrade\r\nupgrade: h2c\r\n", frame_length(BODY))
    found = serve_bytes([raw + make_request(b"", frame_length(HIDDEN))])
    assert (list_bodies(found), found.is_closed) == ([BODY], True)
    assert list_bodies(serve_bytes([raw.replace(b"HTTP/1.1", b"HTTP/1.0")])) == [BODY]


def test_a_body_is_not_timed_as_a_head_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that an idle connection has for a head is over when its head is there, however late the body ends."""
    monkeypatch.setattr(http_protocol, "KEEP_ALIVE_SECONDS", 0)
    found = serve_bytes([make_request(b"", frame_length(BODY)[:-2]), BODY[-2:]])
    assert list_bodies(found) == [BODY]
    assert not found.is_closed


def test_trailers_are_not_fields_of_the_head() -> None:
    """What follows a chunked body is dropped: it must not name a key, an encoding or an upgrade."""
    framed = frame_chunks(BODY)[:-2] + b"Authorization: Bearer evil\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    found = serve_bytes([make_request(b"", framed) + make_request(b"", frame_length(HIDDEN))])
    assert list_bodies(found) == [BODY, HIDDEN]
    assert found.requests[0].fields == [(b"host", b"x"), (b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize(
    "raw",
    [
        b"CONNECT example.org:443 HTTP/1.1\r\nhost: example.org\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/2.0\r\nhost: x\r\n\r\n",
        b"GET / HTTP/0.9\r\nhost: x\r\n\r\n",
        make_request(b"transfer-encoding: gzip, chunked\r\n", b"\r\n0\r\n\r\n"),
        make_request(b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", b"\r\n0\r\n\r\n"),
        make_request(b"transfer-encoding: chunked\r\n", frame_length(BODY)),
        make_request(b"content-length: 1\r\n", frame_length(BODY)),
        make_request(b"connection: a\r\n upgrade\r\nupgrade: h2c\r\n", frame_length(BODY)),
    ],
)
def test_what_is_not_served_is_refused_and_closed(raw: bytes) -> None:
    """Tunnels, other versions, other codings, and framings that two readers may read in two ways."""
    found = serve_bytes([raw + HIDDEN])
    assert (found.requests, found.is_closed) == ([], True)
    assert found.written.startswith(b"HTTP/1.1 400 ")
    assert found.written.count(b"HTTP/1.1") == 1


def test_a_refusal_is_not_taken_for_another_answer() -> None:
    """Bytes that make no sense behind a request that is still served close the connection without a word."""
    found = serve_bytes([make_request(b"", frame_length(BODY)) + b"\x16\x03\x01\r\n\r\n"])
    assert (found.written, found.is_closed) == (b"", True)
