"""A store that is gone while the gateway serves: requests go out, nothing that was kept is lost, and it goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from elision.providers.provider import Api
from elision.stores.store_urls import open_store
from tests.gateway.conversation_bytes import APIS, HIDING_STEPS, PATHS, PLACEHOLDER_PART, make_body, render_whole
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import HttpClient
from tests.gateway.scripted_upstream import ScriptedUpstream
from tests.soak import leave_to_soak
from tests.stores.full_disk import full_disk
from tests.stores.postgres_server import Server, start_server

Fault = Callable[[Path], AbstractContextManager[None]]


def said(api: Api, steps: int) -> bytes:
    return make_body(api, steps, task=api, word=api)


async def ask(client: HttpClient, upstream: ScriptedUpstream, api: Api, steps: int) -> bytes:
    """Ask, and have an answer; what the provider got."""
    got = await client.request("POST", PATHS[api], said(api, steps))
    assert (got.status, got.body) == (200, render_whole(api)), (api, steps, got)
    return upstream.requests[-1].body


def unmarked(raw: bytes) -> bytes:
    """Without cache breakpoints, which stand where the newest rewrite was."""
    return raw.replace(b',"cache_control":{"type":"ephemeral"}', b"")


async def survives(store: str, fault: Callable[[], AbstractContextManager[None]]) -> None:
    """The whole story: work, the fault, work on, it serves again, work on; then another process."""
    last: dict[Api, bytes] = {}

    async with open_trial(store=store) as (_, upstream, client):
        for api in APIS:
            for steps in range(HIDING_STEPS):
                before = await ask(client, upstream, api, steps)
            assert before.count(PLACEHOLDER_PART) == HIDING_STEPS - 3
        with fault():
            for api in APIS:
                for steps in range(HIDING_STEPS, HIDING_STEPS + 3):
                    sent = await ask(client, upstream, api, steps)
                    assert sent.count(PLACEHOLDER_PART) <= steps - 2, (
                        "what is new is hidden only where it could be written"
                    )
                # One that nobody knows begins while nothing can be kept.
                new = make_body(api, 1, task=f"new {api}")
                assert (await client.request("POST", PATHS[api], new)).status == 200
                assert upstream.requests[-1].body == new
        for api in APIS:
            for steps in range(HIDING_STEPS + 3, HIDING_STEPS + 6):
                last[api] = await ask(client, upstream, api, steps)
            assert last[api].count(PLACEHOLDER_PART) == HIDING_STEPS + 3, "masked again"

    kept = open_store(store)
    try:
        full = [info for info in kept.sessions() if info.turns >= HIDING_STEPS + 5]
        assert [info.turns for info in full] == [HIDING_STEPS + 5] * len(APIS), "each session is whole, and is one"
        for info in full:
            assert [turn.index for turn in kept.turns(info.key)] == list(range(1, HIDING_STEPS + 6))
        assert kept.check() == []
    finally:
        kept.close()

    async with open_trial(store=store) as (_, upstream, client):
        for api in APIS:
            sent = await ask(client, upstream, api, HIDING_STEPS + 5)
            assert unmarked(sent) == unmarked(last[api]), "another process sends the same bytes"


# -- SQLite ------------------------------------------------------------------------------------------------------------


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds it for itself."""
    other = sqlite3.connect(path, isolation_level=None, timeout=5)
    other.execute("begin immediate")
    yield
    other.execute("rollback")
    other.close()


@pytest.mark.parametrize("fault", [locked, full_disk], ids=["locked", "full"])
def test_sqlite(fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Held by somebody else, or on a full disk."""
    path = tmp_path / "elision.db"
    asyncio.run(survives(f"sqlite:///{path}", lambda: fault(path)))


async def test_sqlite_that_is_deleted(tmp_path: Path) -> None:
    """Requests go out without their file, and behind it."""
    path = tmp_path / "elision.db"

    async with open_trial(store=f"sqlite:///{path}") as (_, upstream, client):
        for steps in range(HIDING_STEPS):
            await ask(client, upstream, "openai", steps)
        for each in list(tmp_path.iterdir()):
            each.unlink()
        for steps in range(HIDING_STEPS, HIDING_STEPS + 3):
            await ask(client, upstream, "openai", steps)
        assert (await client.request("POST", PATHS["openai"], make_body("openai", 3, task="another"))).status == 200


# -- PostgreSQL --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """One of our own, to be broken."""
    found = start_server()
    yield found
    found.remove()


@pytest.mark.parametrize("how", leave_to_soak(["stop", "crash"], "stop"))
def test_a_server_that_is_gone(how: str, server: Server) -> None:
    """PostgreSQL ends in the midst, orderly or not, and is started again."""

    @contextmanager
    def gone() -> Iterator[None]:
        getattr(server, how)()
        try:
            yield
        finally:
            server.start()

    asyncio.run(survives(server.make_fresh_url(), gone))


async def test_a_server_that_stands_still(server: Server) -> None:
    """Who needs it waits, as long as its URL allows and no longer; nobody else does, and it goes on when it does."""
    store = server.make_fresh_url(timeout=1)

    async with open_trial(store=store) as (gateway, upstream, client):
        for steps in range(HIDING_STEPS):
            await ask(client, upstream, "openai", steps)
        server.freeze()
        try:
            client.send_request("POST", PATHS["openai"], said("openai", HIDING_STEPS))
            waiting = asyncio.ensure_future(client.reader.readexactly(1))
            other = await gateway.connect()
            off = await other.request("POST", PATHS["anthropic"], said("anthropic", HIDING_STEPS), "x-elision: off")
            assert off.status == 200
            assert not waiting.done()
            other.close()
            # As long as `?timeout=` says, and the five seconds of grace that a connection has.
            assert await asyncio.wait_for(waiting, 30) == b"H"
        finally:
            server.thaw()
        assert (await client.read_response()).body == render_whole("openai")
        for steps in range(HIDING_STEPS + 1, HIDING_STEPS + 4):
            sent = await ask(client, upstream, "openai", steps)
        assert sent.count(PLACEHOLDER_PART) == HIDING_STEPS + 1
