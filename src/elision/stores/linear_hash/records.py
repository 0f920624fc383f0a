"""What the table's records are: sessions, their logs, their turns, large texts, names of histories.

| key | head (in the bucket page) | value |
|---|---|---|
| `g` | totals of the store | |
| `c` slot | the session's id | |
| `s` id | counts and times of a session | its names, as JSON |
| `l` id number | turn and size of a log record; of an append's first one its id (`batch_ids`) | the packed event |
| `t` id turn | where the turn stands in the log, and its observations (`TurnRecord`) | what the head has no room for |
| `b` SHA-256 | references, size | the packed text |
| `n` name | | the sessions and turns that have this history |

Ids and names are 16 bytes of BLAKE2b, so keys have a fixed length whatever users call their sessions.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final, get_args

from elision.errors import CorruptError
from elision.stores.linear_hash.changes import MAX_HEAD
from elision.stores.store import NewSession, Relation, SessionInfo

TOTALS_KEY: Final = b"g"
SLOT = b"c"
SESSION = b"s"
LOG = b"l"
TURN = b"t"
TEXT = b"b"
NODE = b"n"
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_TOTALS: Final = struct.Struct("<5Q")
_SESSION: Final = struct.Struct("<QQQddI")
_LOG: Final = struct.Struct("<QQ")
_TEXT: Final = struct.Struct("<IQ")
_TURN: Final = struct.Struct("<Q16s")
_SEEN: Final = struct.Struct("<H32sH")
_HOLDER: Final = struct.Struct("<16sQ")
NOWHERE: Final = bytes(16)
INLINE: Final = bytes(32)


def hash_name(name: str) -> bytes:
    """Return a session's id."""
    return blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def node_key(family: str, node: str) -> bytes:
    """Return the key of the sessions with a history; `key[1:]` names the history. Families are kept apart by length."""
    data = f"{len(family)} {family}{node}".encode("utf-8", "surrogatepass")
    return NODE + blake2b(data, digest_size=16).digest()


def slot_key(slot: int) -> bytes:
    return SLOT + _U32.pack(slot)


def session_key(identifier: bytes) -> bytes:
    return SESSION + identifier


def log_key(identifier: bytes, number: int) -> bytes:
    return LOG + identifier + _U64.pack(number)


def turn_key(identifier: bytes, index: int) -> bytes:
    return TURN + identifier + _U64.pack(index)


def text_key(address: bytes) -> bytes:
    return TEXT + address


def read_number(key: bytes) -> int:
    """Return the number at the end of a log or turn key."""
    found: int = _U64.unpack(key[-8:])[0]
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Counts over the whole store. raw_bytes: of all logs before packing."""

    sessions: int = 0
    records: int = 0
    turns: int = 0
    texts: int = 0
    raw_bytes: int = 0

    def add(self, **more: int) -> Totals:
        """Return the totals with some counts changed by so much."""
        return replace(self, **{name: getattr(self, name) + step for name, step in more.items()})

    def pack(self) -> bytes:
        return _TOTALS.pack(self.sessions, self.records, self.turns, self.texts, self.raw_bytes)


def unpack_totals(head: bytes | None) -> Totals:
    """Return what `Totals.pack` made; none of anything where there is no record yet."""
    if head is None:
        return Totals()
    sessions, records, turns, texts, raw_bytes = _unpack(_TOTALS, head)
    return Totals(sessions=sessions, records=records, turns=turns, texts=texts, raw_bytes=raw_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A session's own record. newest: its highest turn index. slot: its place in the catalogue."""

    new: NewSession
    records: int
    newest: int
    raw_bytes: int
    changed: float
    slot: int

    @property
    def id(self) -> bytes:
        return hash_name(self.new.key)

    def head(self) -> bytes:
        return _SESSION.pack(self.records, self.newest, self.raw_bytes, self.new.at, self.changed, self.slot)

    def value(self) -> bytes:
        new = self.new
        return json.dumps([new.key, new.family, new.parent, new.relation], separators=(",", ":")).encode()

    def info(self) -> SessionInfo:
        return SessionInfo(
            key=self.new.key,
            family=self.new.family,
            parent=self.new.parent,
            relation=self.new.relation,
            begun=self.new.at,
            changed=self.changed,
            records=self.records,
            turns=self.newest,
            raw_bytes=self.raw_bytes,
        )

    def grow(self, *, number: int, turn: int, size: int) -> SessionRecord:
        """Return the session with record `number` in its log."""
        return replace(self, records=number, newest=max(self.newest, turn), raw_bytes=self.raw_bytes + size)


def unpack_session(head: bytes, value: bytes) -> SessionRecord:
    """Return what `SessionRecord.head` and `SessionRecord.value` made. Raises CorruptError."""
    records, newest, raw_bytes, begun, changed, slot = _unpack(_SESSION, head)
    try:
        key, family, parent, relation = json.loads(value)
    except ValueError as error:
        raise CorruptError(f"the names of a session cannot be read: {error}") from error
    if relation not in get_args(Relation):
        raise CorruptError(f"session {key!r} came from its parent by {relation!r}, which this version does not know")
    new = NewSession(key=key, family=family, parent=parent, relation=relation, at=begun)
    return SessionRecord(new=new, records=records, newest=newest, raw_bytes=raw_bytes, changed=changed, slot=slot)


def pack_log_head(turn: int, size: int, mark: bytes = b"") -> bytes:
    """Pack a log record's head.

    turn: the index that it adds or amends, 0 for none. size: bytes before packing. mark: of the append that it begins.
    """
    return _LOG.pack(turn, size) + mark


def unpack_log_head(head: bytes) -> tuple[int, int]:
    turn, size = _unpack(_LOG, head[: _LOG.size])
    return turn, size


def unpack_batch_mark(head: bytes) -> bytes:
    """Return what a log record's head keeps of the append that it begins; b"" for none."""
    return head[_LOG.size :]


def pack_text_head(references: int, size: int) -> bytes:
    return _TEXT.pack(references, size)


def unpack_text_head(head: bytes) -> tuple[int, int]:
    references, size = _unpack(_TEXT, head)
    return references, size


@dataclass(frozen=True, slots=True)
class ObservationRecord:
    """One observation of a turn as the bucket page knows it.

    address: of its large text, `INLINE` where it is small and part of the log record. placeholder: what stands in
    views for it once it is masked, "" before.
    """

    position: int
    address: bytes = INLINE
    placeholder: str = ""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """A turn: its record in the log, the name of its history, its observations that are large or masked."""

    number: int
    node: bytes = NOWHERE
    seen: tuple[ObservationRecord, ...] = ()

    def mask(self, position: int, placeholder: str) -> TurnRecord:
        """Return the turn with `placeholder` for one observation."""
        by_position = {observation.position: observation for observation in self.seen}
        old = by_position.get(position, ObservationRecord(position))
        by_position[position] = replace(old, placeholder=placeholder)
        return replace(self, seen=tuple(by_position[each] for each in sorted(by_position)))

    def pack(self) -> tuple[bytes, bytes]:
        """Return head and value: observations are in the head, or in the value where they are too many for it."""
        fixed = _TURN.pack(self.number, self.node)
        seen = b"".join(_pack_observation(each) for each in self.seen)
        if len(fixed) + len(seen) <= MAX_HEAD:
            return (fixed + seen, b"")
        return (fixed, seen)


def unpack_turn(head: bytes, value: bytes) -> TurnRecord:
    """Return what `TurnRecord.pack` made. Raises CorruptError."""
    number, node = _unpack(_TURN, head[: _TURN.size])
    return TurnRecord(number, node, tuple(_unpack_observations(head[_TURN.size :] + value)))


def unpack_holders(value: bytes) -> list[tuple[bytes, int]]:
    """Return (session id, turn) of a history's record."""
    try:
        return list(_HOLDER.iter_unpack(value))
    except struct.error as error:
        raise CorruptError(f"the record of a history cannot be read: {error}") from error


def pack_holders(found: list[tuple[bytes, int]]) -> bytes:
    return b"".join(_HOLDER.pack(*each) for each in found)


def _pack_observation(seen: ObservationRecord) -> bytes:
    text = seen.placeholder.encode("utf-8", "surrogatepass")[:0xFFFF]
    return _SEEN.pack(seen.position, seen.address, len(text)) + text


def _unpack_observations(data: bytes) -> Iterator[ObservationRecord]:
    at = 0
    while at < len(data):
        position, address, size = _unpack(_SEEN, data[at : at + _SEEN.size])
        at += _SEEN.size + size
        yield ObservationRecord(position, address, data[at - size : at].decode("utf-8", "surrogatepass"))


def _unpack(form: struct.Struct, data: bytes) -> tuple[Any, ...]:
    try:
        return form.unpack(data)
    except struct.error as error:
        raise CorruptError(f"a stored record cannot be read: {error}") from error
