"""`on_fault="raise"`: what is passed over in production reaches whoever develops with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from elision import Advanced
from elision.errors import CallbackError, StoreError, SummaryError
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.telemetry.diagnostics import Diagnostics
from elision.trajectory.events import Event
from elision.trajectory.plan import SummaryRequest
from tests.manager.agents import make_history

EAGER = "masking(window=1, schedule=every-turn)"


class Failing(MemoryStore):
    """A store whose writes fail with `error` while there is one."""

    error: Exception | None = None

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        if self.error is not None:
            raise self.error
        return super().create_with_events(session, events, at=at, batch=batch)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        if self.error is not None:
            raise self.error
        return super().append(session, events, after=after, at=at, batch=batch)


def fail(*_: Any) -> Any:
    raise ZeroDivisionError("a bug")


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), StoreError("the disk is full")])
def test_a_pass_that_fails_raises(error: Exception) -> None:
    """Our own bug or a store that fails; once it serves, the same messages are prepared and things are hidden."""
    store = Failing()
    context = ContextManager(EAGER, session="s", store=store, advanced=Advanced(on_fault="raise"))
    context.prepare(make_history("openai", 1))
    store.error = error
    with pytest.raises(type(error), match=str(error)):
        context.prepare(make_history("openai", 4))
    store.error = None
    told = context.prepare(make_history("openai", 4)).diagnostics
    assert (told.turns, told.savings.masked, told.faults) == (4, 3, ())


def test_the_same_in_a_loop_by_hand() -> None:
    """What was added stays, and the next view has it."""
    store = Failing()
    context = ContextManager(EAGER, session="s", store=store, advanced=Advanced(on_fault="raise"))
    for step in range(3):
        context.turns.add(action="ls", observation=f"{step} " + "file.py " * 200)
    store.error = StoreError("the disk is full")
    with pytest.raises(StoreError):
        context.turns.view()
    store.error = None
    assert context.turns.view().diagnostics.savings.masked == 2


@pytest.mark.parametrize("options", [{"pin": fail}, {"extractors": {"*": fail}}], ids=["pin", "extractor"])
def test_a_callback_that_fails_raises(options: dict[str, Any]) -> None:
    """With its own error as the cause."""
    context = ContextManager(
        EAGER, store="memory:", **gather_options({"advanced": Advanced(on_fault="raise"), **options})
    )
    with pytest.raises(CallbackError) as told:
        context.prepare(make_history("openai", 4))
    assert isinstance(told.value.__cause__, ZeroDivisionError)


def test_a_listener_that_fails_raises() -> None:
    """The pass is done by then, and stored."""
    told: list[Diagnostics] = []
    with ContextManager(
        EAGER, store="memory:", on_event=[told.append, fail], advanced=Advanced(on_fault="raise")
    ) as context:
        with pytest.raises(ZeroDivisionError):
            context.prepare(make_history("openai", 4))
        assert told[0].savings.masked == 3


def test_what_was_asked_for_is_no_failure() -> None:
    """A summary that fails is tried again, and a view over its budget is sent where that was said."""

    def refuse(request: SummaryRequest) -> str:
        raise SummaryError("not now")

    options: dict[str, Any] = {"summarizer": refuse, "on_fault": "raise", "over_budget": "send"}
    with ContextManager(
        "summarization(every=2, tail=1, schedule=every-turn)", store="memory:", **gather_options(options)
    ) as context:
        told = [context.prepare(make_history("openai", steps)).diagnostics for steps in range(6)]
    assert [fault.kind for each in told for fault in each.faults][:1] == ["summarizer"]
    with ContextManager(
        store="memory:",
        token_budget=1_500,
        advanced=Advanced(on_fault="raise", over_budget="send"),
    ) as context:
        view = context.prepare([{"role": "user", "content": "Count. " * 3_000}])
    assert [fault.kind for fault in view.diagnostics.faults] == ["budget"]
