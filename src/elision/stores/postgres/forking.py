"""A session that begins with a copy of another's log: rows are copied where they stand, texts are shared."""

from __future__ import annotations

from elision.stores.packing import Packer
from elision.stores.postgres.link import Cursor
from elision.stores.postgres.names import kept
from elision.stores.postgres.readable import rows
from elision.stores.postgres.reading import records
from elision.stores.postgres.statements import sql
from elision.stores.refusals import no_session, shorter
from elision.stores.store import NewSession


def fork(cursor: Cursor, session: NewSession, id: int, packer: Packer) -> None:
    """Fill session `id`, new and empty, with what `session` shares with its parent."""
    parent = cursor.execute(sql("parent"), {"session": kept(session.parent), "id": id}).fetchone()
    if parent is None:
        raise no_session(session.parent)
    if session.shared > parent[1]:
        raise shorter(session, parent[1])
    asked = {"id": id, "parent": parent[0], "shared": session.shared, "session": kept(session.key)}
    for name in ("fork_log", "fork_uses", "fork_counts", "fork_turns", "fork_words"):
        cursor.execute(sql(name), asked)
    _as_they_were(cursor, session, id, packer)


def _as_they_were(cursor: Cursor, session: NewSession, id: int, packer: Packer) -> None:
    """Turns that the parent amended or hid behind the shared records are made again from the log."""
    stale = cursor.execute(sql("fork_stale"), {"id": id}).fetchall()
    if not stale:
        return
    decisions = cursor.execute(sql("fork_decisions"), {"id": id}).fetchall()
    positions = sorted([position for _, position in stale] + [position for (position,) in decisions])
    for position, event in records(cursor, id, positions).unpacked(packer):
        for row in rows(event, session=id, record=position, at=session.at):
            cursor.execute(sql(row.statement), row.given)
