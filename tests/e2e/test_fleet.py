"""A fleet on one PostgreSQL behind pgbouncer: gateways are killed and replaced, the server is restarted, agents work.

What they said is in the store, all of it once. Only in `make soak`; in `make test` gateway/test_faults_killed.py
kills a gateway, test_two_gateways.py shares a PostgreSQL among two, and stores has pgbouncer and restarts.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest

from elision.stores.store_urls import open_store
from elision.testing.follower import Follower
from elision.testing.playback import Playback
from tests.figures import ReportFigures
from tests.gateway.recorded_agents import TWIN_COUNT, RecordedAgent, load_runs, make_agents
from tests.gateway.recorded_clients import RecordedClients
from tests.gateway.serve_process import ServeProcess
from tests.stores.pgbouncer import Pgbouncer
from tests.stores.postgres_server import Server, start_server

#: Gateways, kills, seconds between two of them, agents at once, turns of the longest.
GATEWAYS, KILLS, KILL_SECONDS, TOGETHER, LONGEST = 4, 30, 20.0, 8, 40
#: Clients of the rolling update, and requests that they have made when the first gateway is replaced, and the second.
CLIENTS, REPLACED_AT = 32, (100, 260)
MASKING = "masking(window=2, schedule=every-turn)"
pytestmark = pytest.mark.soak
#: Seconds for which a client tries a request again: as long as a restart takes on a busy machine.
PATIENCE = 60.0


class Fleet:
    """Gateways over one store; `urls` is what a service in front of them would send requests to."""

    def __init__(self, folder: Path, provider: str, store: str, count: int) -> None:
        self._folder = folder
        self._options = ("--upstream-openai", provider, "--upstream-anthropic", provider, "--store", store)
        self.processes: list[ServeProcess] = []
        self.urls: list[str] = []
        self._made = 0
        for _ in range(count):
            self.processes.append(self.start_one())
        self.urls = [each.url for each in self.processes]

    def start_one(self) -> ServeProcess:
        """Start a gateway, and wait until it is ready."""
        self._made += 1
        folder = self._folder / str(self._made)
        folder.mkdir()
        process = ServeProcess(folder, *self._options, "-s", MASKING, "--log", "none")
        _wait_until_ready(process)
        return process

    def wait_until_ready(self) -> None:
        """Wait until each reaches the store again."""
        for each in self.processes:
            _wait_until_ready(each)

    def replace(self, place: int) -> None:
        """Start another in place of one, which gets no requests from then on; it stops behind its last response."""
        old, new = self.processes[place], self.start_one()
        self.processes[place], self.urls[place] = new, new.url
        assert old.end_process() == 0
        assert '"level": "error"' not in old.log

    def kill(self, place: int) -> None:
        """Kill one, and start another in its place."""
        self.processes[place].end_process(signal.SIGKILL)
        new = self.start_one()
        self.processes[place], self.urls[place] = new, new.url

    def list_store_faults(self) -> Counter[str]:
        """What the store refused or did not answer, as the gateways logged it, the killed ones too."""
        logs = (path.read_text() for path in self._folder.glob("*/log"))
        return Counter(fault[:200] for log in logs for fault in re.findall(r": store: (.+)", log))

    def close(self) -> None:
        for each in self.processes:
            each.end_process(signal.SIGKILL)


def _wait_until_ready(process: ServeProcess) -> None:
    until = time.monotonic() + PATIENCE
    while process.send_request("/readyz")[0] != 200:
        assert time.monotonic() < until, process.log


class PersistentClients(RecordedClients):
    """Clients as they are: a request that fails is made again, at another gateway. failures: how often, by what."""

    failures: Counter[str]
    seconds: list[float]

    async def _send_request(
        self, http: aiohttp.ClientSession, url: str, agent: Follower, trial: RecordedAgent
    ) -> tuple[str, dict[str, object]]:
        until = time.monotonic() + PATIENCE
        tries = agent.turn
        while True:
            began = time.monotonic()
            try:
                got = await super()._send_request(http, self.urls[tries % len(self.urls)], agent, trial)
                self.seconds.append(time.monotonic() - began)
                return got
            except (ValueError, StopIteration) as error:
                self.failures[str(error).partition(":")[0]] += 1
                if time.monotonic() > until:
                    raise
                tries += 1


def find_turns(server: Server, store_url: str, agents: list[RecordedAgent]) -> tuple[int, int, int]:
    """How many turns of `agents` there are, how many of them are in no session, and in more than one."""
    found: Counter[tuple[str, ...]] = Counter()
    # Past the pooler, whose short patience is for gateways.
    (schema,) = parse_qs(urlsplit(store_url).query)["schema"]
    with closing(open_store(server.build_url(schema=schema))) as store:
        for info in store.sessions():
            # A turn is known by all that it saw, and each says whose it is; one that saw nothing is not counted.
            for turn in store.turns(info.key):
                found[tuple(each.text for each in turn.observations)] += 1
        assert store.check() == []
    wanted = [
        tuple(each.text for each in turn.observations)
        for agent in agents
        for turn in agent.run.turns[:-1]
        if turn.observations
    ]
    lost = sum(not found[texts] for texts in wanted)
    return len(wanted), lost, sum(found[texts] > 1 for texts in wanted)


@pytest.fixture
def server() -> Iterator[Server]:
    server = start_server()
    yield server
    server.remove()


@pytest.fixture
def store_url(server: Server) -> Iterator[str]:
    """Of a store behind a pooler."""
    pooler = Pgbouncer(server, 20)
    yield pooler.make_fresh_url()
    pooler.stop()


@pytest.mark.parametrize("restarts", [pytest.param(0, id="kills"), pytest.param(2, id="kills and restarts")])
def test_a_fleet_in_trouble(
    tmp_path: Path, server: Server, store_url: str, report_figures: ReportFigures, restarts: int
) -> None:
    """Several gateways, of which one is killed every few seconds: no turn is lost or doubled.

    While PostgreSQL is away, a gateway that does not hold a session cannot read it. It sends the request all the same,
    in a session of its own that has the earlier turns as well. So after restarts none is lost, and some are doubled.
    """
    with Playback(load_runs()) as provider, ExitStack() as stack:
        fleet = stack.enter_context(closing(Fleet(tmp_path, provider.url, store_url, GATEWAYS)))
        crowd = PersistentClients(fleet.urls)
        crowd.failures, crowd.seconds = Counter(), []
        begun: list[RecordedAgent] = []
        ended = asyncio.Event()
        over = False

        def next_agents() -> Iterator[RecordedAgent]:
            for agent in make_agents(TWIN_COUNT * 4_000, LONGEST)[::TWIN_COUNT]:
                if over:
                    return
                begun.append(agent)
                yield agent

        async def trouble() -> None:
            nonlocal over
            began = time.monotonic()
            for kill in range(KILLS):
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), max(0.0, began + (kill + 1) * KILL_SECONDS - time.monotonic()))
                if kill in range(KILLS // (restarts + 1), KILLS, KILLS // (restarts + 1)):
                    await asyncio.to_thread(server.stop)
                    await asyncio.to_thread(server.start)
                    # What a gateway could not write is its own until it is written, and would die with it.
                    await asyncio.to_thread(fleet.wait_until_ready)
                await asyncio.to_thread(fleet.kill, kill % GATEWAYS)
            over = True

        async def trial() -> None:
            troubling = asyncio.ensure_future(trouble())
            await crowd.run_all(next_agents(), TOGETHER)
            ended.set()
            await troubling

        asyncio.run(trial())
        assert crowd.errors == []
        assert provider.violations == []
        # It was started by a thread, and died with it; what was acknowledged is there when it is back.
        server.stop()
        server.start()
        codes = [each.end_process() for each in fleet.processes]
    turns, lost, doubled = find_turns(server, store_url, begun)
    waits = sorted(crowd.seconds)
    report_figures(
        f"fleet: {crowd.count:,} requests of {len(begun)} agents, {KILLS} gateways killed, PostgreSQL restarted "
        f"{restarts} times: {turns:,} turns, {lost} lost, {doubled} doubled; errors that clients saw: "
        f"{sum(crowd.failures.values())} {dict(crowd.failures)}; median {waits[len(waits) // 2] * 1e3:.0f} ms, "
        f"99 % {waits[len(waits) * 99 // 100] * 1e3:.0f} ms, slowest {waits[-1]:.1f} s; "
        f"faults of the store: {dict(fleet.list_store_faults())}"
    )
    assert (lost, set(codes)) == (0, {0})
    assert restarts or not doubled


def test_a_rolling_update_fails_no_request(
    tmp_path: Path, server: Server, store_url: str, report_figures: ReportFigures
) -> None:
    """Two gateways are replaced one after the other while 32 clients work: each request has its answer, at once."""
    replaced: list[asyncio.Future[None]] = []

    def watch(count: int) -> None:
        if count in REPLACED_AT:
            place = REPLACED_AT.index(count)
            replaced.append(asyncio.ensure_future(asyncio.to_thread(fleet.replace, place)))

    with Playback(load_runs()) as provider, ExitStack() as stack:
        fleet = stack.enter_context(closing(Fleet(tmp_path, provider.url, store_url, 2)))
        crowd = RecordedClients(fleet.urls, on_response=watch)
        agents = make_agents(TWIN_COUNT * CLIENTS, LONGEST)[::TWIN_COUNT]

        async def trial() -> None:
            await crowd.run_all(agents, CLIENTS)
            await asyncio.gather(*replaced)

        asyncio.run(trial())
        assert crowd.errors == []
        assert len(replaced) == 2
        assert [each.end_process() for each in fleet.processes] == [0, 0]
    turns, lost, doubled = find_turns(server, store_url, agents)
    report_figures(
        f"rolling update: {crowd.count:,} requests of {CLIENTS} clients at once, two gateways replaced: "
        f"{len(crowd.errors)} failed, {turns:,} turns, {lost} lost, {doubled} doubled"
    )
    assert (lost, doubled) == (0, 0)
