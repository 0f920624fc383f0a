"""Two processes that serve one session over one store: every view is what one process would have sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced
from elision.errors import ConflictError
from elision.manager import ContextManager, ContextView
from elision.stores.memory import MemoryStore
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import Event, HeadSet, PassDecided, RequestSent, TurnAdded, UsageReported
from elision.trajectory.plan import Edit
from tests import flat_options
from tests.manager.agents import LONG, SHAPES, make_history
from tests.stores.implementations import STORES

STRATEGIES = [
    "masking(window=1, schedule=every-turn, fold=false)",
    "masking(window=2, fold=false)",
    "hybrid(window=1, summarize_at=5, tail=2, summary_max_tokens=100, schedule=every-turn, fold=false)",
]


def manager(store: Store, strategy: str = STRATEGIES[0], **options: Any) -> ContextManager:
    given: dict[str, Any] = {"family": "f", "session": "s", "write_behind": True, "cache_control": "client", **options}
    return flat_options.open_context(strategy, store=store, **{"advanced": Advanced(tokens="estimate"), **given})


def dumped(view: ContextView) -> str:
    return json.dumps(view.messages)


def grown(shape: str, lengths: list[int], reminder: str) -> list[Any]:
    """A history of as many steps, some of them short; words behind the newest turn that do not stay."""
    steps = [SHAPES[shape](at, LONG[: 20 * length]) for at, length in enumerate(lengths, start=1)]
    words = [{"role": "user", "content": reminder}] if reminder and lengths else []
    return [{"role": "user", "content": "Mend the parser."}, *(each for step in steps for each in step), *words]


CALLS = st.lists(
    st.tuples(
        st.integers(0, 1),  # who serves the call
        st.integers(1, 120),  # how long its result is
        st.sampled_from([1.0, 1.0, 1000.0]),  # how long the agent waits before
        st.booleans(),  # whether the provider's usage is recorded
        st.booleans(),  # whether what is owed is settled before the answer is there
        st.sampled_from(["", "", "3 steps left"]),
    ),
    min_size=4,
    max_size=14,
)


@given(calls=CALLS, shape=st.sampled_from(list(SHAPES)), strategy=st.sampled_from(STRATEGIES), again=st.booleans())
def test_two_that_take_turns_are_one(calls: list[Any], shape: str, strategy: str, again: bool) -> None:
    """However calls are dealt out to two managers, views and log are those of one that served them all."""
    now = [0.0]
    shared, alone = MemoryStore(), MemoryStore()
    options: dict[str, Any] = {"strategy": strategy, "clock": lambda: now[0]}
    two, one = [manager(shared, **options) for _ in range(2)], manager(alone, **options)
    lengths: list[int] = []
    for number, (who, length, waits, records, settles, reminder) in enumerate(calls):
        now[0] += waits
        # The first two calls go to one of them: a session without turns has no name to be found by, and words behind
        # its only turn are in that.
        context = two[who if number > 2 else 0]
        messages = grown(shape, lengths, reminder if number > 2 else "")
        views = [each.prepare(messages) for each in (context, one)]
        assert dumped(views[0]) == dumped(views[1])
        assert views[0].diagnostics.branch == views[1].diagnostics.branch
        assert views[0].diagnostics.costs == pytest.approx(views[1].diagnostics.costs)
        for each in (context, one) if settles else ():
            assert each.settle() is None
        if again:
            assert dumped(context.prepare(messages)) == dumped(one.prepare(messages))
        if records:
            usage = {"input_tokens": views[1].diagnostics.after + 100, "output_tokens": 50}
            for each in (context, one):
                each.record(usage)
        for each in (context, one):
            assert each.settle() is None
        lengths.append(length)
    assert [info.key for info in shared.sessions()] == [info.key for info in alone.sessions()]
    for info in shared.sessions():
        assert list(shared.events(info.key)) == list(alone.events(info.key))


def turns(events: list[Event]) -> list[int]:
    return [event.turn.index for event in events if isinstance(event, TurnAdded)]


def test_what_was_recorded_late_is_written_behind_what_others_wrote() -> None:
    """The usage of a call that another process's call overtook is in the log all the same, and corrects no count of the
    other call."""
    store = MemoryStore()
    one, two = manager(store), manager(store)
    for steps in range(4):
        one.prepare(make_history("openai", steps))
    one.settle()
    two.prepare(make_history("openai", 4))
    two.settle()
    one.record({"input_tokens": 90_000, "output_tokens": 7})
    assert one.settle() is None
    events = list(store.events("s"))
    assert turns(events) == [1, 2, 3, 4]
    (answered,) = (event for event in events if isinstance(event, UsageReported))
    assert answered.call == 4
    assert events[-1] is answered or events[-1] == answered
    assert two.prepare(make_history("openai", 4)).diagnostics.anchor == 0
    assert one.prepare(make_history("openai", 5)).diagnostics.turns == 5


def test_a_pass_that_another_process_overtook_is_given_up() -> None:
    """Both prepared the same call, and the other one was written first: its turns stand in the log once."""
    store = MemoryStore()
    one, two = manager(store, "masking(window=9, fold=false)"), manager(store, "masking(window=9, fold=false)")
    for steps in range(3):
        one.prepare(make_history("openai", steps))
        one.settle()
    two.prepare(make_history("openai", 2))
    two.settle()
    one.prepare(make_history("openai", 3))
    two.prepare(make_history("openai", 3))
    assert two.settle() is None
    assert one.settle() is None
    one.record({"input_tokens": 900, "output_tokens": 7})
    one.settle()
    events = list(store.events("s"))
    assert turns(events) == [1, 2, 3]
    assert [event.call for event in events if isinstance(event, RequestSent)] == [1, 2, 3, 3, 4]
    assert [event.call for event in events if isinstance(event, UsageReported)] == [4]
    again = manager(store, "masking(window=9, fold=false)").prepare(make_history("openai", 6))
    assert dumped(one.prepare(make_history("openai", 6))) == dumped(again)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_note_of_another_process_gives_up_no_pass(strategy: str) -> None:
    """Its turn may be the last but one of the agent, which no later request would bring again."""
    store = MemoryStore()
    one, two = manager(store, strategy), manager(store, strategy)
    for steps in range(8):
        view = one.prepare(make_history("openai", steps))
        one.settle()
    one.record({"input_tokens": view.diagnostics.after, "output_tokens": 7})
    sent = two.prepare(make_history("openai", 8))
    assert one.settle() is None
    assert two.settle() is None
    two.record({"input_tokens": sent.diagnostics.after, "output_tokens": 7})
    assert two.settle() is None
    events = list(store.events("s"))
    assert turns(events) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [event.call for event in events if isinstance(event, RequestSent)] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert [event.call for event in events if isinstance(event, UsageReported)] == [8, 9]
    views = [each.prepare(make_history("openai", 9)) for each in (two, manager(store, strategy))]
    assert dumped(views[0]) == dumped(views[1])


@pytest.mark.parametrize("strategy", ["raw", STRATEGIES[1], "hybrid(window=9, fold=false)"])
def test_a_call_that_another_process_made_again_gives_up_no_turn(strategy: str) -> None:
    """The newer call was sent, and it may be the agent's last. Neither of the two hid anything: both are in the log."""
    store = MemoryStore()
    one, two = manager(store, strategy), manager(store, strategy)
    for steps in range(8):
        one.prepare(make_history("openai", steps))
        one.settle()
    two.prepare(make_history("openai", 7))
    sent = one.prepare(make_history("openai", 8))
    assert two.settle() is None
    assert one.settle() is None
    one.record({"input_tokens": sent.diagnostics.after, "output_tokens": 7})
    assert one.settle() is None
    events = list(store.events("s"))
    assert turns(events) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [event.call for event in events if isinstance(event, RequestSent)] == [1, 2, 3, 4, 5, 6, 7, 8, 8, 9]
    assert [event.call for event in events if isinstance(event, UsageReported)] == [9]
    views = [each.prepare(make_history("openai", 9)) for each in (one, two, manager(store, strategy))]
    assert {dumped(view) for view in views} == {dumped(views[0])}
    assert {view.diagnostics.anchor for view in views} == {0}


@pytest.mark.parametrize("is_last", [True, False])
def test_a_turn_outlasts_what_another_process_hid_meanwhile(is_last: bool) -> None:
    """Its request showed more than the log does after it, so its length corrects no count; it is billed as reported."""
    store, now = MemoryStore(), [0.0]
    strategy = "masking(window=2, fold=false)"
    one, two, three = (manager(store, strategy, clock=lambda: now[0]) for _ in range(3))
    for steps in range(8):
        one.prepare(make_history("openai", steps))
        one.settle()
    sent = [one.prepare(make_history("openai", 8))]
    # Nothing is in the cache any more: two hides what it may, and writes that at once.
    now[0] = 2000.0
    again = two.prepare(make_history("openai", 7))
    assert (hidden(sent[0]), len(hidden(again))) == ({}, 5)
    usages = [{"input_tokens": sent[0].diagnostics.after, "output_tokens": 7}]
    one.record(usages[0])
    assert one.settle() is None
    if not is_last:
        sent.append(one.prepare(make_history("openai", 9)))
        usages.append({"input_tokens": sent[1].diagnostics.after, "output_tokens": 7})
        one.record(usages[1])
        assert one.settle() is None
    events = list(store.events("s"))
    calls = [8, 9] if is_last else [8, 9, 10]
    assert turns(events) == list(range(1, calls[-1]))
    assert [event.call for event in events if isinstance(event, RequestSent)] == [1, 2, 3, 4, 5, 6, 7, 8, *calls]
    reported = {event.call: event.usage for event in events if isinstance(event, UsageReported)}
    assert [reported[call].sent_prompt for call in calls[1:]] == [usage["input_tokens"] for usage in usages]
    views = [each.prepare(make_history("openai", calls[-1])) for each in (one, two, three)]
    assert {dumped(view) for view in views} == {dumped(views[0])}
    assert hidden(again).items() <= hidden(views[0]).items()
    assert {view.diagnostics.anchor for view in views} == {0}
    assert {view.diagnostics.costs for view in views} == {views[0].diagnostics.costs}


@given(
    rounds=st.lists(
        st.tuples(
            st.integers(0, 1),  # who serves the call; the other one is asked for the one before again
            st.sampled_from(["after", "after", "before", ""]),  # when that is: after or before the call, or never
            st.booleans(),  # whether the other one writes last
            st.sampled_from([1000.0, 1.0]),  # seconds between the two
            st.booleans(),  # whether the provider's usage is recorded
            st.sampled_from(["", "3 steps left"]),  # words of the user that do not stay
        ),
        min_size=4,
        max_size=14,
    ),
    shape=st.sampled_from(list(SHAPES)),
    strategy=st.sampled_from([STRATEGIES[1], *STRATEGIES, "masking(window=1)"]),
)
def test_calls_that_are_made_again_elsewhere_lose_no_turn(rounds: list[Any], shape: str, strategy: str) -> None:
    """Once a call is stored, each turn is in the log, and once; each decision has its request; all go on alike."""
    now = [0.0]
    store = MemoryStore()
    two = [manager(store, strategy, clock=lambda: now[0]) for _ in range(2)]
    calls: list[list[Any]] = []
    for steps, (who, repeats, is_late, waits, records, reminder) in enumerate(rounds):
        calls.append(grown(shape, [120] * steps, reminder if steps > 2 else ""))
        serving, other = (two[who], two[1 - who]) if steps > 2 else (two[0], two[0])
        asked = {"before": [(other, steps - 1), (serving, steps)], "after": [(serving, steps), (other, steps - 1)]}
        view = None
        for context, end in asked.get(repeats if steps > 2 else "", [(serving, steps)]):
            now[0] += waits if context is other else 1.0
            made = context.prepare(calls[end])
            view = made if context is serving else view
        assert view is not None
        for context in (serving, other) if is_late else (other, serving):
            assert context.settle() is None
        # A call before one that hid something, and so is stored already, is an undo.
        events = list(store.events(view.diagnostics.branch))
        assert turns(events) == list(range(1, steps + 1))
        for event, after in pairwise([*events, None]):
            assert not isinstance(event, PassDecided) or (isinstance(after, RequestSent) and after.call == event.call)
        if records:
            serving.record({"input_tokens": view.diagnostics.after, "output_tokens": 50})
            assert serving.settle() is None
    views: dict[str, str] = {}
    for each in (*two, manager(store, strategy, clock=lambda: now[0])):
        view = each.prepare(make_history(shape, len(rounds)))
        assert views.setdefault(view.diagnostics.branch, dumped(view)) == dumped(view)


def test_another_ending_of_a_result_that_another_process_cut_is_a_fork() -> None:
    """What is hidden stays as it is, so the newest turn is not replaced any more; the next call brings it."""
    store = MemoryStore()
    one = manager(store)
    for steps in range(8):
        one.prepare(make_history("openai", steps))
        one.settle()
    messages = [*make_history("openai", 6), *SHAPES["openai"](7, f"{LONG}\nend")]
    assert one.prepare(messages).diagnostics.history == "amended"
    cut = PassDecided(8, "over budget", (Edit((7, 1), "clip", "7"),))
    store.append("s", [cut, RequestSent(call=8, tokens=9)], after=store.length("s"), at=0.0)
    assert one.settle() is None
    assert list(store.events("s"))[-2:] == [cut, RequestSent(call=8, tokens=9)]
    view = one.prepare([*messages, *SHAPES["openai"](8)])
    assert one.settle() is None
    assert view.diagnostics.branch == "s~2"
    assert turns(list(store.events("s~2"))) == [1, 2, 3, 4, 5, 6, 7, 8]


class Interrupted(MemoryStore):
    """Another process writes just before a write of a decision that hides something."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupt: Callable[[], object] | None = None

    def append(self, session: str, events: Sequence[Event], **given: Any) -> Any:
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            interrupt()
        return super().append(session, events, **given)


def test_a_note_before_a_pass_is_written_makes_it_again() -> None:
    """What was not sent is decided anew, with the note, and stands in the log once."""
    store = Interrupted()
    one, two = manager(store), manager(store)
    for steps in range(8):
        view = one.prepare(make_history("openai", steps))
        one.settle()
    two.prepare(make_history("openai", 7))
    two.settle()

    def write_note() -> None:
        one.record({"input_tokens": view.diagnostics.after, "output_tokens": 7})
        assert one.settle() is None

    store.interrupt = write_note
    two.prepare(make_history("openai", 8))
    assert store.interrupt is None
    assert two.settle() is None
    events = list(store.events("s"))
    assert turns(events) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [event.call for event in events if isinstance(event, UsageReported)] == [8]
    # Both asked for the eighth call.
    for kind in (PassDecided, RequestSent):
        assert [event.call for event in events if isinstance(event, kind)] == [1, 2, 3, 4, 5, 6, 7, 8, 8, 9]


def test_the_head_is_that_of_the_newest_request() -> None:
    """A process whose head another one replaced sets its own again with its next request."""
    store = MemoryStore()
    one, two = manager(store), manager(store)
    for steps, (context, system) in enumerate([(one, "long"), (one, "long"), (two, "short"), (one, "long")]):
        context.prepare(make_history("anthropic", steps), system=system * 100)
        assert context.settle() is None
    heads = [str(event.head.messages) for event in store.events("s") if isinstance(event, HeadSet)]
    assert ["long" in head for head in heads] == [True, False, True]


def test_two_agents_that_begin_alike_part_where_they_differ() -> None:
    """A log that another agent went on with another way is no reason to mix them: the second is a fork."""
    store = MemoryStore()
    one = manager(store)
    for steps in range(3):
        one.prepare(make_history("openai", steps))
    one.settle()
    two = manager(store)
    two.prepare(make_history("openai", 2))
    two.settle()
    left, right = ([*make_history("openai", 2), *SHAPES["openai"](step)] for step in (10, 20))
    first, second = one.prepare(left), two.prepare(right)
    for each in (one, two):
        assert each.settle() is None
    left, right = ([*side, *SHAPES["openai"](step)] for side, step in ((left, 11), (right, 21)))
    first, second = one.prepare(left), two.prepare(right)
    assert {first.diagnostics.branch, second.diagnostics.branch} == {"s", "s~2"}
    assert "f20.py" not in dumped(first)
    assert "f10.py" not in dumped(second)
    for each in (one, two):
        assert each.settle() is None
    assert [turns(list(store.events(key))) for key in ("s", "s~2")] == [[1, 2, 3, 4], [1, 2, 3, 4]]


def test_a_branch_that_another_process_went_on_with_is_taken_up() -> None:
    """Who forked the history somewhere else is followed there, not held to the branch at hand."""
    store = MemoryStore()
    one, two = manager(store), manager(store)
    for steps in range(7):
        one.prepare(make_history("openai", steps))
    one.settle()
    other = [*make_history("openai", 3), *SHAPES["openai"](30)]
    assert two.prepare(other).diagnostics.branch == "s~2"
    two.settle()
    other = [*other, *SHAPES["openai"](31)]
    view = one.prepare(other)
    assert (view.diagnostics.branch, view.diagnostics.turns) == ("s~2", 5)
    one.settle()
    again = two.prepare(other)
    assert (again.diagnostics.branch, dumped(again)) == ("s~2", dumped(view))


def test_a_first_call_and_a_second_in_two_processes() -> None:
    """A session without turns cannot be found; from the second turn on all of them go on with the same one."""
    store = MemoryStore()
    one, two = manager(store, session=""), manager(store, session="")
    one.prepare(make_history("openai", 0))
    one.settle()
    branch = two.prepare(make_history("openai", 1)).diagnostics.branch
    two.settle()
    for steps in range(2, 7):
        context = (one, two)[steps % 2]
        assert context.prepare(make_history("openai", steps)).diagnostics.branch == branch
        context.settle()


class ForgettingStore(MemoryStore):
    """Another process deletes a session as soon as this one found it."""

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        found = super().locate(family, nodes)
        if found:
            self.delete(found[0])
        return found


@pytest.mark.parametrize("session", ["s", "t"])
def test_a_session_may_be_deleted_between_the_search_and_the_first_read(session: str) -> None:
    store = ForgettingStore()
    elsewhere = [*make_history("openai", 3), {"role": "assistant", "content": "elsewhere"}]
    with manager(store) as first, manager(store, session=session) as second:
        first.prepare(make_history("openai", 6))
        for context, messages in [(second, elsewhere), (first, elsewhere), (second, make_history("openai", 5))]:
            kinds = {fault.kind for fault in context.prepare(messages).diagnostics.faults}
            # Whoever still has the session finds it shorter than it was, which is a fault of the store.
            assert kinds <= {"store"}


def test_a_session_that_was_deleted_begins_again() -> None:
    """Its messages say what it was; the request does not wait for that, nor does anything fail."""
    store = MemoryStore()
    context = manager(store)
    for steps in range(4):
        context.prepare(make_history("openai", steps))
    context.settle()
    store.delete("s")
    view = context.prepare(make_history("openai", 4))
    assert (view.diagnostics.faults, view.diagnostics.turns) == ((), 4)
    context.settle()
    assert turns(list(store.events(view.diagnostics.branch))) == [1, 2, 3, 4]


class Hasty(MemoryStore):
    """Another writer is always faster."""

    def append(self, session: str, events: Any, *, after: int, at: float, batch: bytes = b"") -> int:
        if after:
            super().append(session, [UsageReported(call=1, usage=events_usage())], after=after, at=at)
        return super().append(session, events, after=after, at=at, batch=batch)


def events_usage() -> Any:
    from elision.trajectory.usage import Usage

    return Usage(input=1, output=1)


def test_a_conflict_that_persists_is_told() -> None:
    """Three tries, then the caller hears of it; what he prepares next goes on behind it."""
    store = Hasty()
    context = manager(store, write_behind=False)
    context.prepare(make_history("openai", 0))
    with pytest.raises(ConflictError):
        context.prepare(make_history("openai", 1))


KINDS = ["memory", "sqlite", "postgresql"]


@pytest.fixture(params=KINDS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens one store as often as it is asked to, as several processes would."""
    url = STORES[request.param](tmp_path)
    opened: list[Store] = [open_store(url)]

    def again() -> Store:
        if request.param != "memory":
            opened.append(open_store(url))
        return opened[-1]

    yield again
    for each in opened:
        each.close()


def test_at_the_same_time(opener: Callable[[], Store]) -> None:
    """Three that prepare each call of a history at once: no turn is lost or doubled, and what one of them was shown
    hidden is hidden, to the byte, in every view that is asked for later."""
    seen: list[tuple[int, dict[str, str]]] = []
    failed: list[BaseException] = []
    together = threading.Barrier(3, timeout=60)
    last = 12

    def serve(store: Store, late: bool) -> None:
        context = manager(store, "masking(window=2, schedule=every-turn, fold=false)")
        try:
            for steps in range(3, last):
                together.wait()
                # One of them writes while the others are at the next call already.
                assert not late or context.settle() is None
                view = context.prepare(make_history("openai", steps))
                seen.append((steps, hidden(view)))
                context.record({"input_tokens": 500, "output_tokens": 5})
                assert late or context.settle() is None
        except BaseException as error:  # noqa: BLE001 - told below, by the test's own thread
            failed.append(error)
            together.abort()

    first = manager(opener())
    for steps in range(3):
        first.prepare(make_history("openai", steps))
        assert first.settle() is None
    threads = [threading.Thread(target=serve, args=(opener(), number == 0)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed
    store = opener()
    assert [info.key for info in store.sessions()] == ["s"]
    assert turns(list(store.events("s"))) == list(range(1, last))
    for steps, before in seen:
        for later, after in seen:
            assert later <= steps or before.items() <= after.items()
    assert max(len(each) for _, each in seen) > 7


def hidden(view: ContextView) -> dict[str, str]:
    results = (message for message in view.messages if message["role"] == "tool")
    return {each["tool_call_id"]: each["content"] for each in results if "tokens hidden" in each["content"]}
