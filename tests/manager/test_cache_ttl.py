"""How long the cache entries of our own breakpoints live: as the client asks, or as the setting says."""

from __future__ import annotations

from typing import Any

import pytest

from elision import Advanced, Cache
from elision.errors import SettingError
from elision.lab.run_as_recorded import sizer
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.session_history import load_session_log
from elision.providers.anthropic.breakpoints import find_breakpoints
from elision.stores.memory import MemoryStore
from elision.strategies.guards import Guards
from elision.testing.billing_simulator import BillingSimulator, hash_prefixes
from elision.testing.parsed_request import split_into_blocks
from elision.testing.request_checks import find_problems
from elision.trajectory.events import RequestSent
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.tokens import make_counter
from tests.manager.agents import make_history

MINUTES = {"type": "ephemeral"}
#: Calls, and seconds before each of them.
CALLS = 40
WORK, PAUSE = 10.0, 700.0


class Agent:
    """An agent that pauses before every third call. It sets breakpoints of its own, or none."""

    def __init__(self, *, marks: bool = False, **options: Any) -> None:
        self.now, self.store, self._marks = 1_700_000_000.0, MemoryStore(), marks
        given = {"model": "claude-sonnet-4-6", "dialect": "anthropic", "session": "s", "clock": lambda: self.now}
        self.context = ContextManager("masking(window=3)", store=self.store, **(gather_options(given | options)))
        self.views: list[ContextView] = []
        self.times: list[float] = []

    def work(self, calls: int = CALLS) -> None:
        for step in range(calls):
            self.now += WORK if step % 3 else PAUSE
            self.times.append(self.now)
            messages = make_history("anthropic", step)
            system = [{"type": "text", "text": "Work. " * 2_000}]
            tools = [{"name": "ls", "input_schema": {"type": "object"}}]
            if self._marks:
                system[0]["cache_control"] = MINUTES  # type: ignore[assignment]
                content = messages[-1]["content"]
                blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
                messages[-1] = {**messages[-1], "content": [*blocks[:-1], {**blocks[-1], "cache_control": MINUTES}]}
            self.views.append(self.context.prepare(messages, system=system, tools=tools))
        self.context.close()

    @property
    def lifetimes(self) -> list[list[str]]:
        """Of each request's breakpoints, in order."""
        return [[mark.ttl for mark in find_breakpoints(view.request)] for view in self.views]

    @property
    def recorded(self) -> list[int | None]:
        return [event.hour_turn for event in self.store.events("s") if isinstance(event, RequestSent)]


@pytest.mark.parametrize("ttl", ["client", "1h"])
@pytest.mark.parametrize("marks", [False, True])
def test_requests_stay_sound(ttl: str, *, marks: bool) -> None:
    """At most four breakpoints, longer lives first, and whatever else the provider asks for."""
    agent = Agent(marks=marks, cache_ttl=ttl)
    agent.work()
    for view in agent.views:
        assert not find_problems("anthropic", {"model": "claude-sonnet-4-6", "max_tokens": 9, **view.request})


def test_by_default_nothing_lives_an_hour() -> None:
    """Where the client sets no breakpoints, ours have the provider's own lifetime, and nothing is recorded."""
    agent = Agent()
    agent.work(12)
    assert {ttl for each in agent.lifetimes for ttl in each} == {"5m"}
    assert set(agent.recorded) == {None}


def test_a_setting_holds_for_all_of_our_breakpoints() -> None:
    """With `1h` everything is written for an hour, and billed so."""
    agent = Agent(cache_ttl="1h")
    agent.work(12)
    assert {ttl for each in agent.lifetimes for ttl in each} == {"1h"}
    assert agent.recorded == list(range(12))
    (info,) = agent.store.sessions()
    calls = load_session_log(agent.store, info, sizer("anthropic", "o200k"), Guards()).build_report().calls
    for call in calls:
        assert call.bills.ours.cache_write_1h == call.bills.ours.cache_write > 0
    # Read again, the log has the bills that the session had live.
    costs = [view.diagnostics.costs for view in agent.views]
    assert [call.diagnostics.costs.ours for call in calls] == pytest.approx([each.ours for each in costs])


def test_the_provider_bills_less_where_people_pause() -> None:
    """What a provider's cache makes of the requests themselves: with pauses an hour costs less than five minutes."""
    bills = {}
    for choice in ("client", "1h"):
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
        assert (hours > 0) is (choice == "1h")
    assert bills["1h"] < 0.85 * bills["client"]


def test_a_client_s_own_breakpoints_are_left_alone() -> None:
    """Where the client sets breakpoints, its lifetimes hold."""
    agent = Agent(marks=True, cache_ttl="1h")
    agent.work(6)
    assert {ttl for each in agent.lifetimes for ttl in each} == {"5m"}
    assert set(agent.recorded) == {None}


@pytest.mark.parametrize("options", [{"shadow": True}, {"cache_control": "client"}])
def test_requests_without_breakpoints_of_ours_have_no_lifetime(options: dict[str, Any]) -> None:
    """Where Elision sets no breakpoint, nothing is recorded that no request asked for."""
    agent = Agent(cache_ttl="1h", **options)
    agent.work(6)
    assert set(agent.recorded) == {None}


def test_other_providers_have_no_lifetimes() -> None:
    """A conversation with OpenAI's messages is left alone."""
    store = MemoryStore()
    context = ContextManager(
        "masking(window=3)", store=store, model="gpt-5", session="s", advanced=Advanced(cache=Cache(ttl="1h"))
    )
    for step in range(6):
        context.prepare(make_history("openai", step))
    context.close()
    assert {event.hour_turn for event in store.events("s") if isinstance(event, RequestSent)} == {None}


@pytest.mark.parametrize("value", ["5m", "2h"])
def test_other_values_are_refused(value: str) -> None:
    """The error names those that there are."""
    with pytest.raises(SettingError, match="give client or 1h"):
        ContextManager("masking", advanced=Advanced(cache=Cache(ttl=value)))  # type: ignore[arg-type]
