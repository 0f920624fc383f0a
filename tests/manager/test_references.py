"""What a session leaves behind in memory: nothing that only a look for garbage would find."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from elision import ContextManager
from elision.stores.memory import MemoryStore
from tests.manager.agents import make_history
from tests.soak import pair_cases

STRATEGIES = ["masking(window=1, schedule=every-turn)", "hybrid(window=1, summarize_at=4, tail=2, schedule=every-turn)"]


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """What only a look for garbage finds, from now on; it is emptied at the end."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


def work(strategy: str, *, is_async: bool) -> None:
    """Lead a session through masks, a summary and a recall, and close it."""
    context = ContextManager(strategy, model="gpt-4.1", store=MemoryStore(), recall="caller")
    for steps in range(9):
        messages = make_history("openai", steps)
        view = asyncio.run(context.prepare_async(messages)) if is_async else context.prepare(messages)
    assert view.diagnostics.savings.masked or view.diagnostics.summaries
    context.handle_tool_call("elision_recall", {"handle": "t1.1"})
    context.close()


@pytest.mark.parametrize(("strategy", "is_async"), pair_cases(STRATEGIES, [False, True]))
def test_a_session_that_is_let_go_is_freed_at_once(garbage: list[object], strategy: str, is_async: bool) -> None:
    """Nothing of a session refers back to what holds it: a gateway that drops one has its memory back without a full
    look for garbage, during which nobody is served."""
    work(strategy, is_async=is_async)
    gc.collect()
    assert [each for each in garbage if type(each).__module__.startswith("elision")] == []
