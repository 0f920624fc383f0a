"""The tables, at the version that this Elision knows: made where there are none, refused at another one."""

from __future__ import annotations

from typing import Any, Final

from elision.errors import StoreError
from elision.stores.postgres.connection import Cursor, PostgresDatabase, create_schema
from elision.stores.sql_dialect import load_statements, split_statements
from elision.stores.store_errors import missing_store_error

SCRIPT = "postgres_schema.sql"
#: Raised with each change of `SCRIPT` once it was released.
VERSION = 1
_SQL: Final = load_statements("postgres")


def ensure_tables(database: PostgresDatabase, *, read_only: bool) -> None:
    """Make the tables, unless they are there; any number of processes may do so at once.

    read_only: nothing is written. Raises StoreError for tables of another version, and MissingStore for none.
    """
    schema = database.address.schema
    version = database.read(lambda cursor: _read_version(cursor, schema))
    if version == 0 and read_only:
        raise missing_store_error(f"{database.name}, schema {schema!r}")
    if version == 0:
        version = database.write(lambda cursor: _make_tables(cursor, schema), patient=True)
    if version != VERSION:
        raise StoreError(
            f"{database.name}: the tables in schema {schema!r} are version {version}, this Elision knows {VERSION}; "
            "use the elision that made them, or name another schema: ?schema=NAME"
        )


def _read_version(cursor: Cursor, schema: str) -> int:
    """Return the version of the tables in `schema`; 0 if there are none."""
    if not _read_value(cursor, "schema_versioned", schema):
        return 0
    return int(_read_value(cursor, "schema_version", schema) or 0)


def _make_tables(cursor: Cursor, schema: str) -> int:
    """Make them under a lock that other processes wait for; the second one finds them made. Return their version."""
    cursor.execute(_SQL["schema_lock"], {"schema": schema})
    found = _read_version(cursor, schema)
    if found:
        return found
    if not _read_value(cursor, "schema_exists", schema):
        create_schema(cursor, schema)
    for statement in split_statements(SCRIPT):
        cursor.execute(statement)
    cursor.execute(_SQL["schema_set_version"], {"version": VERSION})
    return VERSION


def _read_value(cursor: Cursor, name: str, schema: str) -> Any:
    row = cursor.execute(_SQL[name], {"schema": schema}).fetchone()
    if row:
        return row[0]
    return None
