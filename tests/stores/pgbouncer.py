"""A pgbouncer of our own before a server, on a socket beside the server's: it assigns transactions, not sessions."""

from __future__ import annotations

import atexit
import shutil
from functools import cache

import psycopg
import pytest

from tests.stores.postgres_server import Server, shared_server, wait_for_answers

_PATIENCE = 30.0
#: Debian puts it where only root's PATH looks.
_PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
_NAME = "postgres"


class Pgbouncer:
    """Lends the connections of `server`, at most `pool_size` of them, to any number of clients, transaction by
    transaction."""

    def __init__(self, server: Server, pool_size: int, patience: int = 1) -> None:
        if _PROGRAM is None:
            pytest.skip("NO PGBOUNCER IS INSTALLED: that stores work behind one was NOT tried")
        self._server = server
        self.folder = server.folder / f"bouncer{pool_size}-{patience}"
        self.folder.mkdir(exist_ok=True)
        settings = {
            "listen_addr": "",
            "unix_socket_dir": self.folder,
            "auth_type": "any",
            "admin_users": "postgres",
            "pool_mode": "transaction",
            "max_client_conn": "1000",
            "default_pool_size": pool_size,
            # What a client of pgbouncer would not see: whoever leaves something in a session leaves it to the next.
            "server_reset_query": "",
            # Seconds. As docs/guides/deployment.md advises, and shorter. By default clients wait two minutes.
            "query_wait_timeout": patience,
            "server_login_retry": "0.2",
            "server_round_robin": "1",
        }
        lines = [
            "[databases]",
            f"{_NAME} = host={server.sockets} user=postgres dbname={_NAME}",
            "[pgbouncer]",
            *(f"{name} = {value}" for name, value in settings.items()),
        ]
        file = self.folder / "pgbouncer.ini"
        file.write_text("\n".join([*lines, ""]))
        if server.user:
            shutil.chown(self.folder, server.user)
        self._process = server.start_program([_PROGRAM, file], self.folder)
        wait_for_answers(self._process, self.folder, self._is_answering, self.stop)

    def make_fresh_url(self, **options: object) -> str:
        """Return the URL, through the pooler, of a store that does not exist yet."""
        return self._server.make_fresh_url(host=self.folder, port=6432, **options)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(_PATIENCE)

    def _is_answering(self) -> bool:
        try:
            psycopg.connect(user="postgres", host=str(self.folder), port=6432, dbname=_NAME).close()
        except psycopg.OperationalError:
            return False
        return True


@cache
def shared_pgbouncer() -> Pgbouncer:
    """Return the pooler that tests share, before the server that they share."""
    pooler = Pgbouncer(shared_server(), pool_size=8)
    atexit.register(pooler.stop)
    return pooler
