"""The live doors choose lifetimes of cache entries as replays do: the same call by call, at each breakpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from elision.engine import Log
from elision.formats.stored_session import load_stored_session
from elision.lab.lifetime_trial import LifetimeTrial
from elision.lab.replay import replay_run
from elision.providers.anthropic.rules import find_breakpoints
from elision.stores.store import Store
from elision.strategies.spec import parse_strategy
from elision.trajectory.events import RequestSent
from elision.trajectory.lifetimes import CacheLifetime
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.tokens import Sizer, make_counter
from tests.gateway.paused_gateway import PausedGateway, run_with_pauses
from tests.manager.test_planned_lifetimes import RARE_PAUSES, Agent

#: Seconds before calls: work, then a person or tool that takes minutes, a night, and work again.
SLOW = [0.0, *[10.0, 700.0, 15.0] * 8, 30_000.0, *[10.0, 700.0, 15.0] * 3, 20.0]


def list_lifetimes(store: Store, key: str) -> list[CacheLifetime | None]:
    return [event.lifetime for event in store.events(key) if isinstance(event, RequestSent)]


def replay_lifetimes(store: Store, key: str, strategy: str) -> list[CacheLifetime | None]:
    """Return what a replay of a stored session plans for each of its calls."""
    found: list[CacheLifetime | None] = []

    def watch(log: Log) -> None:
        assert log.newest_call is not None
        found.append(log.newest_call.lifetime)

    replay_run(
        load_stored_session(store, key),
        parse_strategy(strategy),
        find_prices("claude-sonnet-4-6"),
        Sizer(make_counter()),
        watch=watch,
        lifetime=LifetimeTrial("plan"),
    )
    return found


@pytest.mark.parametrize("pauses", [SLOW, RARE_PAUSES])
@pytest.mark.parametrize("strategy", ["raw", "masking(window=3)"])
def test_the_library_plans_what_a_replay_plans(pauses: list[float], strategy: str) -> None:
    """Its log says the same for each call as a replay of that log, and its requests ask for that."""
    agent = Agent(strategy, cache_ttl="plan", cache_control="auto")
    agent.make_calls(pauses)
    agent.context.close()
    planned = list_lifetimes(agent.store, "s")
    assert has_hours(planned) or pauses is not SLOW
    # The newest answer is no turn yet.
    assert replay_lifetimes(agent.store, "s", strategy) == planned[:-1]
    check_breakpoints([view.request for view in agent.views], planned)


@pytest.mark.parametrize("pauses", [SLOW, RARE_PAUSES])
def test_the_gateway_plans_what_a_replay_plans(pauses: list[float]) -> None:
    """The same over real sockets, with the client's breakpoints."""

    async def test(trial: PausedGateway) -> None:
        await trial.work(pauses)
        store = trial.gateway.worker.store
        (info,) = store.sessions()
        planned = list_lifetimes(store, info.key)
        assert has_hours(planned) or pauses is not SLOW
        assert replay_lifetimes(store, info.key, "masking") == planned[:-1]
        check_breakpoints([json.loads(each.body) for each in trial.upstream.requests], planned)

    run_with_pauses(test, cache_pings=0)


def has_hours(planned: Sequence[CacheLifetime | None]) -> bool:
    return any(lifetime is not None and lifetime.hour_turn is not None for lifetime in planned)


def check_breakpoints(requests: Sequence[Any], planned: Sequence[CacheLifetime | None]) -> None:
    """Check that the breakpoints of each request live as long as was planned for it, longer lives first."""
    for request, lifetime in zip(requests, planned, strict=True):
        assert lifetime is not None
        lives = [mark.ttl for mark in find_breakpoints(request)]
        assert lives
        assert lives == sorted(lives), "1h before 5m, as the provider demands"
        if lifetime.hour_turn is None:
            assert set(lives) == {"5m"}
        else:
            assert lives[0] == "1h"
