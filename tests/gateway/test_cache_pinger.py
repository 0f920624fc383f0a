"""Keep-alive requests in pauses: as many as are planned, billed, ended by the next request and by the end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.errors import LimitError
from elision.gateway.budgets import Budgets
from elision.gateway.cache_pinger import make_ping
from tests.gateway.loopback_gateway import wait_until
from tests.gateway.paused_gateway import JSON, RARE_PAUSES, PausedGateway, refuse_ping, run_with_pauses


def test_a_pause_has_its_pings() -> None:
    """After rare short pauses a ping is planned: the same request with one token of output, 15 seconds before the
    entries die, and recorded. There are no more than are allowed."""

    async def test(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        sent = trial.upstream.requests[-1]
        assert not trial.pings
        trial.pauses.go.set()
        await wait_until(lambda: not trial.pinger._tasks)
        assert 1 <= len(trial.pings) <= 2
        assert trial.pauses.asked[-len(trial.pings) :] == pytest.approx([285.0] * len(trial.pings))
        for ping in trial.pings:
            assert ping.get_header("x-api-key") == "secret"
            assert json.loads(ping.body) == {**json.loads(sent.body), "max_tokens": 1, "stream": False}
        await trial.gateway.wait_until_stored()
        assert len(trial.recorded) == len(trial.pings)
        assert {event.call for event in trial.recorded} == {len(RARE_PAUSES)}

    run_with_pauses(test)


def test_the_next_request_ends_the_pause() -> None:
    """A request that comes before the ping: none is sent, and the pause after it is another one."""

    async def test(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        waits = len(trial.pauses.asked)
        await trial.work([10.0])
        await wait_until(lambda: len(trial.pauses.asked) > waits)
        assert not trial.pings
        assert len(trial.pinger._tasks) == 1

    run_with_pauses(test)


def test_a_request_that_is_bypassed_or_refused_ends_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody follows what such a request leaves in the cache, and a key that is over its limit pays for no ping."""

    async def refuse(*_: Any, **__: Any) -> str:
        raise LimitError("the key has spent its limit")

    async def test_bypass(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        trial.session.begin_bypass()
        await trial.work([10.0])
        assert not trial.pinger._tasks

    async def test_limit(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        monkeypatch.setattr(Budgets, "check_key", refuse)
        await trial.work([10.0], status=429)
        assert not trial.pinger._tasks

    run_with_pauses(test_bypass)
    run_with_pauses(test_limit)


def test_a_session_that_is_evicted_has_no_pause() -> None:
    """Its next request opens another one, which would not end the pause."""

    async def test(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        paused = trial.session
        body = {
            "model": "claude-sonnet-4-6",
            "max_tokens": 9,
            "messages": [{"role": "user", "content": "Another task"}],
        }
        client = await trial.gateway.connect()
        await client.request("POST", "/v1/messages", json.dumps(body).encode(), JSON, "x-api-key: other")
        client.close()
        assert paused not in list(trial.gateway.worker.gateway.sessions)
        assert paused not in trial.pinger._tasks

    run_with_pauses(test, gateway_max_sessions=1)


def test_the_end_of_the_gateway_ends_all_pauses() -> None:
    """At shutdown no ping is left waiting."""
    trials: list[PausedGateway] = []

    async def test(trial: PausedGateway) -> None:
        trials.append(trial)
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)

    run_with_pauses(test)
    assert not trials[0].pinger._tasks
    assert not trials[0].pings


def test_a_refused_ping_is_the_last() -> None:
    """A provider that refuses a ping gets no further one in this pause, and nothing is recorded."""

    async def test(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        trial.pauses.go.set()
        await wait_until(lambda: not trial.pinger._tasks)
        assert len(trial.pings) == 1
        assert not trial.recorded

    run_with_pauses(test, on_ping=refuse_ping)


def test_by_default_nothing_is_sent() -> None:
    """Without the setting there is no pinger at all."""

    async def test(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        assert trial.gateway.worker.gateway.pinger is None
        assert len(trial.upstream.requests) == len(RARE_PAUSES)

    run_with_pauses(test, cache_pings=0)


def test_what_the_cache_compares_keeps_its_bytes() -> None:
    """Only the length of the answer and the stream change; requests that think with a budget are no ping."""
    body = b'{"model": "m", "max_tokens": 9, "messages": [{"role":"user",  "content":"\\u00e9 1.0"}], "stream": true}'
    made = make_ping(body)
    assert made is not None
    assert b'[{"role":"user",  "content":"\\u00e9 1.0"}]' in made
    assert (json.loads(made)["max_tokens"], json.loads(made)["stream"]) == (1, False)
    assert make_ping(b'{"max_tokens": 9, "thinking": {"type": "enabled", "budget_tokens": 1024}}') is None
    assert make_ping(b'{"max_tokens": 9, "thinking": {"type": "adaptive"}}') is not None
    assert make_ping(b"[1]") is None
