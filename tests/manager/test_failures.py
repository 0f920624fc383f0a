"""Whatever fails, the agent's request goes out, nothing is lost, and the diagnostics say what failed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from elision import Advanced, Cache
from elision.errors import BudgetError, DialectError, SummaryError
from elision.manager import ContextManager, ContextView
from elision.stores.memory import MemoryStore
from elision.strategies.schedules import FixedSchedule
from elision.strategies.strategy import Masking, Strategy
from elision.summarizers.factory import DigestSummarizer
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.events import Event
from elision.trajectory.plan import SummaryRequest
from tests import flat_options
from tests.manager.agents import LONG, make_history, make_openai_step
from tests.manager.stores import FailingStore

EAGER = "masking(window=2, schedule=every-turn)"
UNFOLDED = "masking(window=2, fold=false, schedule=every-turn)"
SUMMARIZING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"


Json = dict[str, Any]


def manager(strategy: str | Strategy = EAGER, **options: Any) -> ContextManager:
    return flat_options.open_context(
        strategy, session="s", **{"advanced": Advanced(cache=Cache(control="client")), **options}
    )


def kinds(view: ContextView) -> set[str]:
    return {fault.kind for fault in view.diagnostics.faults}


# -- the store ------------------------------------------------------------------------------------------------------


def test_while_the_store_fails_nothing_more_is_hidden() -> None:
    """The view stays as it was decided, what is new is verbatim, and the fault is told at every call."""
    store = FailingStore()
    context = manager(store=store)
    views = [context.prepare(make_history("openai", steps)) for steps in range(6)]
    hidden = [message for message in views[-1].messages if "hidden" in str(message.get("content"))]
    store.is_down = True
    for steps in range(6, 9):
        messages = make_history("openai", steps)
        view = context.prepare(messages)
        assert view.messages[: len(views[-1].messages)] == views[-1].messages
        assert view.messages[len(views[-1].messages) :] == messages[len(views[-1].messages) :]
        assert kinds(view) == {"store"}
        assert "free some space" in view.diagnostics.faults[0].what
        assert view.diagnostics.reason == "held: nothing more is hidden while the store fails"
    assert len(hidden) == 3


def test_once_the_store_serves_again_everything_is_in_it() -> None:
    """Turns that could not be written are written then, in order, and hiding goes on."""
    store = FailingStore()
    context = manager(store=store)
    for steps in range(10):
        store.is_down = 3 <= steps < 7
        view = context.prepare(make_history("openai", steps))
    assert not view.diagnostics.faults
    assert [turn.index for turn in store.turns("s")] == list(range(1, 10))
    assert store.refused_writes == 4
    assert "9\n" in store.turns("s")[-1].observations[0].text
    assert sum("tokens hidden" in str(message.get("content")) for message in view.messages) == 7
    again = manager(store=store).prepare(make_history("openai", 9))
    assert json.dumps(again.messages) == json.dumps(view.messages)


def test_a_store_that_fails_from_the_start() -> None:
    """The first request goes out too; once the store serves, the session is there from its first turn."""
    store = FailingStore()
    store.is_down = True
    context = manager(store=store)
    assert kinds(context.prepare(make_history("openai", 3))) == {"store"}
    store.is_down = False
    context.prepare(make_history("openai", 4))
    assert [turn.index for turn in store.turns("s")] == [1, 2, 3, 4]


def test_a_fork_while_the_store_fails() -> None:
    """A history that turns back is found in memory where the store does not answer."""
    store = FailingStore()
    context = manager(store=store)
    for steps in range(6):
        context.prepare(make_history("openai", steps))
    store.is_down = True
    view = context.prepare(make_history("openai", 3))
    assert view.diagnostics.turns == 3
    store.is_down = False
    context.prepare(
        [*make_history("openai", 3), {"role": "assistant", "content": "x"}, {"role": "user", "content": "y"}]
    )
    assert {info.key for info in store.sessions()} == {"s", "s~2"}


def test_a_summary_is_not_asked_for_before_its_turns_are_stored() -> None:
    """Raw first: where the store fails at that point, the summarizer is never called."""
    store, asked = FailingStore(), []

    def write(request: SummaryRequest) -> str:
        asked.append(request)
        return "Everything went well."

    context = manager(SUMMARIZING, store=store, summarizer=write)
    for steps in range(5):
        context.prepare(make_history("openai", steps))
    store.is_down = True
    context.prepare(make_history("openai", 9))
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

    context, faults = manager(SUMMARIZING, summarizer=write), []
    for steps in range(30):
        view = context.prepare(make_history("openai", steps))
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

    context = manager(SUMMARIZING, summarizer=write, summary_seconds=0.05)
    view = context.prepare(make_history("openai", 12))
    assert [fault.cause for fault in view.diagnostics.faults] == ["timeout"]
    block.set()
    context.close()


def test_in_the_background_the_agent_goes_on() -> None:
    """While a summary is written passes go on without; once there it is swapped in, for the turns it was asked."""
    ready, begun = threading.Event(), threading.Event()

    def write(request: SummaryRequest) -> SummaryResult:
        begun.set()
        ready.wait()
        return SummaryResult(
            text="Eight files were read; f3.py has line 117: value 114309.", input=900, output=20, usd=0.5
        )

    context = manager(SUMMARIZING, summarizer=write, background=True)
    for steps in range(10):
        view = context.prepare(make_history("openai", steps))
        assert view.diagnostics.summarized is None
    assert begun.wait(5)
    assert "being written" in view.diagnostics.reason
    ready.set()
    written = context._opened.summary_runner._job
    assert written is not None
    written.future.result(5)
    view = context.prepare(make_history("openai", 11))
    assert view.diagnostics.summarized is not None
    assert view.diagnostics.summarized.last == 4
    assert view.diagnostics.costs.summarizer == pytest.approx(0.5)
    assert "Eight files were read" in json.dumps(view.messages)
    context.close()


URGENT = "two-tier(keep_recent=3, soft=900, hard=900, summarize_min_turns=2, summary_max_tokens=120)"


@pytest.mark.parametrize("is_async", [False, True])
def test_above_hard_a_background_summary_is_waited_for(is_async: bool) -> None:
    """No view above `hard` is sent because its summary is still being written."""
    summarized = 0
    with manager(URGENT, summarizer=lambda _: "Files were read.", background=True, store=MemoryStore()) as context:
        for steps in range(20):
            messages = make_history("openai", steps)
            if is_async:
                view = asyncio.run(context.prepare_async(messages))
            else:
                view = context.prepare(messages)
            assert "being written" not in view.diagnostics.reason
            summarized += view.diagnostics.summarized is not None
    assert summarized > 1


@pytest.mark.parametrize("is_async", [False, True])
def test_in_shadow_mode_no_background_summary_is_waited_for(is_async: bool) -> None:
    """The view above `hard` is not sent: the agent goes on, and a later call has the summary."""
    finish = threading.Event()
    written = threading.Event()

    def write(request: SummaryRequest) -> str:
        finish.wait(10)
        written.set()
        return "Files were read."

    def prepare(context: ContextManager, steps: int) -> ContextView:
        messages = make_history("openai", steps)
        return asyncio.run(context.prepare_async(messages)) if is_async else context.prepare(messages)

    with manager(URGENT, summarizer=write, background=True, shadow=True, store=MemoryStore()) as context:
        view = prepare(context, 12)
        assert (view.diagnostics.reason, view.diagnostics.faults) == ("summary is being written", ())
        assert not written.is_set()
        finish.set()
        assert written.wait(10)
        views = [prepare(context, steps) for steps in range(13, 20)]
    assert any(view.diagnostics.summarized for view in views)


@pytest.mark.parametrize("is_async", [False, True])
def test_above_hard_a_summary_that_never_ends_is_given_up(is_async: bool) -> None:
    """The time limit holds where a call waits for a background summary."""
    block = threading.Event()

    def write(request: SummaryRequest) -> str:
        block.wait(10)
        raise SummaryError("too late")

    context = manager(URGENT, summarizer=write, background=True, store=MemoryStore(), summary_seconds=0.01)
    messages = make_history("openai", 12)
    view = asyncio.run(context.prepare_async(messages)) if is_async else context.prepare(messages)
    assert [fault.cause for fault in view.diagnostics.faults] == ["timeout"]
    block.set()
    context.close()


# -- us -------------------------------------------------------------------------------------------------------------


def test_a_bug_of_ours_lets_the_request_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages go out as they came, the failure is told, and the next pass begins from the store."""
    context = manager(store=MemoryStore())
    for steps in range(5):
        context.prepare(make_history("openai", steps))
    messages = make_history("openai", 5)
    with monkeypatch.context() as patch:
        patch.setattr("elision.manager.preparation.decide", lambda *_: 1 / 0)
        view = context.prepare(messages)
    assert view.messages == messages
    assert kinds(view) == {"engine"}
    view = context.prepare(make_history("openai", 6))
    assert not view.diagnostics.faults
    assert view.diagnostics.turns == 6


def failing_at(text: str) -> Callable[..., Any]:
    """A function of the user's that fails for what holds `text`, and has nothing to say of anything else."""

    def broken(*given: Any) -> Any:
        if any(text in str(each) for each in given):
            raise KeyError("mine sk-ant-" + 40 * "a")

    return broken


#: The third result; its message, and what is read of it.
THIRD = "3\\nline 0: value 0"
CALLBACKS: dict[str, dict[str, Any]] = {
    "an extractor": {"extractors": {"bash": failing_at(THIRD)}},
    "an extractor, always": {"extractors": {"*": failing_at("line 0")}},
    "pin": {"pin": failing_at(THIRD)},
    "pin, always": {"pin": failing_at("role")},
}


@pytest.mark.parametrize("options", CALLBACKS.values(), ids=CALLBACKS)
def test_a_function_of_the_user_s_that_fails_ends_nothing(options: dict[str, Any]) -> None:
    """What it raises is told, without secrets; everything is hidden as without it, and stays hidden."""
    budget = {"token_budget": 6_000, "reserved_for_response": 100}
    context, plain = manager(store="memory:", **budget, **options), manager(store="memory:", **budget)
    hidden: set[str] = set()
    faults = []
    for steps in range(30):
        view = context.prepare(make_history("openai", steps))
        assert json.dumps(view.messages) == json.dumps(plain.prepare(make_history("openai", steps)).messages)
        shown = {message["content"] for message in view.messages if "hidden" in str(message.get("content"))}
        assert hidden <= shown or view.diagnostics.summarized
        hidden = shown
        faults += view.diagnostics.faults
    assert {(fault.kind, fault.cause) for fault in faults} == {("callback", "KeyError")}
    assert "failed: KeyError: 'mine [redacted: " in faults[0].what
    assert len(faults) <= 30


def test_an_extractor_that_answers_with_something_else() -> None:
    """It counts as one that failed; the observation is described by the others."""
    context = manager(extractors={"bash": lambda *_: "words"})
    views = [context.prepare(make_history("openai", steps)) for steps in range(5)]
    assert [view.diagnostics.savings.masked for view in views] == [0, 0, 0, 1, 2]
    assert {(fault.kind, fault.cause) for fault in views[-1].diagnostics.faults} == {("callback", "TypeError")}


def test_a_listener_that_fails_stops_nobody() -> None:
    """The others are told, and the view comes out."""
    told: list[Any] = []

    def broken(_: object) -> None:
        raise KeyError("mine")

    context = manager(on_event=[broken, told.append])
    view = context.prepare(make_history("openai", 1))
    assert told == [view.diagnostics]


def test_what_fits_nowhere_is_told() -> None:
    """A budget below the floor is the caller's to know, with the numbers."""
    context = manager(EAGER.replace(")", ", budget=budget(tokens=1_400, reserved=0))"))
    with pytest.raises(BudgetError) as caught:
        context.prepare(make_history("openai", 1, "word " * 3_000))
    assert caught.value.needed > caught.value.usable


def test_an_odd_usage_report_blocks_nobody() -> None:
    """What no window holds, or no tokenizer counts, is not believed; what is far off leaves room to work in."""
    for prompt, believed in ((250_000, 0), (190_000, 0), (45_000, 45_000)):
        context = ContextManager(UNFOLDED, session="s", model="claude-sonnet-4-5", store=MemoryStore())
        context.prepare(make_history("openai", 1))
        context.record({"input_tokens": prompt, "output_tokens": 5})
        view = context.prepare(make_history("openai", 2))
        assert view.messages == make_history("openai", 2)
        assert view.diagnostics.anchor == pytest.approx(believed, abs=2_000 if believed else 0)


def test_a_prompt_that_was_too_long_teaches_the_window() -> None:
    """What the provider's refusal says is the model's window from then on, in this process and the next."""
    store = MemoryStore()
    context = manager(store=store, strategy="masking(window=9, fold=false)")
    for steps in range(12):
        view = context.prepare(make_history("openai", steps))
    assert not context.overflowed(ValueError("no such model"))
    assert context.overflowed(ValueError("prompt is too long: 21000 tokens > 6000 maximum"))
    again = context.prepare(make_history("openai", 11))
    assert again.diagnostics.after <= 6_000 * 0.85 - 1_000 < view.diagnostics.after
    context.close()
    fresh = ContextManager("masking(window=9, fold=false)", store=store, session="s")
    assert fresh.prepare(make_history("openai", 12)).diagnostics.after <= 6_000 * 0.85 - 1_000


def test_async_is_the_same() -> None:
    """The async door gives what the sync one gives; summarizers may be coroutines; a slow one blocks no other task."""

    async def write(request: SummaryRequest) -> str:
        await asyncio.sleep(0)
        return f"{len(request.turns)} files were read; line 117: value 114309."

    def write_sync(request: SummaryRequest) -> str:
        return f"{len(request.turns)} files were read; line 117: value 114309."

    async def run() -> list[str]:
        async with manager(SUMMARIZING, summarizer=write) as context:
            return [
                json.dumps((await context.prepare_async(make_history("openai", steps))).messages) for steps in range(12)
            ]

    with manager(SUMMARIZING, summarizer=write_sync) as context:
        expected = [json.dumps(context.prepare(make_history("openai", steps)).messages) for steps in range(12)]
        assert context.prepare(make_history("openai", 12)).diagnostics.summaries
    assert asyncio.run(run()) == expected
    with manager(SUMMARIZING, summarizer=write) as mixed:
        assert [json.dumps(mixed.prepare(make_history("openai", steps)).messages) for steps in range(12)] == expected


def test_a_process_that_begins_while_the_store_fails_finds_its_session() -> None:
    """What was not looked for then is looked for as soon as the store serves; nobody is told of a second writer."""
    store = FailingStore()
    with manager(store=store) as context:
        for steps in range(6):
            view = context.prepare(make_history("openai", steps))
    store.is_down = True
    again = manager(store=store)
    assert kinds(again.prepare(make_history("openai", 5))) == {"store"}
    store.is_down = False
    assert json.dumps(again.prepare(make_history("openai", 5)).messages) == json.dumps(view.messages)
    assert {info.key for info in store.sessions()} == {"s"}


def test_a_fork_of_a_fork_while_the_store_fails() -> None:
    """Branches that were never written are no parents of what is."""
    store = FailingStore()
    context = manager(store=store)
    for steps in range(6):
        context.prepare(make_history("openai", steps))
    store.is_down = True
    for words in ("x", "y"):
        said = [{"role": "assistant", "content": words}, {"role": "user", "content": words}]
        context.prepare([*make_history("openai", 4), *said])
        context.prepare([*make_history("openai", 2), *said])
    store.is_down = False
    view = context.prepare([*make_history("openai", 2), *said, *make_openai_step(9)])
    assert not view.diagnostics.faults
    assert len(store.turns(view.diagnostics.branch)) == view.diagnostics.turns == 4


def test_a_background_summary_of_another_branch_is_not_taken() -> None:
    """What was written for turns that the client undid meanwhile says nothing of those it made instead."""
    gate, asked = threading.Event(), threading.Semaphore(0)

    def write(request: SummaryRequest) -> str:
        asked.release()
        gate.wait(10)
        said = "other" if any(turn.text == "otherwise" for turn in request.turns) else "first"
        return f"CURRENT_STATE: the {said} way was gone."

    strategy = SUMMARIZING.replace("window=2", "window=2, fold=false")
    context = manager(strategy, store=MemoryStore(), summarizer=write, background=True)
    for steps in range(8):
        context.prepare(make_history("openai", steps))
    assert asked.acquire(timeout=10)
    other = make_history("openai", 2)
    for step in range(20, 27):
        other += make_openai_step(step)
        other[-2]["content"] = "otherwise"
    context.prepare(other)
    assert asked.acquire(timeout=10)
    gate.set()
    view = answered(context, other)
    assert "the other way" in json.dumps(view.messages)
    assert "the first way" not in json.dumps(view.messages)


def answered(context: ContextManager, messages: list[dict[str, Any]]) -> ContextView:
    """The view once the summary that is being written is there."""
    for thread in threading.enumerate():
        if thread.name == "elision-summary":
            thread.join(10)
    return context.prepare(messages)


def test_a_background_summary_that_never_ends_is_given_up() -> None:
    """The time limit holds there too: the failure is told, and the session goes on."""
    context = manager(
        SUMMARIZING,
        store=MemoryStore(),
        summarizer=lambda _: threading.Event().wait(),
        background=True,
        summary_seconds=1e-9,
    )
    told = [context.prepare(make_history("openai", steps)).diagnostics for steps in range(12)]
    assert {fault.cause for each in told for fault in each.faults} == {"timeout"}
    context.close()


def test_a_pass_that_is_cancelled_leaves_a_sound_session() -> None:
    """Cancelled while it writes or while a summary is written; the next call goes on as if it had not been."""
    entered, gate = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        slow = False

        def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
            if self.slow:
                entered.set()
                gate.wait(10)
            return super().append(session, events, after=after, at=at, batch=batch)

    store = Slow()
    context = manager(store=store)

    async def run() -> ContextView:
        for steps in range(5):
            await context.prepare_async(make_history("openai", steps))
        store.slow = True
        task = asyncio.create_task(context.prepare_async(make_history("openai", 5)))
        await asyncio.to_thread(entered.wait, 10)
        task.cancel()
        store.slow = False
        asyncio.get_running_loop().call_soon(gate.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return await context.prepare_async(make_history("openai", 6))

    view = asyncio.run(run())
    assert not view.diagnostics.faults
    assert view.diagnostics.turns == 6
    assert view.diagnostics.savings.masked == 4
    assert [turn.index for turn in store.turns("s")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    "place", ["elision.manager.follow_history.ingest_turns", "elision.engine.event_log.Log.record_call"]
)
def test_a_pass_that_is_interrupted_leaves_a_sound_session(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of reading or deciding: nothing is left out of the next view."""
    context, twin = manager(store=MemoryStore()), manager(store=MemoryStore())
    for steps in range(5):
        context.prepare(make_history("openai", steps))
        twin.prepare(make_history("openai", steps))

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, interrupt)
        with pytest.raises(KeyboardInterrupt):
            context.prepare(make_history("openai", 5))
    for steps in (5, 6):
        assert (
            context.prepare(make_history("openai", steps)).messages
            == twin.prepare(make_history("openai", steps)).messages
        )


def test_a_message_that_is_none_in_the_middle_leaves_nothing_out() -> None:
    """What stood in front of it was not read halfway."""
    context = manager(store=MemoryStore())
    context.prepare(make_history("openai", 3))
    with pytest.raises(DialectError, match=r"messages\[9\]"):
        context.prepare([*make_history("openai", 4), 7, {"role": "user", "content": "x"}])
    view = context.prepare(make_history("openai", 4))
    assert len(view.messages) == len(make_history("openai", 4))


def test_totals_stay_true_behind_a_rewrite() -> None:
    """A count of ours that was too high is corrected in proportion where much is hidden: no total is below nothing."""
    planned = Masking(window=1, schedule=FixedSchedule(mask_calls=frozenset({8})))
    context = manager(planned, store=MemoryStore())
    for steps in range(6):
        view = context.prepare(make_history("openai", steps))
        context.record({"prompt_tokens": view.diagnostics.raw // 10 or 1, "completion_tokens": 5})
    for steps in range(6, 9):
        view = context.prepare(make_history("openai", steps))
        assert 0 < view.diagnostics.after <= view.diagnostics.before <= view.diagnostics.raw


def test_usage_that_is_reported_twice_is_billed_once() -> None:
    """A stream's first and last report are of one request; those of a retry are not."""
    context = manager(store=MemoryStore(), model="gpt-5")
    usage = {"prompt_tokens": 1000, "completion_tokens": 10}
    context.prepare(make_history("openai", 1))
    context.record(usage)
    once = context.prepare(make_history("openai", 1)).diagnostics.costs.billed
    context.record(usage)
    context.record(usage)
    assert once is not None
    assert context.prepare(make_history("openai", 2)).diagnostics.costs.billed == pytest.approx(2 * once)


def test_results_that_come_one_by_one_are_all_counted() -> None:
    """Totals of a turn that grew are those of the whole turn, and it keeps what the provider reported for it."""
    context = manager(store=MemoryStore())
    both = [{"id": name, "type": "function", "function": {"name": "bash", "arguments": "{}"}} for name in ("a", "b")]
    results = [{"role": "tool", "tool_call_id": name, "content": LONG} for name in ("a", "b")]
    messages = [*make_history("openai", 1), {"role": "assistant", "content": None, "tool_calls": both}]
    context.prepare(make_history("openai", 1))
    context.record({"prompt_tokens": 1000, "completion_tokens": 77})
    context.prepare([*messages, results[0]])
    view = context.prepare([*messages, *results])
    savings = view.diagnostics.savings
    assert (savings.visible, savings.folded) == (2, 1)
    assert context._opened.preparer.branch is not None
    usage = context._opened.preparer.branch.log.state.turns[-1].usage
    assert usage is not None
    assert usage.output == 77


def test_turns_by_hand_are_kept_without_a_view() -> None:
    """What was added before the session is closed is in the store."""
    store = MemoryStore()
    with manager(store=store) as context:
        context.turns.begin("Mend it.")
        context.turns.add("I look.", "ls", "a.py")
    assert store.turns("s")[0].observations[0].text == "a.py"


@pytest.mark.parametrize(
    "place", ["elision.engine.event_log.Log.record_call", "elision.manager.shared_log.LogWriter.write_branch"]
)
def test_turns_by_hand_survive_an_interrupt(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of a view: what was added is still there, and the next view is as if it had not been."""
    store = MemoryStore()
    contexts = [manager(store=store), manager(store=MemoryStore())]

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    for turn in range(6):
        for context in contexts:
            context.turns.add("I look.", f"cat f{turn}.py", f"{turn}\n{LONG}")
            if turn == 4 and context is contexts[0]:
                with monkeypatch.context() as patch:
                    patch.setattr(place, interrupt)
                    with pytest.raises(KeyboardInterrupt):
                        context.turns.view()
        seen, undisturbed = (context.turns.view() for context in contexts)
        assert seen.messages == undisturbed.messages
    assert len(store.turns("s")) == 6


def test_a_model_without_prices_is_told() -> None:
    """Dollars of a model that nobody knows are another's, and every pass says so; with prices given it is silent."""
    odd = manager(model="somebody-s-model")
    assert "no prices are known for somebody-s-model" in odd.prepare(make_history("openai", 1)).diagnostics.notes[0]
    assert not manager(model="somebody-s-model", prices="openai").prepare(make_history("openai", 1)).diagnostics.notes


def test_the_unknown_model_of_a_call_is_noted_once() -> None:
    """Behind a gateway each request names its model: the first call of one that nobody knows says so."""
    context = manager()
    calls = [
        context.prepare(make_history("openai", turns), model=model)
        for turns, model in enumerate(["gtp-5", "gtp-5", "gpt-5", "gtp-5"], start=1)
    ]
    noted = [[note for note in view.diagnostics.notes if "gtp-5" in note] for view in calls]
    assert [len(each) for each in noted] == [1, 0, 0, 0]
    assert "close names: gpt-5" in noted[0][0]


def test_a_model_without_prices_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Where its first session begins: thousands of sessions of a pool or a gateway may have that model."""
    for _ in range(3):
        manager(model="a-model-of-one-line")
    assert [line for line in caplog.messages if "a-model-of-one-line" in line] == [
        "no prices are known for a-model-of-one-line: priced like the set anthropic; set prices if that is wrong"
    ]


def test_a_digest_is_written_where_it_is_waited_for() -> None:
    """Without a model there is nothing to wait for, and no thread to begin: what looks ahead has its own already."""
    names = []

    class Seen(DigestSummarizer):
        def __call__(self, request: SummaryRequest) -> SummaryResult:
            names.append(threading.current_thread().name)
            return super().__call__(request)

    context = manager(SUMMARIZING, summarizer=Seen())
    for steps in range(12):
        context.prepare(make_history("openai", steps))
    assert names
    assert all(name == threading.current_thread().name or name.startswith("elision-think-time") for name in names)


# -- requests that no provider takes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", ["bash", 7, {"name": "bash"}, [None, 7, "x", ["y"], {"name": ["z"]}]])
def test_tools_that_are_none(tools: Any) -> None:
    """What stands where tools should be is sent unchanged, is stored, and nothing fails over it."""
    context = manager(recall="auto")
    for steps in range(7):
        view = context.prepare(make_history("openai", steps), tools=tools)
        assert not view.diagnostics.faults
        if not isinstance(tools, list):
            assert view.tools == tools
            assert not view.added_tools
    assert len(context._opened.store.turns("s")) == 6
    context.close()


def test_results_that_answer_other_calls(caplog: pytest.LogCaptureFixture) -> None:
    """A known history in which a result's id is gone says the same and is another: it is sent unchanged."""
    store = MemoryStore()
    manager(store=store).prepare(make_history("openai", 6))
    broken = [
        {**each, "tool_call_id": "gone"} if each["role"] == "tool" else each for each in make_history("openai", 7)
    ]
    view = manager(store=store).prepare(broken)
    assert view.messages == broken
    assert "answer other calls" in view.diagnostics.faults[0].what
    assert not any("Traceback" in record.getMessage() for record in caplog.records)
    assert kinds(manager(store=store).prepare(make_history("openai", 7))) == set()


def test_a_window_that_leaves_nothing() -> None:
    """A provider that states a window smaller than what is kept for the answer: the smallest view is sent, or told."""
    context = manager(over_budget="send")
    context.prepare(make_history("openai", 6))
    assert context.overflowed("prompt is too long: 900 tokens > 500 maximum")
    view = context.prepare(make_history("openai", 6))
    assert view.diagnostics.faults[0].kind == "budget"
    assert len(json.dumps(view.messages)) < len(json.dumps(make_history("openai", 6))) / 3


@pytest.mark.parametrize("dialect", ["auto", "openai", "openai-responses", "anthropic"])
@pytest.mark.parametrize(
    ("message", "whose"),
    [
        ({"content": "hi", "additional_kwargs": {}, "response_metadata": {}, "type": "human"}, "a LangChain message"),
        ({"kind": "request", "parts": [{"content": "hi", "part_kind": "user-prompt"}]}, "a Pydantic AI message"),
        ({"role": "user", "parts": [{"type": "text", "text": "hi"}]}, "a message of parts"),
    ],
)
def test_messages_of_a_framework_are_refused_with_the_mend(message: Json, whose: str, dialect: str) -> None:
    """They would pass without a turn, and nothing would ever be hidden: better to learn that at the first call."""
    with manager(store=MemoryStore(), dialect=dialect) as context, pytest.raises(DialectError) as told:
        context.prepare([message, *make_history("openai", 2)])
    assert str(told.value).startswith(f"messages[0] is {whose}")
    assert "; give " in str(told.value) or "; send " in str(told.value)
    # Parts are Gemini's, whose dialect has to be named.
    assert ('dialect="gemini"' in str(told.value)) == ("role" in message)


def test_objects_of_a_framework_are_refused_too() -> None:
    """What dumps itself into a foreign shape is that framework's."""

    class HumanMessage:
        def model_dump(self, **options: Any) -> Json:
            return {"content": "hi", "additional_kwargs": {}, "response_metadata": {}, "type": "human"}

    with manager(store=MemoryStore()) as context, pytest.raises(DialectError, match=r"messages\[0\] is a LangChain"):
        context.prepare([HumanMessage()])


def test_messages_in_no_known_shape_are_noted() -> None:
    """They pass as they came, the very objects, and the diagnostics name the first; what is known is hidden."""
    odd: list[Json] = [{"role": "bot", "content": "hi"}, {}]
    with manager(store=MemoryStore(), recall="never") as context:
        assert context.prepare([*make_history("openai", 5)]).diagnostics.notes == ()
        view = context.prepare([*make_history("openai", 5), *odd])
        assert view.messages[-2] is odd[0]
        assert view.messages[-1] is odd[1]
        assert view.diagnostics.savings.masked == 3
        assert view.diagnostics.notes == (
            "messages[11] and 1 more have no role that openai knows: sent unchanged, and nothing of it is hidden",
        )
        assert context.prepare([*make_history("openai", 6)]).diagnostics.notes == ()
