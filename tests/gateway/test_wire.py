"""Header fields pass as they came, but for those of one connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.gateway.wire import HOP_BY_HOP, filter_request_fields, filter_response_fields

names = st.sampled_from(
    [b"accept", b"Authorization", b"x-a", b"X-A", b"content-type", b"cookie", b"Set-Cookie", b"date"]
)
CLIENTS = [
    # openai and anthropic (httpx), with brotli and zstandard installed; aiohttp; node's fetch; curl.
    (b"gzip, deflate, br, zstd", b"gzip, deflate, zstd"),
    (b"gzip, deflate, br", b"gzip, deflate"),
    (b"gzip,deflate", b"gzip,deflate"),
    (b"gzip, deflate, zstd", b"gzip, deflate, zstd"),
    (b"br", b"identity"),
    (b"", b""),
    (b"*", b"gzip"),
    (b"*;q=0", b"*;q=0"),
    (b"gzip;q=0.5, *;q=0.1, br;q=1.0", b"gzip;q=0.5"),
    (b"identity;q=1, *;q=0", b"identity;q=1, *;q=0"),
    (b"BR , GZip", b"GZip"),
]


@given(st.lists(st.tuples(names, st.binary(max_size=5)), max_size=8))
def test_all_else_passes_as_it_came(headers: list[tuple[bytes, bytes]]) -> None:
    """Order, case, doubles, odd bytes, credentials and cookies are the provider's and the client's business."""
    assert filter_request_fields(headers) == headers
    assert filter_request_fields(headers, is_read=True, is_changed=True) == headers
    assert filter_response_fields(headers) == headers


def test_what_is_for_one_connection_stays() -> None:
    """The listed fields, in any case, and whatever `Connection` names, in both directions."""
    ours = [(name, b"x") for name in sorted(HOP_BY_HOP - {b"connection"})] + [(b"Upgrade", b"h2c")]
    named = [(b"Connection", b"close, X-One"), (b"connection", b" x-two ,,"), (b"x-one", b"1"), (b"X-Two", b"2")]
    kept = [(b"x-three", b"3"), (b"content-length", b"9")]
    assert filter_request_fields([*ours, *kept, *named]) == kept
    assert filter_response_fields([*named, *kept, *ours]) == kept


def test_our_own_fields_go_no_further() -> None:
    """`x-elision` and all that begins so is said to the gateway; a name that only looks like it is not ours."""
    headers = [(b"x-elision", b"off"), (b"X-Elision-Session", b"s"), (b"x-elisionry", b"1"), (b"a", b"2")]
    assert filter_request_fields(headers) == [(b"x-elisionry", b"1"), (b"a", b"2")]
    assert filter_response_fields(headers) == [(b"x-elisionry", b"1"), (b"a", b"2")]


def test_the_address_names_the_host() -> None:
    """A request's `Host` is the gateway's; an answer's fields have none to lose."""
    assert filter_request_fields([(b"host", b"localhost:8377"), (b"a", b"1")]) == [(b"a", b"1")]


def test_what_is_said_of_other_bytes_is_left_out() -> None:
    """Of a body that changed neither length, coding nor digest are those that came; unchanged they are."""
    headers = [
        (b"content-type", b"application/json"),
        (b"Content-Length", b"9"),
        (b"content-encoding", b"gzip"),
        (b"Content-MD5", b"x"),
        (b"digest", b"x"),
        (b"content-digest", b"x"),
    ]
    assert filter_request_fields(headers, is_changed=True) == headers[:1]
    assert filter_response_fields(headers, is_changed=True) == headers[:1]
    assert filter_request_fields(headers) == headers
    assert filter_response_fields(headers) == headers


@pytest.mark.parametrize(("asked", "sent"), CLIENTS)
def test_answers_are_asked_for_in_what_can_be_read(asked: bytes, sent: bytes) -> None:
    """Codings nobody here reads are not asked for; what can be read whole is asked for in the client's bytes."""
    headers = [(b"a", b"1"), (b"accept-encoding", asked), (b"b", b"2")]
    found = dict(filter_request_fields(headers, is_read=True))
    assert found == {b"a": b"1", b"accept-encoding": sent, b"b": b"2"} or (asked == b"" and found[b"a"])
    assert filter_request_fields(headers) == headers


def test_who_asks_for_no_coding_is_asked_for_none() -> None:
    """Without the field nothing is added; of several fields those with something left stay."""
    assert filter_request_fields([(b"a", b"1")], is_read=True) == [(b"a", b"1")]
    several = [(b"accept-encoding", b"br"), (b"accept-encoding", b"zstd, br")]
    assert filter_request_fields(several, is_read=True) == [(b"accept-encoding", b"zstd")]
