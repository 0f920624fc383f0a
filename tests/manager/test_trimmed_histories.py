"""A client that trims its own history stays one session; what it dropped is in no view, and can be recalled."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision import Advanced
from elision.manager import ContextManager, ContextView
from elision.manager.request_notes import NOTE_TRIMMED
from elision.stores.memory import MemoryStore
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.events import TurnsDropped
from tests import flat_options
from tests.manager.agents import SHAPES, make_task
from tests.soak import sample_cases

Message = dict[str, Any]
#: Messages of the whole history -> those that a client sends.
Window = Callable[[list[Message]], list[Message]]

EAGER = "masking(window=2, schedule=every-turn)"
STRATEGIES = (
    "raw",
    EAGER,
    "masking(window=3)",
    "masking(window=2, schedule=every-turn, fold=true)",
    "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=150, schedule=every-turn)",
    "summarization(every=3, tail=2, summary_max_tokens=100, schedule=every-turn)",
)


def keep_newest(turns: int) -> Window:
    """Return a window of the task and the newest turns, of two messages each."""
    return lambda messages: [*messages[:1], *messages[1:][-2 * turns :]]


def halve_at(turns: int) -> Window:
    """Return a window that drops the older half of the turns when there are so many."""

    def trim(messages: list[Message]) -> list[Message]:
        count = (len(messages) - 1) // 2
        dropped = 0
        while count - dropped >= turns:
            dropped += turns // 2
        return [*messages[:1], *messages[1 + 2 * dropped :]]

    return trim


WINDOWS: dict[str, Window] = {"newest 4": keep_newest(4), "newest 2": keep_newest(2), "older half": halve_at(6)}


def run_agent(
    window: Window, steps: int, shape: str = "openai", *, restarts: int = 0, store: Store | None = None, **options: Any
) -> tuple[list[ContextView], Store]:
    """Return the views of an agent that sends a window of its history. restarts: bits of the calls after which it is
    another process."""
    store = store or MemoryStore()
    given = {"strategy": EAGER, "session": "s", "recall": "caller", "dialect": shape, "clock": lambda: 0.0, **options}
    context = flat_options.open_context(store=store, **given)
    views = []
    history = make_task()
    for step in range(steps):
        views.append(context.prepare(window([*history])))
        history += SHAPES[shape](step + 1)
        if restarts >> step & 1:
            context.close()
            context = flat_options.open_context(store=store, **given)
    context.close()
    return views, store


@pytest.mark.parametrize("shape", ["openai", "anthropic"])
@pytest.mark.parametrize("window", WINDOWS)
def test_it_is_one_session_with_every_call(window: str, shape: str) -> None:
    """No branch at each call, every turn stored once, and the view is made of what the client sent."""
    views, store = run_agent(WINDOWS[window], 20, shape)
    assert [info.key for info in store.sessions()] == ["s"]
    assert store.info("s").turns == 19
    assert [view.diagnostics.call for view in views] == list(range(1, 21))
    assert {view.diagnostics.history for view in views} == {"continue"}


@pytest.mark.parametrize(
    ("strategy", "window", "shape"), sample_cases(product(STRATEGIES, WINDOWS, ["openai", "anthropic"]), 5)
)
def test_what_was_dropped_is_in_no_view(strategy: str, window: str, shape: str) -> None:
    """Each message of a view stands for one that was sent, or is a summary of ours."""
    history = make_task()
    with ContextManager(strategy, store="memory:", recall="caller", advanced=Advanced(dialect=shape)) as context:  # type: ignore[arg-type]
        for step in range(16):
            sent = WINDOWS[window]([*history])
            view = context.prepare(sent)
            origins = [origin for origin in view.origins if origin is not None]
            assert origins == sorted(set(origins))
            for message, origin in zip(view.messages, view.origins, strict=True):
                if origin is not None:
                    assert message["role"] == sent[origin]["role"]
            # Verbatim but for what our own summary covers.
            if "summar" not in strategy:
                assert origins == list(range(len(sent)))
            history += SHAPES[shape](step + 1)


def test_recall_of_dropped_turns_works() -> None:
    """The log keeps what the client drops."""
    with ContextManager(EAGER, store="memory:", recall="caller") as context:
        history = make_task()
        for step in range(10):
            context.prepare(keep_newest(3)([*history]))
            history += SHAPES["openai"](step + 1)
        first_line = history[2]["content"].splitlines()[0]
        assert first_line in context.session.recall("t1.1", head=1)


def test_it_is_reported_once_with_what_it_costs(caplog: pytest.LogCaptureFixture) -> None:
    """A note at the first cut, a log line, and figures of all cuts in the report."""
    with (
        caplog.at_level(logging.WARNING, logger="elision.manager"),
        ContextManager("raw", store="memory:", model="claude-sonnet-4-5") as context,
    ):
        history = make_task()
        noted = []
        for step in range(10):
            view = context.prepare(keep_newest(3)([*history]))
            noted += [step for note in view.diagnostics.notes if note == NOTE_TRIMMED]
            history += SHAPES["openai"](step + 1)
        report = context.session.report()
    assert noted == [4]
    assert [record.getMessage() for record in caplog.records] == [f"session {context.session.name}: {NOTE_TRIMMED}"]
    assert (report.calls, report.trims.calls, report.trims.turns) == (10, 6, 6)
    assert report.trims.tokens > 0
    assert report.trims.usd == pytest.approx(report.trims.tokens * (3.75 - 0.3) / 1e6)
    assert report.to_dict()["trims"]["calls"] == 6
    assert report.savings.tokens == 0, "what the client drops is none of our saving"


def test_turns_that_are_sent_again_begin_a_fork() -> None:
    """A client that sends the whole history again gets all of it, on a branch without the cuts."""
    with ContextManager(EAGER, store="memory:", recall="caller") as context:
        history = make_task()
        for step in range(8):
            context.prepare(keep_newest(3)([*history]))
            history += SHAPES["openai"](step + 1)
        view = context.prepare(history)
        assert view.diagnostics.history == "fork"
        assert view.origins == list(range(len(history)))
        assert context.prepare([*history, *SHAPES["openai"](9)]).diagnostics.history == "continue"


def test_another_end_is_a_fork_and_no_trim() -> None:
    """A trim keeps the newest known messages; a history with another end is another branch."""
    with ContextManager(EAGER, store="memory:", recall="caller") as context:
        history = make_task()
        for step in range(6):
            context.prepare([*history])
            history += SHAPES["openai"](step + 1)
        view = context.prepare([*history[:7], *SHAPES["openai"](30)])
    assert view.diagnostics.history == "fork"


def test_a_fork_among_turns_that_repeat_is_no_trim() -> None:
    """Where all turns say the same, the newest known ones occur at the front as well: what follows the head decides."""
    with ContextManager(EAGER, store="memory:", recall="caller") as context:
        history = make_task()
        for step in range(6):
            call = {"id": f"c{step}", "type": "function", "function": {"name": "count", "arguments": "{}"}}
            history.append({"role": "assistant", "content": None, "tool_calls": [call]})
            history.append({"role": "tool", "tool_call_id": f"c{step}", "content": "one more\n" * 300})
        context.prepare([*history])
        other = [{"role": "assistant", "content": "Enough."}, {"role": "user", "content": "Why?"}]
        assert context.prepare([*history[:7], *other]).diagnostics.history == "fork"
        assert context.prepare(history[:5]).diagnostics.history == "undo"
        assert context.prepare([*history[:1], *history[5:], *other]).diagnostics.history != "undo"


def test_turns_that_vanish_in_the_middle_are_no_trim() -> None:
    """Only turns right after the head are dropped: a client that keeps the first one, too, gets all that it sends."""
    with ContextManager(EAGER, store="memory:", recall="caller") as context:
        history = make_task()
        for step in range(8):
            sent = [*history[:3], *history[3:][-6:]]
            view = context.prepare(sent)
            assert view.origins == list(range(len(sent)))
            history += SHAPES["openai"](step + 1)


def test_a_client_may_drop_the_task_as_well() -> None:
    """With only the newest messages, or behind a system prompt that changes, it is one session, too."""
    for opening in ([], [{"role": "system", "content": "Time: {}"}]):
        store = MemoryStore()
        history = make_task()
        for step in range(12):
            if step % 5 == 0:
                context = ContextManager(EAGER, store=store, session="s", recall="caller")
            prompt = [{**each, "content": each["content"].format(step)} for each in opening]
            sent = [*prompt, *(history if step < 4 else history[1:][-6:])]
            view = context.prepare(sent)
            assert view.origins == list(range(len(sent)))
            assert view.diagnostics.call == step + 1
            history += SHAPES["openai"](step + 1)
        assert [info.key for info in store.sessions()] == ["s"]


@settings(max_examples=max(10, settings().max_examples // 3), deadline=None)
@given(
    strategy=st.sampled_from(STRATEGIES),
    shape=st.sampled_from(["openai", "anthropic"]),
    keeps=st.lists(st.integers(2, 12), min_size=18, max_size=18),
    restarts=st.integers(0, 2**18 - 1),
    budget=st.sampled_from([None, 2_500]),
)
def test_another_process_sends_the_same_bytes(
    strategy: str, shape: str, keeps: list[int], restarts: int, budget: int | None
) -> None:
    """Whatever the client keeps, and whenever a process ends: the views and the log are those of one process."""
    options: dict[str, Any] = {"strategy": strategy, "over_budget": "send"}
    if budget is not None:
        options |= {"token_budget": budget, "reserved_for_response": 100}

    def trim_as_drawn() -> Window:
        state = {"dropped": 0, "call": 0}

        def trim(messages: list[Message]) -> list[Message]:
            turns = (len(messages) - 1) // 2
            # What was dropped does not come back.
            state["dropped"] = max(state["dropped"], turns - keeps[state["call"]])
            state["call"] += 1
            return [*messages[:1], *messages[1 + 2 * state["dropped"] :]]

        return trim

    one, kept = run_agent(trim_as_drawn(), 18, shape, **options)
    many, changed = run_agent(trim_as_drawn(), 18, shape, restarts=restarts, **options)
    assert [json.dumps(view.messages) for view in many] == [json.dumps(view.messages) for view in one]
    assert [view.origins for view in many] == [view.origins for view in one]
    assert list(changed.events("s")) == list(kept.events("s"))
    assert len(kept.sessions()) == 1


def test_a_cut_survives_a_store_on_disk(tmp_path: Path) -> None:
    """Each cut is a record of the log, which another process reads."""
    url = f"sqlite:////{str(tmp_path / 'a.db').lstrip('/')}"
    with closing(open_store(url)) as store:
        run_agent(keep_newest(3), 8, store=store)
        assert [event.through for event in store.events("s") if isinstance(event, TurnsDropped)] == [1, 2, 3, 4]
