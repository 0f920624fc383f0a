"""What keys may spend with several gateways together: leases from one counter, on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from elision.errors import SettingError
from elision.gateway.key_leases import EXHAUSTED_SECONDS, IDLE_SECONDS, USD, KeyLeases, LocalCounter, make_limit_list
from elision.stores.store import LeasesSpending, SpendingLease
from elision.stores.store_urls import open_store
from tests.figures import ReportFigures
from tests.gateway.conversation_bytes import PATHS, make_body
from tests.gateway.gateway_trial import answer_soundly, open_trial
from tests.gateway.loopback_gateway import (
    HttpResponse,
    RunningGateway,
    connect,
    make_settings,
    run_gateway,
    wait_until,
)
from tests.gateway.scripted_upstream import run_scripted_upstream
from tests.gateway.serve_process import ServeProcess, start_serve
from tests.gateway.test_budgets import ANSWER_USD, Clock, ask
from tests.soak import SOAK
from tests.stores.postgres_server import Server, make_fresh_url, start_server

TURNS = "key_max_turns"
#: Gateways, the clients of all, and requests until the key is at its limit.
GATEWAYS, CLIENTS, MOST = (4, 32, 400) if SOAK else (2, 16, 120)


@pytest.fixture
def counter() -> Iterator[Any]:
    store = open_store(make_fresh_url())
    assert isinstance(store, LeasesSpending)
    with closing(store):
        yield store


def leases(
    counter: LeasesSpending, clock: Clock, *, usd: float | None = None, turns: int | None = None, spent: float = 0.0
) -> KeyLeases:
    limits = make_limit_list(usd, turns, None)
    return KeyLeases(limits, counter, True, lambda key, what: spent, clock=clock)


async def count_taken(found: KeyLeases, most: int, usd: float = 0.0) -> int:
    """How often something is taken until it is refused."""
    for number in range(most):
        if (await found.take("k1", usd)).reached is not None:
            return number
    return most


# -- the counter ------------------------------------------------------------------------------------------------------


def test_a_counter_leases_what_is_left(counter: Any) -> None:
    """What is charged counts in any case; of what is asked for, only what the limit leaves is given."""

    def lease(charge: float, amount: float, spent: float | None = None) -> tuple[float, float] | None:
        found = counter.lease_spending("k", "what", charge=charge, amount=amount, most=10, spent=spent)
        return found and (found.granted, found.total)

    assert lease(0, 4) is None
    assert lease(0, 4, spent=3) == (4, 7)
    # What a count begins with is asked for once.
    assert lease(2, 4, spent=3) == (1, 10)
    assert lease(5, 4) == (0, 15)
    assert lease(-6, 4) == (1, 10)
    assert counter.lease_spending("other", "what", charge=0, amount=4, most=10, spent=0).granted == 4


def test_a_period_begins_with_nothing(counter: Any) -> None:
    """The server's clock says when: what was leased of an earlier period is forgotten, its debt too."""

    def lease(period: int) -> SpendingLease:
        return counter.lease_spending("k", "rate", charge=0, amount=8, most=10, period=period, spent=0)

    now = time.time()
    assert (lease(10**9).granted, lease(10**9).granted) == (8, 2)
    # Another length is another period.
    found = lease(10**8)
    assert (found.granted, found.total) == (8, 8)
    assert found.seconds == pytest.approx(10**8 - now % 10**8, abs=120)


async def test_workers_together_take_no_more_than_the_limit(counter: Any) -> None:
    """Requests are counted before they are made, so four workers at once stay within the limit to the last one."""
    workers = [leases(counter, Clock(), turns=1_000) for _ in range(GATEWAYS)]
    taken = await asyncio.gather(*(count_taken(each, 2_000) for each in workers))
    assert sum(taken) == 1_000
    for each in workers:
        await each.close()


async def test_what_a_key_spent_before_counts(counter: Any) -> None:
    """A count begins with what the log says; then it is the count that holds."""
    assert await count_taken(leases(counter, Clock(), turns=10, spent=7), 20) == 3
    assert await count_taken(leases(counter, Clock(), turns=10, spent=0), 20) == 0


async def test_dollars_are_settled_behind_a_call(counter: Any) -> None:
    """A call takes what calls of its key usually cost; what it costs is counted once it is known."""
    found = leases(counter, Clock(), usd=10.0)
    assert (await found.take("k1", 0.5)).usd == 0.5
    found.settle("k1", 0.5, 4.0)
    assert (await found.take("k1", 0.5)).usd == 4.0
    found.settle("k1", 4.0, 4.0)
    # 8 of 10 are spent: what is left is enough for a call to begin.
    taking = await found.take("k1", 0.5)
    assert taking.reached is None
    assert (await found.take("k1", 0.5)).reached is not None
    found.settle("k1", taking.usd, 1.0)
    assert (await found.take("k1", 0.5)).reached is None
    await found.close()
    lease = counter.lease_spending("k1", USD, charge=0, amount=0, most=10, spent=None)
    # The one that is under way is counted with what it took.
    assert lease.total == pytest.approx(9 + 4.0 * 0.8 + 0.2, abs=0.5)


async def test_a_limit_that_was_reached_is_asked_for_again(counter: Any) -> None:
    """Not at every request: but what another worker gives back is spent within seconds."""
    clock = Clock()
    one, two = leases(counter, clock, turns=4), leases(counter, clock, turns=4)
    # Small slices: two calls within a moment, and this worker holds two more.
    assert await count_taken(one, 2) == 2
    assert await count_taken(two, 9) <= 2
    clock.now += IDLE_SECONDS
    await one.give_back()
    clock.now += EXHAUSTED_SECONDS
    assert await count_taken(two, 9) <= 2
    assert counter.lease_spending("k1", TURNS, charge=0, amount=0, most=4, spent=None).total == 4
    for each in (one, two):
        await each.close()


async def test_a_slice_grows_with_its_use(counter: Any) -> None:
    """A busy worker asks rarely, a quiet one holds little; no slice is above a hundredth of the limit."""
    clock = Clock()
    found = leases(counter, clock, turns=10_000)

    def total() -> float:
        return counter.lease_spending("k1", TURNS, charge=0, amount=0, most=10_000, spent=None).total  # type: ignore[no-any-return]

    assert await count_taken(found, 1) == 1
    assert total() == 1
    assert await count_taken(found, 1_000) == 1_000
    assert 1_001 <= total() <= 1_101
    for _ in range(300):
        clock.now += 3.0
        await found.take("k1", 0.0)
    assert total() <= 1_302
    await found.close()


async def test_a_slice_is_as_large_as_what_a_moment_needs() -> None:
    """Asked for again within `SLICE_SECONDS` it doubles; from then on it is halved."""
    asked: list[float] = []

    class Watched(LocalCounter):
        def lease_spending(self, *given: Any, amount: float, **named: Any) -> SpendingLease:
            asked.append(amount)
            return super().lease_spending(*given, amount=amount, **named)

    clock = Clock()
    found = KeyLeases(make_limit_list(None, None, 10_000), Watched(clock), True, lambda key, what: 0.0, clock=clock)
    for seconds in (0.0, 1.9, 1.9, 2.0, 1.9):
        clock.now += seconds
        begun = len(asked)
        while len(asked) == begun:
            assert (await found.take("k1", 0.0)).reached is None
    await found.close()
    first, *others = asked[:5]
    assert others == [2 * first, 4 * first, 2 * first, 4 * first]


async def test_what_is_left_of_a_minute_is_no_part_of_the_next() -> None:
    """A worker that gives it back too late does not raise the limit."""
    clock = Clock()
    counter = LocalCounter(clock)
    limits = make_limit_list(None, None, 300)
    one, other = (KeyLeases(limits, counter, True, lambda key, what: 0.0, clock=clock) for _ in range(2))
    assert await count_taken(one, 2) == 2
    clock.now += 60
    assert await count_taken(other, 400) == 300
    await one.give_back()
    clock.now += EXHAUSTED_SECONDS
    assert await count_taken(other, 400) == 0
    await one.close()
    await other.close()


async def test_alone_a_gateway_counts_itself() -> None:
    """Without a counter that others share, a minute is counted here; several workers must share one."""
    now = Clock()
    now.now = 60 * 1_000 + 30.0
    found = KeyLeases(make_limit_list(None, None, 5), LocalCounter(now), True, lambda key, what: 0.0, clock=now)
    assert await count_taken(found, 9) == 5
    assert (await found.take("k1", 0.0)).seconds == 30.0
    now.now += 30.0
    assert await count_taken(found, 9) == 5
    await found.close()
    with pytest.raises(SettingError, match=r"gateway_key_requests_per_minute: 2 workers count together in PostgreSQL"):
        make_settings(gateway_key_requests_per_minute=5, gateway_workers=2, store="sqlite:///x.db", gateway_off=False)


# -- one gateway ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_limit", ["refuse", "hint"])
async def test_requests_of_a_minute(at_limit: str) -> None:
    """Beyond them a client is told when to come again; with `hint` the answer has a header."""
    given = {"gateway_key_requests_per_minute": 2, "gateway_at_limit": at_limit}
    async with open_trial(**given) as (one, *_):
        got = [await ask(one, "openai", 0, task=str(number)) for number in range(9)]
        # A minute may end meanwhile.
        told = next(each for each in got if each.status == 429 or "x-elision-stop" in each.headers)
        assert (await ask(one, "openai", 0, key="k2")).status == 200
        if at_limit == "hint":
            assert told.headers["x-elision-stop"].startswith("key_requests_per_minute: this key has made its 2")
            assert {each.status for each in got} == {200}
        else:
            assert 1 <= int(told.headers["retry-after"]) <= 60
            assert "x-should-retry" not in told.headers
            assert told.headers["x-elision-error"] == "rate"
            assert "Try again after the seconds" in told.json()["error"]["message"]


async def test_a_key_pays_what_its_calls_cost() -> None:
    """The third of three calls brings a key above two and a half; what they cost is known when each is over."""
    given = {"store": make_fresh_url(), "gateway_key_max_cost_usd": 2.5 * ANSWER_USD, "gateway_at_limit": "refuse"}
    async with open_trial(**given) as (gateway, *_):
        statuses = []
        for number in range(4):
            statuses.append((await ask(gateway, "anthropic", 0, task=str(number))).status)
            await wait_until(lambda: not gateway.worker.app.in_flight)
        assert statuses == [200, 200, 200, 429]


@pytest.fixture
def breakable() -> Iterator[Server]:
    server = start_server()
    yield server
    server.remove()


async def test_a_lost_counter_refuses_nobody(breakable: Server, caplog: pytest.LogCaptureFixture) -> None:
    """The last lease stays valid; readiness, a metric and the log say so; what was spent meanwhile is counted then."""

    caplog.set_level("WARNING")
    url = breakable.make_fresh_url(timeout=2)
    given = {"store": url, "gateway_key_max_turns": 6, "gateway_at_limit": "refuse"}
    async with open_trial(**given) as (one, upstream, client):

        async def is_counted() -> bool:
            return bool((await client.request("GET", "/readyz")).json()["limits_counted"])

        assert (await ask(one, "openai", 0, task="before")).status == 200
        assert await is_counted()
        breakable.stop()
        got = [(await ask(one, "openai", 0, task=str(number))).status for number in range(8)]
        assert got == [200] * 8
        assert not await is_counted()
        page = (await client.request("GET", "/metrics")).body
        assert b"agent_context_gateway_lease_failures_total 1.0" in page
        breakable.start()
        leases = one.worker.gateway.proxy.budgets.leases
        assert leases is not None

        async def is_refused() -> bool:
            return (await ask(one, "openai", 0, task="behind")).status == 429

        until = time.monotonic() + 60
        while not await is_refused():
            assert time.monotonic() < until
        assert await is_counted()
    with closing(open_store(url)) as store:
        assert isinstance(store, LeasesSpending)
        (name,) = {info.family.split("/")[0] for info in store.sessions()}
        found = store.lease_spending(name, TURNS, charge=0, amount=0, most=6, spent=None)
        assert found is not None
        assert found.total == len(upstream.requests)
    assert "what keys spend cannot be counted, their last leases stay valid" in caplog.text
    assert "what keys spend is counted again" in caplog.text


# -- several gateways -------------------------------------------------------------------------------------------------


@asynccontextmanager
async def fleet(
    folder: Path, url: str, upstream: str, **limit: float
) -> AsyncIterator[list[ServeProcess | RunningGateway]]:
    """Gateways over one store: processes, and the last one in this process."""
    ((name, most),) = limit.items()
    with ExitStack() as stack:
        made: list[ServeProcess | RunningGateway] = []
        for number in range(GATEWAYS - 1):
            (folder / str(number)).mkdir()
            given = ("--upstream-openai", upstream, "--store", url, "--log", "none", f"--{name}", str(most))
            make = stack.enter_context
            made.append(await asyncio.to_thread(lambda: make(start_serve(folder / str(number), *given))))  # noqa: B023
        setting = {f"gateway_{name.replace('-', '_')}": most}
        async with run_gateway(make_settings(upstream, store=url, gateway_off=False, **setting)) as last:
            yield [*made, last]


async def ask_once(gateway: ServeProcess | RunningGateway, task: str) -> HttpResponse:
    client = await connect(gateway.url)
    try:
        body = make_body("openai", 0, task=task)
        return await client.request("POST", PATHS["openai"], body, "authorization: Bearer k1")
    finally:
        client.close()


async def ask_until_refused(gateways: list[ServeProcess | RunningGateway], *, kills: bool = False) -> int:
    """Clients ask all gateways in turn, each until it is refused three times; return the answers that they got.

    kills: the first one is killed when some were answered.
    """
    answered = 0

    async def work(number: int) -> None:
        nonlocal answered
        refused = 0
        for step in range(10_000):
            try:
                got = await ask_once(gateways[(number + step) % len(gateways)], f"{number} {step}")
            except (OSError, asyncio.IncompleteReadError):
                continue
            if got.status == 200 and got.is_complete:
                answered += 1
                if kills and answered == MOST // 6:
                    assert isinstance(gateways[0], ServeProcess)
                    gateways[0].popen.send_signal(signal.SIGKILL)
            else:
                assert got.status == 429, got.body
                refused += 1
                if refused == 3:
                    return

    await asyncio.gather(*(work(number) for number in range(CLIENTS)))
    return answered


async def test_gateways_stay_within_the_turns_of_a_key(tmp_path: Path, report_figures: ReportFigures) -> None:
    """One is killed meanwhile: what it had leased stays counted, which is at most one slice."""
    async with run_scripted_upstream(answer_soundly) as upstream:
        async with fleet(tmp_path, make_fresh_url(), upstream.url, **{"key-max-turns": MOST}) as gateways:
            answered = await ask_until_refused(gateways, kills=True)
        asked = len(upstream.requests)
    report_figures(
        f"{GATEWAYS} gateways, one killed: {asked} turns of {MOST} reached the provider, {answered} answered"
    )
    slices = GATEWAYS * max(1, MOST // 100)
    # What was under way at the killed one is counted, and may never have reached the provider.
    under_way = CLIENTS // GATEWAYS
    # On a machine so busy that the counter does not answer within its time, a worker goes on for a slice.
    assert MOST - slices - under_way <= asked <= MOST + slices


@pytest.mark.soak
async def test_gateways_overshoot_dollars_by_a_slice_each(tmp_path: Path, report_figures: ReportFigures) -> None:
    """Many clients at once: what they spent is at most one slice per worker above the limit, once each worker knows
    what a call costs. Before that the calls under way are not priced."""

    # An answer of gpt-5.2 is 0.00203 USD.
    usd = (1_000 * 1.75 + 20 * 14) / 1e6
    most = 0.75 * MOST * usd
    async with run_scripted_upstream(answer_soundly) as upstream:
        async with fleet(tmp_path, make_fresh_url(), upstream.url, **{"key-max-cost-usd": most}) as gateways:
            for gateway in gateways:
                await ask_once(gateway, "first")
            await ask_until_refused(gateways)
        spent = len(upstream.requests) * usd
    report_figures(f"{GATEWAYS} gateways: ${spent:.4f} spent of ${most:.4f}, one call is ${usd:.4f}")
    # On a machine so busy that the counter does not answer within its time, calls under way go on.
    slices = GATEWAYS * most / 100
    assert most - 1e-9 - slices <= spent <= most + slices + CLIENTS // GATEWAYS * usd
