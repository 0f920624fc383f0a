"""Lifetimes of cache entries in live requests: as the client asks, as a setting says, as the planner chooses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from elision.lab.dialect import sizer
from elision.manager import ContextManager, ContextView
from elision.manager.session_history import load_session_log
from elision.providers.anthropic.rules import find_breakpoints
from elision.stores.memory import MemoryStore
from elision.strategies.guards import Guards
from elision.testing.billing_simulator import BillingSimulator, hash_prefixes
from elision.testing.parsed_request import split_into_blocks
from elision.testing.request_checks import find_problems
from elision.trajectory.events import CachePinged, RequestSent
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.tokens import make_counter
from tests.manager.agents import make_history

MINUTES = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
#: Calls, and seconds before each of them.
CALLS = 40
WORK, PAUSE = 10.0, 700.0
#: Pauses that are too rare for an hour.
RARE_PAUSES = [0.0, *[10.0] * 12, 400.0, *[10.0] * 12, 400.0, *[10.0] * 3]


class Agent:
    """An agent that pauses before every third call. It sets breakpoints of its own, or none."""

    def __init__(
        self, strategy: str = "masking(window=3)", *, marks: bool = False, tools: bool = False, **options: Any
    ) -> None:
        self.now, self.store, self._marks, self._tools = 1_700_000_000.0, MemoryStore(), marks, tools
        given = {"model": "claude-sonnet-4-6", "dialect": "anthropic", "session": "s", "clock": lambda: self.now}
        self.context = ContextManager(strategy, store=self.store, **(given | options))
        self.views: list[ContextView] = []
        self.times: list[float] = []

    def work(self, calls: int = CALLS) -> None:
        self.make_calls([WORK if step % 3 else PAUSE for step in range(calls)])
        self.context.close()

    def make_calls(self, pauses: Sequence[float]) -> None:
        for step, pause in enumerate(pauses, start=len(self.views)):
            self.now += pause
            self.times.append(self.now)
            messages = make_history("anthropic", step)
            system = [{"type": "text", "text": "Work. " * 2_000}]
            tools = [{"name": "ls", "input_schema": {"type": "object"}}]
            if self._marks:
                system[0]["cache_control"] = MINUTES  # type: ignore[assignment]
                content = messages[-1]["content"]
                blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
                messages[-1] = {**messages[-1], "content": [*blocks[:-1], {**blocks[-1], "cache_control": MINUTES}]}
            if self._tools:
                tools[0]["cache_control"] = MINUTES
            self.views.append(self.context.prepare(messages, system=system, tools=tools))

    @property
    def lifetimes(self) -> list[list[str]]:
        """Of each request's breakpoints, in order."""
        return [[mark.ttl for mark in find_breakpoints(view.request)] for view in self.views]

    @property
    def recorded(self) -> list[Any]:
        return [event.lifetime for event in self.store.events("s") if isinstance(event, RequestSent)]


@pytest.mark.parametrize("options", [{}, {"cache_ttl": "plan"}, {"cache_ttl": "plan", "cache_ttl_scope": "all"}])
@pytest.mark.parametrize("marks", [False, True])
def test_requests_stay_sound(options: dict[str, str], *, marks: bool) -> None:
    """At most four breakpoints, longer lives first, and whatever else the provider asks for."""
    agent = Agent(marks=marks, **options)
    agent.work()
    for view in agent.views:
        assert not find_problems("anthropic", {"model": "claude-sonnet-4-6", "max_tokens": 9, **view.request})


def test_by_default_nothing_is_changed() -> None:
    """The client decides: no breakpoint of ours asks for an hour, and nothing is recorded."""
    agent = Agent()
    agent.work()
    assert {ttl for each in agent.lifetimes for ttl in each} == {"5m"}
    assert set(agent.recorded) == {None}


def test_a_setting_holds_for_all_of_our_breakpoints() -> None:
    """With `1h` everything is written for an hour; with `5m` nothing is."""
    for choice in ("1h", "5m"):
        agent = Agent(cache_ttl=choice)
        agent.work(12)
        assert {ttl for each in agent.lifetimes for ttl in each} == {choice}


def test_the_planner_goes_over_to_an_hour_after_pauses() -> None:
    """Pauses that entries of five minutes do not outlast: requests ask for an hour from some call on, as recorded."""
    agent = Agent(cache_ttl="plan")
    agent.work()
    asked = ["1h" in each for each in agent.lifetimes]
    assert not asked[0]
    assert asked[-1]
    assert asked == [lifetime.hour_turn is not None for lifetime in agent.recorded]
    bill = agent.views[-1].diagnostics.costs
    plain = Agent()
    plain.work()
    assert bill.ours < 0.8 * plain.views[-1].diagnostics.costs.ours


def test_the_provider_bills_less() -> None:
    """What a provider's cache makes of the requests themselves: planned, the session costs less than the client's."""
    bills = {}
    for choice in ("client", "plan"):
        agent = Agent(cache_ttl=choice)
        provider, counter = BillingSimulator(), make_counter("estimate")
        prices, usd, hours = find_prices("claude-sonnet-4-6"), 0.0, 0
        agent.work()
        for at, view in zip(agent.times, agent.views, strict=True):
            blocks = [*split_into_blocks("anthropic", view.request, counter)]
            usage = provider.bill_request(hash_prefixes("me", blocks), prices, at)
            usd += prices.cost_usage(usage)
            hours += usage.cache_write_1h
        bills[choice] = usd
        assert (hours > 0) is (choice == "plan")
    assert bills["plan"] < 0.8 * bills["client"]


def test_another_process_decides_the_same() -> None:
    """A session that another process goes on with has the plan that one process would have had."""
    whole = Agent(cache_ttl="plan")
    whole.work()
    parts = Agent(cache_ttl="plan")
    parts.work(20)
    options: dict[str, Any] = {"model": "claude-sonnet-4-6", "dialect": "anthropic", "session": "s"}
    again = ContextManager("masking(window=3)", store=parts.store, clock=lambda: parts.now, cache_ttl="plan", **options)
    for step in range(20, CALLS):
        parts.now += WORK if step % 3 else PAUSE
        tools = [{"name": "ls", "input_schema": {"type": "object"}}]
        system = [{"type": "text", "text": "Work. " * 2_000}]
        parts.views.append(again.prepare(make_history("anthropic", step), system=system, tools=tools))
    again.close()
    assert parts.recorded == whole.recorded
    assert json.dumps([view.request for view in parts.views]) == json.dumps([view.request for view in whole.views])


def test_a_client_s_own_breakpoints_are_left_alone_unless_told() -> None:
    """Where the client sets breakpoints, its lifetimes hold; with `all` they are what is decided here."""
    left = Agent(marks=True, cache_ttl="1h")
    left.work(6)
    assert {ttl for each in left.lifetimes for ttl in each} == {"5m"}
    assert set(left.recorded) == {None}
    taken = Agent(marks=True, cache_ttl="1h", cache_ttl_scope="all")
    taken.work(6)
    assert {ttl for each in taken.lifetimes for ttl in each} == {"1h"}


def test_a_breakpoint_at_a_tool_leaves_all_to_the_client() -> None:
    """Tools come first, and longer lives come first: nothing after a tool's breakpoint is kept longer."""
    agent = Agent(marks=True, tools=True, cache_ttl="1h", cache_ttl_scope="all")
    agent.work(6)
    assert {ttl for each in agent.lifetimes for ttl in each} == {"5m"}


def test_pings_are_in_the_costs_of_the_session() -> None:
    """Where pauses are rare and short a ping is planned. One that was sent is billed, live and read again; one that
    came after the next call is not."""
    agent = Agent(cache_ttl="plan", cache_pings=4)
    assert agent.context.find_planned_pings(calls_tools=True) is None
    agent.make_calls(RARE_PAUSES)
    plan = agent.context.find_planned_pings(calls_tools=True)
    assert plan is not None
    assert 1 <= plan.pings <= 4
    assert plan.life_seconds == 300.0
    plain = Agent(cache_ttl="plan", cache_pings=4)
    plain.make_calls([*RARE_PAUSES, WORK])
    agent.now += 5.0
    agent.context.record_ping(plan)
    agent.now -= 5.0
    agent.make_calls([WORK])
    agent.context.record_ping(plan)
    found = agent.views[-1].diagnostics.costs.ours
    paid = found - plain.views[-1].diagnostics.costs.ours
    read = agent.views[-2].diagnostics.after * 0.3 / 1e6
    assert paid == pytest.approx(read, rel=0.05)
    agent.context.close()
    plain.context.close()
    (info,) = agent.store.sessions()
    report = load_session_log(agent.store, info, sizer("anthropic", "o200k"), Guards()).build_report()
    assert report.final is not None
    assert report.final.costs.ours == pytest.approx(found)
    assert sum(isinstance(event, CachePinged) for event in agent.store.events("s")) == 1


def test_other_providers_have_no_lifetimes() -> None:
    """A conversation with OpenAI's messages is left alone."""
    store = MemoryStore()
    context = ContextManager("masking(window=3)", store=store, model="gpt-5", session="s", cache_ttl="1h")
    for step in range(6):
        context.prepare(make_history("openai", step))
    context.close()
    assert {event.lifetime for event in store.events("s") if isinstance(event, RequestSent)} == {None}
