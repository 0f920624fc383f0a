"""The tables, at the version that this Elision knows: made where there are none, migrated where they are older."""

from __future__ import annotations

from typing import Any

from elision.errors import StoreError
from elision.stores.postgres.connection import Cursor, PostgresDatabase, create_schema
from elision.stores.postgres.statements import find_statement, read_script
from elision.stores.store_errors import missing_store_error, old_store_error

#: In order; migration n makes version n of version n - 1. A test proves that all of them make `postgres_schema.sql`.
MIGRATIONS = (
    "postgres_0001_tables.sql",
    "postgres_0002_observations.sql",
    "postgres_0003_gateways.sql",
    "postgres_0004_transcripts.sql",
    "postgres_0005_appends.sql",
    "postgres_0006_spending.sql",
)
FRESH = "postgres_schema.sql"
VERSION = len(MIGRATIONS)


def ensure_tables(database: PostgresDatabase) -> None:
    """Make or migrate the tables; any number of processes may do so at once. Raises StoreError for newer tables."""
    schema = database.address.schema
    version = database.read(lambda cursor: read_version(cursor, schema))
    if version < VERSION:
        version = database.write(lambda cursor: _migrate_tables(cursor, schema), patient=True)
    _check_version(database, version)


def check_tables(database: PostgresDatabase) -> None:
    """Raise StoreError unless the tables are there, at the version that this Elision knows; nothing is written."""
    schema = database.address.schema
    version = database.read(lambda cursor: read_version(cursor, schema))
    place = f"{database.name}, schema {schema!r}"
    if version == 0:
        raise missing_store_error(place)
    if version < VERSION:
        raise old_store_error(place, version, VERSION)
    _check_version(database, version)


def _check_version(database: PostgresDatabase, version: int) -> None:
    """Raise StoreError for newer tables."""
    if version > VERSION:
        raise StoreError(
            f"{database.name}: the tables in schema {database.address.schema!r} are version {version}, this Elision "
            f"knows {VERSION}; update elision, or name another schema: ?schema=NAME"
        )


def read_version(cursor: Cursor, schema: str) -> int:
    """Return the version of the tables in `schema`; 0 if there are none."""
    if not _read_value(cursor, "schema_versioned", schema):
        return 0
    return int(_read_value(cursor, "schema_version", schema) or 0)


def _migrate_tables(cursor: Cursor, schema: str) -> int:
    """Migrate under a lock that other processes wait for; the second one finds the work done. Return the version."""
    cursor.execute(find_statement("schema_lock"), {"schema": schema})
    before = read_version(cursor, schema)
    if not _read_value(cursor, "schema_exists", schema):
        create_schema(cursor, schema)
    for file in (FRESH,) if before == 0 else MIGRATIONS[before:]:
        for statement in split_statements(file):
            cursor.execute(statement)
    if before < VERSION:
        cursor.execute(find_statement("schema_set_version"), {"version": VERSION})
    return max(before, VERSION)


def split_statements(file: str) -> list[bytes]:
    """Return the statements of a script of ours, whose last characters are a semicolon and a line's end.

    A pipeline takes one statement at a time.
    """
    lines = [line for line in read_script(file).splitlines() if not line.lstrip().startswith(b"--")]
    statements = (piece.strip().removesuffix(b";") for piece in b"\n".join(lines).split(b";\n"))
    return [statement for statement in statements if statement]


def _read_value(cursor: Cursor, name: str, schema: str) -> Any:
    row = cursor.execute(find_statement(name), {"schema": schema}).fetchone()
    if row:
        return row[0]
    return None
