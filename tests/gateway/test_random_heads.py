"""Where each body ends, our parser and another one (h11) agree, or ours is stricter: it refuses and closes."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import h11

from tests.figures import ReportFigures
from tests.gateway.connection_bytes import serve_pieces
from tests.gateway.random_heads import make_stream, split_stream
from tests.soak import SOAK

SEEDS: Final = 10_000 if SOAK else 400
#: What h11 refuses and RFC 9112 allows: line ends before a request line (2.2), more than one space in it (3).
ALLOWED: Final = re.compile(r"no request line received|illegal request line: bytearray\(b'\S+ +\S+ +HTTP/1\.[01]'\)")


def read_with_h11(raw: bytes) -> tuple[list[bytes], str]:
    """Return the bodies of a connection's requests, and why it refused the next one: "" where it did not."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    connection.receive_data(raw)
    found: list[bytes] = []
    body = b""
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as error:
            return found, str(error)
        if isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            found.append(body)
            body = b""
            connection.send(h11.Response(status_code=404, headers=[("content-length", "0")]))
            connection.send(h11.EndOfMessage())
            if connection.our_state is not h11.DONE:
                return found, ""
            connection.start_next_cycle()
        elif not isinstance(event, h11.Request):
            return found, ""


def test_bodies_end_where_another_parser_ends_them(report_figures: ReportFigures) -> None:
    """Random and malformed requests, pipelined, split anywhere: no byte of a body is read as a request."""

    async def run() -> tuple[int, int]:
        count = refused = 0
        for seed in range(SEEDS):
            raw = make_stream(seed)
            ours, (theirs, why) = await serve_pieces(split_stream(raw, seed)), read_with_h11(raw)
            bodies = [request.body for request in ours.requests]
            if not ALLOWED.fullmatch(why):
                assert bodies == theirs[: len(bodies)], (seed, why, raw)
                assert ours.is_closed or len(bodies) == len(theirs), (seed, raw)
            assert bodies[: len(theirs)] == theirs[: len(bodies)], (seed, raw)
            count += len(bodies)
            refused += len(bodies) < len(theirs)
        return count, refused

    count, refused = asyncio.run(run())
    report_figures(f"heads against h11: {SEEDS:,} connections, {count:,} bodies end alike, {refused:,} stricter")
    assert count > SEEDS // 2
    assert refused < SEEDS // 4
