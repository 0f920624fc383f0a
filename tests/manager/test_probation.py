"""A summary on probation in a live session: any door, any process, and histories that turn back."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from elision.stores.store_urls import open_store
from tests.manager.agents import make_history

STRATEGY = "summarization(every=4, tail=2, schedule=every-turn, summary_max_tokens=400, probation=3)"
#: Steps after which the first summary is due, and after which it is taken.
DUE = 6
TAKEN = DUE + 3


def open_context(store: Any, strategy: str = STRATEGY, **options: Any) -> ContextManager:
    return ContextManager(strategy, store=store, session="s", cache_control="client", **options)


def walk(context: ContextManager, first: int, last: int) -> list[Any]:
    """The views after `first` ... `last` steps."""
    return [context.prepare(make_history("openai", steps)) for steps in range(first, last + 1)]


def is_summarized(view: Any) -> bool:
    return "[Record of turns 1-" in str(view.messages)


def test_the_view_is_whole_until_the_probation_is_over() -> None:
    """Calls say that a summary is held; the fourth one has it."""
    context = open_context(MemoryStore())
    views = walk(context, 0, TAKEN)
    assert [steps for steps, view in enumerate(views) if is_summarized(view)] == [TAKEN]
    reasons = [view.diagnostics.reason for view in views[DUE:]]
    assert reasons == ["summary on probation"] * 3 + ["probation over"]
    (summary,) = context.summaries()
    assert summary.covers_turns == (1, 4)


def test_a_turn_that_is_taken_back_takes_the_summary_along() -> None:
    """Before the call that asked for it there was no summary; a fork writes its own."""
    context = open_context(MemoryStore())
    walk(context, 0, DUE + 1)
    views = walk(context, DUE - 1, TAKEN)
    assert views[0].diagnostics.history == "undo"
    assert not any(map(is_summarized, views[:-1]))
    assert is_summarized(views[-1])
    fork = [*make_history("openai", DUE - 2), *make_history("openai", DUE + 9)[2 * (DUE + 4) + 1 :]]
    view = context.prepare(fork)
    assert view.diagnostics.history == "fork"
    assert not is_summarized(view)


def test_another_process_takes_the_same_summary(tmp_path: Path) -> None:
    """The draft is stored with the call that paid for it: a process that continues sends the same bytes."""
    alone = walk(open_context(MemoryStore()), 0, TAKEN)[-1]
    for last in range(DUE, TAKEN):
        store = open_store(f"sqlite:///{tmp_path / str(last)}.db")
        with open_context(store) as first:
            walk(first, 0, last)
        with open_context(store) as second:
            view = walk(second, last + 1, TAKEN)[-1]
            assert view.messages == alone.messages
            assert len(second.summaries()) == 1


def test_a_model_in_the_background_changes_no_byte() -> None:
    """What takes less time than the probation is there when it is over, whichever driver asked for it."""

    def write(request: Any) -> str:
        return f"The agent read {len(request.turns)} files with line 117: value 114309, such as f3.py and f4.py."

    async def write_async(request: Any) -> str:
        return write(request)

    async def run() -> Any:
        async with open_context(MemoryStore(), summarizer=write_async) as context:
            for steps in range(TAKEN + 2):
                view = await context.prepare_async(make_history("openai", steps))
                await asyncio.to_thread(wait_for_writers, others)
            return view

    others = set(threading.enumerate())
    with open_context(MemoryStore(), summarizer=write) as context:
        for steps in range(TAKEN + 2):
            view = context.prepare(make_history("openai", steps))
            assert is_summarized(view) == (steps >= TAKEN)
            wait_for_writers(others)
    assert asyncio.run(run()).messages == view.messages


def wait_for_writers(others: set[threading.Thread]) -> None:
    """Return when no thread writes a summary, but for `others`: some tests leave one that never ends."""
    for thread in set(threading.enumerate()) - others:
        if thread.name == "elision-summary":
            thread.join()
