"""A session that begins with a copy of another's log: the server copies rows, texts are shared."""

from __future__ import annotations

import uuid

from elision.stores.packing import Packer, get_packer
from elision.stores.postgres.connection import Cursor
from elision.stores.postgres.readable_tables import list_changes
from elision.stores.postgres.record_batches import read_records
from elision.stores.postgres.statements import find_statement
from elision.stores.postgres.text_escapes import escape_name
from elision.stores.store import NewSession
from elision.stores.store_errors import missing_session_error, session_exists_error, short_parent_error


def create_session(cursor: Cursor, session: NewSession, token: uuid.UUID, *, shows_whole: bool) -> None:
    """Begin a session, with a copy of what it shares, unless the call with `token` did. Raises ConflictError."""
    names = {"session": escape_name(session.key), "token": token}
    origin = {
        "family": escape_name(session.family),
        "parent": escape_name(session.parent),
        "relation": session.relation,
    }
    row = cursor.execute(find_statement("create"), {**names, **origin, "at": session.at}).fetchone()
    if row is None:
        if cursor.execute(find_statement("created"), names).fetchone() is None:
            raise session_exists_error(session)
    elif session.shared:
        _copy_records(cursor, session, row[0], get_packer(), shows_whole=shows_whole)


def _copy_records(cursor: Cursor, session: NewSession, id: int, packer: Packer, *, shows_whole: bool) -> None:
    """Fill session `id`, new and empty, with what `session` shares with its parent.

    shows_whole: whether turns that have to be made again show whole texts.
    """
    parent = cursor.execute(find_statement("parent"), {"session": escape_name(session.parent), "id": id}).fetchone()
    if parent is None:
        raise missing_session_error(session.parent)
    if session.shared > parent[1]:
        raise short_parent_error(session, parent[1])
    asked = {"id": id, "parent": parent[0], "shared": session.shared, "session": escape_name(session.key)}
    for name in ("fork_log", "fork_uses", "fork_counts", "fork_turns", "fork_words", "fork_summaries"):
        cursor.execute(find_statement(name), asked)
    _restore_turns(cursor, session, id, packer, shows_whole=shows_whole)


def _restore_turns(cursor: Cursor, session: NewSession, id: int, packer: Packer, *, shows_whole: bool) -> None:
    """Make turns that the parent amended or hid after the shared records again, from the log."""
    stale = cursor.execute(find_statement("fork_stale"), {"id": id}).fetchall()
    if not stale:
        return
    decisions = cursor.execute(find_statement("fork_decisions"), {"id": id}).fetchall()
    positions = sorted([position for _, position in stale] + [position for (position,) in decisions])
    for position, event in read_records(cursor, id, positions).unpack_events(packer):
        for row in list_changes(event, session=id, record=position, at=session.at, shows_whole=shows_whole):
            cursor.execute(find_statement(row.statement), row.parameters)
