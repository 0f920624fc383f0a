"""`context.call`: prepared by the block, recorded as the call that it is, sent once more where it was too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from elision.errors import DialectError, ElisionError
from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from elision.trajectory.events import UsageReported
from tests.manager.agents import make_history, make_openai_step

EAGER = "masking(window=2, schedule=every-turn, fold=false)"
TOO_LONG = "prompt is too long: 9000 tokens > 6000 maximum"
TOO_LONG_UNKNOWN = "This model's maximum context length was exceeded (context_length_exceeded)."


def usage(output: int) -> dict[str, int]:
    return {"prompt_tokens": 700, "completion_tokens": output}


def list_reported(store: MemoryStore, key: str) -> list[tuple[int, int]]:
    """(call, output tokens) of the usage in a session's log."""
    return [(event.call, event.usage.output) for event in store.events(key) if isinstance(event, UsageReported)]


def test_a_call_is_prepared_and_recorded() -> None:
    """The view is that of `prepare`, and the usage is billed to its call."""
    messages = make_history("openai", 6)
    with ContextManager(EAGER, store="memory:") as context:
        with context.call(messages, model="gpt-5") as call:
            assert call.view.messages == ContextManager(EAGER, store="memory:").prepare(messages).messages
            assert context.session.awaits_response
            call.record(usage(30))
        assert not context.session.awaits_response
        view = context.prepare(make_history("openai", 7))
        assert view.diagnostics.costs.billed is not None


def test_async() -> None:
    """The twin, for an event loop."""

    async def work(context: ContextManager) -> Any:
        async with context.call(make_history("openai", 6)) as call:
            call.record(usage(30))
            return call.view

    with ContextManager(EAGER, store="memory:") as context:
        assert asyncio.run(work(context)).diagnostics.savings.masked == 4


def test_usage_hits_its_call_where_calls_overlap() -> None:
    """The answer to the first of two calls comes last."""
    store = MemoryStore()
    with ContextManager(EAGER, store=store, session="s") as context:
        with context.call(make_history("openai", 3)) as first, context.call(make_history("openai", 4)) as second:
            second.record(usage(22))
            first.record(usage(11))
        numbers = {output: number for number, output in list_later(context, store)}
        assert numbers[22] == numbers[11] + 1


def list_later(context: ContextManager, store: MemoryStore) -> list[tuple[int, int]]:
    assert context.settle() is None
    return list_reported(store, "s")


@pytest.mark.parametrize("in_loop", [False, True])
def test_usage_hits_its_branch_where_histories_alternate(in_loop: bool) -> None:
    """Two agents in one context manager: what comes after its history was left is stored with its own log."""
    store = MemoryStore()
    context = ContextManager(EAGER, store=store, session="s")
    other = [*make_history("openai", 1), *make_openai_step(7), *make_openai_step(8)]

    async def work() -> None:
        async with context.call(make_history("openai", 3)) as first, context.call(other) as second:
            first.record(usage(11))
            second.record(usage(22))

    if in_loop:
        asyncio.run(work())
    else:
        with context.call(make_history("openai", 3)) as first, context.call(other) as second:
            first.record(usage(11))
            second.record(usage(22))
    view = context.prepare(make_history("openai", 4))
    assert view.diagnostics.history in ("continue", "fork")
    context.close()
    assert [output for _, output in list_reported(store, "s")] == [11]
    assert [output for _, output in list_reported(store, "s~2")] == [22]
    assert not view.diagnostics.faults


def test_late_usage_is_stored_without_another_call() -> None:
    """`settle` and `close` write it."""
    store = MemoryStore()
    with ContextManager(EAGER, store=store, session="s") as context:
        with context.call(make_history("openai", 3)) as call:
            context.prepare([*make_history("openai", 1), *make_openai_step(7)])
            call.record(usage(11))
        assert context.settle() is None
        assert [output for _, output in list_reported(store, "s")] == [11]


def test_a_call_that_was_too_long_is_sent_once_more() -> None:
    """A shorter view, once; the usage is that of the second one."""
    messages = make_history("openai", 12)
    store = MemoryStore()
    with ContextManager("masking(window=10, fold=false)", store=store, session="s", model="gpt-5") as context:
        with context.call(messages) as call:
            before = call.view.diagnostics.savings.masked
            error = RuntimeError(TOO_LONG)
            assert call.retry(error)
            assert call.view.diagnostics.savings.masked > before
            assert not call.retry(error)
            call.record(usage(30))
        assert [output for _, output in list_later(context, store)] == [30]


def test_an_overflow_without_a_limit_hides_all_that_may_be_hidden() -> None:
    """The error says no number: what the schedule held back is hidden now."""
    with ContextManager("masking(window=2, fold=false)", store="memory:", model="gpt-5") as context:
        for steps in range(1, 5):
            context.prepare(make_history("openai", steps))
        with context.call(make_history("openai", 5)) as call:
            before = call.view.diagnostics.savings.masked
            assert before < 3
            assert call.retry(RuntimeError(TOO_LONG_UNKNOWN))
            assert call.view.diagnostics.savings.masked == 3


def test_async_retry() -> None:
    """The same, for an event loop."""

    async def work(context: ContextManager) -> None:
        async with context.call(make_history("openai", 12)) as call:
            before = call.view.diagnostics.savings.masked
            assert await call.retry_async(RuntimeError(TOO_LONG))
            assert call.view.diagnostics.savings.masked > before
            assert not await call.retry_async(RuntimeError(TOO_LONG))

    with ContextManager("masking(window=10, fold=false)", store="memory:", model="gpt-5") as context:
        asyncio.run(work(context))


def test_another_error_is_not_tried_again() -> None:
    """And neither is a prompt that cannot be made shorter."""
    context = ContextManager("masking(window=10, fold=false)", store="memory:", model="gpt-5")
    with context, context.call(make_history("openai", 12)) as call:
        assert not call.retry(RuntimeError("overloaded"))
        view = call.view
        assert not call.retry(RuntimeError("prompt is too long: 9000 tokens > 300 maximum"))
        assert call.view is view


def test_an_error_that_leaves_the_block_is_learned_from() -> None:
    """The next call is shorter; the error is the caller's."""
    messages = make_history("openai", 12)
    with ContextManager("masking(window=10, fold=false)", store="memory:", model="gpt-5") as context:
        with pytest.raises(RuntimeError, match="too long"), context.call(messages) as call:
            raise RuntimeError(TOO_LONG)
        assert context.prepare(messages).diagnostics.savings.masked > call.view.diagnostics.savings.masked


def test_a_call_that_could_not_be_prepared_has_no_bill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request went out as it came, and no other call is billed for it."""
    messages = make_history("openai", 3)
    with ContextManager(EAGER, store="memory:") as context:
        with monkeypatch.context() as patch:
            patch.setattr("elision.engine.event_log.Log.record_call", _fail)
            failed = context.call(messages)
            failed.__enter__()
        assert [fault.kind for fault in failed.view.diagnostics.faults] == ["engine"]
        context.prepare(messages)
        failed.record(usage(30))
        view = context.prepare(make_history("openai", 4))
        assert view.diagnostics.costs.billed is None
        assert any("while no call was prepared" in note for note in view.diagnostics.notes)


def _fail(*_: object) -> None:
    raise ZeroDivisionError("a bug")


def test_misuse_is_an_error() -> None:
    """Outside of a block there is no view; what reports no usage is refused as by `record`."""
    with ContextManager(EAGER, store="memory:") as context:
        with pytest.raises(ElisionError, match="use it in a `with`"):
            context.call(make_history("openai", 1)).view  # noqa: B018
        with context.call(make_history("openai", 1)) as call, pytest.raises(DialectError, match="reports no usage"):
            call.record("much")
        with pytest.raises(DialectError):
            context.call("much")
