"""Summaries that are asked for by hand, and the list of a session's summaries."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced, Cache
from elision.errors import SpecError
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.ledger import SessionSummary
from elision.stores.memory import MemoryStore
from elision.stores.store_urls import open_store
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.plan import SummaryRequest
from tests.manager.agents import LONG, SHAPES, make_history

#: N is far away: no summary is due in these runs.
LATE = "hybrid(window=2, summarize_at=200, tail=3, summary_max_tokens=300, fold=false)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=100, schedule=every-turn, fold=false)"


def write_summary(request: SummaryRequest) -> SummaryResult:
    """Name what the turns worked with, as a model would; the checks look for such facts."""
    calls = " ".join(action.arguments for turn in request.turns for action in turn.actions)
    text = f"COMPLETED: {calls[:120]} in turns {request.turns[0].index}-{request.turns[-1].index}; password=hunter2!x"
    return SummaryResult(text=text, input=900, cached=100, output=60, usd=0.0125, writer="scripted-1")


def manage(store: Any = None, strategy: str = LATE, **options: Any) -> ContextManager:
    return ContextManager(
        strategy,
        store=store or MemoryStore(),
        session="s",
        **gather_options({"advanced": Advanced(clock=lambda: 0.0, cache=Cache(control="client")), **options}),
    )


def walk(context: ContextManager, shape: str, first: int, last: int) -> ContextView:
    for steps in range(first, last + 1):
        view = context.prepare(make_history(shape, steps))
    return view


@pytest.mark.parametrize("shape", SHAPES)
def test_a_summary_may_be_asked_for_below_the_threshold(shape: str) -> None:
    """All but the tail becomes one summary, whatever N is; and the next call goes on as always."""
    context = manage(summarizer=write_summary)
    assert walk(context, shape, 0, 8).diagnostics.summarized is None
    context.compact(summary=True)
    told = context.prepare(make_history(shape, 9)).diagnostics
    assert told.summarized is not None
    assert (told.summarized.first, told.summarized.last, told.summarized.model) == (1, 6, "scripted-1")
    assert told.reason == "forced"
    assert told.notes == ()
    assert context.prepare(make_history(shape, 10)).diagnostics.summarized is None
    context.compact(summary=True)
    again = context.prepare(make_history(shape, 12)).diagnostics.summarized
    assert again is not None
    assert (again.first, again.last) == (7, 9)


def test_with_the_digest_and_by_hand() -> None:
    """No model is needed, and turns that are added by hand are summarized alike."""
    with manage() as context:
        context.turns.begin("Find it.")
        for number in range(8):
            context.turns.add(f"thought {number}", f"cat {number}.py", LONG)
        context.turns.view()
        context.compact(summary=True)
        told = context.turns.view().diagnostics.summarized
        assert told is not None
        assert (told.first, told.last, told.route) == (1, 5, "model-free")
        (entry,) = context.session.summaries()
        assert (entry.covers_turns, entry.call, entry.writer, entry.usd) == ((1, 5), 9, "digest", 0.0)


@pytest.mark.parametrize(
    "strategy",
    [
        "summarization(every=90, tail=3, fold=false)",
        "two-tier(keep_recent=3, soft=90000, hard=100000, fold=false)",
        "hybrid(window=2, summarize_at=90, tail=3, fold=false)",
    ],
)
def test_every_strategy_with_summaries_can(strategy: str) -> None:
    context = manage(strategy=strategy, summarizer=write_summary)
    walk(context, "openai", 0, 8)
    context.compact(summary=True)
    told = context.prepare(make_history("openai", 9)).diagnostics.summarized
    assert told is not None
    assert (told.first, told.last) == (1, 6)


@pytest.mark.parametrize("strategy", ["masking", "raw"])
def test_a_strategy_without_summaries_refuses(strategy: str) -> None:
    """At once, by name, with the remedy; and nothing is compacted."""
    context = manage(strategy=strategy)
    with pytest.raises(
        SpecError, match=rf"compact\(summary=True\): {strategy} makes no summaries; choose .* hybrid, or"
    ):
        context.compact(summary=True)
    assert walk(context, "openai", 0, 3).diagnostics.reason != "forced"


def test_nothing_to_cover_is_a_note() -> None:
    """Where all turns are in the tail, or too short, no model is asked, and the diagnostics say why, once."""
    asked: list[SummaryRequest] = []

    def write(request: SummaryRequest) -> SummaryResult:
        asked.append(request)
        return write_summary(request)

    context = manage(summarizer=write)
    walk(context, "openai", 0, 2)
    context.compact(summary=True)
    told = context.prepare(make_history("openai", 3)).diagnostics
    assert told.notes[1:] == ("compact(summary=True): no summary: no turn outside the tail is left to summarize",)
    assert context.prepare(make_history("openai", 4)).diagnostics.notes == ()
    short = manage(summarizer=write)
    short.turns.begin("Find it.")
    for number in range(5):
        short.turns.add("", f"cat {number}", "ok")
    short.compact(summary=True)
    (note,) = short.turns.view().diagnostics.notes
    assert note == "compact(summary=True): no summary: turns up to 2 are too short for a summary to be shorter"
    assert asked == []


def test_a_failed_summary_is_a_note() -> None:
    """Results are hidden all the same, as by `compact()`, and the next attempt waits as after any failure."""

    def refuse(request: SummaryRequest) -> str:
        return "I'm sorry, but I can't help with that."

    context = manage(summarizer=refuse)
    walk(context, "openai", 0, 8)
    context.compact(summary=True)
    told = context.prepare(make_history("openai", 9)).diagnostics
    assert told.summarized is None
    assert told.notes[0].startswith("compact(summary=True): no summary: summary rejected: it is a refusal")
    assert told.savings.masked == 9 - 2
    walk(context, "openai", 10, 10)
    context.compact(summary=True)
    again = context.prepare(make_history("openai", 11)).diagnostics
    assert "an earlier one failed, and the next attempt is at call" in again.notes[0]
    assert again.savings.masked == 11 - 2


def test_what_is_to_be_hidden_waits_for_a_summary_in_the_background() -> None:
    """A summary that is due is a part of what `compact()` hides: it enters as soon as it is there."""
    may_write = threading.Event()

    def write(request: SummaryRequest) -> SummaryResult:
        may_write.wait(5)
        return write_summary(request)

    due = "hybrid(window=2, summarize_at=6, tail=3, summary_max_tokens=300, fold=false)"
    context = manage(strategy=due, summarizer=write, background=True)
    walk(context, "openai", 0, 8)
    assert context._opened.summary_runner._job is None
    context.compact()
    assert context.prepare(make_history("openai", 9)).diagnostics.reason == "summary is being written"
    job = context._opened.summary_runner._job
    assert job is not None
    may_write.set()
    job.future.result(5)
    told = context.prepare(make_history("openai", 10)).diagnostics
    assert told.reason == "forced"
    assert told.summarized is not None
    assert context.prepare(make_history("openai", 11)).diagnostics.reason != "forced"


def test_in_the_background_it_enters_when_it_is_written() -> None:
    """The call that asked goes on without it; the wish is kept until the text is there."""
    may_write = threading.Event()

    def write(request: SummaryRequest) -> SummaryResult:
        may_write.wait(5)
        return write_summary(request)

    context = manage(summarizer=write, background=True)
    walk(context, "openai", 0, 8)
    context.compact(summary=True)
    first = context.prepare(make_history("openai", 9)).diagnostics
    assert first.notes == ("compact(summary=True): no summary: summary is being written",)
    job = context._opened.summary_runner._job
    assert job is not None
    may_write.set()
    job.future.result(5)
    second = context.prepare(make_history("openai", 10)).diagnostics.summarized
    assert second is not None
    assert (second.first, second.last) == (1, 6)
    assert [entry.covers_turns for entry in context.session.summaries()] == [(1, 6)]


def test_the_list_has_texts_places_writers_and_costs(tmp_path: Path) -> None:
    """Oldest first, with secrets out; in another process as well, before its first call."""
    store = open_store(f"sqlite:///{tmp_path}/a.db")
    context = manage(store, strategy=FOLDING, summarizer=write_summary)
    assert context.session.summaries() == []
    walk(context, "anthropic", 0, 14)
    found = context.session.summaries()
    assert [entry.covers_turns for entry in found] == [(1, 4), (5, 8), (9, 12)]
    assert [entry.call for entry in found] == [7, 11, 15]
    for entry in found:
        first, last = entry.covers_turns
        assert f"in turns {first}-{last}; password=[redacted: password]" in entry.text
        assert (entry.writer, entry.usd) == ("scripted-1", 0.0125)
        assert entry.tokens > 20
    context.close()
    again = manage(store, strategy=FOLDING, summarizer=write_summary)
    assert again.session.summaries() == found
    assert asyncio.run(again.session.summaries_async()) == found
    store.close()


def test_a_cost_that_was_not_recorded_is_priced() -> None:
    """A function that reports tokens and no USD is billed at the session's prices."""

    def write(request: SummaryRequest) -> SummaryResult:
        return SummaryResult(text=write_summary(request).text, input=1_000_000, output=0)

    context = manage(strategy=FOLDING, summarizer=write, prices="qwen3-coder")
    walk(context, "openai", 0, 6)
    (entry,) = context.session.summaries()
    assert entry.writer == ""
    assert entry.usd == pytest.approx(context._opened.preparer.logs.prices.bill_call(1_000_000, 0, 0).usd)


def test_beside_a_call_the_list_waits_its_turn() -> None:
    """From an event loop, while a call is being prepared, both come through."""

    async def work() -> list[SessionSummary]:
        context = manage(strategy=FOLDING, summarizer=write_summary)
        for steps in range(6):
            await context.prepare_async(make_history("openai", steps))
        _, found = await asyncio.gather(
            context.prepare_async(make_history("openai", 6)), context.session.summaries_async()
        )
        return found

    assert [entry.covers_turns for entry in asyncio.run(work())] == [(1, 4)]


@given(wishes=st.lists(st.booleans(), min_size=3, max_size=16), reopen=st.integers(0, 16))
def test_coverage_is_without_gaps(wishes: list[bool], reopen: int) -> None:
    """Property: whenever summaries are asked for, they cover turns 1 ... n without a gap, never one of the tail, and
    the log replays to the same view."""
    store = MemoryStore()
    context = manage(store, summarizer=write_summary)
    for steps, wish in enumerate(wishes):
        if wish:
            context.compact(summary=True)
        view = context.prepare(make_history("openai", steps))
        if steps == reopen:
            context.close()
            context = manage(store, summarizer=write_summary)
    found = context.session.summaries()
    next_turn = 1
    for entry in found:
        assert entry.covers_turns[0] == next_turn
        assert entry.covers_turns[1] <= entry.call - 1 - 3
        next_turn = entry.covers_turns[1] + 1
    fresh = manage(store, summarizer=write_summary).prepare(make_history("openai", len(wishes) - 1))
    assert json.dumps(fresh.messages) == json.dumps(view.messages)
