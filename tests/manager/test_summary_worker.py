"""Whatever a summarizer answers or raises, in whichever driver, the agent goes on, and asking backs off."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from elision.errors import SummaryError
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.manager.summary_worker import SummaryRunner
from elision.summarizers.factory import DigestSummarizer
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.plan import SummaryRequest
from tests.manager.agents import make_history
from tests.soak import pair_cases
from tests.summarizers.turns import make_filler_turn, make_request

FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"
TEXT = "Eight files were read; f3.py has line 117: value 114309."
CALLS = 30


class WordlessError(Exception):
    """An error of the user's that fails when it is printed."""

    def __str__(self) -> str:
        raise WordlessError


class Halt(BaseException):
    """As frameworks raise to leave by every `except Exception`."""


class BareError(SummaryError):
    """An error of the user's that does not call the `__init__` of ours."""

    def __init__(self, said: str) -> None:
        Exception.__init__(self, said)


#: What a summarizer answers, or raises; and the cause that is told.
ANSWERS: dict[str, tuple[Any, str]] = {
    "no text": (SummaryResult(text=None), "malformed"),  # type: ignore[arg-type]
    "less than no tokens": (SummaryResult(text=TEXT, input=-5), "malformed"),
    "tokens in words": (SummaryResult(text=TEXT, input="5"), "malformed"),  # type: ignore[arg-type]
    "costs that are no number": (SummaryResult(text=TEXT, input=5, usd=math.nan), "malformed"),
    "earned money": (SummaryResult(text=TEXT, input=5, usd=-1.0), "malformed"),
    "turns that are not there": (SummaryResult(text=TEXT, covers=500), "malformed"),
    "nothing": (None, "malformed"),
    "an exit": (SystemExit(3), "other"),
    "an interrupt": (KeyboardInterrupt(), "other"),
    "a cancelled call": (asyncio.CancelledError(), "other"),
    "an error without words": (WordlessError(), "other"),
    "what is no Exception": (Halt(), "other"),
    "a group of such": (BaseExceptionGroup("all", [Halt()]), "other"),
    "an error that is none of ours": (BareError("no"), "other"),
    "a bill that is none": (
        SummaryError("no", cause="server", billed=SummaryResult(text="", input=5, usd=math.nan)),
        "server",
    ),
    "a cause that is none": (SummaryError("no", cause=["mine"]), "other"),  # type: ignore[arg-type]
}


class Asked:
    """A summarizer that counts how often it is asked."""

    def __init__(self, answer: Any) -> None:
        self.answer, self.times = answer, 0

    def __call__(self, request: SummaryRequest) -> Any:
        self.times += 1
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def run(summarizer: Any, **options: Any) -> list[ContextView]:
    """An agent's calls, in this thread."""
    views, before = [], writers()
    with ContextManager(
        FOLDING, session="s", store="memory:", summarizer=summarizer, **gather_options(options)
    ) as context:
        for steps in range(CALLS):
            views.append(context.prepare(make_history("openai", steps)))
            join(writers() - before)
    return views


def run_async(summarizer: Any, **options: Any) -> list[ContextView]:
    """The same beside an event loop."""

    async def agent() -> list[ContextView]:
        async with ContextManager(
            FOLDING, session="s", store="memory:", summarizer=summarizer, **gather_options(options)
        ) as context:
            views, before = [], writers()
            for steps in range(CALLS):
                views.append(await context.prepare_async(make_history("openai", steps)))
                await asyncio.to_thread(join, writers() - before)
        return views

    return asyncio.run(agent())


def run_coroutine(asked: Asked) -> list[ContextView]:
    """Beside an event loop, with a summarizer that is a coroutine function."""

    async def write(request: SummaryRequest) -> Any:
        return asked(request)

    return run_async(write)


def writers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "elision-summary"}


def join(threads: set[threading.Thread]) -> None:
    for thread in threads:
        thread.join(10)


DRIVERS: dict[str, Callable[[Asked], list[ContextView]]] = {
    "sync": run,
    "async": run_async,
    "coroutine": run_coroutine,
    "background": lambda asked: run(asked, background=True),
    "async background": lambda asked: run_async(asked, background=True),
}


@pytest.mark.parametrize(("name", "way"), pair_cases(ANSWERS, DRIVERS))
def test_a_bad_answer_is_told_and_backs_off(name: str, way: str) -> None:
    """Every request goes out as its pass decided, masking goes on, no figure is spoilt, and few asks are paid."""
    (answer, cause), driver = ANSWERS[name], DRIVERS[way]
    if isinstance(answer, KeyboardInterrupt) and driver is run_coroutine:
        pytest.skip("on the event loop itself an interrupt is the user's")
    asked = Asked(answer)
    views = driver(asked)
    faults = [fault for view in views for fault in view.diagnostics.faults]
    told = views[-1].diagnostics
    # A background summary is asked for one call before it is known to have failed.
    assert asked.times - len(faults) in (0, 1)
    assert 0 < len(faults) <= 3
    assert {(fault.kind, fault.cause) for fault in faults} == {("summarizer", cause)}
    assert told.savings.masked > 20
    assert 0 < told.costs.ours < 10
    assert 0 < told.costs.summarizer < 10


def test_a_summary_for_fewer_turns_than_asked_is_taken() -> None:
    """`covers` says so, and what is behind is masked."""
    views = run(lambda request: SummaryResult(text=TEXT, covers=request.turns[-1].index - 1, input=900, output=20))
    first = next(view for view in views if view.diagnostics.summarized)
    assert first.diagnostics.summarized is not None
    assert first.diagnostics.summarized.last == first.diagnostics.turns - 3
    assert not [view for view in views[:10] if view.diagnostics.faults]


def test_a_thread_that_cannot_be_started_is_a_failed_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine out of threads: the pass goes on, and asks again later."""
    start, tried = threading.Thread.start, 0

    def refuse(thread: threading.Thread) -> None:
        nonlocal tried
        if thread.name != "elision-summary":
            start(thread)
            return
        tried += 1
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    views = run(Asked(TEXT))
    assert tried == 3
    assert {fault.kind for view in views for fault in view.diagnostics.faults} == {"summarizer"}
    assert views[-1].diagnostics.savings.masked > 20


@pytest.mark.parametrize("seconds", [math.inf, 1e300, 10**400])
@pytest.mark.parametrize("driver", [run, run_async])
def test_a_summary_may_be_waited_for_without_end(seconds: float, driver: Any) -> None:
    """As somebody says it who wants no limit, in every driver."""
    views = driver(Asked(TEXT), summary_seconds=seconds)
    assert views[-1].diagnostics.summaries
    assert not [fault for view in views for fault in view.diagnostics.faults]


def ask_about(turns: int) -> SummaryRequest:
    return make_request(*map(make_filler_turn, range(1, turns + 1)), max_tokens=400)


def test_a_digest_that_is_written_ahead_answers_its_request_alone() -> None:
    """It is the same text as that of a digest written when it is asked for."""
    written: list[int] = []
    digest = DigestSummarizer()

    class Counted(DigestSummarizer):
        def __call__(self, request: SummaryRequest) -> SummaryResult:
            written.append(len(request.turns))
            return digest(request)

    runner = SummaryRunner(Counted(), seconds=20, background=False)
    runner.write_ahead(ask_about(8))
    answers = [runner.request_summary(ask_about(turns)) for turns in (8, 8)]
    runner.write_ahead(ask_about(8))
    answers.append(runner.request_summary(replace(ask_about(8), max_tokens=300)))
    assert written == [8, 8, 8, 8]
    assert [answer.text for answer in answers if isinstance(answer, SummaryResult)] == [
        digest(replace(ask_about(8), max_tokens=limit)).text for limit in (400, 400, 300)
    ]
