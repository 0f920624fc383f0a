"""Rows of sessions: found, read and deleted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from elision.stores.postgres.connection import Cursor
from elision.stores.postgres.statements import find_statement
from elision.stores.postgres.text_escapes import escape_name, unescape_name
from elision.stores.store import Relation, SessionInfo
from elision.stores.store_errors import missing_session_error


def find_session_id(cursor: Cursor, session: str) -> int:
    id: int = find_session_row(cursor, session)[0]
    return id


def find_session_row(cursor: Cursor, session: str) -> tuple[Any, ...]:
    row = cursor.execute(find_statement("session"), {"session": escape_name(session)}).fetchone()
    if row is None:
        raise missing_session_error(session)
    return row


def read_number(cursor: Cursor, name: str, parameters: dict[str, Any] | None = None) -> int:
    row = cursor.execute(find_statement(name), parameters or {}).fetchone()
    if row:
        return int(row[0])
    return 0


def delete_session(cursor: Cursor, id: int) -> int:
    """Delete a session and the texts that only it used; return the bytes freed."""
    freed = read_number(cursor, "session_bytes", {"id": id})
    addresses = [row[0] for row in cursor.execute(find_statement("used_by"), {"id": id}).fetchall()]
    cursor.execute(find_statement("delete"), {"id": id})
    return freed + read_number(cursor, "sweep", {"addresses": addresses})


def parse_session_row(row: Iterable[Any]) -> SessionInfo:
    _, key, family, parent, relation, begun, changed, records, turns, raw_bytes = row
    how: Relation = relation
    return SessionInfo(
        key=unescape_name(key),
        family=unescape_name(family),
        parent=unescape_name(parent),
        relation=how,
        begun=begun,
        changed=changed,
        records=records,
        turns=turns,
        raw_bytes=raw_bytes,
    )
