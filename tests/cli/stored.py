"""Sessions in a store, made by a context manager as an agent makes them: with forks, recalls, failures, a sub-agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from elision import Advanced
from elision.errors import SummaryError
from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from elision.strategies.strategy import Strategy
from elision.trajectory.plan import SummaryRequest

MODEL = "claude-sonnet-4-5"
#: Hides at once, so that a few turns show everything.
EAGER = "masking(window=2, schedule=every-turn)"
HYBRID = "hybrid(window=2, summarize_at=5, tail=2, summary_max_tokens=120, schedule=every-turn)"
#: What a hostile tool prints: a title for the window, a cleared screen, a bell, text from right to left.
HOSTILE = "\x1b]0;owned\x07\x1b[2Jfine\x9b31m\u202etxt.exe [bold]no markup[/bold] :smile:\n"

Message = dict[str, Any]


class Clock:
    """Half a minute between two looks."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        self.now += 30.0
        return self.now


def url(at: Path) -> str:
    return f"sqlite:////{str(at / 'agent.db').lstrip('/')}"


def report(number: int) -> str:
    """A long result that is like no other."""
    rows = (
        f"row {row}: module_{number}_{row}.py took {row * 37 % 911} ms and {row * number % 97} checks"
        for row in range(60)
    )
    return f"report {number}\n" + "\n".join(rows)


def looked(number: int, text: str | None = None) -> list[Message]:
    """One turn as chat messages: a call and its result."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": f'{{"at": {number}}}'}}
    said = {"role": "assistant", "content": f"Looking at {number}.", "tool_calls": [call]}
    return [said, {"role": "tool", "tool_call_id": f"c{number}", "content": report(number) if text is None else text}]


def opening(task: str = "Find the slow module.") -> list[Message]:
    return [{"role": "system", "content": "You are careful."}, {"role": "user", "content": task}]


def played(
    at: Path,
    session: str,
    turns: int,
    strategy: str | Strategy = EAGER,
    each: Callable[[int, ContextManager], None] | None = None,
    tools: Any = None,
    **options: Any,
) -> list[ContextView]:
    """A run of `turns` turns and a call behind each; `each` is told of every turn. The views."""
    messages, views = opening(), []
    given = {"model": MODEL, "store": url(at), "session": session, "clock": Clock(), **options}
    with ContextManager(strategy, **gather_options(given)) as context:
        for turn in range(1, turns + 1):
            views.append(context.prepare(messages, tools=tools))
            context.record({"prompt_tokens": views[-1].diagnostics.after, "completion_tokens": 20})
            if each is not None:
                each(turn, context)
            messages += looked(turn)
        views.append(context.prepare(messages, tools=tools))
    return views


def refuses(request: SummaryRequest) -> str:
    """A summarizer that never manages."""
    raise SummaryError("the server is on fire", cause="server")


def everything(at: Path) -> list[ContextView]:
    """A store with a session of every kind; the views of `main`."""

    def recalls(turn: int, context: ContextManager) -> None:
        if turn == 5:
            context.handle_tool_call("elision_recall", {"handle": "t1.1", "pattern": "row 7:"})

    views = played(at, "main", 7, each=recalls)
    with ContextManager(
        EAGER, model=MODEL, store=url(at), session="main", advanced=Advanced(clock=Clock(1_700_001_000.0))
    ) as context:
        history = [message for turn in range(1, 4) for message in looked(turn)]
        context.prepare([*opening(), *history, {"role": "user", "content": "Another way, please."}, *looked(99)])
    played(at, "main/scout", 2, parent="main", clock=Clock(1_700_002_000.0))
    played(at, "digested", 8, HYBRID, clock=Clock(1_700_003_000.0))
    played(at, "burning", 7, HYBRID, summarizer=refuses, model="", clock=Clock(1_700_004_000.0))
    with ContextManager(
        EAGER, store=url(at), session="odd\x1b[31m[red]name[/red]", advanced=Advanced(clock=Clock(1_700_005_000.0))
    ) as context:
        context.turns.begin("Look.")
        context.turns.add("Hm.", {"name": "cat\x1b[5m", "arguments": "{}"}, HOSTILE * 20)
        for number in range(4):
            context.turns.add("", "pwd", f"/home/{number}")
        context.turns.view()
    return views
