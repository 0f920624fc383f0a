"""The backup of docs/guides/postgres.md: a dump under load, and the moment before a mistake.

What is restored goes on with the same bytes.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision.stores.store_urls import open_store
from tests.gateway.conversation_bytes import EAGER, PATHS, PLACEHOLDER_PART, make_body
from tests.gateway.gateway_trial import answer_soundly
from tests.gateway.loopback_gateway import make_settings, run_gateway
from tests.gateway.scripted_upstream import run_scripted_upstream
from tests.stores.postgres_server import Server, start_server
from tests.stores.session_logs import add_turn, begin_session, read_log

#: Turns of the conversation before the backup; something is hidden in it by then.
STEPS = 9
#: Sessions that others write meanwhile.
WRITERS = 4


@pytest.fixture
def server() -> Iterator[Server]:
    server = start_server()
    yield server
    server.remove()


def run_program(server: Server, program: str, *arguments: object) -> None:
    """A program of the server's own folder, as its user."""
    if not (server.programs / program).exists():
        pytest.skip(f"NO {program} BESIDE THE SERVER: the backup was NOT tried")
    command = [str(server.programs / program), "-h", str(server.sockets), "-U", "postgres", *map(str, arguments)]
    done = subprocess.run(
        command,
        user=server.user,
        group=server.group,
        extra_groups=[] if server.user else None,
        cwd="/",
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()


class Load:
    """Writers that append to sessions of their own until the block ends; `written` is what was acknowledged."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ended = threading.Event()
        self.written = [0] * WRITERS
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        while not all(self.written):
            time.sleep(0.001)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _write(self, number: int) -> None:
        with closing(open_store(self._url)) as store:
            begin_session(store, f"w{number}", family=f"w{number}")
            while not self._ended.is_set():
                turn = self.written[number] + 1
                store.append(f"w{number}", (add_turn(turn, f"{turn} " * 400),), after=turn - 1, at=1.0)
                self.written[number] = turn


def work(store: str, steps: Any, secret: str = "kept-apart-0123456789") -> list[bytes]:
    """What a provider gets of a conversation at these steps, over a gateway on `store`."""

    async def run() -> list[bytes]:
        given = {"gateway_off": False, "store": store, "strategy": EAGER, "gateway_secret": secret}
        async with run_scripted_upstream(answer_soundly) as upstream:
            async with run_gateway(make_settings(upstream.url, **given)) as gateway:
                client = await gateway.connect()
                for step in steps:
                    raw = make_body("openai", step, lines=20)
                    got = await client.request("POST", PATHS["openai"], raw, "authorization: Bearer k1")
                    assert got.status == 200
                client.close()
                await gateway.wait_until_stored()
            return [each.body for each in upstream.requests]

    return asyncio.run(run())


def check_writers(store_url: str, least: list[int]) -> None:
    """What was acknowledged before the backup began is there, and each log is whole as far as it goes."""
    with closing(open_store(store_url)) as store:
        assert store.check() == []
        for number, count in enumerate(least):
            log = read_log(store, f"w{number}")
            assert len(log) >= count
            assert list(log) == [add_turn(turn, f"{turn} " * 400) for turn in range(1, len(log) + 1)]


def test_a_dump_under_load_goes_on_with_the_same_bytes(server: Server, tmp_path: Path) -> None:
    """`pg_dump` while others write; from the restored database the conversation goes on as from the first."""
    url = server.make_fresh_url()
    work(url, range(STEPS))
    dump = server.data / "dump"
    with Load(url) as load:
        before = list(load.written)
        run_program(server, "pg_dump", "--format", "custom", "--file", dump, "postgres")
        expected = work(url, [STEPS, STEPS + 1])
    run_program(server, "createdb", "restored", "--template", "template0", "--encoding", "UTF8")
    run_program(server, "pg_restore", "--dbname", "restored", "--exit-on-error", dump)
    restored = url.replace("/postgres?", "/restored?")
    check_writers(restored, before)
    got = work(restored, [STEPS, STEPS + 1])
    assert got == expected
    assert PLACEHOLDER_PART in got[0]


def test_without_the_secret_a_client_begins_anew(server: Server) -> None:
    """The turns are there, and nobody finds them: the client's next request is that of an unknown one."""
    url = server.make_fresh_url()
    work(url, range(STEPS))
    sent = work(url, [STEPS], secret="another-0123456789")
    with closing(open_store(url)) as store:
        assert len({info.family.partition("/")[0] for info in store.sessions()}) == 2
    # It is served all the same, whole history and all.
    assert len(sent) == 1


def test_the_moment_before_a_mistake(server: Server) -> None:
    """A base backup and archived WAL: everything up to a time, and nothing of what came behind it."""
    archive, base = server.folder / "archive", server.folder / "base"
    for each in (archive, base):
        each.mkdir(mode=0o700)
        if server.user:
            shutil.chown(each, server.user)
    with server.connect_as_admin() as admin:
        admin.execute("alter system set archive_mode = on")
        admin.execute(f"alter system set archive_command = 'cp %p {archive}/%f'")
    server.stop()
    server.start()
    url = server.make_fresh_url()
    with closing(open_store(url)) as store:
        begin_session(store, "s", add_turn(1))
        run_program(server, "pg_basebackup", "--pgdata", base, "--checkpoint", "fast")
        store.append("s", (add_turn(2),), after=1, at=1.0)
        with server.connect_as_admin() as admin:
            (moment,) = admin.execute("select clock_timestamp()").fetchone() or ("",)
        store.purge(max_bytes=0)
        assert store.sessions() == []
    with server.connect_as_admin() as admin:
        admin.execute("select pg_switch_wal()")
        (last,) = admin.execute("select pg_walfile_name(pg_current_wal_lsn())").fetchone() or ("",)
    server.stop()
    assert last
    with (base / "postgresql.auto.conf").open("a") as settings:
        settings.write(
            f"archive_mode = off\nrestore_command = 'cp {archive}/%f %p'\nrecovery_target_time = '{moment}'\n"
            "recovery_target_action = promote\n"
        )
    (base / "recovery.signal").touch()
    for each in (base / "recovery.signal", base / "postgresql.auto.conf"):
        if server.user:
            shutil.chown(each, server.user)
    server.data = base
    server.start()
    until = time.monotonic() + 60
    with server.connect_as_admin() as admin:
        while admin.execute("select pg_is_in_recovery()").fetchone() != (False,):
            assert time.monotonic() < until
    with closing(open_store(url)) as store:
        assert list(read_log(store, "s")) == [add_turn(1), add_turn(2)]
        assert store.append("s", (add_turn(3),), after=2, at=1.0) == 3
        assert store.check() == []
