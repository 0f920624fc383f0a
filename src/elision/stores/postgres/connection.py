"""One server, reached through a pool: time limits, lost connections, and foreign errors translated into ours.

Work on a cursor is a function, because it may run again: on a fresh connection, if the first turns out to be lost. So
a function that writes must recognize its own earlier work.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

from elision.errors import CorruptError, MissingExtra, StoreError
from elision.stores.postgres.address import PostgresAddress
from elision.stores.sql_dialect import load_statements
from elision.stores.store_errors import closed_store_error, read_only_store_error

try:
    import psycopg
    import psycopg_pool
except ImportError:  # Reported when a store is opened; this module can be imported all the same.
    psycopg = None  # type: ignore[assignment]

# What the driver warns of is raised as an error, or repaired; without a handler it would be printed too.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

#: A server older than this has no hash exclusion or lacks what the statements use; those below 13 are out of support.
OLDEST_VERSION = 130000
#: Seconds to reach the server, unless the URL names others, and seconds beyond the server's own limit for an answer.
CONNECT_SECONDS = 5
GRACE_SECONDS = 5.0
#: Seconds after which the server ends a transaction whose client is silent.
IDLE_SECONDS = 60.0
#: Seconds until the first look at why there is no connection yet. Each look gives up a place in the queue, so each
#: comes twice as late as the one before.
_LOOK_SECONDS = 0.1
#: Tries of a transaction that collides with others.
_TRIES = 6

#: SQLSTATE, or its first letters -> the hint. The longest match is taken.
#: https://www.postgresql.org/docs/current/errcodes-appendix.html
_HINTS = {
    "08": "see that the server runs and can be reached",
    "22": "the server cannot store this value",
    "23505": "rows are there that the session's own row does not count",
    "25006": "the server takes no writes (a standby?); name the primary, or add target_session_attrs=read-write",
    "28": "see the user and the password (PGPASSWORD, ~/.pgpass), and the server's pg_hba.conf",
    "3D000": "make the database (createdb), or name an existing one",
    "40": "other writers were in the way each time; try again",
    "42501": "grant the user what it lacks (docs/guides/postgres.md), or name its own schema: ?schema=NAME",
    "53100": "the server's disk is full; free space there: what was acknowledged is safe",
    "53200": "the server is out of memory; try again when it has some",
    "53300": "the server has no connection left; lower ?pool= or raise its max_connections",
    "54": "what was given is larger than the server can store",
    "55P03": "another writer or a maintenance command has locked the session; try again",
    "57014": "it took longer than ?timeout= allows; try again, or allow more",
    "57P": "the server is going down or coming up; try again",
    "58": "the server's disk or files fail; see the server's log",
    "XX": "the server found its own data damaged; see the server's log",
}
#: Tried again by the store itself: a transaction that collided, and a text that was swept in the meantime.
_RETRIED = frozenset({"40001", "40P01", "23503"})
#: Damaged pages or indexes, and a record where there should be none yet.
_DAMAGED = frozenset({"XX001", "XX002", "23505"})

_SQL: Final = load_statements("postgres")

T = TypeVar("T")
Cursor: TypeAlias = "psycopg.Cursor[tuple[Any, ...]]"
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Work: TypeAlias = Callable[[Cursor], T]


class PostgresDatabase:
    """Connections to `address`, at most `address.pool_size` at once; for any number of threads of one process.

    read_only: every transaction is one that the server lets read alone.
    """

    def __init__(self, address: PostgresAddress, *, read_only: bool = False) -> None:
        """Connects to nothing yet. Raises MissingExtra, StoreError."""
        self._is_read_only = read_only
        if psycopg is None:
            raise MissingExtra("a PostgreSQL store", "postgres")
        self.address = address
        self._parameters = _parse_parameters(address)
        self.name = _describe_place(self._parameters)
        self._process = os.getpid()
        self._closed = False
        self._last_refusal: tuple[float, Exception] | None = None
        self._pool = psycopg_pool.ConnectionPool(
            "",
            kwargs=self._parameters,
            connection_class=_make_connection_class(
                self._prepare_connection, self._note_refusal, address.timeout_seconds + GRACE_SECONDS
            ),
            min_size=0,
            max_size=address.pool_size,
            # It connects when a call needs a connection, not in the background.
            reconnect_timeout=0,
            num_workers=2,
            name="elision",
            open=False,
        )
        self._opening = threading.Lock()

    def read(self, work: Work[T], *, patient: bool = False) -> T:
        """Return what `work` returns, read as of one moment. patient: without a time limit."""
        return self._translate_errors(lambda: self._retry_work(work, read_only=True, patient=patient))

    def write(self, work: Work[T], *, patient: bool = False) -> T:
        """Return what `work` returns, once it is durable, all or nothing of it. patient: without a time limit.

        `work` runs again after a collision or a lost connection. In the second case its first run may have been
        committed all the same, which it must find out. Raises StoreError where reading alone was asked for.
        """
        self.check_writable()
        return self._translate_errors(lambda: self._retry_work(work, read_only=False, patient=patient))

    def check_writable(self) -> None:
        """Raise StoreError where the database was opened for reading alone."""
        if self._is_read_only:
            raise read_only_store_error(self.name)

    def make_corrupt_error(self, what: str) -> CorruptError:
        return CorruptError(f"{self.name}: {what}")

    make_damage_error = make_corrupt_error

    def rewrite_tables(self, *tables: str) -> None:
        """Rewrite `tables` one by one without the space that is free in them.

        It takes as long as the user's and the database's own `statement_timeout` allow: no transaction may hold it, so
        none can set another, and a setting of the connection would outlive it behind a pooler.
        """
        self.check_writable()

        def run() -> None:
            with self._lend_connection() as connection, _wait_without_limit(connection):
                connection.set_autocommit(True)
                try:
                    for table in tables:
                        name = psycopg.sql.Identifier(self.address.schema, table)
                        connection.execute(psycopg.sql.SQL("vacuum (full) {}").format(name))
                finally:
                    if not connection.closed:
                        connection.set_autocommit(False)

        self._translate_errors(run)

    def close(self) -> None:
        self._closed = True
        if self._process == os.getpid():
            self._pool.close(timeout=GRACE_SECONDS)

    def _retry_work(self, work: Work[T], *, read_only: bool, patient: bool) -> T:
        lost = 0
        for attempt in range(1, _TRIES + 1):
            try:
                return self._run_work(work, read_only=read_only, patient=patient)
            except psycopg.Error as error:
                if _is_lost(error):
                    lost += 1
                    if attempt == _TRIES or lost > 1:
                        raise
                    continue
                if attempt == _TRIES or error.sqlstate not in _RETRIED:
                    raise
                # Those who collided should not meet again at once.
                time.sleep(0.01 * 2**attempt)
        raise AssertionError("the last try raises")

    def _run_work(self, work: Work[T], *, read_only: bool, patient: bool) -> T:
        with self._lend_connection() as connection:
            if read_only:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            else:
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.read_only = True if read_only else None
            # The pipeline ends before the transaction does: it asks for a flush when it ends, and outside a transaction
            # a pooler lends a connection for that, which no answer ever gives back.
            with _wait_without_limit(connection, patient), connection.transaction(), connection.pipeline():
                cursor = connection.cursor(binary=True)
                milliseconds = str(int(self.address.timeout_seconds * 1_000))
                settings = {
                    "schema": self.address.schema,
                    "statement": "0" if patient else milliseconds,
                    "lock": milliseconds,
                    "idle": str(int(IDLE_SECONDS * 1_000)),
                }
                cursor.execute(_SQL["settings"], settings)
                return work(cursor)

    @contextmanager
    def _lend_connection(self) -> Iterator[Connection]:
        """Yield a connection that works, as far as this side can know; close it if it broke."""
        connection = self._take_connection()
        try:
            yield connection
        except psycopg.Error as error:
            if _is_lost(error):
                connection.close()
            raise
        finally:
            self._pool.putconn(connection)

    def _take_connection(self) -> Connection:
        self._check_ready()
        began = time.monotonic()
        look = _LOOK_SECONDS
        while True:
            left = began + self.address.timeout_seconds - time.monotonic()
            try:
                connection = self._pool.getconn(timeout=max(0.0, min(look, left)))
            except psycopg_pool.PoolTimeout as error:
                self._check_wait(began, error)
                look *= 2
                continue
            if _is_quiet(connection):
                return connection
            connection.close()
            self._pool.putconn(connection)

    def _check_wait(self, began: float, error: psycopg.Error) -> None:
        """Raise why there is no connection, once that is known or takes too long."""
        refused = self._last_refusal
        if refused and refused[0] >= began:
            raise self._convert_error(refused[1])
        if time.monotonic() - began >= self.address.timeout_seconds:
            raise StoreError(
                f"{self.name}: all {self.address.pool_size} connections were in use for "
                f"{self.address.timeout_seconds:g} s; allow more with ?pool=, or use the store from fewer threads"
            ) from error

    def _check_ready(self) -> None:
        if self._closed:
            raise closed_store_error(self.name)
        if self._process != os.getpid():
            raise StoreError(f"{self.name}: the store was opened in another process; open it in this one")
        with self._opening:
            self._pool.open()

    def _note_refusal(self, error: Exception) -> None:
        self._last_refusal = (time.monotonic(), error)

    def _prepare_connection(self, connection: Connection) -> None:
        """Leave nothing in the server's session, where another client of a pooler would find it; check the server."""
        connection.prepare_threshold = None
        row = connection.execute(_SQL["server"]).fetchone()
        connection.commit()
        assert row is not None
        self._check_server(*row)

    def _check_server(self, version: int, encoding: str, fsync: str) -> None:
        if version < OLDEST_VERSION:
            raise StoreError(f"{self.name}: PostgreSQL {version // 10000} is too old; 13 or newer is needed")
        if encoding != "UTF8":
            raise StoreError(f"{self.name}: the database holds {encoding}, not UTF8; createdb --encoding UTF8")
        if fsync != "on" and not self.address.allows_unsafe:
            raise StoreError(
                f"{self.name}: the server runs with fsync = off and may lose what it acknowledged; turn it on, or add "
                "?fsync=off to the URL if that does not matter"
            )

    def _translate_errors(self, work: Callable[[], T]) -> T:
        """Return `work()`; translate errors of psycopg into ours."""
        try:
            return work()
        except psycopg_pool.PoolClosed as error:
            raise closed_store_error(self.name) from error
        except psycopg.Error as error:
            raise self._convert_error(error) from error

    def _convert_error(self, error: Exception) -> Exception:
        if not isinstance(error, psycopg.Error):
            return error
        kind = CorruptError if error.sqlstate in _DAMAGED else StoreError
        return kind(f"{self.name}: {self._describe_error(error)}; {_find_hint(error.sqlstate)}")

    def _describe_error(self, error: psycopg.Error) -> str:
        """Return the error in one line, without the password, should server or libpq quote it."""
        message = error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
        password = str(self._parameters.get("password") or "")
        return message.replace(password, "…") if password else message


def _find_hint(state: str | None) -> str:
    """Return what to do about SQLSTATE `state`; None for an error without one, before the server answered."""
    if state is None:
        return "see that the server runs, and that host, user, password and database of the URL are right"
    for length in (5, 3, 2):
        if state[:length] in _HINTS:
            return _HINTS[state[:length]]
    return "see the server's log"


def create_schema(cursor: Cursor, name: str) -> None:
    """Create the schema `name`: the one statement with a name, which cannot be a parameter, in it."""
    cursor.execute(psycopg.sql.SQL("create schema {}").format(psycopg.sql.Identifier(name)))


def _parse_parameters(address: PostgresAddress) -> dict[str, Any]:
    try:
        parameters = psycopg.conninfo.conninfo_to_dict(address.libpq)
    except psycopg.Error:
        # libpq quotes the URL, password and all; the cause is cut off for the same reason.
        raise StoreError(
            "the PostgreSQL URL does not read as //USER:PASSWORD@HOST:PORT/DATABASE?option=value; see its options"
        ) from None
    limits = {
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": int((address.timeout_seconds + GRACE_SECONDS) * 1_000),
    }
    return {"application_name": "elision", **limits, **parameters, "client_encoding": "utf8"}


def _describe_place(parameters: dict[str, Any]) -> str:
    """Return how errors call it: host and database, no credentials."""
    host = parameters.get("host") or parameters.get("hostaddr") or os.environ.get("PGHOST") or "localhost"
    port = f":{parameters['port']}" if parameters.get("port") else ""
    database = parameters.get("dbname") or os.environ.get("PGDATABASE") or parameters.get("user") or "its user's name"
    return f"PostgreSQL database {database!r} at {host}{port}"


def _make_connection_class(
    prepare: Callable[[Connection], None], note: Callable[[Exception], None], limit: float
) -> type[Connection]:
    """Return the class of our connections: prepared when made, refusals noted, and no wait for an answer is for ever.

    The server's own time limits do not help where the server is frozen or the network drops what is sent.
    """

    class Patient(psycopg.Connection[tuple[Any, ...]]):
        wait_for_ever = False

        @classmethod
        def connect(cls, conninfo: str = "", **parameters: Any) -> Any:
            try:
                connection = super().connect(conninfo, **parameters)
                try:
                    prepare(connection)
                except BaseException:
                    connection.close()
                    raise
                return connection
            except (psycopg.Error, StoreError) as error:
                note(error)
                raise

        def wait(self, gen: Any, *given: Any, **named: Any) -> Any:
            return super().wait(gen if self.wait_for_ever else self._wait_within_limit(gen), *given, **named)

        def _wait_within_limit(self, gen: Any) -> Generator[Any, Any, Any]:
            until = time.monotonic() + limit
            try:
                wanted = next(gen)
                while True:
                    ready = yield wanted
                    if not ready and time.monotonic() > until:
                        # Or else the rollback would wait as long once more.
                        self.close()
                        raise psycopg.errors.QueryCanceled(f"no answer within {limit:g} s")
                    wanted = gen.send(ready)
            except StopIteration as done:
                return done.value

    return Patient


@contextmanager
def _wait_without_limit(connection: Any, patient: bool = True) -> Iterator[None]:
    """Let this side wait for any answer, however long it takes, until the block ends."""
    connection.wait_for_ever = patient
    try:
        yield
    finally:
        connection.wait_for_ever = False


def _is_quiet(connection: Connection) -> bool:
    """Return whether nothing waits to be read: a server that closed the connection left a message or the end of it."""
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return not poll.poll(0)
    except psycopg.Error:
        return False


def _is_lost(error: psycopg.Error) -> bool:
    """Return whether the connection is gone, or its state unknown."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith(("08", "57P"))
