"""What to do about an error of the server, by SQLSTATE, and what is no error of the server at all."""

from __future__ import annotations

#: SQLSTATE, or its first letters -> the hint. The longest match is taken.
#: https://www.postgresql.org/docs/current/errcodes-appendix.html
_HINTS = {
    "08": "see that the server runs and can be reached",
    "22": "the server cannot hold this value",
    "23505": "rows are there that the session's own row does not count",
    "25006": "the server takes no writes (a standby?); name the primary, or add target_session_attrs=read-write",
    "28": "see the user and the password (PGPASSWORD, ~/.pgpass), and the server's pg_hba.conf",
    "3D000": "make the database (createdb), or name one that is there",
    "40": "other writers were in the way each time; try again",
    "42501": "grant the user what it lacks (docs/guides/postgres.md), or name a schema of its own: ?schema=NAME",
    "53100": "the server's disk is full; free space there: what was acknowledged is safe",
    "53200": "the server is out of memory; try again when it has some",
    "53300": "the server has no connection left; lower ?pool= or raise its max_connections",
    "54": "what was given is larger than the server can hold",
    "55P03": "another writer or a maintenance command holds the session; try again",
    "57014": "it took longer than ?timeout= allows; try again, or allow more",
    "57P": "the server is going down or coming up; try again",
    "58": "the server's disk or files fail; see the server's log",
    "XX": "the server found its own data damaged; see the server's log",
}
#: Tried again by the store itself: a transaction that collided, and a text that was swept in the meantime.
RETRIED = frozenset({"40001", "40P01", "23503"})
#: Damaged pages or indexes, and a record where there should be none yet.
DAMAGED = frozenset({"XX001", "XX002", "23505"})


def find_hint(state: str | None) -> str:
    """Return what to do about SQLSTATE `state`; None for an error without one, before the server answered."""
    if state is None:
        return "see that the server runs, and that host, user, password and database of the URL are right"
    for length in (5, 3, 2):
        if state[:length] in _HINTS:
            return _HINTS[state[:length]]
    return "see the server's log"
