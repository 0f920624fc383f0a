"""A store that writes and then loses its answer, at any write and for any time: one writer stays one writer.

Nothing of it reaches the agent, nothing is missing in the log, and what was hidden stays hidden.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced, Cache
from elision.engine import Log
from elision.errors import StoreError
from elision.manager import ContextManager, ContextView
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.strategies.schedules import FixedSchedule
from elision.strategies.strategy import Masking, Strategy
from elision.summarizers.summary_acceptance import accept_summary, bill_call
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.events import Event, PassDecided, RequestSent, SummaryFailed, UsageReported
from elision.trajectory.plan import SummaryRequest
from tests import flat_options
from tests.manager.agents import LONG, Message, make_history, make_openai_step
from tests.manager.stores import UnreliableStore
from tests.manager.test_recall_tools import BOUND, thinking
from tests.soak import pair_cases, sample_cases

EAGER = "masking(window=2, schedule=every-turn)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"


def manager(strategy: str | Strategy = EAGER, **options: Any) -> ContextManager:
    return flat_options.open_context(
        strategy, session="s", **{"advanced": Advanced(cache=Cache(control="client")), **options}
    )


def is_masked(view: ContextView) -> list[bool]:
    return ["tokens hidden" in str(message.get("content")) for message in view.messages]


class Counted:
    """A summarizer that counts what it is paid."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, request: SummaryRequest) -> SummaryResult:
        self.times += 1
        return SummaryResult(
            text="Eight files were read; f3.py has line 117: value 114309.", input=900, output=20, usd=0.5
        )


#: What an agent does between two calls; each writes.
DOORS: dict[str, Callable[[ContextManager, list[Message]], object]] = {
    "nothing": lambda context, messages: None,
    "settle": lambda context, messages: context.settle(),
    "record": lambda context, messages: context.record({"prompt_tokens": 900, "completion_tokens": 9}),
}


@given(
    st.lists(st.sampled_from(["ok", "down", "lost"]), max_size=24),
    st.lists(st.sampled_from(sorted(DOORS)), min_size=10, max_size=10),
    st.sampled_from([{}, {"family": "team"}, {"family": "team", "write_behind": True}]),
)
def test_one_writer_is_never_two(plan: list[str], doors: list[str], options: dict[str, Any]) -> None:
    """Whenever answers are lost, and whatever writes next: no conflict, one session, every turn once, and no gap opens
    again."""
    store = UnreliableStore()
    context = manager(store=store, **options)
    context.prepare(make_history("openai", 0))
    context.settle()
    store.plan = list(plan)
    masked: list[bool] = []
    for steps, door in enumerate(doors, start=1):
        view = context.prepare(make_history("openai", steps))
        assert all(now or not before for now, before in zip(is_masked(view), masked, strict=False))
        masked = is_masked(view)
        DOORS[door](context, make_history("openai", steps))
    store.plan.clear()
    context.close()
    assert [info.key for info in store.sessions()] == ["s"]
    assert [turn.index for turn in store.turns("s")] == list(range(1, 11))
    again = manager(store=store, **options).prepare(make_history("openai", 10))
    assert all(now or not before for now, before in zip(is_masked(again), masked, strict=True))


def next_history(chance: random.Random, messages: list[Message], step: int) -> list[Message]:
    """What a client sends next: mostly a turn more; at times it undoes, speaks up, takes that back, or begins anew."""
    ways: list[Callable[[], list[Message]]] = [
        lambda: messages[: 1 + 2 * chance.randrange(max(1, len(messages) // 2))],
        lambda: [*messages, {"role": "user", "content": f"Hurry, {step}."}],
        lambda: messages[:-1] if messages[-1]["role"] == "user" and len(messages) > 1 else messages,
        lambda: [{"role": "user", "content": f"Another task, {step}."}, *messages[1:]],
    ]
    return chance.choice(ways)() if chance.random() < 0.3 else [*messages, *make_openai_step(step)]


@pytest.mark.parametrize(
    ("seed", "options"), pair_cases(range(12), [{}, {"family": "team"}, {"family": "team", "write_behind": True}])
)
def test_histories_that_turn_back_meanwhile(seed: int, options: dict[str, Any]) -> None:
    """Undone, amended, rewritten, summarized and taken up again while answers are lost: the log has every turn of the
    branch that the client is on, and another process goes on with it."""
    chance, store, writer = random.Random(seed), UnreliableStore(), Counted()
    context = manager(FOLDING, store=store, summarizer=writer, **options)
    messages = make_history("openai", 0)
    for step in range(1, 25):
        store.plan = [chance.choice(["ok", "down", "lost"]) for _ in range(chance.randrange(4))]
        messages = next_history(chance, messages, step)
        view = context.prepare(messages)
        assert "engine" not in {fault.kind for fault in view.diagnostics.faults}
        DOORS[chance.choice(sorted(DOORS))](context, messages)
        if chance.random() < 0.1:
            store.plan.clear()
            context.close()
            context = manager(FOLDING, store=store, summarizer=writer, **options)
    store.plan.clear()
    view = context.prepare(messages)
    context.close()
    assert not view.diagnostics.faults
    assert len(store.turns(view.diagnostics.branch)) == view.diagnostics.turns
    again = manager(FOLDING, store=store, summarizer=writer, **options).prepare(messages)
    assert (again.diagnostics.turns, again.diagnostics.faults) == (view.diagnostics.turns, ())


@pytest.mark.parametrize("down", [0, 1, 5])
@pytest.mark.parametrize("before", [0, 3, 4])
def test_whichever_try_was_written(before: int, down: int) -> None:
    """The first, the last or any between: it is known again once the store serves."""
    store = UnreliableStore()
    context = manager(store=store)
    for steps in range(5):
        context.prepare(make_history("openai", steps))
    store.plan = ["down"] * before + ["lost"] + ["down"] * down
    for steps in range(5, 16):
        view = context.prepare(make_history("openai", steps))
    assert not view.diagnostics.faults
    assert [turn.index for turn in store.turns("s")] == list(range(1, 16))


class OneOfTwo(UnreliableStore):
    """The store of one process of two: it fails on its own, and has the records of both."""

    def __init__(self, other: UnreliableStore | None = None) -> None:
        super().__init__()
        if other is not None:
            self._logs, self._histories, self._lock = other._logs, other._histories, other._lock


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),  # who serves the call
            st.lists(st.sampled_from(["ok", "down", "lost"]), max_size=4),  # how its next writes end
            st.sampled_from(sorted(DOORS)),
        ),
        min_size=3,
        max_size=14,
    ),
    st.sampled_from([EAGER, FOLDING]),
    st.booleans(),
)
def test_two_writers_in_any_order_make_one_history(
    calls: list[tuple[int, list[str], str]], strategy: str, write_behind: bool
) -> None:
    """Whoever serves a call and whenever an answer is lost: one session, every turn once, and a third that reads the
    log sends what both send."""
    first = OneOfTwo()
    stores = [first, OneOfTwo(first)]
    options: dict[str, Any] = {"family": "team", "write_behind": write_behind}
    contexts = [manager(strategy, store=store, **options) for store in stores]
    # A session without turns has no name by which the other could find it.
    contexts[0].prepare(make_history("openai", 1))
    assert contexts[0].settle() is None
    for steps, (who, plan, door) in enumerate(calls, start=2):
        stores[who].plan = list(plan)
        view = contexts[who].prepare(make_history("openai", steps))
        assert "engine" not in {fault.kind for fault in view.diagnostics.faults}
        DOORS[door](contexts[who], make_history("openai", steps))
        if write_behind:
            # What one of them keeps for later, the other cannot know.
            stores[who].plan.clear()
            assert contexts[who].settle() is None
    for store in stores:
        store.plan.clear()
    last = make_history("openai", len(calls) + 2)
    for context in contexts:
        assert context.settle() is None
        assert context.prepare(last).diagnostics.faults == ()
        assert context.settle() is None
    assert {info.key for info in first.sessions()} == {"s"}
    assert [turn.index for turn in first.turns("s")] == list(range(1, len(calls) + 3))
    views = [context.prepare(last).messages for context in [*contexts, manager(strategy, store=first, **options)]]
    assert json.dumps(views[0]) == json.dumps(views[1]) == json.dumps(views[2])


def test_a_repeated_write_changes_nothing() -> None:
    """Each write of a session is made twice, and each first answer is lost: the log is that of a store that answers."""

    class Doubled(MemoryStore):
        """It does everything twice and returns the second answer."""

        def create_with_events(
            self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b""
        ) -> int:
            super().create_with_events(session, events, at=at, batch=batch)
            return super().create_with_events(session, events, at=at, batch=batch)

        def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
            super().append(session, events, after=after, at=at, batch=batch)
            return super().append(session, events, after=after, at=at, batch=batch)

    stores = MemoryStore(), Doubled()
    for store in stores:
        with manager(FOLDING, store=store, clock=lambda: 1.0) as context:
            for steps in range(12):
                assert context.prepare(make_history("openai", steps)).diagnostics.faults == ()
    assert list(stores[0].events("s")) == list(stores[1].events("s"))


@pytest.mark.parametrize("down", [1, 3, 40])
def test_a_decision_that_was_never_written_is_taken_back(down: int) -> None:
    """However long the store is down: the log has each call once, as it was sent, and few writes are remembered."""
    store = UnreliableStore()
    context = manager(store=store)
    for steps in range(50):
        store.plan = ["down"] if 5 <= steps < 5 + down else []
        context.prepare(make_history("openai", steps))
        assert len(context._opened.preparer.follower.open_manual_branch().pending_attempts) <= 2
    sent = [event.call for event in store.events("s") if isinstance(event, RequestSent)]
    assert sent == list(range(1, 51))


@pytest.mark.parametrize(
    ("plan", "strategy", "lost_at"),
    sample_cases(
        product(
            [["lost"], ["lost", "down"], ["lost", "down", "lost"], ["lost", "lost"]], [EAGER, FOLDING], range(2, 9)
        ),
        5,
    ),
)
def test_one_request_is_recorded_once(strategy: str, plan: list[str], lost_at: int) -> None:
    """The decision is in the store, its answer was lost, and the view went out without it: it was one request."""
    store = UnreliableStore()
    context = manager(strategy, store=store)
    for steps in range(12):
        if steps == lost_at:
            store.plan = list(plan)
        view = context.prepare(make_history("openai", steps))
        context.record({"prompt_tokens": 900, "completion_tokens": 9})
    context.close()
    assert [event.call for event in store.events("s") if isinstance(event, RequestSent)] == list(range(1, 13))
    assert [event.call for event in store.events("s") if isinstance(event, UsageReported)] == list(range(1, 13))
    assert manager(strategy, store=store).prepare(make_history("openai", 11)).messages == view.messages


@pytest.mark.parametrize("plan", [["down"], ["lost"], ["down", "down"]], ids=str)
def test_compact_holds_until_it_can_be_done(plan: list[str]) -> None:
    """A call during which the store fails hides nothing; the next one that can does what was asked for."""
    store = UnreliableStore()
    context = manager(Masking(window=2, schedule=FixedSchedule()), store=store)
    context.prepare(make_history("openai", 6))
    context.compact()
    for steps, outcome in enumerate(plan, start=7):
        store.plan = [outcome]
        assert not any(is_masked(context.prepare(make_history("openai", steps))))
    assert any(is_masked(context.prepare(make_history("openai", 10))))


LAST: dict[str, Callable[[ContextManager, list[Message]], object]] = {
    "close": lambda context, messages: None,
    "settle": lambda context, messages: context.settle(),
    "keep": lambda context, messages: context.keep(messages),
    "search": lambda context, messages: context.session.search("line"),
    "prepare": lambda context, messages: context.prepare(messages),
}


@pytest.mark.parametrize("last", LAST.values(), ids=LAST)
def test_every_door_knows_its_own_write(last: Callable[[ContextManager, list[Message]], object]) -> None:
    """A run that ends behind an outage is in the store to its end, whatever ends it."""
    store = UnreliableStore()
    context = manager(store=store)
    for steps in range(4):
        context.prepare(make_history("openai", steps))
    store.plan = ["lost", "down", "down"]
    for steps in range(4, 7):
        assert context.prepare(make_history("openai", steps)).diagnostics.faults
    last(context, make_history("openai", 6))
    context.close()
    assert [turn.index for turn in store.turns("s")] == [1, 2, 3, 4, 5, 6]


def test_a_keep_that_fails_is_known_again() -> None:
    """What it wrote, though it raised, is no other writer's at the next pass."""
    store = UnreliableStore()
    context = manager(store=store)
    context.prepare(make_history("openai", 3))
    store.plan = ["lost"]
    with pytest.raises(Exception, match="the connection was lost"):
        context.keep(make_history("openai", 4))
    assert not context.prepare(make_history("openai", 5)).diagnostics.faults
    assert len(store.turns("s")) == 5


@pytest.mark.parametrize("options", [{}, {"family": "team"}, {"family": "team", "write_behind": True}], ids=str)
@pytest.mark.parametrize(
    "plan", [["lost"], ["lost", "down"], ["ok", "lost"], ["down", "ok", "down"], ["lost", "lost", "lost"]], ids=str
)
def test_a_beginning_whose_answer_was_lost(plan: list[str], options: dict[str, Any]) -> None:
    """A store that begins a session apart from its first records may lose either answer, and more than once."""
    store = UnreliableStore(plan)
    with manager(store=store, **options) as context:
        for steps in range(6):
            view = context.prepare(make_history("openai", steps))
    assert not view.diagnostics.faults
    assert [info.key for info in store.sessions()] == ["s"]
    assert len(store.turns("s")) == 5


def test_a_second_failure_in_the_pass_that_knew_its_own_write() -> None:
    """What was found in the store stays known when the pass behind it fails as well."""
    store = UnreliableStore()
    context = manager(store=store)
    for steps in range(4):
        context.prepare(make_history("openai", steps))
    store.plan = ["lost", "ok", "ok", "down"]
    for steps in range(4, 9):
        view = context.prepare(make_history("openai", steps))
        assert "engine" not in {fault.kind for fault in view.diagnostics.faults}
    assert not view.diagnostics.faults
    assert [turn.index for turn in store.turns("s")] == list(range(1, 9))
    assert json.dumps(manager(store=store).prepare(make_history("openai", 8)).messages) == json.dumps(view.messages)


# -- what is paid ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost_at", range(4, 11))
def test_no_summary_is_bought_that_cannot_be_sent(lost_at: int) -> None:
    """Where the provider clears by itself, a session made anew behind a lost answer knows that too."""
    store, writer = UnreliableStore(), Counted()
    context = ContextManager(
        FOLDING,
        session="s",
        store=store,
        model=BOUND,
        advanced=Advanced(dialect="anthropic", thinking="native"),
        summarizer=writer,
    )
    messages = make_history("anthropic", 0)
    for step in range(1, 14):
        store.plan = ["lost"] if step == lost_at else []
        view = context.prepare(messages)
        messages = [*messages, *thinking(step)]
    assert writer.times == 0
    assert view.diagnostics.summaries == 0


@pytest.mark.parametrize("sent", [{}, {"cache_control": {"type": "ephemeral"}}], ids=["without", "with"])
def test_who_sets_no_breakpoint_is_known_behind_a_lost_answer(sent: dict[str, Any]) -> None:
    """Each call of the log says whether its client set one, which its bill goes by."""
    store = UnreliableStore()
    context = ContextManager(
        EAGER, session="s", store=store, advanced=Advanced(cache=Cache(control="gaps")), model="claude-sonnet-4-5"
    )
    for steps in range(3):
        store.plan = ["lost"] if steps == 0 else []
        context.prepare(make_history("anthropic", steps), request=sent)
    called = [event for event in store.events("s") if isinstance(event, RequestSent)]
    assert [event.unmarked for event in called] == [not sent] * len(called)


# -- asks that are paid ---------------------------------------------------------------------------------------------


def asks(store: UnreliableStore, calls: int, plan: Callable[[int], list[str]]) -> tuple[int, ContextView]:
    """How often a summarizer is paid in `calls` calls, the store failing as `plan` says at each; the last view."""
    writer = Counted()
    with manager(FOLDING, store=store, summarizer=writer) as context:
        for steps in range(calls):
            store.plan = plan(steps)
            view = context.prepare(make_history("openai", steps))
    return writer.times, view


def test_a_summary_that_cannot_be_stored_is_not_bought_at_each_turn() -> None:
    """A store that takes what is owed and then fails at the decision: asking backs off, and each ask is billed."""

    class Full(UnreliableStore):
        """It has no room for a summary."""

        def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
            if any(isinstance(event, PassDecided) and event.summary for event in events):
                raise StoreError("the disk is full: free some space")
            return super().append(session, events, after=after, at=at, batch=batch)

    store = Full()
    times, view = asks(store, 30, lambda _: [])
    attempts = [event for event in store.events("s") if isinstance(event, SummaryFailed)]
    assert times == 3
    assert len(attempts) in (2, 3)
    assert {(event.cause, event.usd) for event in attempts} == {("other", 0.5)}
    assert view.diagnostics.costs.summarizer == pytest.approx(0.5 * len(attempts))


def test_a_summary_that_was_stored_after_all_is_no_loss() -> None:
    """Its answer was lost, it is found in the store, and it is in the next view; nothing is billed twice."""
    times, view = asks(store := UnreliableStore(), 9, lambda steps: ["ok", "lost"] if steps == 7 else [])
    assert times == 1
    assert view.diagnostics.summaries == 1
    assert view.diagnostics.costs.summarizer == 0.5
    assert not [event for event in store.events("s") if isinstance(event, SummaryFailed)]


#: What follows an answer.
PLACES: dict[str, Callable[..., Any]] = {
    "elision.engine.decision.accept_summary": accept_summary,
    "elision.engine.decision.bill_call": bill_call,
    "elision.engine.event_log.Log.record_call": Log.record_call,
    "elision.engine.event_log.Log.can_add_recall_tools": Log.can_add_recall_tools,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_pass_that_fails_behind_an_ask_backs_off(place: str, by_hand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug of ours in what follows an answer does not have it asked for, and paid, at each turn."""
    writer, seen = Counted(), 0

    def broken(*given: Any, **named: Any) -> Any:
        nonlocal seen
        if writer.times == seen:
            return PLACES[place](*given, **named)
        seen = writer.times
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(place, broken)
    context = manager(FOLDING, store=UnreliableStore(), summarizer=writer)
    for steps in range(1, 31):
        if by_hand:
            context.turns.add("I look.", "cat f.py", LONG)
            with contextlib.suppress(ZeroDivisionError):
                context.turns.view()
        else:
            context.prepare(make_history("openai", steps))
    assert writer.times == 3
