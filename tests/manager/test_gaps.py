"""Cache breakpoints that come with the first gap: before it requests are the client's, and are priced as that."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.lab.run_as_recorded import sizer
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.session_history import load_session_log
from elision.stores.memory import MemoryStore
from elision.strategies.guards import Guards
from elision.trajectory.events import RequestSent
from elision.trajectory.prices import Bill
from tests.manager.agents import make_history

CAREFUL = "masking(window=3, fold=false)"


def manager(store: Any, **options: Any) -> ContextManager:
    given: dict[str, Any] = {
        "model": "claude-sonnet-5",
        "dialect": "anthropic",
        "session": "s",
        "cache_control": "gaps",
    }
    return ContextManager(CAREFUL, store=store, **(gather_options(given | options)))


def marked(view: ContextView) -> bool:
    return "cache_control" in json.dumps(view.messages)


def test_nothing_is_marked_before_something_is_hidden() -> None:
    """Messages are the very objects that were given until the first gap, and bear breakpoints from then on."""
    context, gone = manager(MemoryStore()), False
    for steps in range(12):
        given = make_history("anthropic", steps)
        view = context.prepare(given)
        gone = gone or "hidden" in json.dumps(view.messages)
        assert marked(view) is gone
        if not gone:
            assert all(one is other for one, other in zip(view.messages, given, strict=True))
    assert gone


def test_what_is_not_cached_is_hidden_as_soon_as_it_may_be() -> None:
    """Without breakpoints every token is paid in full at each call: there is no cache that a gap could spoil."""
    told = {}
    for who in ("auto", "gaps"):
        context = manager(MemoryStore(), cache_control=who)
        views = [context.prepare(make_history("anthropic", steps)) for steps in range(40)]
        told[who] = next(steps for steps, view in enumerate(views) if "hidden" in json.dumps(view.messages))
    assert told["gaps"] == 4
    assert told["gaps"] < told["auto"]


@pytest.mark.parametrize("own", [True, False])
def test_a_client_s_own_breakpoints_are_reckoned_with(own: bool) -> None:
    """A client that marks its requests is taken for cached, and still nothing of ours stands in them."""
    store = MemoryStore()
    context = manager(store)
    for steps in range(4):
        given = make_history("anthropic", steps)
        request = {"cache_control": {"type": "ephemeral"}} if own else {}
        assert context.prepare(given, request=request).messages == given
    context.settle()
    called = [event for event in store.events("s") if isinstance(event, RequestSent)]
    assert [event.unmarked for event in called] == [not own] * 4


@pytest.mark.parametrize("own", [True, False])
def test_what_is_not_marked_is_plain_input(own: bool) -> None:
    """Sending everything is billed as plain input to a client that asks for no cache, and not as writes, which are
    dearer."""
    store = MemoryStore()
    context = manager(store)
    request = {"cache_control": {"type": "ephemeral"}} if own else {}
    for steps in range(12):
        context.prepare(make_history("anthropic", steps), request=request)
    context.settle()
    account = load_session_log(store, store.info("s"), sizer("anthropic", "o200k"), Guards()).build_report()
    raw = sum((each.bills.raw for each in account.calls), Bill())
    assert (raw.cache_write > 0, raw.cache_read > 0) == (own, own)
    if not own:
        assert raw.usd == pytest.approx(raw.input * account.prices.find_rates(0).input / 1e6)


def test_the_bill_is_the_same_in_any_process() -> None:
    """Opened anew before every call, a session reckons with what was marked when it was sent."""
    store = MemoryStore()
    whole = manager(MemoryStore())
    for steps in range(10):
        expected = whole.prepare(make_history("anthropic", steps))
        with manager(store) as context:
            view = context.prepare(make_history("anthropic", steps))
        assert json.dumps(view.messages) == json.dumps(expected.messages)
        assert view.diagnostics.costs == expected.diagnostics.costs


def test_what_breakpoints_save_is_told_apart() -> None:
    """Sending everything, a client that marks its requests pays as much less as is said to be the cache's merit."""
    told = {}
    for own in (True, False):
        store = MemoryStore()
        context = manager(store)
        request = {"cache_control": {"type": "ephemeral"}} if own else {}
        for steps in range(30):
            context.prepare(make_history("anthropic", steps), request=request)
        context.settle()
        told[own] = load_session_log(store, store.info("s"), sizer("anthropic", "o200k"), Guards()).build_report()
    assert told[True].final is not None
    assert told[True].final.costs.caching == 0.0
    # Before the first gap nothing of ours stands in the request, and both are paid in full; with it all is written.
    passes = told[False].calls
    edited = next(place for place, each in enumerate(passes) if each.bills.ours.cache_write)
    assert not any(each.bills.caching_usd for each in passes[:edited])
    assert passes[edited].bills.caching_usd < 0
    plain, cached = (sum(each.bills.raw.usd for each in told[own].calls[edited + 1 :]) for own in (False, True))
    assert sum(each.bills.caching_usd for each in passes[edited + 1 :]) == pytest.approx(plain - cached, rel=0.01)
    assert told[False].final is not None
    assert told[False].final.costs.caching == pytest.approx(sum(each.bills.caching_usd for each in passes))
