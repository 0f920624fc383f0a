"""The tables, at the version that this Elision knows: made where there are none, refused at another one."""

from __future__ import annotations

from typing import Any

from elision.errors import StoreError
from elision.stores.postgres.connection import Cursor, PostgresDatabase, create_schema
from elision.stores.sql_dialect import load_statements, split_statements
from elision.stores.store_errors import missing_store_error

SCRIPT = "postgres_schema.sql"
#: Raised with each change of `SCRIPT` once it was released.
VERSION = 1


def ensure_tables(database: PostgresDatabase) -> None:
    """Make the tables; any number of processes may do so at once. Raises StoreError for those of another version."""
    schema = database.address.schema
    version = database.read(lambda cursor: read_version(cursor, schema))
    if version == 0:
        version = database.write(lambda cursor: _make_tables(cursor, schema), patient=True)
    _check_version(database, version)


def check_tables(database: PostgresDatabase) -> None:
    """Raise StoreError unless the tables are there, at the version that this Elision knows; nothing is written."""
    schema = database.address.schema
    version = database.read(lambda cursor: read_version(cursor, schema))
    if version == 0:
        raise missing_store_error(f"{database.name}, schema {schema!r}")
    _check_version(database, version)


def _check_version(database: PostgresDatabase, version: int) -> None:
    if version != VERSION:
        raise StoreError(
            f"{database.name}: the tables in schema {database.address.schema!r} are version {version}, this Elision "
            f"knows {VERSION}; use the elision that made them, or name another schema: ?schema=NAME"
        )


def read_version(cursor: Cursor, schema: str) -> int:
    """Return the version of the tables in `schema`; 0 if there are none."""
    if not _read_value(cursor, "schema_versioned", schema):
        return 0
    return int(_read_value(cursor, "schema_version", schema) or 0)


def _make_tables(cursor: Cursor, schema: str) -> int:
    """Make them under a lock that other processes wait for; the second one finds them made. Return their version."""
    cursor.execute(load_statements("postgres")["schema_lock"], {"schema": schema})
    found = read_version(cursor, schema)
    if found:
        return found
    if not _read_value(cursor, "schema_exists", schema):
        create_schema(cursor, schema)
    for statement in split_statements(SCRIPT):
        cursor.execute(statement)
    cursor.execute(load_statements("postgres")["schema_set_version"], {"version": VERSION})
    return VERSION


def _read_value(cursor: Cursor, name: str, schema: str) -> Any:
    row = cursor.execute(load_statements("postgres")[name], {"schema": schema}).fetchone()
    if row:
        return row[0]
    return None
