"""The tables of the PostgreSQL store: made once under any start, and refused at another version."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from elision.errors import StoreError
from elision.stores.postgres.connection import PostgresDatabase
from elision.stores.postgres.store import SCRIPT, VERSION
from elision.stores.sql_dialect import split_statements
from elision.stores.store import KeepsSecret
from elision.stores.store_urls import open_for_reading, open_store
from tests.stores.postgres_server import make_fresh_url, shared_server
from tests.stores.session_logs import add_turn, begin_session, read_log

#: Everything that makes up the tables: columns, constraints, indexes, views, storage, options.
CATALOG = {
    "columns": "select table_name, column_name, ordinal_position, data_type, is_nullable, column_default, is_identity "
    "from information_schema.columns where table_schema = %(schema)s order by 1, 3",
    "constraints": "select conrelid::regclass::text, conname, pg_get_constraintdef(oid) from pg_constraint "
    "where connamespace = %(schema)s::regnamespace order by 1, 2",
    "indexes": "select tablename, indexname, indexdef from pg_indexes where schemaname = %(schema)s order by 1, 2",
    "views": "select viewname, definition from pg_views where schemaname = %(schema)s order by 1",
    "storage": "select relname, attname, attstorage::text from pg_attribute join pg_class on pg_class.oid = attrelid "
    "where relnamespace = %(schema)s::regnamespace and attnum > 0 order by 1, 2",
    "options": "select relname, relkind::text, reloptions from pg_class where relnamespace = %(schema)s::regnamespace "
    "order by 1",
}


def schema_of(url: str) -> str:
    return parse_qs(urlsplit(url).query)["schema"][0]


def made(version: int) -> str:
    """The URL of a schema that was made by the script, and says that it is `version`."""
    url = make_fresh_url()
    with shared_server().connect_as_admin() as admin:
        admin.execute(psycopg.sql.SQL("create schema {}").format(psycopg.sql.Identifier(schema_of(url))))
        admin.execute("select set_config('search_path', %s, false)", [schema_of(url)])
        for statement in split_statements(SCRIPT):
            admin.execute(statement)
        admin.execute("insert into agent_context_schema (version) values (%s)", [version])
    return url


def catalog(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """What the server says about the tables at `url`, the name of their schema left out."""
    name = schema_of(url)
    with shared_server().connect_as_admin() as admin:
        found = {what: admin.execute(query, {"schema": name}).fetchall() for what, query in CATALOG.items()}
    return {
        what: [tuple(each.replace(name, "SCHEMA") if isinstance(each, str) else each for each in row) for row in rows]
        for what, rows in found.items()
    }


def test_a_store_is_made_with_the_schema() -> None:
    """Opening a URL makes what the script makes."""
    url = make_fresh_url()
    open_store(url).close()
    found = catalog(url)
    assert found == catalog(made(VERSION))
    assert len(found["columns"]) > 50


@pytest.mark.parametrize("version", [VERSION + 1, VERSION + 5])
def test_another_version_is_refused(version: int) -> None:
    """The error says both versions and what to do; nothing is changed."""
    url = made(version)
    before = catalog(url)
    for open_url in (open_store, open_for_reading):
        with pytest.raises(StoreError, match=rf"version {version}, this Elision knows {VERSION}; use the elision"):
            open_url(url)
    assert catalog(url) == before


def test_many_may_start_at_once() -> None:
    """One of them makes the tables, the others wait for it, and all of them work."""
    url = make_fresh_url()

    def start(number: int) -> int:
        store = open_store(url)
        begin_session(store, f"session {number}", add_turn(1))
        store.close()
        return number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(start, range(8))) == list(range(8))
    store = open_store(url)
    assert len(store.sessions()) == 8
    store.close()


def test_two_schemas_are_two_stores() -> None:
    """The same session in both is two sessions."""
    first, second = open_store(make_fresh_url()), open_store(make_fresh_url())
    begin_session(first, "s", add_turn(1))
    assert second.sessions() == []
    begin_session(second, "s", add_turn(1, "other"))
    assert read_log(first) == [add_turn(1)]
    first.close()
    second.close()


def test_gateways_on_one_database_keep_one_secret() -> None:
    """The first that comes keeps its own, on whatever machine; another database has another."""
    url = make_fresh_url()
    with (
        closing(open_store(url)) as first,
        closing(open_store(url)) as second,
        closing(open_store(make_fresh_url())) as other,
    ):
        assert isinstance(first, KeepsSecret)
        assert isinstance(second, KeepsSecret)
        assert isinstance(other, KeepsSecret)
        assert first.keep_secret(b"1" * 32) == second.keep_secret(b"2" * 32) == b"1" * 32
        assert other.keep_secret(b"3" * 32) == b"3" * 32


def test_a_check_has_no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads whole tables, each of which takes longer than a call may; only what has one row is asked in a hurry."""
    asked: list[bool] = []
    read = PostgresDatabase.read

    def watch(database: PostgresDatabase, work: Any, *, patient: bool = False) -> Any:
        asked.append(patient)
        return read(database, work, patient=patient)

    with closing(open_store(make_fresh_url())) as store:
        begin_session(store, "s", add_turn(1, "a long text " * 90))
        monkeypatch.setattr(PostgresDatabase, "read", watch)
        assert store.check() == []
    assert (asked.count(True), asked.count(False)) == (6, 2)
