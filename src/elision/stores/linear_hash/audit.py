"""Checks what the records say of each other: logs without gaps, turns that stand in them, texts counted right."""

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
    Session,
    Totals,
    holders,
    number_in,
    references_and_size,
    session,
    slot_key,
    totals,
    turning,
)
from elision.stores.linear_hash.sessions import Line, line
from elision.stores.packing import Packer, address_of
from elision.stores.store import Finding


@dataclass(slots=True)
class Account:
    """Everything in the table, by what it belongs to. Ids are those of sessions."""

    packer: Packer
    totals: Totals = field(default_factory=Totals)
    sessions: dict[bytes, Session] = field(default_factory=dict)
    slots: dict[bytes, bytes] = field(default_factory=dict)
    lines: dict[bytes, set[int]] = field(default_factory=lambda: defaultdict(set))
    stated: dict[bytes, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    turns: dict[bytes, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    named: set[tuple[bytes, bytes, int]] = field(default_factory=set)
    held: set[tuple[bytes, bytes, int]] = field(default_factory=set)
    texts: dict[bytes, int] = field(default_factory=dict)
    references: Counter[bytes] = field(default_factory=Counter)
    raw_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)

    def take(self, record: Record) -> None:
        """Note one record. Raises CorruptError or ValueError if it cannot be read."""
        kind = record.key[:1]
        identifier = record.key[1:17]
        if record.key == TOTALS_KEY:
            self.totals = totals(record.head)
        elif kind == SESSION:
            self.sessions[identifier] = session(record.head, record.value)
        elif kind == SLOT:
            self.slots[record.key] = record.head
        elif kind == LOG:
            self._line(identifier, record)
        elif kind == TURN:
            self._turn(identifier, record)
        elif kind == TEXT:
            self._text(record)
        elif kind == NODE:
            self.held |= {(identifier, *each) for each in holders(record.value)}

    def _line(self, identifier: bytes, record: Record) -> None:
        size = int.from_bytes(record.head[8:16], "little")
        read: Line = line(record.value, size, self.packer)
        self.lines[identifier].add(number_in(record.key))
        if read.turn:
            number = number_in(record.key)
            self.stated[identifier][read.turn] = max(number, self.stated[identifier].get(read.turn, 0))
        self.references.update(read.texts)
        self.raw_bytes += read.size

    def _turn(self, identifier: bytes, record: Record) -> None:
        found = turning(record.head, record.value)
        index = number_in(record.key)
        self.turns[identifier][index] = found.number
        if any(found.node):
            self.named.add((found.node, identifier, index))

    def _text(self, record: Record) -> None:
        address = record.key[1:]
        self.texts[address] = references_and_size(record.head)[0]
        if address_of(self.packer.stretch(record.value)) != address:
            raise CorruptError("its bytes are another text's")


def audit(state: Snapshot, packer: Packer) -> Iterator[Finding]:
    """What is wrong with the records of `state`; nothing if they go together."""
    account = Account(packer)
    try:
        for record in state.records():
            try:
                account.take(record)
            except (CorruptError, ValueError, LookupError, TypeError) as error:
                yield Finding(place=f"record {record.key.hex()}", what=f"it cannot be read: {error}", lost=True)
    except CorruptError as error:
        yield Finding(place="records", what=f"{error}; what comes behind was not looked at", lost=True)
        return
    yield from _texts(account)
    yield from _logs(account)
    yield from _histories(account)
    yield from _catalogue(account)
    yield from _totals(account)


def _texts(account: Account) -> Iterator[Finding]:
    for address, count in account.references.items():
        stated = account.texts.get(address)
        place = f"text {address.hex()}"
        if stated is None:
            yield Finding(place=place, what=f"{count} records refer to it, and it is missing", lost=True)
        elif stated != count:
            yield Finding(place=place, what=f"it states {stated} references and has {count}")
    for address in account.texts.keys() - account.references.keys():
        yield Finding(place=f"text {address.hex()}", what="no record refers to it: lost room")


def _logs(account: Account) -> Iterator[Finding]:
    for identifier, found in account.sessions.items():
        place = f"session {found.new.key!r}"
        missing = set(range(1, found.records + 1)) ^ account.lines[identifier]
        if missing:
            yield Finding(place=place, what=f"records missing or left over, the first {min(missing)}", lost=True)
        if account.turns[identifier] != account.stated[identifier]:
            yield Finding(place=place, what="its turns do not stand where its log has them", lost=True)
    for identifier in (account.lines.keys() | account.turns.keys()) - account.sessions.keys():
        if account.lines[identifier] or account.turns[identifier]:
            yield Finding(place=f"session {identifier.hex()}", what="it has a log and no record of its own", lost=True)


def _histories(account: Account) -> Iterator[Finding]:
    for node, identifier, index in account.held ^ account.named:
        what = f"turn {index} of session {identifier.hex()} is named by it, and does not say so, or the reverse"
        yield Finding(place=f"history {node.hex()}", what=what)


def _catalogue(account: Account) -> Iterator[Finding]:
    wanted = {slot_key(found.slot): identifier for identifier, found in account.sessions.items()}
    if wanted != account.slots or len(wanted) != len(account.sessions):
        yield Finding(place="catalogue", what=f"{len(account.slots)} entries for {len(account.sessions)} sessions")


def _totals(account: Account) -> Iterator[Finding]:
    found = Totals(
        sessions=len(account.sessions),
        records=sum(map(len, account.lines.values())),
        turns=sum(map(len, account.turns.values())),
        texts=len(account.texts),
        raw_bytes=account.raw_bytes,
    )
    if found != account.totals:
        yield Finding(place="totals", what=f"they say {account.totals}, and there is {found}")
