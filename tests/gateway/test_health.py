"""A store that cannot be written: it is noticed, counted and said, requests go on, and it is taken up again."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from elision.errors import StoreError
from elision.gateway import health, worker
from elision.gateway.health import StoreMonitor
from elision.gateway.request_record import RequestRecord
from elision.gateway.server import TICK_SECONDS
from elision.stores.memory import MemoryStore
from elision.stores.store import ChecksWrites
from elision.stores.store_urls import open_store
from tests.gateway.conversation_bytes import EAGER, HIDING_STEPS, PATHS, make_body
from tests.gateway.gateway_trial import open_trial
from tests.gateway.loopback_gateway import wait_until
from tests.stores.postgres_server import Server, start_server


class BrokenStore(MemoryStore):
    """problem: why nothing can be written. tried: for each look, whether it wrote. hangs: as long as it is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.problem = ""
        self.tried: list[bool] = []
        self.answers = threading.Event()
        self.answers.set()

    def check_writes(self, *, is_tried: bool) -> None:
        self.tried.append(is_tried)
        self.answers.wait(60)
        if self.problem:
            raise StoreError(f"place: {self.problem}")


def watch(steps: Callable[[BrokenStore, StoreMonitor, list[float]], object], **options: float) -> int:
    """Run `steps` with a store, its monitor and the time, and return the outages that were counted."""
    now, outages = [100.0], []

    async def run() -> None:
        store = BrokenStore()
        monitor = StoreMonitor(store, lambda: outages.append(1), clock=lambda: now[0], **options)
        try:
            await steps(store, monitor, now)  # type: ignore[misc]
        finally:
            store.answers.set()
            await monitor.close()

    asyncio.run(run())
    return len(outages)


def test_an_outage_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """When it begins and when it ends, however often is looked between."""

    async def steps(store: BrokenStore, monitor: StoreMonitor, now: list[float]) -> None:
        assert await monitor.find_problem() == ""
        store.problem = "gone"
        assert await monitor.find_problem() == "", "the last look still holds"
        for _ in range(3):
            now[0] += health.FRESH_SECONDS
            assert await monitor.find_problem() == "place: gone"
        store.problem = ""
        now[0] += health.FRESH_SECONDS
        assert await monitor.find_problem() == ""

    assert watch(steps) == 1
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.WARNING]
    assert "place: gone" in caplog.text


def test_a_look_in_the_background_is_due_every_two_seconds() -> None:
    """With the server's tick and the time for an answer, an outage is known within five."""

    async def steps(store: BrokenStore, monitor: StoreMonitor, now: list[float]) -> None:
        monitor.look_if_due()
        await wait_until(lambda: len(store.tried) == 1 and monitor._background.done())
        store.problem = "gone"
        monitor.look_if_due()
        assert len(store.tried) == 1
        now[0] += health.LOOK_SECONDS
        monitor.look_if_due()
        await wait_until(lambda: monitor.problem)

    assert watch(steps) == 1
    assert health.LOOK_SECONDS + health.ANSWER_SECONDS + TICK_SECONDS <= 5


def test_a_look_writes_only_after_a_write_failed() -> None:
    """And then until one succeeds: an idle gateway does not wake the disk."""

    async def steps(store: BrokenStore, monitor: StoreMonitor, now: list[float]) -> None:
        async def look() -> bool:
            now[0] += health.FRESH_SECONDS
            await monitor.find_problem()
            return store.tried[-1]

        assert [await look(), await look()] == [False, False]
        monitor.note_request(RequestRecord(cause="upstream-500"))
        assert not await look()
        store.problem = "full"
        monitor.note_request(RequestRecord(cause="store"))
        assert await monitor.find_problem() == "place: full", "at once, whenever the last look was"
        assert [await look(), await look()] == [True, True]
        store.problem = ""
        assert await look()
        assert not await look()

    watch(steps)


def test_a_store_that_hangs_holds_one_thread() -> None:
    """Whoever asks has an answer in time, and no further look begins."""

    async def steps(store: BrokenStore, monitor: StoreMonitor, now: list[float]) -> None:
        store.answers.clear()
        for _ in range(3):
            found = await asyncio.gather(monitor.find_problem(), monitor.find_problem())
            assert set(found) == {"the store did not answer within 0.01 s"}
            now[0] += health.FRESH_SECONDS
        assert len(store.tried) == 1
        store.answers.set()
        await wait_until(lambda: monitor._look.done())
        assert await monitor.find_problem() == ""

    assert watch(steps, answer_seconds=0.01) == 1


# -- a gateway ---------------------------------------------------------------------------------------------------------


@contextmanager
def moved_away(path: Path) -> Iterator[None]:
    """The store is not there for a while."""
    aside = path.with_name("aside")
    path.rename(aside)
    yield
    aside.rename(path)


@contextmanager
def replaced(path: Path) -> Iterator[None]:
    """It is deleted, and a copy of it is put back."""
    for each in path.parent.glob(f"{path.name}*"):
        if each.suffix != ".secret":
            copy = shutil.copytree if each.is_dir() else shutil.copy
            copy(each, each.with_name(f"copy-{each.name}"))
    for each in path.parent.glob(f"{path.name}*"):
        if each.suffix != ".secret":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    yield
    for each in path.parent.glob("copy-*"):
        each.rename(each.with_name(each.name.removeprefix("copy-")))


@contextmanager
def deleted(path: Path) -> Iterator[None]:
    """It is deleted, and whoever looks after the gateway puts an empty one there."""
    with replaced(path):
        yield
        for each in path.parent.glob("copy-*"):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    open_store(f"{'linear-hash' if path.name == 'hashed' else 'sqlite'}:///{path}").close()


@contextmanager
def without_room(path: Path) -> Iterator[None]:
    """No byte can be written to any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process holds it for itself."""
    other = sqlite3.connect(path, isolation_level=None, timeout=5)
    other.execute("begin immediate")
    yield
    other.execute("rollback")
    other.close()


async def check_outage(url: str, fault: Callable[[], AbstractContextManager[None]], reason: str) -> None:
    """The whole story: work, the fault, work without the store, it is back, work on."""
    async with open_trial(store=url) as (gateway, _, client):

        async def ask(steps: int) -> None:
            response = await client.request("POST", PATHS["openai"], make_body("openai", steps))
            assert response.status == 200

        async def read_readiness() -> tuple[int, str]:
            gateway.worker.monitor._looked_at = float("-inf")
            response = await client.request("GET", "/readyz")
            body = response.json()
            assert (response.status == 200) is body["ready"] is (body["store"] and body["stored"])
            return response.status, body.get("store_problem", "")

        for steps in range(HIDING_STEPS):
            await ask(steps)
        await gateway.wait_until_stored()
        assert await read_readiness() == (200, "")
        with fault():
            await ask(HIDING_STEPS)
            await gateway.wait_until_stored()
            status, problem = await read_readiness()
            assert status == 503
            assert reason in problem
            await ask(HIDING_STEPS + 1)
            await gateway.wait_until_stored()
            page = (await client.request("GET", "/metrics")).body
            assert b"agent_context_gateway_store_outages_total 1.0" in page
        # Not before what the store missed is written.
        while await read_readiness() != (200, ""):
            await asyncio.sleep(0.005)
        await ask(HIDING_STEPS + 2)
        await ask(HIDING_STEPS + 3)
        await gateway.wait_until_stored()
        assert max(info.turns for info in gateway.worker.store.sessions()) == HIDING_STEPS + 3
        assert gateway.worker.store.check() == []


@pytest.mark.parametrize("scheme", ["sqlite", "linear-hash"])
@pytest.mark.parametrize(
    ("fault", "reason"), [(moved_away, "is gone"), (replaced, "is gone"), (deleted, "is gone"), (without_room, "")]
)
async def test_a_store_in_files_that_is_lost_and_comes_back(
    scheme: str, fault: Callable[[Path], AbstractContextManager[None]], reason: str, tmp_path: Path
) -> None:
    """It is not ready and says why, requests go on, and what they read is stored once the store is back."""
    path = tmp_path / "kept" / ("hashed" if scheme == "linear-hash" else "agent.db")
    path.parent.mkdir()
    await check_outage(f"{scheme}:///{path}", lambda: fault(path), reason)


@pytest.mark.parametrize("scheme", ["sqlite", "linear-hash"])
async def test_what_could_not_be_written_is_written_when_the_store_is_back(scheme: str, tmp_path: Path) -> None:
    """Without another request of its session, which may never come, or come to another gateway."""
    path = tmp_path / "kept" / ("hashed" if scheme == "linear-hash" else "agent.db")
    path.parent.mkdir()

    async with open_trial(store=f"{scheme}:///{path}", strategy=EAGER) as (gateway, _, client):

        async def ask(steps: int) -> None:
            response = await client.request("POST", PATHS["openai"], make_body("openai", steps))
            assert response.status == 200
            await gateway.wait_until_stored()

        def count_turns() -> int:
            return max(info.turns for info in gateway.worker.store.sessions())

        for steps in range(HIDING_STEPS):
            await ask(steps)
        with without_room(path):
            await ask(HIDING_STEPS)
            assert count_turns() < HIDING_STEPS
        # It is ready again when all of it is written: whoever ends it then loses nothing.
        while (await client.request("GET", "/readyz")).status != 200:
            await asyncio.sleep(0.005)
        assert count_turns() == HIDING_STEPS


async def test_a_locked_file(tmp_path: Path) -> None:
    """Nothing can be written while another process holds it, and no request waits longer than the limit for it."""
    path = tmp_path / "agent.db"
    await check_outage(f"sqlite:///{path}", lambda: locked(path), "another process")
    assert worker.BUSY_SECONDS < 0.5


async def test_a_server_that_is_gone() -> None:
    """PostgreSQL stops, and is started again."""
    server: Server = start_server()

    @contextmanager
    def stopped() -> Iterator[None]:
        server.stop()
        yield
        server.start()

    try:
        await check_outage(server.make_fresh_url(), stopped, "")
    finally:
        server.remove()


def test_every_store_that_outlives_its_process_checks_its_writes(tmp_path: Path) -> None:
    """A new one is written and says so; a closed one says that."""
    for url in (f"sqlite:///{tmp_path}/a.db", f"linear-hash:///{tmp_path}/hashed"):
        store = open_store(url)
        assert isinstance(store, ChecksWrites)
        store.check_writes(is_tried=False)
        store.check_writes(is_tried=True)
        assert store.check() == []
        store.close()
        assert os.listdir(tmp_path)
        with pytest.raises(StoreError):
            store.check_writes(is_tried=True)
