"""What keep-alive requests cost is booked as the provider reports it, shown, and disturbs nobody."""

from __future__ import annotations

import asyncio
import json

import pytest

from elision.manager.session_history import SessionReport, load_session_log
from elision.strategies.guards import Guards
from elision.trajectory.events import CachePinged
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.usage import Usage
from tests.gateway.loopback_gateway import wait_until
from tests.gateway.paused_gateway import (
    RARE_PAUSES,
    PausedGateway,
    answer_ping,
    refuse_ping,
    run_with_pauses,
)
from tests.gateway.scripted_upstream import ReceivedRequest, Script, render_response

#: What the upstream reports of a ping.
USAGE = Usage(input=3, cache_read=8_000, cache_write=40, output=1)
USD = find_prices("claude-sonnet-4-6").cost_usage(USAGE)


def read_report(trial: PausedGateway) -> SessionReport:
    store = trial.gateway.worker.store
    (info,) = store.sessions()
    return load_session_log(store, info, Sizer(make_counter("estimate")), Guards()).build_report()


async def read_page(trial: PausedGateway, path: str) -> bytes:
    client = await trial.gateway.connect()
    got = await client.request("GET", path)
    client.close()
    assert got.status == 200
    return got.body


async def send_one_ping(trial: PausedGateway) -> None:
    await trial.work(RARE_PAUSES)
    await wait_until(lambda: trial.pauses.asked)
    trial.pauses.go.set()
    await wait_until(lambda: not trial.pinger._tasks)
    await trial.gateway.wait_until_stored()


def test_a_ping_is_booked_as_the_provider_reports_it() -> None:
    """Its usage is in the log; session, limits, dashboard and metrics have its cost."""

    async def test(trial: PausedGateway) -> None:
        await send_one_ping(trial)
        assert [ping.usage for ping in trial.recorded] == [USAGE]
        report = read_report(trial)
        assert report.final is not None
        costs = report.final.costs
        assert report.final.pings == 1
        assert costs.pings == pytest.approx(USD)
        reported = [call.usage for call in report.calls if call.usage is not None]
        calls_usd = sum(report.prices.cost_usage(usage) for usage in reported)
        assert costs.billed == pytest.approx(calls_usd + USD)
        assert [len(call.pings) for call in report.calls] == [*[0] * (len(RARE_PAUSES) - 1), 1]
        live = trial.session.context.report().savings.costs
        assert live.pings == pytest.approx(USD)
        page = (await read_page(trial, "/metrics")).decode()
        assert 'agent_context_gateway_pings_total{status="2xx"} 1.0' in page
        assert 'agent_context_gateway_ping_tokens_total{part="cache_read"} 8000.0' in page
        assert 'agent_context_gateway_ping_tokens_total{part="cache_write"} 40.0' in page
        (line,) = [each for each in page.splitlines() if each.startswith("agent_context_gateway_ping_usd_total")]
        assert float(line.split()[1]) == pytest.approx(USD)
        await check_dashboard(trial, costs.billed)

    run_with_pauses(test, cache_pings=1)


async def check_dashboard(trial: PausedGateway, billed: float | None) -> None:
    (row,) = json.loads(await read_page(trial, "/elision/api/sessions"))["sessions"]
    assert row["pings"] == 1
    assert row["parts"]["pings"] == pytest.approx(USD)
    assert row["billed_usd"] == pytest.approx(billed)
    assert row["usd"] == pytest.approx(sum(row["parts"].values()))
    assert row["raw_parts"]["pings"] == 0


def test_a_later_call_has_the_pings_before_it_in_its_costs() -> None:
    """Its diagnostics, and so the library's metrics, name number and cost."""

    async def test(trial: PausedGateway) -> None:
        await send_one_ping(trial)
        await trial.work([10.0])
        newest = trial.session.newest_diagnostics
        assert newest is not None
        assert newest.pings == 1
        assert newest.costs.pings == pytest.approx(USD)
        page = (await read_page(trial, "/metrics")).decode()
        (line,) = [each for each in page.splitlines() if 'bill="pings"' in each and "_created" not in each]
        assert float(line.split()[1]) == pytest.approx(USD)

    run_with_pauses(test, cache_pings=1)


async def _answer_without_usage(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(render_response(b"<p>thank you</p>", "200 OK", "content-type: text/html"))


async def _break_off(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{")
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("on_ping", [_answer_without_usage, _break_off])
def test_a_ping_without_usage_is_booked_by_our_count(on_ping: Script) -> None:
    """Where the response tells nothing, the prompt was read from the cache once more, and a token was written."""

    async def test(trial: PausedGateway) -> None:
        await send_one_ping(trial)
        assert [ping.usage for ping in trial.recorded] == [None]
        report = read_report(trial)
        assert report.final is not None
        tokens = report.calls[-1].sent_tokens
        assert report.final.costs.pings == pytest.approx((tokens * 0.3 + 15) / 1e6, rel=0.01)
        await trial.work([10.0])

    run_with_pauses(test, on_ping=on_ping, cache_pings=1)


async def _hang_up(_: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
    writer.close()


@pytest.mark.parametrize(("on_ping", "status"), [(refuse_ping, "5xx"), (_hang_up, "none")])
def test_a_ping_that_fails_costs_nothing(on_ping: Script, status: str) -> None:
    """It is counted by its status, and booked nowhere. The agent's next request is served."""

    async def test(trial: PausedGateway) -> None:
        await send_one_ping(trial)
        assert not trial.recorded
        page = (await read_page(trial, "/metrics")).decode()
        assert f'agent_context_gateway_pings_total{{status="{status}"}} 1.0' in page
        assert "agent_context_gateway_ping_usd_total 0.0" in page
        await trial.work([10.0])

    run_with_pauses(test, on_ping=on_ping, cache_pings=2)


def test_a_ping_that_is_answered_late_disturbs_nobody() -> None:
    """The next request is served while a ping is under way, and does not cut it off: it is paid for, and booked then,
    with the call that it belongs to. The pause is over, so there is no other."""
    answers = asyncio.Event()

    async def answer_late(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        await answer_ping(asked, writer)

    async def test(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        trial.pauses.go.set()
        await wait_until(lambda: trial.pings)
        trial.pauses.go.clear()
        await trial.work([10.0])
        assert trial.session.is_busy
        assert not trial.recorded
        answers.set()
        await wait_until(lambda: not trial.session.is_busy)
        await trial.gateway.wait_until_stored()
        (ping,) = trial.recorded
        assert (ping.call, ping.usage) == (len(RARE_PAUSES), USAGE)
        report = read_report(trial)
        assert report.final is not None
        assert report.final.costs.pings == pytest.approx(USD)
        assert len(trial.pings) == 1

    run_with_pauses(test, on_ping=answer_late, cache_pings=2)


def test_usage_of_a_ping_whose_branch_was_left_is_kept_with_that_branch() -> None:
    """The client goes back while the ping is under way, so its messages continue another log."""
    answers = asyncio.Event()

    async def answer_late(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await answers.wait()
        await answer_ping(asked, writer)

    async def test(trial: PausedGateway) -> None:
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        trial.pauses.go.set()
        await wait_until(lambda: trial.pings)
        trial.pauses.go.clear()
        left = trial.session.newest_diagnostics
        await trial.go_another_way(steps_back=6)
        newest = trial.session.newest_diagnostics
        assert left is not None
        assert newest is not None
        assert newest.branch != left.branch
        answers.set()
        await wait_until(lambda: not trial.session.is_busy)
        await trial.gateway.wait_until_stored()
        store = trial.gateway.worker.store
        pings = [event for event in store.events(left.branch) if isinstance(event, CachePinged)]
        assert [ping.usage for ping in pings] == [USAGE]
        assert not any(isinstance(event, CachePinged) for event in store.events(newest.branch))

    run_with_pauses(test, on_ping=answer_late, cache_pings=2)


def test_a_ping_that_shutdown_cuts_off_is_not_counted() -> None:
    """The gateway stops at once; what became of the ping nobody knows."""
    trials: list[PausedGateway] = []

    async def never_answer(_: ReceivedRequest, __: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async def test(trial: PausedGateway) -> None:
        trials.append(trial)
        await trial.work(RARE_PAUSES)
        await wait_until(lambda: trial.pauses.asked)
        trial.pauses.go.set()
        await wait_until(lambda: trial.pings)
        assert trial.session.is_busy

    run_with_pauses(test, on_ping=never_answer)
    assert not trials[0].pinger._sent_pings
    assert not trials[0].pinger._tasks
