"""Requests as bytes, framed in every way that is right, and in many that are not."""

from __future__ import annotations

from random import Random

METHODS = (b"POST", b"POST", b"GET", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"get", b"CONNECT", b"P OST", b"")
TARGETS = (b"/v1/chat/completions", b"/", b"/v1/x?a=%20b&c", b"*", b"//v1", b"http://x/v1", b"/a b", b"/\xc3\xa4", b"")
VERSIONS = (*(b"HTTP/1.1",) * 12, b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 ", b"")
#: Line ends, of which one is right.
ENDS = (*(b"\r\n",) * 8, b"\n", b"\r", b"\n\r", b"\r\r\n", b"\r\n ", b"\r\n\t", b"\x00\r\n")
UPGRADES = (b"h2c", b"foo", b"websocket", b"TLS/1.0", b"h2c, websocket", b"", b"\x80")
CONNECTIONS = (
    b"upgrade",
    b"Upgrade, HTTP2-Settings",
    b"keep-alive",
    b"close",
    b"close, upgrade",
    b"keep-alive,UPGRADE",
)
#: What replaces a field's name, and what is put around its value.
NAMES = (*(b"%b",) * 12, b"%b ", b" %b", b"\t%b", b"%b\x00", b"x-%b", b"%b\r", b"\x0b%b", b"%b:")
VALUES = (
    *(b" %b",) * 12,
    b"%b",
    b"\t%b \t",
    b" %b,",
    b" %b;q=1",
    b"\x0b%b",
    b' "%b"',
    b"\r\n %b",
    b" %b\x00",
    b" \xff%b",
)
LENGTHS = (
    *(b"%d",) * 8,
    b"+%d",
    b"-%d",
    b"0%d",
    b"0x%d",
    b"%d,%d",
    b"%d %d",
    b"%d.0",
    b"1%d",
    b"",
    b"9999999999999999999%d",
)
CODINGS = (
    *(b"chunked",) * 8,
    b"Chunked",
    b"gzip, chunked",
    b"chunked, gzip",
    b"identity",
    b"xchunked",
    b"chunked,chunked",
    b"",
)
SIZES = (
    *(b"%x",) * 16,
    b"%X",
    b"0%x",
    b"0x%x",
    b"+%x",
    b"%x ",
    b" %x",
    b"%x;a=b",
    b'%x;a="b\r\n"',
    b"%x;",
    b"-%x",
    b"f%x",
    b"",
)
TRAILERS = (
    b"",
    b"",
    b"",
    b"x-after: 1\r\n",
    b"content-length: 5\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n",
    b"bad\r\n",
)


def make_stream(seed: int) -> bytes:
    """Return the bytes of a connection: one to four requests, of which any may be malformed."""
    chance = Random(seed)
    raw = b"".join(_make_request(chance, is_odd=chance.random() < 0.5) for _ in range(chance.randint(1, 4)))
    return _mutate(raw, chance) if chance.random() < 0.25 else raw


def split_stream(raw: bytes, seed: int) -> list[bytes]:
    """Return the bytes in pieces: whole, byte by byte, or cut at a few places."""
    chance = Random(~seed)
    how = chance.random()
    if how < 0.2:
        return [raw]
    if how < 0.3:
        return [raw[place : place + 1] for place in range(len(raw))]
    places = sorted(chance.randrange(len(raw) + 1) for _ in range(chance.randint(1, 6)))
    return [raw[start:end] for start, end in zip([0, *places], [*places, len(raw)], strict=True)]


def _make_request(chance: Random, *, is_odd: bool) -> bytes:
    """Return a request. is_odd: whether a few of its parts may be malformed."""

    def pick(choices: tuple[bytes, ...]) -> bytes:
        """Return one of them; mostly the first, which is right."""
        return chance.choice(choices) if is_odd and chance.random() < 0.2 else choices[0]

    body = chance.choice((b"", b"{}", b"x" * chance.randint(1, 300), b"POST /hidden HTTP/1.1\r\nhost: x\r\n\r\n"))
    framing, framed = _frame(body, chance, pick)
    fields = [(b"host", b"x"), *framing]
    if chance.random() < 0.5:
        fields += [(b"Upgrade", chance.choice(UPGRADES)), (b"Connection", chance.choice(CONNECTIONS))]
    chance.shuffle(fields)
    lines = [b"%b %b %b" % (pick(METHODS), pick(TARGETS), pick(VERSIONS))]
    lines += [pick(NAMES) % _spell(name, chance) + b":" + pick(VALUES) % value for name, value in fields]
    return b"".join(line + pick(ENDS) for line in [*lines, b""]) + framed


def _frame(body: bytes, chance: Random, pick) -> tuple[list[tuple[bytes, bytes]], bytes]:  # type: ignore[no-untyped-def]
    """Return the fields that frame a body, and its bytes."""
    how = chance.random()
    length = pick(LENGTHS)
    stated = (b"content-length", length.replace(b"%d", b"%d" % len(body)))
    if how < 0.5:
        return [stated], body
    half = chance.randint(0, len(body))
    parts = [part for part in (body[:half], body[half:]) if part]
    chunks = b"".join(_size(pick(SIZES), part) + b"\r\n" + part + pick(ENDS) for part in parts if part)
    framed = chunks + b"0\r\n" + pick(TRAILERS) + b"\r\n"
    coded = (b"transfer-encoding", pick(CODINGS))
    if how < 0.9:
        return [coded], framed
    # Two framings, or one of them twice: two readers may choose differently.
    return chance.choice([[coded, stated], [stated, stated], [coded, coded]]), chance.choice([body, framed])


def _spell(name: bytes, chance: Random) -> bytes:
    return chance.choice((name, name.upper(), name.title()))


def _mutate(raw: bytes, chance: Random) -> bytes:
    """Return the bytes with up to three of them changed, removed, doubled or moved in."""
    found = bytearray(raw)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(found) + 1)
        found[place : place + chance.randint(0, 2)] = chance.choice(
            (b"", b"\r", b"\n", b" ", b"\x00", b":", b"\r\n", b"0", b",")
        )
    return bytes(found)


def _size(form: bytes, part: bytes) -> bytes:
    return form % len(part) if b"%" in form else form
