"""One server, reached through a pool: time limits, lost connections, and foreign errors told as our own.

What is done with a cursor is given as a function, because it may have to be done again: on a fresh connection, if the
one at hand turns out to be lost. So whatever writes must know its own work again.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from elision.errors import CorruptError, MissingExtra, StoreError
from elision.stores.postgres.address import Address
from elision.stores.postgres.mends import AGAIN, DAMAGED, mend
from elision.stores.postgres.statements import sql
from elision.stores.refusals import closed

try:
    import psycopg
    import psycopg_pool
except ImportError:  # Said when a store is opened; this module can be imported all the same.
    psycopg = None  # type: ignore[assignment]

# What the driver warns of is told as errors, or mended; without a handler it would be printed by the way.
logging.getLogger("psycopg").addHandler(logging.NullHandler())

#: A server older than this has no hash exclusion or lacks what the statements use; those below 13 are out of support.
OLDEST = 130000
#: Seconds to reach the server, where the URL does not say otherwise, and beyond the server's own limit for an answer.
CONNECT = 5
GRACE = 5.0
#: Seconds after which the server ends a transaction whose client says nothing any more.
IDLE = 60.0
#: Seconds between two looks at why there is no connection yet.
_LOOK = 0.1
#: Tries of a transaction that others are in the way of.
_TRIES = 6

T = TypeVar("T")
Cursor: TypeAlias = "psycopg.Cursor[tuple[Any, ...]]"
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"
Work: TypeAlias = Callable[[Cursor], T]


class Link:
    """Connections to `address`, at most `address.pool` at once; for any number of threads of one process."""

    def __init__(self, address: Address) -> None:
        """Connects to nothing yet. Raises MissingExtra, StoreError."""
        if psycopg is None:
            raise MissingExtra("a PostgreSQL store", "postgres")
        self.address = address
        self._parameters = _parameters(address)
        self.place = _place(self._parameters)
        self._process = os.getpid()
        self._closed = False
        self._refused: tuple[float, Exception] | None = None
        self._pool = psycopg_pool.ConnectionPool(
            "",
            kwargs=self._parameters,
            connection_class=_patient(self._prepared, self._note, address.timeout + GRACE),
            min_size=0,
            max_size=address.pool,
            # Connecting is tried when somebody asks, never behind everybody's back.
            reconnect_timeout=0,
            num_workers=2,
            name="elision",
            open=False,
        )
        self._opening = threading.Lock()

    def read(self, work: Work[T], *, patient: bool = False) -> T:
        """What `work` finds, all of it as of one moment. patient: however long it takes."""
        return self._told(lambda: self._again(work, read_only=True, patient=patient))

    def write(self, work: Work[T], *, patient: bool = False) -> T:
        """What `work` says, once it is durable; all or nothing of it is done. patient: however long it takes.

        `work` is called again if others were in the way, or the connection was lost: then its first try may have been
        done all the same, which it must find out.
        """
        return self._told(lambda: self._again(work, read_only=False, patient=patient))

    def maintain(self, *statements: str) -> None:
        """Run `statements` one by one, outside of transactions and without a time limit."""

        def run() -> None:
            with self._connection() as connection, _patience(connection):
                try:
                    connection.set_autocommit(True)
                    connection.execute("set statement_timeout = 0")
                    for name in statements:
                        connection.execute(sql(name))
                    connection.set_autocommit(False)
                    self._prepared(connection)
                except BaseException:
                    # Its settings are no longer those that others rely on.
                    connection.close()
                    raise

        self._told(run)

    def close(self) -> None:
        self._closed = True
        if self._process == os.getpid():
            self._pool.close(timeout=GRACE)

    def _again(self, work: Work[T], *, read_only: bool, patient: bool) -> T:
        lost = 0
        for tried in range(1, _TRIES + 1):
            try:
                return self._once(work, read_only=read_only, patient=patient)
            except psycopg.Error as error:
                lost += _is_lost(error)
                if tried == _TRIES or lost > 1 or not (_is_lost(error) or error.sqlstate in AGAIN):
                    raise
                # Those who collided should not meet again at once.
                time.sleep(0 if _is_lost(error) else 0.01 * 2**tried)
        raise AssertionError("the last try raises")

    def _once(self, work: Work[T], *, read_only: bool, patient: bool) -> T:
        with self._connection() as connection:
            if read_only:
                connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            else:
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.read_only = True if read_only else None
            with _patience(connection, patient), connection.pipeline(), connection.transaction():
                cursor = connection.cursor(binary=True)
                if patient:
                    cursor.execute(sql("patience"))
                return work(cursor)

    @contextmanager
    def _connection(self) -> Iterator[Connection]:
        """A connection that lives, as far as this side can know; closed if it came to harm."""
        connection = self._taken()
        try:
            yield connection
        except psycopg.Error as error:
            if _is_lost(error):
                connection.close()
            raise
        finally:
            self._pool.putconn(connection)

    def _taken(self) -> Connection:
        self._ready()
        began = time.monotonic()
        while True:
            try:
                connection = self._pool.getconn(timeout=_LOOK)
            except psycopg_pool.PoolTimeout as error:
                self._give_up(began, error)
                continue
            if _is_quiet(connection):
                return connection
            connection.close()
            self._pool.putconn(connection)

    def _give_up(self, began: float, error: psycopg.Error) -> None:
        """Raise why there is no connection, once that is known or takes too long."""
        refused = self._refused
        if refused and refused[0] >= began:
            raise self._ours(refused[1])
        if time.monotonic() - began > self.address.timeout:
            raise StoreError(
                f"{self.place}: all {self.address.pool} connections were in use for {self.address.timeout:g} s; allow "
                "more with ?pool=, or use the store from fewer threads"
            ) from error

    def _ready(self) -> None:
        if self._closed:
            raise closed(self.place)
        if self._process != os.getpid():
            raise StoreError(f"{self.place}: the store was opened in another process; open it in this one")
        with self._opening:
            self._pool.open()

    def _note(self, error: Exception) -> None:
        self._refused = (time.monotonic(), error)

    def _prepared(self, connection: Connection) -> None:
        """Set what every transaction relies on, whatever server, database and user have for a default."""
        milliseconds = str(int(self.address.timeout * 1_000))
        given = {"schema": self.address.schema, "statement": milliseconds, "idle": str(int(IDLE * 1_000))}
        connection.execute(sql("settings"), given)
        found = connection.execute(sql("server")).fetchone()
        connection.commit()
        assert found is not None
        self._fit(*found[:3])

    def _fit(self, version: int, encoding: str, fsync: str) -> None:
        if version < OLDEST:
            raise StoreError(f"{self.place}: PostgreSQL {version // 10000} is too old; 13 or newer is needed")
        if encoding != "UTF8":
            raise StoreError(f"{self.place}: the database holds {encoding}, not UTF8; createdb --encoding UTF8")
        if fsync != "on" and not self.address.unsafe:
            raise StoreError(
                f"{self.place}: the server runs with fsync = off and may lose what it acknowledged; turn it on, or add "
                "?fsync=off to the URL where that does not matter"
            )

    def _told(self, work: Callable[[], T]) -> T:
        """`work()`, with errors of psycopg as ours."""
        try:
            return work()
        except psycopg_pool.PoolClosed as error:
            raise closed(self.place) from error
        except psycopg.Error as error:
            raise self._ours(error) from error

    def _ours(self, error: Exception) -> Exception:
        if not isinstance(error, psycopg.Error):
            return error
        kind = CorruptError if error.sqlstate in DAMAGED else StoreError
        return kind(f"{self.place}: {self._said(error)}; {mend(error.sqlstate)}")

    def _said(self, error: psycopg.Error) -> str:
        """The error in one line. Server and libpq say no passwords; if one did, it would not get through here."""
        said = error.diag.message_primary or " ".join(str(error).split()) or type(error).__name__
        password = str(self._parameters.get("password") or "")
        if password:
            return said.replace(password, "…")
        return said


def create_schema(cursor: Cursor, name: str) -> None:
    """The one statement whose name is not known beforehand, and cannot be a parameter."""
    cursor.execute(psycopg.sql.SQL("create schema {}").format(psycopg.sql.Identifier(name)))


def _parameters(address: Address) -> dict[str, Any]:
    try:
        given = psycopg.conninfo.conninfo_to_dict(address.libpq)
    except psycopg.Error:
        # libpq quotes the URL, password and all; the cause is cut off for the same reason.
        raise StoreError(
            "the PostgreSQL URL does not read as //USER:PASSWORD@HOST:PORT/DATABASE?option=value; see its options"
        ) from None
    limits = {"connect_timeout": CONNECT, "tcp_user_timeout": int((address.timeout + GRACE) * 1_000)}
    return {"application_name": "elision", **limits, **given, "client_encoding": "utf8"}


def _place(parameters: dict[str, Any]) -> str:
    """How errors call it: host and database, no credentials."""
    host = parameters.get("host") or parameters.get("hostaddr") or os.environ.get("PGHOST") or "localhost"
    if parameters.get("port"):
        port = f":{parameters['port']}"
    else:
        port = ""
    database = parameters.get("dbname") or os.environ.get("PGDATABASE") or parameters.get("user") or "its user's name"
    return f"PostgreSQL database {database!r} at {host}{port}"


def _patient(
    prepare: Callable[[Connection], None], note: Callable[[Exception], None], limit: float
) -> type[Connection]:
    """The class of our connections: prepared when made, refusals noted, and no wait for an answer is for ever.

    The server's own time limits do not help where the server stands still or the network swallows what is sent.
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
            return super().wait(gen if self.wait_for_ever else self._limited(gen), *given, **named)

        def _limited(self, gen: Any) -> Generator[Any, Any, Any]:
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
def _patience(connection: Any, patient: bool = True) -> Iterator[None]:
    """While it lasts, this side waits for any answer as long as it takes."""
    connection.wait_for_ever = patient
    try:
        yield
    finally:
        connection.wait_for_ever = False


def _is_quiet(connection: Connection) -> bool:
    """Whether nothing stands unread: a server that went away left word, or the end of the stream."""
    try:
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        return not poll.poll(0)
    except psycopg.Error:
        return False


def _is_lost(error: psycopg.Error) -> bool:
    """Whether the connection is gone, or nobody knows what it is doing."""
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    return state.startswith(("08", "57P"))
