"""Filter header fields: those for one connection are dropped, all others pass unchanged.

Order, case and repetition are kept. A request's names are in lower case already (ASGI), a response's as the provider
wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from elision.gateway.wire import Headers

#: For one connection only (RFC 9110, 7.6.1), with what `Connection` names; `Expect` was answered when the body came.
HOP_BY_HOP: Final = frozenset(
    [
        b"connection",
        b"expect",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ]
)
#: What says something of the very bytes of a body.
BODY_FIELDS: Final = frozenset(
    [b"content-length", b"content-encoding", b"content-md5", b"content-digest", b"digest", b"repr-digest", b"etag"]
)
#: A request's `Host` is determined by the provider's address.
_NOT_SENT: Final = HOP_BY_HOP | {b"host"}
#: Ours: said between a client and the gateway, nobody else's business.
_OWN: Final = re.compile(rb"x-elision(?:-|$)")
#: Content codings that are read on the way by.
READABLE_CODINGS: Final = frozenset([b"gzip", b"x-gzip", b"deflate", b"zstd", b"identity"])


def filter_request_fields(headers: Headers, *, is_changed: bool = False, is_read: bool = False) -> Headers:
    """Return a request's fields for the provider, without `Host`, which the address determines.

    is_changed: whether the body was changed: then fields about its bytes are dropped, its length included.
    is_read:    whether the response is read on the way: then unreadable codings are not asked for.
    """
    kept = _drop_fields(headers, _NOT_SENT, is_changed=is_changed)
    if is_read:
        return _limit_accept_encoding(kept)
    return kept


def filter_response_fields(headers: Headers, *, is_changed: bool = False) -> Headers:
    """Return a response's fields for the client. is_changed: whether its body was changed."""
    return _drop_fields(headers, HOP_BY_HOP, is_changed=is_changed)


def _drop_fields(headers: Headers, names: frozenset[bytes], *, is_changed: bool) -> Headers:
    """Return the fields without those of these names, those that `Connection` names, and our own."""
    named = (value for name, value in headers if name.lower() == b"connection")
    dropped = names.union(
        BODY_FIELDS if is_changed else (), *([part.strip().lower() for part in value.split(b",")] for value in named)
    )
    return [pair for pair in headers if (name := pair[0].lower()) not in dropped and not _OWN.match(name)]


# -- codings ----------------------------------------------------------------------------------------------------------


def _limit_accept_encoding(headers: Headers) -> Headers:
    """Ask only for codings that the gateway can read; for none where the client accepts none of those."""
    asked = [pair for pair in headers if pair[0].lower() == b"accept-encoding"]
    if not asked:
        return headers
    out: Headers = []
    for name, value in headers:
        if name.lower() != b"accept-encoding":
            out.append((name, value))
        elif codings := _keep_readable(value):
            out.append((name, codings))
    if len(out) == len(headers) - len(asked):
        out.append((asked[0][0], b"identity"))
    return out


@lru_cache(maxsize=64)
def _keep_readable(value: bytes) -> bytes:
    """Return `value` unchanged where all of it can be read; "*", which is any coding, becomes one of them."""
    codings = [each.strip() for each in value.split(b",") if each.strip()]
    kept = [each for each in map(_replace_coding, codings) if each]
    if kept == codings:
        return value
    return b", ".join(_drop_repeats(kept))


def _replace_coding(coding: bytes) -> bytes:
    name, mark, weight = coding.partition(b";")
    if name.strip() == b"*" and weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"):
        return b"gzip" + mark + weight
    if name.strip().lower() in READABLE_CODINGS or name.strip() == b"*":
        return coding
    return b""


def _drop_repeats(codings: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each coding once."""
    seen: set[bytes] = set()
    for coding in codings:
        name = coding.partition(b";")[0].strip().lower()
        if name not in seen:
            seen.add(name)
            yield coding
