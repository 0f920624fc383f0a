"""What no caller waits for is done between two calls, in order, and changes nothing that is stored or sent."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced, ContextManager
from elision.manager import prepared_calls
from elision.manager.think_time import START_SECONDS, Deferred, ThinkTime
from elision.stores.memory import MemoryStore
from elision.telemetry.diagnostics import Diagnostics
from elision.telemetry.metric_table import PassCollector
from elision.trajectory.events import UsageReported
from tests.manager.agents import make_history

EAGER = "hybrid(window=1, summarize_at=4, tail=2, schedule=every-turn)"


class HeldCollector(PassCollector):
    """Notes calls and threads, once `gate` is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.calls: list[int] = []
        self.threads: set[str] = set()

    def report_pass(self, diagnostics: Diagnostics) -> None:
        assert self.gate.wait(20)
        self.calls.append(diagnostics.call)
        self.threads.add(threading.current_thread().name)


def lead(context: ContextManager, calls: int, *, thinks: bool) -> list[Any]:
    """Return the views of the first calls. thinks: whether there is time between them for all that can be done."""
    views = []
    for steps in range(calls):
        view = context.prepare(make_history("openai", steps))
        if thinks:
            wait_for_work(context)
        context.record({"prompt_tokens": 900 + steps, "completion_tokens": 7})
        views.append((view.messages, view.tools, view.diagnostics.after, view.diagnostics.costs))
    return views


def wait_for_end(context: ContextManager) -> None:
    """Wait for the thread, whatever it raised."""
    job = context._opened.calls.think_time._job
    if job is not None and job.future is not None:
        job.future.exception(20)


def wait_for_work(context: ContextManager) -> None:
    job = context._opened.calls.think_time._job
    if job is not None and job.future is not None:
        job.future.result(20)


def test_a_view_is_returned_before_its_line_is_written() -> None:
    held = HeldCollector()
    with ContextManager("masking", store="memory:", on_event=held) as context:
        view = context.prepare(make_history("openai", 2))
        assert held.calls == []
        held.gate.set()
        wait_for_work(context)
        assert held.calls == [view.diagnostics.call]
        assert not held.threads & {threading.current_thread().name}


def test_diagnostics_are_read_while_a_line_waits() -> None:
    """A handler that is slow, or that waits for the caller, holds up nobody."""
    held = HeldCollector()
    with ContextManager("masking", store="memory:", on_event=held) as context:
        assert context.prepare(make_history("openai", 2)).diagnostics.turns == 2
        with ContextManager("masking", store="memory:") as other:
            assert other.prepare(make_history("openai", 3)).diagnostics.turns == 3
        held.gate.set()


def test_it_waits_for_nothing() -> None:
    """`record` returns while a handler has the session's log, and what it was told is there when it is read."""
    held = HeldCollector()
    with ContextManager("masking", store="memory:", on_event=held) as context:
        context.prepare(make_history("openai", 2))
        context.record({"prompt_tokens": 901, "completion_tokens": 7})
        assert context._opened.calls.think_time.is_under_way
        held.gate.set()
        assert context.settle() is None
        branch = context._opened.preparer.branch
        assert branch is not None
        assert [event.usage.input for event in branch.log.events if isinstance(event, UsageReported)] == [901]


def test_a_slow_handler_of_another_session_holds_no_loop() -> None:
    """What waits behind it in the one thread is not told on the event loop."""
    slow, other = HeldCollector(), HeldCollector()
    other.gate.set()
    history = [make_history("openai", steps) for steps in (2, 3)]

    async def call_twice() -> None:
        with (
            ContextManager("masking", store="memory:", on_event=slow) as first,
            ContextManager("masking", store="memory:", on_event=other) as second,
        ):
            await first.prepare_async(history[0])
            await second.prepare_async(history[0])
            again = asyncio.ensure_future(second.prepare_async(history[1]))
            await asyncio.sleep(0)
            slow.gate.set()
            await again
            assert other.calls[0] == 3
            assert threading.current_thread().name not in other.threads

    asyncio.run(call_twice())


def test_work_that_begins_while_it_is_ended_is_waited_for() -> None:
    """Its loop may start it just when another thread ends it."""
    think_time, ran = ThinkTime(), []
    gate = threading.Event()

    def work() -> Iterator[None]:
        assert gate.wait(20)
        ran.append("piece")
        yield

    class Loop(asyncio.AbstractEventLoop):
        def call_later(self, delay: float, callback: Any, *arguments: Any, context: Any = None) -> Any:
            self.start = callback

    loop = Loop()
    think_time.begin(lambda: ran.append("report"), work(), loop)
    job = think_time._job
    assert job is not None
    ender = threading.Thread(target=think_time.finish)
    # As it is while a thread was given the work and nobody can see that yet.
    with job._lock:
        ender.start()
        assert ran == []
    ender.join(20)
    gate.set()
    loop.start()
    assert ran == ["report"]
    assert job.future is None


def test_what_a_handler_raises_ends_no_call() -> None:
    class Exiting(PassCollector):
        def report_pass(self, diagnostics: Diagnostics) -> None:
            raise SystemExit(3)

    with ContextManager("masking", store="memory:", on_event=Exiting()) as context:
        context.prepare(make_history("openai", 2))
        job = context._opened.calls.think_time._job
        assert job is not None
        assert job.future is not None
        assert isinstance(job.future.exception(20), SystemExit)
        assert context.prepare(make_history("openai", 3)).diagnostics.turns == 3
        wait_for_end(context)


def test_functions_of_the_user_are_called_before_the_view_is_returned() -> None:
    seen: list[tuple[int, int]] = []
    with ContextManager(
        "masking", store="memory:", on_event=lambda told: seen.append((told.call, threading.get_ident()))
    ) as context:
        context.prepare(make_history("openai", 2))
        assert seen == [(3, threading.get_ident())]


@pytest.mark.parametrize("thinks", [False, True])
def test_collectors_get_every_call_in_order(thinks: bool) -> None:
    held = HeldCollector()
    held.gate.set()
    with ContextManager("masking", store="memory:", on_event=held) as context:
        lead(context, 8, thinks=thinks)
    assert held.calls == [1, 2, 3, 4, 5, 6, 7, 8]


@given(thinks=st.lists(st.booleans(), min_size=9, max_size=9))
def test_think_time_changes_no_byte(thinks: list[bool]) -> None:
    def run(waits: Iterator[bool]) -> tuple[list[Any], list[Any]]:
        store = MemoryStore()
        clock = iter(range(1_000, 9_000))
        context = ContextManager(
            EAGER, model="gpt-4.1", store=store, session="s", advanced=Advanced(clock=lambda: float(next(clock)))
        )
        views = []
        for steps in range(9):
            view = context.prepare(make_history("openai", steps))
            if next(waits):
                wait_for_work(context)
            context.record({"prompt_tokens": 900 + steps, "completion_tokens": 7})
            views.append((view.messages, view.diagnostics.after, view.diagnostics.costs, view.diagnostics.savings))
        context.close()
        return views, list(store.events("s"))

    assert run(iter(thinks)) == run(iter([False] * 9))


def test_diagnostics_read_late_are_those_of_their_call() -> None:
    with (
        ContextManager(EAGER, model="gpt-4.1", store="memory:") as late,
        ContextManager(EAGER, model="gpt-4.1", store="memory:") as early,
    ):
        kept = []
        for steps in range(9):
            messages = make_history("openai", steps)
            kept.append(late.prepare(messages))
            told = early.prepare(messages).diagnostics
            for context in (late, early):
                context.record({"prompt_tokens": 2_000 * (steps + 1), "completion_tokens": 7})
            assert kept[-1].diagnostics.costs == told.costs
        assert [view.diagnostics.turns for view in kept] == list(range(9))


def test_it_works_beside_an_event_loop() -> None:
    held = HeldCollector()
    held.gate.set()

    async def run() -> None:
        async with ContextManager(EAGER, store="memory:", on_event=held) as context:
            for steps in range(6):
                await context.prepare_async(make_history("openai", steps))

    asyncio.run(run())
    assert held.calls == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("is_small", [True, False])
def test_small_work_begins_later_beside_an_event_loop(is_small: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that comes before that does the work itself. Large work begins at once."""
    if not is_small:
        monkeypatch.setattr(prepared_calls, "INLINE_BYTES", -1)
    used_thread: list[bool] = []

    async def run() -> None:
        async with ContextManager("masking(window=1)", store="memory:") as context:
            for steps in range(4):
                await context.prepare_async(make_history("openai", steps))
                if steps:
                    job = context._opened.calls.think_time._job
                    assert job is not None
                    used_thread.append(job.future is not None)
            await asyncio.sleep(2 * START_SECONDS)
            assert job.future is not None
            assert job.future.result(20) is None

    asyncio.run(run())
    assert used_thread == [not is_small] * 3


def test_a_dropped_manager_is_freed_and_its_last_line_is_written() -> None:
    held = HeldCollector()
    held.gate.set()
    context = ContextManager("masking", store=MemoryStore(), on_event=held)
    context.prepare(make_history("openai", 2))
    wait_for_work(context)
    session = weakref.ref(context._opened.calls)
    del context
    gc.collect()
    assert held.calls == [3]
    assert session() is None


def test_pieces_end_where_the_next_call_begins() -> None:
    begun = threading.Event()
    done: list[int] = []

    def pieces() -> Iterator[None]:
        while True:
            done.append(len(done))
            begun.set()
            yield

    work = ThinkTime()
    work.begin(lambda: None, pieces())
    assert begun.wait(20)
    work.finish()
    count = len(done)
    work.begin(lambda: done.append(-1), iter(()))
    work.finish()
    assert done[count:] == [-1]


def test_pieces_end_where_their_session_is_dropped() -> None:
    begun = threading.Event()
    closed = threading.Event()

    def pieces() -> Iterator[None]:
        try:
            while True:
                begun.set()
                yield
        finally:
            closed.set()

    work = ThinkTime()
    work.begin(lambda: None, pieces())
    assert begun.wait(20)
    del work
    assert closed.wait(20)


def test_a_deferred_value_is_computed_once() -> None:
    computed: list[int] = []

    def compute() -> int:
        computed.append(1)
        return 7

    value = Deferred(compute)
    threads = [threading.Thread(target=value.read) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (value.read(), computed) == (7, [1])


def test_a_value_that_another_thread_computes_is_not_waited_for() -> None:
    begun, gate = threading.Event(), threading.Event()

    def compute() -> int:
        begun.set()
        assert gate.wait(20)
        return 7

    slow, quick = Deferred(compute), Deferred(lambda: 8)
    thread = threading.Thread(target=slow.read)
    thread.start()
    assert begun.wait(20)
    assert not slow.try_read()
    assert not quick.try_read()
    gate.set()
    thread.join()
    assert (slow.try_read(), quick.try_read()) == (True, True)
    assert (slow.read(), quick.read()) == (7, 8)


def continue_in_child(context: ContextManager, held: HeldCollector, answers: Any) -> None:
    held.gate.set()
    view = context.prepare(make_history("openai", 3))
    answers.put((view.diagnostics.turns, view.diagnostics.faults))


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
def test_a_child_that_was_forked_while_the_model_thinks_goes_on() -> None:
    held = HeldCollector()
    context = ContextManager("masking", store=MemoryStore(), on_event=held)
    context.prepare(make_history("openai", 2))
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=continue_in_child, args=(context, held, answers))
    child.start()
    child.join(20)
    assert child.exitcode == 0
    assert answers.get() == (3, ())
    held.gate.set()
    context.close()
    assert held.calls == [3]


def test_the_process_ends_with_its_last_line_and_no_thread() -> None:
    code = (
        "import logging, sys\n"
        "logging.basicConfig(stream=sys.stdout, level=logging.DEBUG, format='%(name)s')\n"
        "from elision import ContextManager\n"
        "from elision.telemetry.logs import PassLog\n"
        "context = ContextManager('masking', store='memory:', on_event=PassLog())\n"
        "context.prepare([{'role': 'user', 'content': 'Go.'}])\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.split() == ["elision.context"]
    assert ended.stderr == ""
