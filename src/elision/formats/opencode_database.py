"""opencode's SQLite database (`~/.local/share/opencode/opencode.db`), session by session.

A row of `message` or `part` holds as JSON what a file below `storage/` held before, without the ids, which are columns.
Source: the tables that opencode 1.18 makes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from elision.formats.document import Document
from elision.trajectory.trajectory import Problem

_TABLES = {"session", "message", "part"}
_BUSY_SECONDS = 5.0


def read_database(path: Path, label: str) -> Iterator[Document | Problem]:
    """Yield each session as the documents of a storage folder; nothing where the database is another program's.

    The database is only read, also while opencode writes to it.
    """
    try:
        with closing(_connect(path)) as connection:
            names = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
            if not names >= _TABLES:
                return
            sessions = connection.execute("select id, parent_id from session order by time_created, id").fetchall()
            for session, parent in sessions:
                yield Document(path=f"{label}!{session}", members=_read_session(connection, session, parent))
    except sqlite3.Error as error:
        yield Problem(file=label, line=None, reason=f"the database cannot be read ({error}); read as far as it goes")


def _connect(path: Path) -> sqlite3.Connection:
    address = path.absolute().as_uri()
    if Path(f"{path}-wal").exists():
        address += "?mode=ro"
    else:
        # Nobody writes: SQLite need not make files beside it, for which the folder may be closed to us.
        address += "?mode=ro&immutable=1"
    return sqlite3.connect(address, uri=True, timeout=_BUSY_SECONDS)


def _read_session(connection: sqlite3.Connection, session: str, parent: str | None) -> dict[str, bytes]:
    """Return the files that an older version would have written: name -> JSON."""
    record = {"id": session, **({"parentID": parent} if parent else {})}
    members = {f"session/global/{session}.json": json.dumps(record).encode()}
    for message, data in connection.execute("select id, data from message where session_id = ?", (session,)):
        members[f"message/{session}/{message}.json"] = _encode(data)
    rows = connection.execute("select id, message_id, data from part where session_id = ?", (session,))
    for part, message, data in rows:
        members[f"part/{message}/{part}.json"] = _encode(data)
    return dict(sorted(members.items()))


def _encode(data: str | bytes) -> bytes:
    return data if isinstance(data, bytes) else data.encode("utf-8", "replace")
