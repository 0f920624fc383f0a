"""Whatever fails, the agent's request goes out, nothing is lost, and the diagnostics say what failed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from lacuna.errors import BudgetError, DialectError, StoreError, SummaryError
from lacuna.manager import ContextManager, ContextView
from lacuna.stores.memory import MemoryStore
from lacuna.stores.store import NewSession
from lacuna.summarizers.written import Written
from lacuna.trajectory.events import Event
from lacuna.trajectory.plan import SummaryRequest

from .agents import LONG, history

EAGER = "masking(window=2, schedule=every-turn)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"


class Failing(MemoryStore):
    """A store that fails while it is told to, as a full disk, a lock or a lost connection does."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.refused = 0

    def create(self, session: NewSession) -> None:
        self._check()
        super().create(session)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float) -> int:
        self._check()
        return super().append(session, events, after=after, at=at)

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        self._check()
        return super().locate(family, nodes)

    def _check(self) -> None:
        if self.down:
            self.refused += 1
            raise StoreError("the disk is full: free some space")


def manager(strategy: str = EAGER, **options: Any) -> ContextManager:
    return ContextManager(strategy, session="s", cache_control="client", **options)


def kinds(view: ContextView) -> set[str]:
    return {fault.kind for fault in view.diagnostics.faults}


# -- the store ------------------------------------------------------------------------------------------------------


def test_while_the_store_fails_nothing_more_is_hidden() -> None:
    """The view stays as it was decided, what is new is verbatim, and the fault is told at every call."""
    store = Failing()
    context = manager(store=store)
    views = [context.prepare(history("openai", steps)) for steps in range(6)]
    hidden = [message for message in views[-1].messages if "hidden" in str(message.get("content"))]
    store.down = True
    for steps in range(6, 9):
        messages = history("openai", steps)
        view = context.prepare(messages)
        assert view.messages[: len(views[-1].messages)] == views[-1].messages
        assert view.messages[len(views[-1].messages) :] == messages[len(views[-1].messages) :]
        assert kinds(view) == {"store"}
        assert "free some space" in view.diagnostics.faults[0].what
        assert view.diagnostics.reason == "held: nothing more is hidden while the store fails"
    assert len(hidden) == 3


def test_once_the_store_serves_again_everything_is_in_it() -> None:
    """Turns that could not be written are written then, in order, and hiding goes on."""
    store = Failing()
    context = manager(store=store)
    for steps in range(10):
        store.down = 3 <= steps < 7
        view = context.prepare(history("openai", steps))
    assert not view.diagnostics.faults
    assert [turn.index for turn in store.turns("s")] == list(range(1, 10))
    assert store.refused == 4
    assert "9\n" in store.turns("s")[-1].observations[0].text
    assert sum("tokens hidden" in str(message.get("content")) for message in view.messages) == 7
    again = manager(store=store).prepare(history("openai", 9))
    assert json.dumps(again.messages) == json.dumps(view.messages)


def test_a_store_that_fails_from_the_start() -> None:
    """The first request goes out too; once the store serves, the session is there from its first turn."""
    store = Failing()
    store.down = True
    context = manager(store=store)
    assert kinds(context.prepare(history("openai", 3))) == {"store"}
    store.down = False
    context.prepare(history("openai", 4))
    assert [turn.index for turn in store.turns("s")] == [1, 2, 3, 4]


def test_a_fork_while_the_store_fails() -> None:
    """A history that turns back is found in memory where the store does not answer."""
    store = Failing()
    context = manager(store=store)
    for steps in range(6):
        context.prepare(history("openai", steps))
    store.down = True
    view = context.prepare(history("openai", 3))
    assert view.diagnostics.turns == 3
    store.down = False
    context.prepare([*history("openai", 3), {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}])
    assert {info.key for info in store.sessions()} == {"s", "s~2"}


def test_a_summary_is_not_asked_for_before_its_turns_are_stored() -> None:
    """Raw first: where the store fails at that point, the summarizer is never called."""
    store, asked = Failing(), []

    def write(request: SummaryRequest) -> str:
        asked.append(request)
        return "Everything went well."

    context = manager(FOLDING, store=store, summarizer=write)
    for steps in range(5):
        context.prepare(history("openai", steps))
    store.down = True
    context.prepare(history("openai", 9))
    assert asked == []


# -- the summarizer -------------------------------------------------------------------------------------------------

ANSWERS: dict[str, Any] = {
    "an error": SummaryError("429 too many requests", cause="rate-limited"),
    "a bug": ZeroDivisionError("oops"),
    "nothing": "",
    "no text": 42,
    "10 MB": "word " * 2_000_000,
    "longer than its input": LONG * 40,
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_summaries_that_fail(answer: Any) -> None:
    """The view is as it was, the request goes out, the failure is counted and explained, and asking backs off."""
    asked = []

    def write(request: SummaryRequest) -> Any:
        asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer

    context, faults = manager(FOLDING, summarizer=write), []
    for steps in range(30):
        view = context.prepare(history("openai", steps))
        faults += [fault for fault in view.diagnostics.faults if fault.kind == "summarizer"]
        assert view.diagnostics.summarized is None
        assert view.diagnostics.turns == steps
    assert len(asked) == len(faults) == 3
    assert all(fault.what for fault in faults)


def test_a_summarizer_that_never_answers() -> None:
    """The time limit ends the waiting; the agent goes on."""
    block = threading.Event()

    def write(request: SummaryRequest) -> str:
        block.wait()
        return "too late"

    context = manager(FOLDING, summarizer=write, summary_seconds=0.05)
    view = context.prepare(history("openai", 12))
    assert [fault.cause for fault in view.diagnostics.faults] == ["timeout"]
    block.set()
    context.close()


def test_in_the_background_the_agent_goes_on() -> None:
    """While a summary is written passes go on without; once there it is swapped in, for the turns it was asked."""
    ready, begun = threading.Event(), threading.Event()

    def write(request: SummaryRequest) -> Written:
        begun.set()
        ready.wait()
        return Written(text="Eight files were read; f3.py has line 117: value 114309.", input=900, output=20, usd=0.5)

    context = manager(FOLDING, summarizer=write, background=True)
    for steps in range(10):
        view = context.prepare(history("openai", steps))
        assert view.diagnostics.summarized is None
    assert begun.wait(5)
    assert "being written" in view.diagnostics.reason
    ready.set()
    written = context._scribe._job
    assert written is not None
    written.future.result(5)
    view = context.prepare(history("openai", 11))
    assert view.diagnostics.summarized is not None
    assert view.diagnostics.summarized.last == 4
    assert view.diagnostics.costs.summarizer == pytest.approx(0.5)
    assert "Eight files were read" in json.dumps(view.messages)
    context.close()


# -- us -------------------------------------------------------------------------------------------------------------


def test_a_bug_of_ours_lets_the_request_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages go out as they came, the failure is told, and the next pass begins from the store."""
    context = manager(store=MemoryStore())
    for steps in range(5):
        context.prepare(history("openai", steps))
    messages = history("openai", 5)
    with monkeypatch.context() as patch:
        patch.setattr("lacuna.engine.Session.prepare", lambda *_: 1 / 0)
        view = context.prepare(messages)
    assert view.messages == messages
    assert kinds(view) == {"engine"}
    view = context.prepare(history("openai", 6))
    assert not view.diagnostics.faults
    assert view.diagnostics.turns == 6


def test_an_extractor_of_the_user_s_that_fails() -> None:
    """What it raises is a fault, and not the agent's."""

    def broken(*_: object) -> Any:
        raise KeyError("mine")

    context = manager(extractors={"bash": broken})
    for steps in range(5):
        view = context.prepare(history("openai", steps))
    assert view.messages == history("openai", 4)
    assert kinds(view) == {"engine"}


def test_a_listener_that_fails_stops_nobody() -> None:
    """The others are told, and the view comes out."""
    told: list[Any] = []

    def broken(_: object) -> None:
        raise KeyError("mine")

    context = manager(on_event=[broken, told.append])
    view = context.prepare(history("openai", 1))
    assert told == [view.diagnostics]


def test_what_fits_nowhere_is_told() -> None:
    """A budget below the floor is the caller's to know, with the numbers."""
    context = manager(token_budget=1_400, reserved_for_response=0)
    with pytest.raises(BudgetError) as caught:
        context.prepare(history("openai", 1, "word " * 3_000))
    assert caught.value.needed > caught.value.usable


def test_an_odd_usage_report_blocks_nobody() -> None:
    """A total that no window holds is not believed; one that is far off leaves room to work in."""
    for prompt in (250_000, 190_000):
        context = ContextManager(EAGER, session="s", model="claude-sonnet-4-5", store=MemoryStore())
        context.prepare(history("openai", 1))
        context.record({"input_tokens": prompt, "output_tokens": 5})
        view = context.prepare(history("openai", 2))
        assert view.messages == history("openai", 2)
        assert view.diagnostics.anchor == (0 if prompt > 200_000 else pytest.approx(190_000, abs=2_000))


def test_what_is_no_message_is_told() -> None:
    """The error names the place."""
    with pytest.raises(DialectError, match=r"messages\[1\]"):
        manager().prepare([{"role": "user", "content": "hi"}, 7])


def test_a_prompt_that_was_too_long_teaches_the_window() -> None:
    """What the provider's refusal says is the model's window from then on, in this process and the next."""
    store = MemoryStore()
    context = manager(store=store, strategy="masking(window=9)")
    for steps in range(12):
        view = context.prepare(history("openai", steps))
    assert not context.overflowed(ValueError("no such model"))
    assert context.overflowed(ValueError("prompt is too long: 21000 tokens > 6000 maximum"))
    again = context.prepare(history("openai", 11))
    assert again.diagnostics.after <= 6_000 * 0.85 - 1_000 < view.diagnostics.after
    context.close()
    fresh = ContextManager("masking(window=9)", store=store, session="s")
    assert fresh.prepare(history("openai", 12)).diagnostics.after <= 6_000 * 0.85 - 1_000


def test_async_is_the_same() -> None:
    """The async door gives what the sync one gives; summarizers may be coroutines; a slow one blocks no other task."""

    async def write(request: SummaryRequest) -> str:
        await asyncio.sleep(0)
        return f"{len(request.turns)} files were read; line 117: value 114309."

    def write_sync(request: SummaryRequest) -> str:
        return f"{len(request.turns)} files were read; line 117: value 114309."

    async def run() -> list[str]:
        async with manager(FOLDING, summarizer=write) as context:
            return [json.dumps((await context.prepare_async(history("openai", steps))).messages) for steps in range(12)]

    with manager(FOLDING, summarizer=write_sync) as context:
        expected = [json.dumps(context.prepare(history("openai", steps)).messages) for steps in range(12)]
        assert context.prepare(history("openai", 12)).diagnostics.summaries
    assert asyncio.run(run()) == expected
    with manager(FOLDING, summarizer=write) as mixed:
        assert [json.dumps(mixed.prepare(history("openai", steps)).messages) for steps in range(12)] == expected
