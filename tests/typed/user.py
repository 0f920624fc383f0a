"""What a type checker knows of the library door: `make check` reads it in strict mode, nothing runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from elision import Advanced, ContextManager, ContextView, Guards, open_store
from elision.stores.store import Hit
from elision.telemetry.context_report import ContextReport
from elision.telemetry.diagnostics import Diagnostics, Hidden, Summarized
from elision.trajectory.plan import Stop, SummaryRequest
from elision.trajectory.turn import Turn
from elision.turns import TurnsSummary, hybrid, mask, summarize


def brief(request: SummaryRequest) -> str:
    return "A summary."


async def brief_later(request: SummaryRequest) -> str:
    return "A summary."


def watch(told: Diagnostics) -> None:
    print(told.after)


def first(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "system"


def messages_in_a_loop() -> None:
    with ContextManager(
        "hybrid(window=10)",
        model="claude-sonnet-4-5",
        store=open_store("memory:"),
        guards=Guards(max_turns=9),
        summarizer=brief,
        on_event=[watch],
        advanced=Advanced(pin=first, dialect="anthropic"),
    ) as context:
        view = context.prepare([{"role": "user", "content": "Go."}], tools=[{"name": "bash"}], system="Careful.")
        assert_type(view, ContextView)
        assert_type(view.request["messages"], list[Any])
        fields: dict[str, Any] = view.request
        print(fields)
        assert_type(view.messages, list[Any])
        context.record({"input_tokens": 7})
        assert_type(context.session.recall("t1.1", lines="1-2"), str)
        assert_type(context.session.search("words"), list[Hit])
        assert_type(context.tool_definitions("anthropic"), list[dict[str, Any]])
        assert_type(context.handle_tool_call("elision_recall", "{}"), str | None)


def what_is_told(told: Diagnostics) -> None:
    assert_type(told.after, int)
    assert_type(told.masked, tuple[Hidden, ...])
    assert_type(told.summarized, Summarized | None)
    assert_type(told.savings.reduction_pct, float)
    assert_type(told.costs.billed, float | None)
    assert_type(told.stop, Stop | None)


def turns_by_hand() -> None:
    context = ContextManager.from_env({}, masking_window=3)
    assert_type(context.turns.add("Look.", {"name": "bash"}, "seen"), Turn)
    assert_type(context.turns.view(), ContextView)
    assert_type(context.turns.view().text(), str)
    assert_type(context.session.report(), ContextReport)
    assert_type(context.session.report().to_dict(), dict[str, Any])


def turns_in_a_list(turns: list[tuple[str, str, str]]) -> None:
    assert_type(mask(turns, window=3), list[tuple[str, str, str]])
    shown = hybrid(turns, summarizer=brief)
    assert_type(shown, list[TurnsSummary | tuple[str, str, str]])
    assert_type(summarize(turns, summarizer="digest"), list[TurnsSummary | tuple[str, str, str]])
    if isinstance(shown[0], TurnsSummary):
        hybrid(turns, previous=shown[0])


async def beside_an_event_loop() -> None:
    async with ContextManager(summarizer=brief_later) as context:
        assert_type(await context.prepare_async([{"role": "user", "content": "Go."}]), ContextView)
        assert_type(await context.turns.view_async(), ContextView)


def wrong() -> None:
    """Strict mode wants every one of these to be an error, too."""
    ContextManager(stor="memory:")  # type: ignore[call-arg]
    ContextManager(model=3)  # type: ignore[arg-type]
    ContextManager(advanced=Advanced(dialect="claude"))  # type: ignore[arg-type]
    ContextManager().prepare(3)  # type: ignore[arg-type]
    ContextManager().diagnostics  # type: ignore[attr-defined]  # noqa: B018
