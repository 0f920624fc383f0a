"""What creating, appending to, forking and deleting a session changes in the table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elision.errors import CorruptError
from elision.stores.linear_hash.draft import Draft, State
from elision.stores.linear_hash.records import (
    NODE,
    NOWHERE,
    Seen,
    Session,
    Turning,
    holders,
    holders_out,
    identity,
    log_head,
    log_key,
    node_key,
    session,
    session_key,
    slot_key,
    turn_and_size,
    turn_key,
    turning,
)
from elision.stores.packing import Blob, Packer, blobs_in
from elision.stores.refusals import behind, no_session, shorter, taken
from elision.stores.store import NewSession
from elision.trajectory.events import Event


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a log as the table needs it.

    turn: the index it adds or amends, 0 for none. seen: that turn's large observations. texts: all large texts in it.
    masks: (turn, position, placeholder) of what it hides.
    """

    body: bytes
    size: int
    turn: int
    node: str
    texts: frozenset[bytes]
    seen: tuple[Seen, ...]
    masks: tuple[tuple[int, int, str], ...]


def line(body: bytes, size: int, packer: Packer) -> Line:
    """What the packed event `body` says. Raises CorruptError."""
    value = json.loads(packer.stretch(body))
    is_turn = value["e"] in ("turn", "amended")
    return Line(
        body=body,
        size=size,
        turn=value["turn"] if is_turn else 0,
        node=value.get("node", ""),
        texts=frozenset(blobs_in(value)),
        seen=_seen(value) if is_turn else (),
        masks=tuple((*mask["key"], mask["text"]) for mask in value.get("masks", ())),
    )


def find(state: State, key: str) -> Session:
    """The session called `key`. Raises UnknownHandle."""
    record = state.get(session_key(identity(key)))
    if record is None:
        raise no_session(key)
    return session(record.head, record.value)


def create(draft: Draft, new: NewSession, packer: Packer) -> None:
    """Begin a session, with a copy of its parent's log in it if it shares one."""
    if draft.head(session_key(identity(new.key))) is not None:
        raise taken(new)
    if new.shared:
        lines = _shared(draft, new, packer)
    else:
        lines = []
    fresh = begin(draft, Session(new=new, records=0, newest=0, raw_bytes=0, changed=new.at, slot=0))
    for each in lines:
        for address in each.texts:
            draft.refer_again(address)
    extend(draft, fresh, lines)


def begin(draft: Draft, fresh: Session) -> Session:
    """Enter a session without records in the catalogue; the session with its slot."""
    now = draft.totals()
    fresh = replace(fresh, slot=now.sessions)
    draft.put(slot_key(fresh.slot), fresh.id)
    draft.put(session_key(fresh.id), fresh.head(), fresh.value())
    draft.set_totals(now.plus(sessions=1))
    return fresh


def append(draft: Draft, key: str, events: Sequence[Event], *, after: int, at: float, packer: Packer) -> int:
    """Add `events`; the new length. Raises ConflictError."""
    found = find(draft, key)
    if found.records != after:
        raise behind(key, found.records, after)
    if not events:
        return after
    packed = [packer.pack(event) for event in events]
    texts = sum(_refer(draft, each.blobs) for each in packed)
    draft.set_totals(draft.totals().plus(texts=texts))
    extend(draft, replace(found, changed=at), [line(each.body, each.size, packer) for each in packed])
    return after + len(events)


def delete(draft: Draft, key: str, packer: Packer) -> None:
    """Forget a session; texts that nobody else refers to go with it."""
    found = find(draft, key)
    turns: set[int] = set()
    texts = 0
    for number in range(1, found.records + 1):
        each = read_line(draft, found.id, number, packer)
        texts += sum(draft.drop(address) for address in each.texts)
        draft.delete(log_key(found.id, number))
        if each.turn:
            turns.add(each.turn)
    for index in turns:
        _leave(draft, found.id, index, turn_of(draft, found.id, index))
        draft.delete(turn_key(found.id, index))
    draft.delete(session_key(found.id))
    now = draft.totals()
    _close_slot(draft, found.slot, now.sessions - 1)
    draft.set_totals(
        now.plus(sessions=-1, records=-found.records, turns=-len(turns), texts=-texts, raw_bytes=-found.raw_bytes)
    )


def _shared(state: State, new: NewSession, packer: Packer) -> list[Line]:
    """The records that a fork begins with. Raises UnknownHandle, ConflictError."""
    parent = find(state, new.parent)
    if new.shared > parent.records:
        raise shorter(new, parent.records)
    return [read_line(state, parent.id, number, packer) for number in range(1, new.shared + 1)]


def read_line(state: State, identifier: bytes, number: int, packer: Packer) -> Line:
    """Record `number` of a log. Raises CorruptError if it is missing."""
    record = state.get(log_key(identifier, number))
    if record is None:
        raise CorruptError(f"record {number} of a log is missing; run `elision store fsck`")
    return line(record.value, turn_and_size(record.head)[1], packer)


def turn_of(state: State, identifier: bytes, index: int) -> Turning | None:
    """Turn `index` of a session."""
    if not 0 < index < 1 << 64:
        return None
    record = state.get(turn_key(identifier, index))
    if record:
        return turning(record.head, record.value)
    return None


def extend(draft: Draft, found: Session, lines: Sequence[Line]) -> Session:
    """Put `lines` behind a session's log; the session as it is then. References to texts are counted elsewhere."""
    turns = 0
    for number, each in enumerate(lines, start=found.records + 1):
        draft.put(log_key(found.id, number), log_head(each.turn, each.size), each.body)
        if each.turn:
            turns += _stand(draft, found, number, each)
        for index, position, placeholder in each.masks:
            _mask(draft, found.id, index, position, placeholder)
        found = found.grown(number=number, turn=each.turn, size=each.size)
    draft.set_head(session_key(found.id), found.head())
    size = sum(each.size for each in lines)
    draft.set_totals(draft.totals().plus(records=len(lines), turns=turns, raw_bytes=size))
    return found


def _stand(draft: Draft, found: Session, number: int, added: Line) -> int:
    """A turn stands at record `number` now; 1 if it is a new one."""
    old = turn_of(draft, found.id, added.turn)
    _leave(draft, found.id, added.turn, old)
    node = NOWHERE
    if added.node:
        key = node_key(found.new.family, added.node)
        node = key[1:]
        record = draft.get(key)
        draft.put(key, b"", (record.value if record else b"") + holders_out([(found.id, added.turn)]))
    draft.put(turn_key(found.id, added.turn), *Turning(number, node, added.seen).packed())
    return old is None


def _leave(draft: Draft, identifier: bytes, index: int, old: Turning | None) -> None:
    """The history that the turn had is no longer this session's."""
    if old is None or old.node == NOWHERE:
        return
    key = NODE + old.node
    record = draft.get(key)
    if record:
        left = [each for each in holders(record.value) if each != (identifier, index)]
    else:
        left = []
    if left:
        draft.put(key, b"", holders_out(left))
    elif record:
        draft.delete(key)


def _mask(draft: Draft, identifier: bytes, index: int, position: int, placeholder: str) -> None:
    old = turn_of(draft, identifier, index)
    if old is not None and 0 < position <= 0xFFFF:
        draft.put(turn_key(identifier, index), *old.masked(position, placeholder).packed())


def _close_slot(draft: Draft, slot: int, last: int) -> None:
    """The session in the last slot moves to the one that is free now."""
    moved = draft.head(slot_key(last))
    draft.delete(slot_key(last))
    if slot == last or moved is None:
        return
    draft.put(slot_key(slot), moved)
    record = draft.get(session_key(moved))
    if record is not None:
        draft.set_head(session_key(moved), replace(session(record.head, record.value), slot=slot).head())


def _refer(draft: Draft, blobs: Sequence[Blob]) -> int:
    return sum(draft.refer(blob) for blob in blobs)


def _seen(value: Mapping[str, Any]) -> tuple[Seen, ...]:
    """The observations of a turn that have a large text."""
    found = []
    for position, observation in enumerate(value.get("observations", ())[:0xFFFF], start=1):
        addresses = [part["blob"] for part in observation.get("content", ()) if "blob" in part]
        if addresses:
            found.append(Seen(position, bytes.fromhex(addresses[0])))
    return tuple(found)
