"""What a pooler that assigns transactions asks of the store, beside its contract: many share few connections, and leave
nothing in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import psycopg
import pytest

from elision.errors import StoreError
from elision.stores.store_urls import open_store
from tests.stores.pgbouncer import Pgbouncer
from tests.stores.postgres_server import Server, start_server
from tests.stores.session_logs import add_turn, begin_session, read_log

#: Opened stores, each as a worker has one, and the connections that the pooler has for all of them.
WORKERS, CONNECTIONS = 100, 3
#: Seconds for a pooler to find its server again; the machine may be busy.
PATIENCE = 30.0

#: What a session of the server may hold that is no transaction's. The name of the application is the pooler's doing: it
#: sets each client's own.
STATE = {
    "settings": "select name, setting from pg_settings where source = 'session' and name <> 'application_name'",
    "prepared": "select name from pg_prepared_statements",
    "locks": "select objid from pg_locks where locktype = 'advisory'",
    "channels": "select pg_listening_channels()",
    "tables": "select relname from pg_class where relpersistence = 't'",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that these tests may restart."""
    server = start_server()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def pooler(server: Server) -> Iterator[Pgbouncer]:
    pooler = Pgbouncer(server, CONNECTIONS)
    yield pooler
    pooler.stop()


def test_a_hundred_workers_share_three_connections() -> None:
    """Each with a pool of its own, all at once; every append is there, and the server has seen three connections."""
    with ExitStack() as stack:
        server = start_server()
        stack.callback(server.remove)
        # On a busy machine the last of a hundred waits longer than a second.
        pooler = Pgbouncer(server, CONNECTIONS, patience=60)
        stack.callback(pooler.stop)
        url = pooler.make_fresh_url(pool=2, timeout=60)
        stores = [stack.enter_context(closing(open_store(url))) for _ in range(WORKERS)]

        def work(number: int) -> None:
            name = f"s{number}"
            begin_session(stores[number], name, add_turn(1))
            for turn in range(2, 5):
                # Whichever worker gets the next request of a session.
                stores[(number + turn) % WORKERS].append(name, (add_turn(turn),), after=turn - 1, at=1.0)

        with ThreadPoolExecutor(WORKERS) as threads:
            list(threads.map(work, range(WORKERS)))
        with server.connect_as_admin() as admin:
            query = "select count(*) from pg_stat_activity where application_name = 'elision'"
            assert admin.execute(query).fetchone() == (CONNECTIONS,)
        for number in range(WORKERS):
            assert read_log(stores[0], f"s{number}") == [add_turn(turn) for turn in range(1, 5)]


def test_a_pipeline_ends_before_its_transaction(pooler: Pgbouncer, tmp_path: Path) -> None:
    """The last message is the one that commits or rolls back: a pooler would wait forever for the end of another."""
    with closing(open_store(pooler.make_fresh_url(pool=1))) as store:
        begin_session(store, "s", add_turn(1))
        pool = store._database._pool
        for name, work in {
            "commit": lambda: store.append("s", (add_turn(2),), after=1, at=1.0),
            "read": lambda: store.turns("s"),
            "rollback": lambda: store._database.write(lambda cursor: cursor.execute("select 1 / 0")),
        }.items():
            with (tmp_path / name).open("w") as trace, suppress(StoreError):
                with pool.connection() as connection:
                    connection.pgconn.trace(trace.fileno())
                try:
                    work()
                finally:
                    with pool.connection() as connection:
                        connection.pgconn.untrace()
            messages = [line.split("\t") for line in (tmp_path / name).read_text().splitlines() if "\t" in line]
            sent = [message[3] for message in messages if message[1] == "F"]
            assert sent[0] == sent[-1] == "Query", name
            assert "Sync" in sent, name


def test_nothing_is_left_in_a_connection(pooler: Pgbouncer) -> None:
    """Whatever the store did, the next client finds the server's sessions as they were: no setting, no lock."""

    def look() -> list[dict[str, list[tuple[object, ...]]]]:
        """What each of the server's sessions holds: the pooler hands them out in turn."""
        with ExitStack() as stack:
            made = (psycopg.connect(user="postgres", host=str(pooler.folder), port=6432) for _ in range(CONNECTIONS))
            clients = [stack.enter_context(closing(client)) for client in made]
            return [{what: each.execute(query).fetchall() for what, query in STATE.items()} for each in clients]

    before = look()
    with closing(open_store(pooler.make_fresh_url())) as store:
        begin_session(store, "s", *(add_turn(turn, "x" * 900) for turn in range(1, 20)))
        for _ in range(10):
            store.turns("s")
        store.purge(max_bytes=0)
        store.compact()
        with pytest.raises(StoreError):
            store._database.write(lambda cursor: cursor.execute("select 1 / 0"))
    assert look() == before


def test_the_store_goes_on_after_a_restart_behind_the_pooler(server: Server, pooler: Pgbouncer) -> None:
    """While the server is away a call ends with what to look at, not with the pooler's patience."""
    with closing(open_store(pooler.make_fresh_url())) as store:
        begin_session(store, "s", add_turn(1))
        server.stop()
        with pytest.raises(StoreError, match="see that the server runs"):
            store.append("s", (add_turn(2),), after=1, at=1.0)
        server.start()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            # The pooler tells the first that come that it has not looked since.
            with suppress(StoreError):
                store.append("s", (add_turn(2),), after=1, at=1.0)
                break
        assert read_log(store) == [add_turn(1), add_turn(2)]


def test_the_schema_is_made_once(pooler: Pgbouncer) -> None:
    """Workers that start at once behind a pooler wait for the one that makes the tables."""
    url = pooler.make_fresh_url()
    with ThreadPoolExecutor(8) as threads:
        for store in threads.map(lambda _: open_store(url), range(8)):
            store.close()


def test_without_pgbouncer_the_tests_say_so(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    """They are skipped with the reason in capitals, not passed over."""
    monkeypatch.setattr("tests.stores.pgbouncer._PROGRAM", None)
    with pytest.raises(pytest.skip.Exception, match="NO PGBOUNCER IS INSTALLED"):
        Pgbouncer(server, 1)
