"""What creating, appending to, forking and deleting a session changes in the table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elision.errors import CorruptError
from elision.stores.batch_ids import pack_batch_mark, recognize_append
from elision.stores.linear_hash.draft import Draft, TableState
from elision.stores.linear_hash.records import (
    NODE,
    NOWHERE,
    ObservationRecord,
    SessionRecord,
    TurnRecord,
    hash_name,
    log_key,
    node_key,
    pack_holders,
    pack_log_head,
    session_key,
    slot_key,
    turn_key,
    unpack_batch_mark,
    unpack_holders,
    unpack_log_head,
    unpack_session,
    unpack_turn,
)
from elision.stores.packing import Packer, list_blobs
from elision.stores.store import NewSession
from elision.stores.store_errors import (
    missing_session_error,
    session_exists_error,
    short_parent_error,
    stale_writer_error,
)
from elision.trajectory.events import Event


@dataclass(frozen=True, slots=True)
class LogLine:
    """One record of a log as the table needs it.

    turn: the index it adds or amends, 0 for none. observations: that turn's large ones. texts: all large texts in it.
    masks: (turn, position, placeholder) of what it hides. mark: what is kept of the id of the append that it begins.
    """

    body: bytes
    size: int
    turn: int
    node: str
    texts: frozenset[bytes]
    observations: tuple[ObservationRecord, ...]
    masks: tuple[tuple[int, int, str], ...]
    mark: bytes = b""


def parse_line(body: bytes, size: int, packer: Packer) -> LogLine:
    """Parse the packed event `body`. Raises CorruptError."""
    value = json.loads(packer.decompress(body))
    is_turn = value["e"] in ("turn", "amended")
    return LogLine(
        body=body,
        size=size,
        turn=value["turn"] if is_turn else 0,
        node=value.get("node", ""),
        texts=frozenset(list_blobs(value)),
        observations=_find_large_observations(value) if is_turn else (),
        masks=tuple((*mask["key"], mask["text"]) for mask in value.get("masks", ())),
    )


def find_session(state: TableState, key: str) -> SessionRecord:
    """Return the session called `key`. Raises UnknownHandle."""
    record = state.get(session_key(hash_name(key)))
    if record is None:
        raise missing_session_error(key)
    return unpack_session(record.head, record.value)


def create_session(draft: Draft, new: NewSession, packer: Packer) -> None:
    """Begin a session, with a copy of its parent's log in it if it shares one."""
    if draft.head(session_key(hash_name(new.key))) is not None:
        raise session_exists_error(new)
    if new.shared:
        lines = _read_shared(draft, new, packer)
    else:
        lines = []
    fresh = begin_session(draft, SessionRecord(new=new, records=0, newest=0, raw_bytes=0, changed=new.at, slot=0))
    for each in lines:
        for address in each.texts:
            draft.repeat_reference(address)
    extend_log(draft, fresh, lines)


def begin_session(draft: Draft, fresh: SessionRecord) -> SessionRecord:
    """Enter a session without records in the catalogue; return it with its slot."""
    now = draft.totals()
    fresh = replace(fresh, slot=now.sessions)
    draft.put(slot_key(fresh.slot), fresh.id)
    draft.put(session_key(fresh.id), fresh.head(), fresh.value())
    draft.set_totals(now.add(sessions=1))
    return fresh


def append_events(
    draft: Draft, key: str, events: Sequence[Event], *, after: int, at: float, batch: bytes, packer: Packer
) -> int:
    """Add `events`; return the new length. batch: id of the append, b"" for none. Raises ConflictError."""
    found = find_session(draft, key)
    if found.records != after:
        if events and has_append(draft, key, events, after=after, batch=batch, packer=packer):
            return after + len(events)
        raise stale_writer_error(key, found.records, after)
    if not events:
        return after
    texts = 0
    lines = []
    for event in events:
        packed = packer.pack(event)
        texts += sum(map(draft.add_reference, packed.blobs))
        lines.append(parse_line(packed.body, packed.size, packer))
    lines[0] = replace(lines[0], mark=pack_batch_mark(batch, len(lines)))
    draft.set_totals(draft.totals().add(texts=texts))
    extend_log(draft, replace(found, changed=at), lines)
    return after + len(events)


def has_append(
    state: TableState, key: str, events: Sequence[Event], *, after: int, batch: bytes, packer: Packer
) -> bool:
    """Return whether the append `batch` wrote `events` after record `after`. Raises StoreError if it wrote others."""
    if not batch or after < 0:
        return False
    identifier = hash_name(key)
    head = state.head(log_key(identifier, after + 1))
    if head is None:
        return False

    def read_bodies() -> list[bytes]:
        numbers = range(after + 1, after + len(events) + 1)
        return [packer.decompress(read_line(state, identifier, number, packer).body) for number in numbers]

    given = [packer.decompress(packer.pack(event).body) for event in events]
    return recognize_append(key, batch, unpack_batch_mark(head), given, read_bodies)


def delete_session(draft: Draft, key: str, packer: Packer) -> None:
    """Delete a session, and texts that no other session refers to."""
    found = find_session(draft, key)
    turns: set[int] = set()
    texts = 0
    for number in range(1, found.records + 1):
        each = read_line(draft, found.id, number, packer)
        texts += sum(draft.drop_reference(address) for address in each.texts)
        draft.delete(log_key(found.id, number))
        if each.turn:
            turns.add(each.turn)
    for index in turns:
        _leave_node(draft, found.id, index, find_turn(draft, found.id, index))
        draft.delete(turn_key(found.id, index))
    draft.delete(session_key(found.id))
    now = draft.totals()
    _close_slot(draft, found.slot, now.sessions - 1)
    draft.set_totals(
        now.add(sessions=-1, records=-found.records, turns=-len(turns), texts=-texts, raw_bytes=-found.raw_bytes)
    )


def _read_shared(state: TableState, new: NewSession, packer: Packer) -> list[LogLine]:
    """Return the records that a fork begins with. Raises UnknownHandle, ConflictError."""
    parent = find_session(state, new.parent)
    if new.shared > parent.records:
        raise short_parent_error(new, parent.records)
    return [read_line(state, parent.id, number, packer) for number in range(1, new.shared + 1)]


def read_line(state: TableState, identifier: bytes, number: int, packer: Packer) -> LogLine:
    """Return record `number` of a log. Raises CorruptError if it is missing."""
    record = state.get(log_key(identifier, number))
    if record is None:
        raise CorruptError(f"record {number} of a log is missing; run `elision store fsck`")
    return parse_line(record.value, unpack_log_head(record.head)[1], packer)


def find_turn(state: TableState, identifier: bytes, index: int) -> TurnRecord | None:
    """Return turn `index` of a session."""
    if not 0 < index < 1 << 64:
        return None
    record = state.get(turn_key(identifier, index))
    if record:
        return unpack_turn(record.head, record.value)
    return None


def extend_log(draft: Draft, found: SessionRecord, lines: Sequence[LogLine]) -> SessionRecord:
    """Append `lines` to a session's log; return the session as it is then. Callers count references to texts."""
    turns = 0
    for number, each in enumerate(lines, start=found.records + 1):
        draft.put(log_key(found.id, number), pack_log_head(each.turn, each.size, each.mark), each.body)
        if each.turn:
            turns += _place_turn(draft, found, number, each)
        for index, position, placeholder in each.masks:
            _mask_observation(draft, found.id, index, position, placeholder)
        found = found.grow(number=number, turn=each.turn, size=each.size)
    draft.set_head(session_key(found.id), found.head())
    size = sum(each.size for each in lines)
    draft.set_totals(draft.totals().add(records=len(lines), turns=turns, raw_bytes=size))
    return found


def _place_turn(draft: Draft, found: SessionRecord, number: int, added: LogLine) -> int:
    """Set the record of a turn to `number`; return 1 if the turn is a new one, else 0."""
    old = find_turn(draft, found.id, added.turn)
    _leave_node(draft, found.id, added.turn, old)
    node = NOWHERE
    if added.node:
        key = node_key(found.new.family, added.node)
        node = key[1:]
        record = draft.get(key)
        draft.put(key, b"", (record.value if record else b"") + pack_holders([(found.id, added.turn)]))
    draft.put(turn_key(found.id, added.turn), *TurnRecord(number, node, added.observations).pack())
    return old is None


def _leave_node(draft: Draft, identifier: bytes, index: int, old: TurnRecord | None) -> None:
    """The history that the turn had is no longer this session's."""
    if old is None or old.node == NOWHERE:
        return
    key = NODE + old.node
    record = draft.get(key)
    if record:
        left = [each for each in unpack_holders(record.value) if each != (identifier, index)]
    else:
        left = []
    if left:
        draft.put(key, b"", pack_holders(left))
    elif record:
        draft.delete(key)


def _mask_observation(draft: Draft, identifier: bytes, index: int, position: int, placeholder: str) -> None:
    old = find_turn(draft, identifier, index)
    if old is not None and 0 < position <= 0xFFFF:
        draft.put(turn_key(identifier, index), *old.mask(position, placeholder).pack())


def _close_slot(draft: Draft, slot: int, last: int) -> None:
    """The session in the last slot moves to the one that is free now."""
    moved = draft.head(slot_key(last))
    draft.delete(slot_key(last))
    if slot == last or moved is None:
        return
    draft.put(slot_key(slot), moved)
    record = draft.get(session_key(moved))
    if record is not None:
        draft.set_head(session_key(moved), replace(unpack_session(record.head, record.value), slot=slot).head())


def _find_large_observations(value: Mapping[str, Any]) -> tuple[ObservationRecord, ...]:
    """Return the observations of a turn that have a large text."""
    found = []
    for position, observation in enumerate(value.get("observations", ())[:0xFFFF], start=1):
        addresses = [part["blob"] for part in observation.get("content", ()) if "blob" in part]
        if addresses:
            found.append(ObservationRecord(position, bytes.fromhex(addresses[0])))
    return tuple(found)
