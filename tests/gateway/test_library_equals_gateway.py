"""The same loop through the library and through the gateway: the same figures, on the provider's own scale."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from elision.formats.registry import read_runs
from elision.gateway.dashboard.totals import compute_totals
from elision.lab.run_as_recorded import sizer
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.session_history import SessionReport, load_session_log
from elision.stores.memory import MemoryStore
from elision.stores.store import Store
from elision.strategies.guards import Guards
from elision.telemetry.diagnostics import Diagnostics
from elision.testing.follower import Follower
from elision.testing.recorded_provider import RecordedProvider, Terms
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.usage import Usage
from tests.gateway.conversation_bytes import PATHS
from tests.gateway.gateway_trial import JSON_HEADER, open_trial
from tests.gateway.scripted_upstream import ReceivedRequest, answer_always, render_response
from tests.soak import sample_cases

RUNS = Path(__file__).parents[2] / "examples" / "runs"
MODEL = "claude-sonnet-4-5"
STRATEGY = "masking(window=4)"
CALLS = 30
#: Seconds of the provider's clock between two exchanges.
STEP = 7.0


@cache
def run() -> Trajectory:
    found = next(each for each in read_runs(RUNS / "pi-session.jsonl.gz") if isinstance(each, Trajectory))
    return replace(found, turns=found.turns[:CALLS])


class Counting(RecordedProvider):
    """A provider that counts `factor` tokens for each of ours."""

    def __init__(self, factor: float) -> None:
        super().__init__([run()], Terms(check=False, clock=Clock()))
        self._factor = factor

    def _bill_request(self, *given: Any) -> Usage:
        usage = super()._bill_request(*given)
        counts = {name: round(getattr(usage, name) * self._factor) for name in ("input", "cache_read", "cache_write")}
        return msgspec.structs.replace(usage, **counts)


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        self.now += STEP
        return self.now


@dataclass(frozen=True, kw_only=True)
class Client:
    """An agent's loop. marks: whether it sets cache breakpoints itself."""

    marks: bool

    def body(self, follower: Follower) -> dict[str, Any]:
        own = {"cache_control": {"type": "ephemeral"}} if self.marks else {}
        names = sorted({action.name for turn in run().turns for action in turn.actions})
        tools = [{"name": name, "input_schema": {"type": "object"}} for name in names]
        return {"model": MODEL, "max_tokens": 1_000, "tools": tools, **own, **follower.request}


def account(store: Store) -> SessionReport:
    (info,) = store.sessions()
    return load_session_log(store, info, sizer("anthropic", "o200k"), Guards()).build_report()


@cache
def library(client: Client, factor: float = 1.0, strategy: str = STRATEGY, **options: Any) -> SessionReport:
    """The loop behind a context manager."""
    store, provider, follower = MemoryStore(), Counting(factor), Follower(run(), "anthropic")
    given = {"model": MODEL, "dialect": "anthropic", **options}
    with ContextManager(strategy, store=store, **gather_options(given)) as context:
        while not follower.done:
            body = client.body(follower)
            beside = {"request": {"cache_control": body["cache_control"]}} if client.marks else {}
            view = context.prepare(body["messages"], system=body.get("system"), tools=body["tools"], **beside)
            sent = {**body, "messages": view.messages, "tools": view.tools}
            _, got = provider.answer_request("anthropic", {}, json.dumps(sent).encode())
            assert got.status == 200, got.body
            assert isinstance(got.body, dict)
            context.record(got.body["usage"])
            follower.take(got.body)
    return account(store)


async def gateway(client: Client, strategy: str) -> SessionReport:
    """The same loop with the gateway's address and nothing else changed."""
    provider, follower = Counting(1.0), Follower(run(), "anthropic")

    def answer(asked: ReceivedRequest) -> bytes:
        _, got = provider.answer_request("anthropic", {}, asked.body)
        return render_response(json.dumps(got.body).encode(), f"{got.status} OK", JSON_HEADER)

    async with open_trial(answer_always(answer), strategy=strategy, tokens="o200k") as (served, _, connection):
        while not follower.done:
            raw = json.dumps(client.body(follower)).encode()
            got = await connection.request("POST", PATHS["anthropic"], raw, JSON_HEADER)
            assert got.status == 200, got.body
            follower.take(got.json())
            # A client that asks sooner has its request decided on before it is known what the last one was billed.
            await served.wait_until_stored()
        return account(served.worker.store)


NAMES = ("hiding_usd", "caching_usd", "saved_usd", "sent_tokens", "raw_tokens", "cached_tokens")


def told(account: SessionReport) -> dict[str, float]:
    """What every page shows of a session."""
    found = compute_totals(account)
    return {name: getattr(found, name) for name in NAMES} | {"usd": found.ours.total, "raw_usd": found.raw.total}


@pytest.mark.parametrize(
    ("marks", "strategy"),
    [(True, STRATEGY), (False, STRATEGY), (True, "masking(window=4, fold=true)")],
)
async def test_both_doors_tell_the_same(marks: bool, strategy: str) -> None:
    """The same loop costs and saves the same through both doors, by hiding as well as by caching."""
    client = Client(marks=marks)
    ours = told(library(client, strategy=strategy, cache_control="gaps"))
    theirs = told(await gateway(client, strategy))
    assert ours == pytest.approx(theirs, rel=1e-9)
    assert ours["hiding_usd"] > 0
    assert (ours["caching_usd"] > 0) is not marks


def test_breakpoints_of_ours_are_no_merit_of_hiding() -> None:
    """What a client without breakpoints would have paid is the same through every door; what breakpoints save of it is
    caching, whoever sets them, so the library, which sets them from the start, saves more by them and not by hiding."""
    client = Client(marks=False)
    always, gaps, marked = library(client), library(client, cache_control="gaps"), library(Client(marks=True))
    assert told(always)["raw_usd"] == pytest.approx(told(gaps)["raw_usd"], rel=0.02)
    assert told(always)["caching_usd"] > told(gaps)["caching_usd"] > 0
    assert told(always)["hiding_usd"] == pytest.approx(told(marked)["hiding_usd"], rel=1e-9)
    assert told(always)["usd"] == pytest.approx(told(marked)["usd"], rel=1e-9)
    assert told(always)["raw_usd"] - told(always)["caching_usd"] == pytest.approx(told(marked)["raw_usd"], rel=1e-9)


@pytest.mark.parametrize("factor", sample_cases([0.9, 1.0, 1.6, 1.25], 2))
def test_every_figure_is_on_the_providers_scale(factor: float) -> None:
    """However the provider counts, shares agree and what was spent is what was billed; what was saved is the same share
    of everything."""
    client = Client(marks=True)
    account, plain = library(client, factor), compute_totals(library(client))
    found = compute_totals(account)
    assert account.final is not None
    assert account.final.costs.billed is not None
    hit = found.usage.cache_read / found.usage.prompt
    simulated = found.cached_tokens / found.sent_tokens
    assert simulated <= 1
    assert simulated == pytest.approx(hit, abs=0.02)
    assert found.sent_tokens == pytest.approx(found.usage.prompt, rel=0.001)
    # The last answer is billed, and no turn yet.
    output = account.calls[-1].usage.output * 15 / 1e6 if account.calls[-1].usage else 0.0
    assert found.ours.total == pytest.approx(account.final.costs.billed - output, rel=0.03)
    assert found.sent_tokens / found.raw_tokens == pytest.approx(plain.sent_tokens / plain.raw_tokens, abs=0.02)
    prompts = [sum((each.bills.ours.usd, -each.bills.raw.usd)) for each in account.calls]
    before = [sum((each.bills.ours.usd, -each.bills.raw.usd)) for each in library(client).calls]
    assert sum(prompts) == pytest.approx(factor * sum(before), rel=0.05)


def test_a_limit_goes_by_the_same_figures() -> None:
    """A guard stops at what the passes tell, which is what the provider bills, and not at what we count."""
    told: list[Diagnostics] = []
    guards = Guards(max_cost_usd=0.25)
    library(Client(marks=True), 1.6, guards=guards, on_event=told.append)
    assert [each.stop is not None for each in told] == [each.costs.ours >= 0.25 for each in told]
    assert any(each.stop for each in told)
    assert not all(each.stop for each in told)
