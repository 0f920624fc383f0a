"""Checks that the records agree: logs without gaps, turns that are in them, texts counted right."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from elision.errors import CorruptError
from elision.stores.linear_hash.changes import Record
from elision.stores.linear_hash.reader import Snapshot
from elision.stores.linear_hash.records import (
    LOG,
    NODE,
    SESSION,
    SLOT,
    TEXT,
    TOTALS_KEY,
    TURN,
    SessionRecord,
    Totals,
    read_number,
    slot_key,
    unpack_holders,
    unpack_session,
    unpack_text_head,
    unpack_totals,
    unpack_turn,
)
from elision.stores.linear_hash.session_changes import LogLine, parse_line
from elision.stores.packing import Packer, hash_text
from elision.stores.store import Finding


@dataclass(slots=True)
class TableContents:
    """Everything in the table, by what it belongs to. Ids are those of sessions."""

    packer: Packer
    totals: Totals = field(default_factory=Totals)
    sessions: dict[bytes, SessionRecord] = field(default_factory=dict)
    slots: dict[bytes, bytes] = field(default_factory=dict)
    lines: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    stated_turns: dict[bytes, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    turns: dict[bytes, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    nodes_of_turns: set[tuple[bytes, bytes, int]] = field(default_factory=set)
    nodes_of_histories: set[tuple[bytes, bytes, int]] = field(default_factory=set)
    texts: dict[bytes, int] = field(default_factory=dict)
    references: Counter[bytes] = field(default_factory=Counter)
    raw_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def add_record(self, record: Record) -> None:
        """Note one record. Raises CorruptError or ValueError if it cannot be read."""
        kind = record.key[:1]
        identifier = record.key[1:17]
        if record.key == TOTALS_KEY:
            self.totals = unpack_totals(record.head)
        elif kind == SESSION:
            self.sessions[identifier] = unpack_session(record.head, record.value)
        elif kind == SLOT:
            self.slots[record.key] = record.head
        elif kind == LOG:
            self._add_line(identifier, record)
        elif kind == TURN:
            self._add_turn(identifier, record)
        elif kind == TEXT:
            self._add_text(record)
        elif kind == NODE:
            self.nodes_of_histories |= {(identifier, *each) for each in unpack_holders(record.value)}

    def _add_line(self, identifier: bytes, record: Record) -> None:
        size = int.from_bytes(record.head[8:16], "little")
        read: LogLine = parse_line(record.value, size, self.packer)
        self.lines[identifier].add(read_number(record.key))
        if read.turn:
            number = read_number(record.key)
            self.stated_turns[identifier][read.turn] = max(number, self.stated_turns[identifier].get(read.turn, 0))
        self.references.update(read.texts)
        self.raw_bytes += read.size

    def _add_turn(self, identifier: bytes, record: Record) -> None:
        found = unpack_turn(record.head, record.value)
        index = read_number(record.key)
        self.turns[identifier][index] = found.number
        if any(found.node):
            self.nodes_of_turns.add((found.node, identifier, index))

    def _add_text(self, record: Record) -> None:
        address = record.key[1:]
        self.texts[address] = unpack_text_head(record.head)[0]
        if hash_text(self.packer.decompress(record.value)) != address:
            raise CorruptError("its bytes are another text's")


def audit_records(state: Snapshot, packer: Packer) -> Iterator[Finding]:
    """Yield what is wrong with the records of `state`; nothing if they go together."""
    account = TableContents(packer)
    try:
        for record in state.records():
            try:
                account.add_record(record)
            except (CorruptError, ValueError, LookupError, TypeError) as error:
                yield Finding(place=f"record {record.key.hex()}", what=f"it cannot be read: {error}", lost=True)
    except CorruptError as error:
        yield Finding(place="records", what=f"{error}; what comes behind was not looked at", lost=True)
        return
    yield from _audit_texts(account)
    yield from _audit_logs(account)
    yield from _audit_histories(account)
    yield from _audit_catalogue(account)
    yield from _audit_totals(account)


def _audit_texts(account: TableContents) -> Iterator[Finding]:
    for address, count in account.references.items():
        stated = account.texts.get(address)
        place = f"text {address.hex()}"
        if stated is None:
            yield Finding(place=place, what=f"{count} records refer to it, and it is missing", lost=True)
        elif stated != count:
            yield Finding(place=place, what=f"it states {stated} references and has {count}")
    for address in account.texts.keys() - account.references.keys():
        yield Finding(place=f"text {address.hex()}", what="no record refers to it: lost room")


def _audit_logs(account: TableContents) -> Iterator[Finding]:
    for identifier, found in account.sessions.items():
        place = f"session {found.new.key!r}"
        missing = set(range(1, found.records + 1)) ^ account.lines[identifier]
        if missing:
            yield Finding(place=place, what=f"records missing or left over, the first {min(missing)}", lost=True)
        if account.turns[identifier] != account.stated_turns[identifier]:
            yield Finding(place=place, what="its turns do not stand where its log has them", lost=True)
    for identifier in (account.lines.keys() | account.turns.keys()) - account.sessions.keys():
        if account.lines[identifier] or account.turns[identifier]:
            yield Finding(place=f"session {identifier.hex()}", what="it has a log and no record of its own", lost=True)


def _audit_histories(account: TableContents) -> Iterator[Finding]:
    for node, identifier, index in account.nodes_of_histories ^ account.nodes_of_turns:
        what = f"turn {index} of session {identifier.hex()} is named by it, and does not say so, or the reverse"
        yield Finding(place=f"history {node.hex()}", what=what)


def _audit_catalogue(account: TableContents) -> Iterator[Finding]:
    wanted = {slot_key(found.slot): identifier for identifier, found in account.sessions.items()}
    if wanted != account.slots or len(wanted) != len(account.sessions):
        yield Finding(place="catalogue", what=f"{len(account.slots)} entries for {len(account.sessions)} sessions")


def _audit_totals(account: TableContents) -> Iterator[Finding]:
    found = Totals(
        sessions=len(account.sessions),
        records=sum(map(len, account.lines.values())),
        turns=sum(map(len, account.turns.values())),
        texts=len(account.texts),
        raw_bytes=account.raw_bytes,
    )
    if found != account.totals:
        yield Finding(place="totals", what=f"they say {account.totals}, and there is {found}")
