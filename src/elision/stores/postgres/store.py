"""The protocol in PostgreSQL: a log that is the truth, and tables made from it for people and for searching.

An append is one transaction of two round trips: the session's row is claimed if it still ends where the writer thinks,
which also keeps other writers out, and everything else follows in one go with the commit. Every append has a token, so
that a commit whose answer was lost is recognised when it is tried again, by the store or by its caller.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from elision.errors import ConflictError, CorruptError, StoreError
from elision.stores.excerpts import words_in
from elision.stores.hits import hits
from elision.stores.packing import Blob, Packed, Packer
from elision.stores.postgres.address import address
from elision.stores.postgres.checking import findings
from elision.stores.postgres.forking import fork
from elision.stores.postgres.link import Cursor, Link
from elision.stores.postgres.names import given, kept
from elision.stores.postgres.readable import rows, words_apart
from elision.stores.postgres.reading import Records, batches, records
from elision.stores.postgres.schema import ensure
from elision.stores.postgres.statements import sql
from elision.stores.refusals import behind, no_session, nothing_under, taken
from elision.stores.store import Finding, Footprint, Hit, NewSession, Purged, Relation, SessionInfo
from elision.trajectory.events import Amended, Event, TurnAdded
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn

T = TypeVar("T")

#: Calls whose outcome is not known that are remembered, in case they come again.
_UNSETTLED = 1_000
#: Commits that survive a crash of the server.
_DURABLE = frozenset({"on", "remote_apply"})
#: Turns that a search looks at in one go.
_TURNS = 50


def open_postgres(rest: str) -> PostgresStore:
    """The store at `postgresql:` + `rest`. Raises StoreError, MissingExtra."""
    link = Link(address(rest))
    try:
        ensure(link)
    except BaseException:
        link.close()
        raise
    return PostgresStore(link)


class PostgresStore:
    """Sessions in the tables that `link` reaches; any number of processes at once."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._local = threading.local()
        self._tokens: dict[object, uuid.UUID] = {}

    def create(self, session: NewSession) -> None:
        token = self._token(session)

        def work(cursor: Cursor) -> None:
            names = {"session": kept(session.key), "token": token}
            origin = {"family": kept(session.family), "parent": kept(session.parent), "relation": session.relation}
            made = cursor.execute(sql("create"), {**names, **origin, "at": session.at}).fetchone()
            if made is None:
                if cursor.execute(sql("created"), names).fetchone() is None:
                    raise taken(session)
            elif session.shared:
                fork(cursor, session, made[0], self._packer)

        self._settled(session, token, lambda: self._link.write(work, patient=session.shared > 0))

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float) -> int:
        packed = [self._packer.pack(event) for event in events]
        texts = _texts(events, packed)
        call = (session, after, tuple(each.body for each in packed))
        token = self._token(call)

        def work(cursor: Cursor) -> int:
            claim = {"session": kept(session), "after": after, "added": len(events), "at": at}
            row = cursor.execute(sql("claim"), {**claim, **_sums(packed)}).fetchone()
            if row is None:
                return self._written(cursor, session, after, len(events), token)
            _durable(row[1], self._link.place)
            self._write(cursor, row[0], after, token, events, packed, texts, at)
            return after + len(events)

        if not events:
            return self._at_end(session, after)
        return self._settled(call, token, lambda: self._link.write(work))

    def length(self, session: str) -> int:
        return self.info(session).records

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        last = self.length(session)
        return self._events(session, after, last)

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        wanted = {"first": first, "last": last}

        def work(cursor: Cursor) -> Records:
            id = _found(cursor, session)
            found = cursor.execute(sql("turns"), {"id": id, **wanted}).fetchall()
            return records(cursor, id, [record for _, record in found])

        return [_turn(event) for _, event in self._link.read(work).unpacked(self._packer)]

    def observation(self, session: str, key: Key) -> Observation:
        if _is_handle(key):
            found = self.turns(session, key[0], key[0])
        else:
            found = self._none(session)
        if not found or key[1] > len(found[0].observations):
            raise nothing_under(session, key)
        return found[0].observations[key[1] - 1]

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        words = list(dict.fromkeys(words_in(query)))
        if not words or limit < 1:
            self.length(session)
            return []
        found: list[Hit] = []
        before: int | None = None
        while len(found) < limit:
            turns = self._holding(session, words, before)
            found += [hit for turn in turns for hit in hits(session, turn, words)]
            if len(turns) < _TURNS:
                break
            before = turns[-1].index
        return found[:limit]

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        asked = {"family": kept(family), "nodes": [kept(node) for node in nodes]}
        row = self._link.read(lambda cursor: cursor.execute(sql("locate"), asked).fetchone())
        if row:
            return (given(row[0]), row[1])
        return None

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        if changed_since is None:
            since = float("-inf")
        else:
            since = changed_since
        query = sql("sessions_of_family" if family_prefix else "sessions")
        asked = {"prefix": kept(family_prefix), "since": since}
        rows = self._link.read(lambda cursor: cursor.execute(query, asked).fetchall())
        found = [info for info in map(_info, rows) if info.changed >= since]
        return sorted(found, key=lambda info: (info.changed, info.key), reverse=True)

    def keep_secret(self, fresh: bytes) -> bytes:
        def work(cursor: Cursor) -> bytes:
            cursor.execute(sql("keep_secret"), {"secret": fresh})
            row = cursor.execute(sql("secret")).fetchone()
            assert row is not None
            return bytes(row[0])

        return self._link.write(work)

    def info(self, session: str) -> SessionInfo:
        return _info(self._link.read(lambda cursor: _row(cursor, session)))

    def delete(self, session: str) -> None:
        tries = 0

        def work(cursor: Cursor) -> None:
            nonlocal tries
            tries += 1
            row = cursor.execute(sql("session_locked"), {"session": kept(session)}).fetchone()
            if row is not None:
                _forget(cursor, row[0])
            elif tries == 1:
                raise no_session(session)

        self._link.write(work, patient=True)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> Purged:
        gone: list[str] = []
        freed = 0
        stored = self._stored() if max_bytes is not None else 0
        for info in reversed(self.sessions()):
            old = older_than is not None and info.changed < older_than
            if not old and not (max_bytes is not None and stored - freed > max_bytes):
                continue
            bytes = self._purged(info)
            if bytes is not None:
                gone.append(info.key)
                freed += bytes
        return Purged(sessions=tuple(gone), freed_bytes=freed)

    def footprint(self) -> Footprint:
        def work(cursor: Cursor) -> Footprint:
            counts = cursor.execute(sql("footprint")).fetchone() or (0,) * 5
            sessions, records, turns, texts, raw = map(int, counts)
            stored = _number(cursor, "stored")
            return Footprint(
                sessions=sessions, records=records, turns=turns, texts=texts, raw_bytes=raw, stored_bytes=stored
            )

        return self._link.read(work, patient=True)

    def compact(self) -> int:
        self._link.write(lambda cursor: cursor.execute(sql("sweep_all")), patient=True)
        before = self._disk()
        self._link.maintain(*_VACUUMS)
        return max(0, before - self._disk())

    def check(self) -> list[Finding]:
        return list(findings(self._link, self._packer, self.sessions()))

    def close(self) -> None:
        self._link.close()

    # --- writing ------------------------------------------------------------------------------------------------

    def _write(
        self,
        cursor: Cursor,
        session: int,
        after: int,
        token: uuid.UUID,
        events: Sequence[Event],
        packed: Sequence[Packed],
        texts: Sequence[tuple[Blob, str]],
        at: float,
    ) -> None:
        """Everything of an append but its claim."""
        for blob, words in texts:
            cursor.execute(sql("add_text"), (blob.address, blob.size, blob.packed, words))
            if words:
                cursor.execute(sql("add_words_of_text"), (words, blob.address))
            cursor.execute(sql("add_use"), (blob.address, session))
        for position, (event, each) in enumerate(zip(events, packed, strict=True), start=after + 1):
            apart = [blob.address for blob in each.blobs]
            given = (session, position, each.kind, each.turn, each.size, token, apart, each.body)
            cursor.execute(sql("add_record"), given)
            for row in rows(event, session=session, record=position, at=at):
                cursor.execute(sql(row.statement), row.given)

    def _written(self, cursor: Cursor, session: str, after: int, added: int, token: uuid.UUID) -> int:
        """The claim failed. Our own work, whose answer was lost, is done; anything else is a conflict."""
        row = _row(cursor, session)
        asked = {"id": row[0], "after": after, "added": added, "token": token}
        if _number(cursor, "claimed", asked) == added:
            return after + added
        raise behind(session, row[7], after)

    def _at_end(self, session: str, after: int) -> int:
        length = self.length(session)
        if length != after:
            raise behind(session, length, after)
        return length

    def _token(self, call: object) -> uuid.UUID:
        """Of a call: a new one, or that of the same call before, if nobody knows how that ended."""
        return self._tokens.pop(call, None) or uuid.uuid4()

    def _settled(self, call: object, token: uuid.UUID, work: Callable[[], T]) -> T:
        try:
            return work()
        except ConflictError:
            raise
        except StoreError:
            if len(self._tokens) >= _UNSETTLED:
                self._tokens.clear()
            self._tokens[call] = token
            raise

    # --- reading ------------------------------------------------------------------------------------------------

    def _events(self, session: str, after: int, last: int) -> Iterator[Event]:
        for batch in batches(self._link, lambda cursor: _found(cursor, session), after, last):
            yield from (event for _, event in batch.unpacked(self._packer))

    def _holding(self, session: str, words: Sequence[str], before: int | None) -> list[Turn]:
        """The newest turns before `before` of which a piece may hold `words`, newest first."""

        def work(cursor: Cursor) -> Records:
            id = _found(cursor, session)
            asked = {"id": id, "words": list(words), "before": before, "limit": _TURNS}
            found = cursor.execute(sql("search"), asked).fetchall()
            return records(cursor, id, [record for _, record in found])

        return [_turn(event) for _, event in reversed(list(self._link.read(work).unpacked(self._packer)))]

    def _none(self, session: str) -> list[Turn]:
        self.length(session)
        return []

    # --- space --------------------------------------------------------------------------------------------------

    def _purged(self, info: SessionInfo) -> int | None:
        """Bytes freed by deleting that session; None if somebody wrote to it, or deleted it, in the meantime."""

        def work(cursor: Cursor) -> int | None:
            row = cursor.execute(sql("session_locked"), {"session": kept(info.key)}).fetchone()
            if row is not None and row[1] == info.records:
                return _forget(cursor, row[0])
            return None

        return self._link.write(work, patient=True)

    def _stored(self) -> int:
        return self._link.read(lambda cursor: _number(cursor, "stored"), patient=True)

    def _disk(self) -> int:
        return self._link.read(lambda cursor: _number(cursor, "disk"), patient=True)

    @property
    def _packer(self) -> Packer:
        """One for each thread."""
        packer: Packer | None = getattr(self._local, "packer", None)
        if packer is None:
            packer = self._local.packer = Packer()
        return packer


_VACUUMS = ("vacuum_log", "vacuum_texts", "vacuum_uses", "vacuum_turns", "vacuum_words", "vacuum_sessions")


def _texts(events: Sequence[Event], packed: Sequence[Packed]) -> list[tuple[Blob, str]]:
    """Each large text once, with its words; in one order for all writers, so that none waits for another in a ring."""
    blobs = {blob.address: blob for each in packed for blob in each.blobs}
    words = {address: found for event in events for address, found in words_apart(event).items()}
    return [(blobs[address], words.get(address, "")) for address in sorted(blobs)]


def _sums(packed: Sequence[Packed]) -> dict[str, int]:
    return {"turn": max(each.turn for each in packed), "size": sum(each.size for each in packed)}


def _durable(setting: str, place: str) -> None:
    if setting not in _DURABLE:
        raise StoreError(
            f"{place}: synchronous_commit is {setting!r} in the middle of a session; something between here and the "
            "server (a pooler?) changes settings: give Elision a connection of its own"
        )


def _forget(cursor: Cursor, id: int) -> int:
    """Delete a session and the texts that only it used; bytes freed."""
    freed = _number(cursor, "session_bytes", {"id": id})
    addresses = [row[0] for row in cursor.execute(sql("used_by"), {"id": id}).fetchall()]
    cursor.execute(sql("delete"), {"id": id})
    return freed + _number(cursor, "sweep", {"addresses": addresses})


def _found(cursor: Cursor, session: str) -> int:
    id: int = _row(cursor, session)[0]
    return id


def _row(cursor: Cursor, session: str) -> tuple[Any, ...]:
    row = cursor.execute(sql("session"), {"session": kept(session)}).fetchone()
    if row is None:
        raise no_session(session)
    return row


def _number(cursor: Cursor, name: str, asked: dict[str, Any] | None = None) -> int:
    row = cursor.execute(sql(name), asked or {}).fetchone()
    if row:
        return int(row[0])
    return 0


def _turn(event: Event) -> Turn:
    if not isinstance(event, TurnAdded | Amended):
        raise CorruptError(f"a record that should hold a turn holds {type(event).__name__}")
    return event.turn


def _is_handle(key: Key) -> bool:
    """Whether there can be such an observation, and the server can be asked for it."""
    return 1 <= key[0] < 2**63 and key[1] >= 1


def _info(row: Iterable[Any]) -> SessionInfo:
    _, key, family, parent, relation, begun, changed, records, turns, raw_bytes = row
    how: Relation = relation
    return SessionInfo(
        key=given(key),
        family=given(family),
        parent=given(parent),
        relation=how,
        begun=begun,
        changed=changed,
        records=records,
        turns=turns,
        raw_bytes=raw_bytes,
    )
