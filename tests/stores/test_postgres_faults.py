"""What a PostgreSQL store does when the server, the network or a setting fails: it says so in time, loses nothing, and
goes on when it can."""

from __future__ import annotations

import logging
import tempfile
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psycopg_pool
import pytest

from elision.errors import ConflictError, MissingExtra, StoreError
from elision.stores.postgres import connection as link_module
from elision.stores.postgres.store import PostgresStore
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import Event, RequestSent
from tests.stores.postgres_proxy import Proxy
from tests.stores.postgres_server import Server, shared_server, start_server
from tests.stores.session_logs import add_turn, begin_session, new_session, read_log

PASSWORD = "correct/horse@battery:staple"


@pytest.fixture(scope="module")
def breakable() -> Iterator[Server]:
    """A server that tests may break; it runs again behind each."""
    server = start_server()
    yield server
    server.remove()


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """Between a store and the shared server."""
    # A socket's path is short; pytest's folders are not.
    with tempfile.TemporaryDirectory(prefix="elision-", dir="/tmp") as folder:
        between = Proxy(Path(folder), shared_server().sockets)
        yield between
        between.close()


def opened(url: str) -> PostgresStore:
    store = open_store(url)
    assert isinstance(store, PostgresStore)
    return store


def admin(statement: str, store: Store) -> None:
    """As the superuser, in the schema of `store`."""
    assert isinstance(store, PostgresStore)
    with shared_server().connect_as_admin() as connection:
        connection.execute("select set_config('search_path', %s, false)", [store._database.address.schema])
        connection.execute(statement)


# --- a commit whose answer is lost -------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", ["asked", "answered"])
def test_a_line_cut_at_the_commit_writes_once(proxy: Proxy, direction: str) -> None:
    """Whether the server heard of the commit or not, the append is done once, and acknowledged."""
    store = opened(shared_server().make_fresh_url(host=proxy.folder))
    begin_session(store, "s", add_turn(1))
    for number in range(1, 6):
        proxy.cut_at("asked" if direction == "asked" else "answered", b"COMMIT")
        assert store.append("s", (add_turn(number + 1, "x" * 700),), after=number, at=1.0) == number + 1
        assert proxy.cuts == number
    assert read_log(store) == [add_turn(1), *(add_turn(number, "x" * 700) for number in range(2, 7))]
    store.close()


@pytest.mark.parametrize("direction", ["asked", "answered"])
def test_a_line_cut_at_a_creation_makes_one_session(proxy: Proxy, direction: str) -> None:
    """The second try knows the session for its own; another creation of it is a conflict."""
    store = opened(shared_server().make_fresh_url(host=proxy.folder))
    proxy.cut_at("asked" if direction == "asked" else "answered", b"COMMIT")
    store.create(new_session("s"))
    assert proxy.cuts == 1
    with pytest.raises(ConflictError):
        store.create(new_session("s"))
    store.close()


@pytest.mark.parametrize("direction", ["asked", "answered"])
@pytest.mark.parametrize("batch", [b"", bytes(range(16))], ids=["without an id", "with one"])
def test_a_line_cut_at_a_beginning_writes_once(proxy: Proxy, direction: str, batch: bytes) -> None:
    """A session that begins with its first records, a fork as well, is there once, with each record once."""
    store = opened(shared_server().make_fresh_url(host=proxy.folder))
    sessions = new_session("s"), new_session("t", parent="s", shared=1)
    for cuts, session in enumerate(sessions, start=1):
        events = (add_turn(session.shared + 1, "x" * 700), add_turn(session.shared + 2))
        proxy.cut_at("asked" if direction == "asked" else "answered", b"COMMIT")
        length = store.create_with_events(session, events, at=1.0, batch=batch)
        assert (length, proxy.cuts) == (session.shared + 2, cuts)
        assert read_log(store, session.key)[session.shared :] == list(events)
    with pytest.raises(ConflictError):
        store.create_with_events(new_session("s"), (add_turn(1, "x" * 700), add_turn(2)), at=1.0)
    assert store.check() == []
    store.close()


def test_a_deletion_whose_answer_is_lost_is_done(proxy: Proxy) -> None:
    """That the session is gone already is then no error."""
    store = opened(shared_server().make_fresh_url(host=proxy.folder))
    begin_session(store, "s", add_turn(1))
    proxy.cut_at("answered", b"COMMIT")
    store.delete("s")
    assert store.sessions() == []
    store.close()


BATCH = bytes(range(16))


def test_the_callers_second_try_of_an_unknown_append_is_recognised(proxy: Proxy) -> None:
    """If even the store cannot find out, the same append once more is acknowledged, and not written twice."""
    store = opened(shared_server().make_fresh_url(host=proxy.folder))
    begin_session(store, "s", add_turn(1))
    proxy.cut_at("answered", b"COMMIT")
    refusing = proxy.server_folder
    proxy.server_folder = Path("/nowhere")
    events: tuple[Event, ...] = (add_turn(2, "y" * 600), RequestSent(call=3, at=None, model="m", tokens=1))
    with pytest.raises(StoreError, match="server runs"):
        store.append("s", events, after=1, at=2.0, batch=BATCH)
    proxy.server_folder = refusing
    assert store.append("s", events, after=1, at=2.0, batch=BATCH) == 3
    assert read_log(store) == [add_turn(1), *events]
    with pytest.raises(ConflictError):
        store.append("s", events, after=1, at=2.0)
    store.close()


def test_another_writers_equal_record_is_a_conflict() -> None:
    """What is recognised is the call, not the content: two writers with the same words are two writers."""
    url = shared_server().make_fresh_url()
    first, second = opened(url), opened(url)
    begin_session(first, "s", add_turn(1))
    assert first.append("s", (add_turn(2, "same"),), after=1, at=1.0) == 2
    with pytest.raises(ConflictError):
        second.append("s", (add_turn(2, "same"),), after=1, at=1.0)
    first.close()
    second.close()


def test_a_line_cut_in_an_answer_is_read_again(proxy: Proxy) -> None:
    """Reading is tried once more on a fresh connection."""
    store = opened(shared_server().make_fresh_url(host=proxy.folder))
    begin_session(store, "s", add_turn(1, "needle in here"))
    proxy.cut_at("answered", b"COMMIT")
    assert read_log(store) == [add_turn(1, "needle in here")]
    assert proxy.cuts == 1
    store.close()


# --- servers that go and come ------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stop", "crash"])
def test_the_same_store_goes_on_when_the_server_is_back(breakable: Server, how: str) -> None:
    """While it is away every call says so; behind that nothing is missing."""
    store = opened(breakable.make_fresh_url())
    begin_session(store, "s", *(add_turn(number, "x" * 900) for number in range(1, 30)))
    threads = [threading.Thread(target=store.turns, args=("s",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    getattr(breakable, how)()
    try:
        for _ in range(3):
            with pytest.raises(StoreError, match=r"database 'postgres' at /tmp/.*see that the server runs"):
                store.length("s")
            with pytest.raises(StoreError, match="see that the server runs"):
                store.append("s", (add_turn(30),), after=29, at=1.0)
    finally:
        breakable.start()
    assert store.append("s", (add_turn(30),), after=29, at=1.0) == 30
    assert len(read_log(store)) == 30
    assert store.check() == []
    store.close()


def test_a_restart_between_two_calls_is_not_noticed(breakable: Server) -> None:
    """Connections that died unused are replaced."""
    store = opened(breakable.make_fresh_url())
    begin_session(store, "s", add_turn(1))
    breakable.stop()
    breakable.start()
    assert store.append("s", (add_turn(2),), after=1, at=1.0) == 2
    store.close()


def test_nobody_waits_for_a_server_that_stands_still(breakable: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of this side holds where the server's own cannot; then the store goes on."""
    monkeypatch.setattr(link_module, "GRACE_SECONDS", 0.3)
    store = opened(f"{breakable.make_fresh_url()}&timeout=0.4&connect_timeout=2")
    begin_session(store, "s", add_turn(1))
    breakable.freeze()
    try:
        with pytest.raises(StoreError, match=r"no answer within 0\.7 s"):
            store.append("s", (add_turn(2),), after=1, at=1.0)
    finally:
        breakable.thaw()
    assert store.append("s", (add_turn(2),), after=1, at=1.0) == 2
    assert read_log(store) == [add_turn(1), add_turn(2)]
    store.close()


def test_nobody_is_there() -> None:
    """Opening says where was looked, and what to do."""
    with pytest.raises(StoreError, match=r"database 'agents' at /nowhere/at/all.*see that the server runs"):
        open_store("postgresql:///agents?host=/nowhere/at/all")


def test_a_server_without_fsync_is_refused(breakable: Server) -> None:
    """Unless its user says that it does not matter; then `check` says it."""
    with breakable.connect_as_admin() as connection:
        connection.execute("alter system set fsync = off")
        connection.execute("select pg_reload_conf()")
    breakable.stop()
    breakable.start()
    try:
        with pytest.raises(StoreError, match="fsync = off"):
            open_store(breakable.make_fresh_url())
        store = opened(f"{breakable.make_fresh_url()}&fsync=off")
        assert [finding.place for finding in store.check()] == ["server"]
        store.close()
    finally:
        with breakable.connect_as_admin() as connection:
            connection.execute("alter system reset fsync")
        breakable.stop()
        breakable.start()


def test_a_standby_is_read_and_not_written() -> None:
    """A copy that takes no writes shows everything; a write says whom to ask instead."""
    primary = start_server()
    standby: Server | None = None
    try:
        url = primary.make_fresh_url()
        store = opened(url)
        begin_session(store, "s", add_turn(1, "x" * 800))
        standby = start_server(like=primary)
        copy = opened(url.replace(primary.folder.name, standby.folder.name))
        assert read_log(copy) == [add_turn(1, "x" * 800)]
        with pytest.raises(StoreError, match=r"takes no writes.*name the primary"):
            copy.append("s", (add_turn(2),), after=1, at=1.0)
        copy.close()
        store.close()
    finally:
        for server in (standby, primary):
            if server is not None:
                server.remove()


# --- limits ------------------------------------------------------------------------------------------------------


def test_a_full_pool_says_so() -> None:
    """Who waits for a connection longer than the time limit is told what to change."""
    store = opened(shared_server().make_fresh_url(pool=1, timeout=0.3))
    with (
        store._database._lend_connection(),
        pytest.raises(StoreError, match=r"all 1 connections were in use .* \?pool="),
    ):
        store.sessions()
    assert store.sessions() == []
    store.close()


def test_who_waits_for_a_connection_keeps_the_place_in_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 30 s it looks nine times why there is none, not 300 times: each look puts it behind all others."""
    looks: list[float] = []

    def wait(timeout: float) -> None:
        looks.append(timeout)
        clock.seconds += timeout
        raise psycopg_pool.PoolTimeout

    clock = SimpleNamespace(seconds=0.0)
    store = opened(shared_server().make_fresh_url(pool=1))
    with monkeypatch.context() as patch:
        patch.setattr(store._database._pool, "getconn", wait)
        patch.setattr("elision.stores.postgres.connection.time", SimpleNamespace(monotonic=lambda: clock.seconds))
        with pytest.raises(StoreError, match="in use for 30 s"):
            store.sessions()
    assert looks == pytest.approx([0.1 * 2**look for look in range(8)] + [4.5])
    assert store.sessions() == []
    store.close()


def test_a_held_session_says_so() -> None:
    """A lock that somebody does not let go of ends the wait, not the agent; nothing is written."""
    store = opened(shared_server().make_fresh_url(timeout=0.3))
    begin_session(store, "s", add_turn(1))
    with shared_server().connect_as_admin() as connection, connection.transaction():
        schema = store._database.address.schema
        connection.execute(f"update {schema}.agent_context_sessions set changed = changed")  # type: ignore[arg-type]
        with pytest.raises(StoreError, match=r"has locked the session|timeout="):
            store.append("s", (add_turn(2),), after=1, at=1.0)
    assert read_log(store) == [add_turn(1)]
    assert store.append("s", (add_turn(2),), after=1, at=1.0) == 2
    store.close()


@pytest.mark.parametrize(
    ("state", "mend"),
    [
        ("53100", "the server's disk is full"),
        ("53200", "out of memory"),
        ("58030", "disk or files fail"),
        ("42501", "grant the user"),
        ("XX001", "damaged"),
    ],
)
def test_an_error_in_the_middle_of_an_append_writes_nothing(state: str, mend: str) -> None:
    """Errors of the server (raised by it, in a trigger, at the second of three records) say what to do."""
    store = opened(shared_server().make_fresh_url())
    begin_session(store, "s", add_turn(1))
    admin(
        "create function fail() returns trigger language plpgsql as "
        f"$$ begin if new.position = 3 then raise exception 'no' using errcode = '{state}'; end if; return new; end $$",
        store,
    )
    admin("create trigger fail before insert on agent_context_log for each row execute function fail()", store)
    events = [add_turn(number, "z" * 900) for number in (2, 3, 4)]
    with pytest.raises(StoreError, match=f"database 'postgres' at .*: no; .*{mend}"):
        store.append("s", events, after=1, at=1.0)
    assert read_log(store) == [add_turn(1)]
    assert store.footprint().texts == 0
    admin("drop trigger fail on agent_context_log", store)
    assert store.append("s", events, after=1, at=1.0) == 4
    store.close()


def test_commits_wait_for_the_disk_whatever_is_the_default() -> None:
    """A user or database whose default is another gets durable commits all the same."""
    with shared_server().connect_as_admin() as connection:
        connection.execute("create role hasty login superuser")
        connection.execute("alter role hasty set synchronous_commit = off")
    store = opened(shared_server().make_fresh_url().replace("postgres@", "hasty@"))
    found = store._database.read(lambda cursor: cursor.execute("show synchronous_commit").fetchone())
    assert found == ("on",)
    store.close()


def test_commits_wait_for_the_disk_whatever_a_session_was_told() -> None:
    """A setting that somebody left in the connection, as a pooler's other clients may, does not reach a transaction."""
    store = opened(shared_server().make_fresh_url())
    store._database.read(lambda cursor: cursor.execute("set synchronous_commit = off"))
    found = store._database.write(lambda cursor: cursor.execute("show synchronous_commit").fetchone())
    assert found == ("on",)
    store.close()


def test_a_database_of_another_encoding_is_refused() -> None:
    """It could not hold every text."""
    with shared_server().connect_as_admin() as connection:
        connection.execute("create database latin encoding latin1 template template0 lc_collate 'C' lc_ctype 'C'")
    with pytest.raises(StoreError, match="holds LATIN1, not UTF8"):
        open_store(shared_server().build_url().replace("/postgres?", "/latin?"))


def test_another_process_is_told_to_open_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections do not survive a fork; using them would garble both sides."""
    store = opened(shared_server().make_fresh_url())
    process = store._database._process
    monkeypatch.setattr(store._database, "_process", process + 1)
    with pytest.raises(StoreError, match="another process"):
        store.sessions()
    monkeypatch.undo()
    store.close()


def test_without_psycopg_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module can be imported, a store cannot be opened."""
    monkeypatch.setattr(link_module, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"needs an extra: .*\[postgres\]"):
        open_store("postgresql://host/database")


# --- credentials -------------------------------------------------------------------------------------------------


def whole(error: BaseException) -> str:
    """Everything that is printed of `error`, causes included."""
    return "".join(traceback.format_exception(error)) + repr(error)


def test_a_wrong_password_is_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the error, nor in its causes, nor in any log at any level."""
    with shared_server().connect_as_admin() as connection:
        connection.execute("create role locked login password 'another'")
    url = shared_server().build_url(user="locked:correct%2Fhorse%40battery%3Astaple")
    with caplog.at_level(logging.DEBUG), pytest.raises(StoreError, match="password") as caught:
        open_store(url)
    said = whole(caught.value) + caplog.text
    assert "locked" in said
    for part in (PASSWORD, "correct%2Fhorse", "horse", "staple"):
        assert part not in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://agent:correct/horse@battery:staple@db/agents",
        "postgresql://agent:horse@staple@db/agents",
        "postgresql://agent:horse:staple@db:x/agents",
        "postgresql://agent:horse#staple@db/agents",
        "postgresql://agent:horse?staple@db/agents",
        "postgresql://agent:12?staple@db/agents",
        "postgresql://agent:horse%zzstaple@db/agents",
        "postgresql://agent:horse@[staple/agents",
        "postgresql://agent:horse@db/agents?password=staple&nonsense=1",
        "postgresql://agent:horse@db/agents?pool=staple",
        "postgresql:agent:horse@db/agents",
    ],
)
def test_a_url_that_does_not_read_shows_no_credentials(url: str) -> None:
    """Whatever is wrong with it, no part of what may be a password is repeated."""
    with pytest.raises(StoreError) as caught:
        open_store(url)
    said = whole(caught.value).rpartition("Error")[2]
    assert "horse" not in said
    if "pool=" not in url:
        assert "staple" not in said


def test_a_stores_parts_do_not_show_credentials() -> None:
    """Printed for debugging, addresses keep the password to themselves."""
    store = opened(shared_server().build_url(user="postgres:secretword"))
    link = store._database
    assert "secretword" not in f"{store!r} {link!r} {link.address!r} {link.name} {link._pool!r} {link._pool.name}"
    store.close()
