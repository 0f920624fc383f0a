"""A whole agent: ask the model, do what it says, tell it what came of it, until the task is done.

The context is somebody else's: every prompt is what `context.prepare` makes of the whole history, so the agent itself
never hides or forgets anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal, TypeAlias

from lacuna.agent.context import Context, View
from lacuna.agent.environment import Environment, Outcome
from lacuna.agent.model import Answer, Json, Model, ModelError, Prompt
from lacuna.agent.patience import Patience
from lacuna.agent.report import Report, Step
from lacuna.agent.shapes import WORDS, user
from lacuna.telemetry.diagnostics import Diagnostics
from lacuna.trajectory.turn import Action

SYSTEM = (
    "You work on a task with the tools you are given, one step at a time. Look before you change anything, check what "
    "you changed, and say briefly what you are about to do. When the task is done, hand in the result."
)
#: Said to a model that ran into its limit of output without calling a tool.
GO_ON = "Your answer was cut off at its limit. Go on, in smaller steps."
#: Prompts that may be shortened for one answer, where the provider says that they are too long.
SHORTENED = 3

#: Why a run ended: the task was handed in, a guard said so, or the model gave no answer.
Ending: TypeAlias = Literal["done", "stopped", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a run ended. result: what was handed in. why: a sentence. messages: the whole history, nothing hidden."""

    ending: Ending
    result: str
    why: str
    report: Report
    messages: list[Json]


def run_agent(
    llm: Model,
    environment: Environment,
    task: str,
    context: Context,
    max_turns: int = 250,
    *,
    system: str = SYSTEM,
    history: Sequence[Json] = (),
    patience: Patience | None = None,
    watch: Callable[[Step], None] | None = None,
) -> Run:
    """Work on `task` until it is done, a guard stops it, or the model fails for good.

    max_turns: in this run. history: messages of an earlier run of the session; the task then follows them if it is not
    "". watch: told of every turn. Ctrl-C passes through: what was prepared so far is in the context's store.
    """
    words, report, patience = WORDS[llm.shape], Report(model=llm.name), patience or Patience()
    begin, apart = words.system(system)
    messages: list[Json] = [*(history or begin), *([user(task)] if task else [])]
    tools = [words.tool(tool) for tool in environment.tools]

    def ended(ending: Ending, why: str, result: str = "") -> Run:
        return Run(ending=ending, result=result, why=why, report=report, messages=messages)

    for turn in count(1):
        view = context.prepare(messages, system=apart, tools=tools)
        report.prepared(view.diagnostics)
        if why := _stopped(view.diagnostics, turn, max_turns):
            return ended("stopped", why)
        try:
            answer = _asked(llm, context, messages, apart, tools, view, patience)
        except ModelError as error:
            return ended("failed", str(error))
        context.record(answer.reported)
        messages.append(answer.message)
        pairs = [(call, _done(environment, context, call)) for call in answer.calls]
        messages += words.results(pairs) if pairs else []
        step = report.add(turn, answer, pairs, view.diagnostics)
        if watch is not None:
            watch(step)
        handed_in = next((outcome for _, outcome in pairs if outcome.done), None)
        if handed_in is not None or (not pairs and answer.finish != "length"):
            context.prepare(messages, system=apart, tools=tools)  # what was said last is in the store as well
            said = answer.text if handed_in is None else handed_in.text
            return ended("done", "handed in" if handed_in else "answered without a call", said)
        if not pairs:
            messages.append(user(GO_ON))
    raise AssertionError("unreachable")


def _asked(
    llm: Model, context: Context, messages: list[Json], system: Any, tools: Any, view: View, patience: Patience
) -> Answer:
    """The answer to `view`; where it is too long for the provider, to a shorter one, now that its limit is known."""
    for _ in range(SHORTENED):
        try:
            return patience.ask(llm, _prompt(view))
        except ModelError as error:
            learn = getattr(context, "too_long", None)
            if error.room is None or learn is None:
                raise
            learn(str(error))
            view = context.prepare(messages, system=system, tools=tools)
    return patience.ask(llm, _prompt(view))


def _prompt(view: View) -> Prompt:
    return Prompt(
        messages=view.messages, tools=view.tools or (), system=view.system, extra=view.extra or {}, betas=view.betas
    )


def _done(environment: Environment, context: Context, call: Action) -> Outcome:
    """What came of a call: the context's own tools first, since the model sees one list."""
    recalled = context.handle_tool_call(call.name, call.arguments)
    return environment.execute(call) if recalled is None else Outcome(text=recalled)


def _stopped(diagnostics: Diagnostics, turn: int, max_turns: int) -> str:
    """Why the run must not go on; "" if it may."""
    if diagnostics.stop is not None:
        return str(diagnostics.stop)
    if diagnostics.hint is not None:
        return f"no progress for {diagnostics.hint.turns} turns: {diagnostics.hint.why}"
    return f"max_turns: {max_turns} of {max_turns}" if turn > max_turns else ""
