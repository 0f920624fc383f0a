"""How long the provider keeps what it cached: the client's breakpoints say so, and its usage."""

from __future__ import annotations

from typing import Any

import pytest

from elision.lab.run_as_recorded import sizer
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.session_history import SessionReport, load_session_log
from elision.stores.memory import MemoryStore
from elision.strategies.guards import Guards
from elision.telemetry.diagnostics import Costs
from elision.trajectory.events import RequestSent
from elision.trajectory.usage import Usage
from tests.manager.agents import make_history

#: Steps of the loop, and seconds of the pause behind most of them.
STEPS, PAUSE = 12, 1_800.0
HOUR = {"type": "ephemeral", "ttl": "1h"}
MINUTES = {"type": "ephemeral"}


class Client:
    """An agent that sets breakpoints of such lives, and pauses once for half an hour."""

    def __init__(self, system: dict[str, str] | None, end: dict[str, str] | None, **options: Any) -> None:
        self.now, self.store, self._system, self._end = 1_700_000_000.0, MemoryStore(), system, end
        given = {"model": "claude-sonnet-4-6", "dialect": "anthropic", "session": "s", "clock": lambda: self.now}
        self.context = ContextManager(
            "masking(window=3, fold=false)", store=self.store, **(gather_options(given | options))
        )
        self.reasons: list[str] = []
        self.told: list[Costs] = []

    def work(self, usage: Usage | None = None, steps: int = STEPS) -> None:
        for step in range(steps):
            self.now += PAUSE if step == steps - 1 else 10.0
            messages = make_history("anthropic", step)
            messages[0] = {"role": "user", "content": [{"type": "text", "text": messages[0]["content"]}]}
            if self._end is not None:
                *before, newest = messages[-1]["content"]
                messages[-1] = {**messages[-1], "content": [*before, {**newest, "cache_control": self._end}]}
            system = [{"type": "text", "text": "Work. " * 2_000}]
            if self._system is not None:
                system[0] |= {"cache_control": self._system}  # type: ignore[dict-item]
            view = self.context.prepare(messages, system=system)
            if usage is not None:
                self.context.record(usage)
            self.reasons.append(view.diagnostics.reason)
            self.told.append(view.diagnostics.costs)
        self.context.close()

    @property
    def account(self) -> SessionReport:
        (info,) = self.store.sessions()
        return load_session_log(self.store, info, sizer("anthropic", "o200k"), Guards()).build_report()

    @property
    def hours(self) -> list[int | None]:
        return [event.hour_turn for event in self.store.events("s") if isinstance(event, RequestSent)]


def test_a_pause_within_the_hour_is_no_cold_cache() -> None:
    """Half an hour behind entries of an hour nothing is rewritten that is still read; behind five minutes it is."""
    found = {}
    for name, life in (("hour", HOUR), ("minutes", MINUTES)):
        client = Client(life, life)
        client.work()
        found[name] = client
    assert found["minutes"].reasons[-1] == "cold cache"
    assert found["hour"].reasons[-1] != "cold cache"
    newest = {name: client.account.calls[-1].bills.ours for name, client in found.items()}
    assert newest["hour"].cache_read > 0.8 * newest["hour"].prompt_tokens
    assert newest["minutes"].cache_read == 0


def test_the_front_may_live_longer_than_the_rest() -> None:
    """Only the system prompt is kept for an hour: behind the pause it is read, and the rest is written anew."""
    client = Client(HOUR, MINUTES)
    client.work()
    assert client.hours == [0] * STEPS
    newest = client.account.calls[-1].bills.ours
    assert 2_500 < newest.cache_read < 6_250
    assert newest.cache_write_1h == 0


@pytest.mark.parametrize("life", [HOUR, MINUTES])
def test_an_hour_costs_twice_the_input(life: dict[str, str]) -> None:
    """What is written for an hour is priced as that, ours and had everything been sent."""
    client = Client(life, life)
    client.work(steps=2)
    first = client.account.calls[0].bills.ours
    price = 6.0 if life is HOUR else 3.75
    assert first.usd == pytest.approx(first.cache_write * price / 1e6)
    assert (first.cache_write_1h == first.cache_write) is (life is HOUR)


def test_usage_says_it_where_the_request_does_not() -> None:
    """Breakpoints that are set behind our back are in the usage: what was written then lives an hour."""
    client = Client(None, None)
    client.work(Usage(input=10, cache_write=4_000, cache_write_1h=4_000, output=5))
    assert client.reasons[-1] != "cold cache"
    assert client.account.calls[-1].expected_bills.ours.cache_read > 0


def test_a_report_prices_the_first_call_too() -> None:
    """The first request of such a client is billed at the price of an hour once its usage says so."""
    client = Client(None, None)
    client.work(Usage(input=10, cache_write=4_000, cache_write_1h=4_000, output=5), steps=2)
    first = client.account.calls[0].bills.ours
    assert first.cache_write_1h == first.cache_write > 0
    assert first.usd == pytest.approx((10 * 3.0 + 4_000 * 6.0) / 1e6)


def test_the_log_has_the_same_bills() -> None:
    """What the client asked for is in the log: read again, every pass has the bill that it had live."""
    client = Client(HOUR, HOUR)
    client.work()
    assert [each.diagnostics.costs.raw for each in client.account.calls] == pytest.approx(
        [each.raw for each in client.told]
    )
    assert client.account.calls[0].bills.ours.cache_write_1h > 0
