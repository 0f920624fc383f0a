"""A whole agent: ask the model, do what it says, tell it what came of it, until the task is done.

The context is somebody else's: every prompt is what `context.prepare` makes of the whole history, so the agent itself
never hides or forgets anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elision.agent.context import Context, Keeps, View
from elision.agent.ending import Ending, Run
from elision.agent.environment import Environment, Outcome
from elision.agent.model import Answer, Json, Model, ModelError, Prompt
from elision.agent.patience import Patience
from elision.agent.report import Report, Step
from elision.agent.said import GO_ON, INTERRUPTED, SYSTEM
from elision.agent.shapes import WORDS, user
from elision.trajectory.turn import Action

#: Prompts that may be shortened for one answer, where the provider says that they are too long.
SHORTENED = 3


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
    report: Report | None = None,
    watch: Callable[[Step], None] = lambda step: None,
) -> Run:
    """Work on `task` until it is done, a guard stops it, or the model fails for good.

    max_turns: of this run. history: messages of the session so far; the task follows them, unless it is "". report: is
    filled as the run goes on. watch: told of every turn. Ctrl-C passes through; everything said until then is kept.
    """
    agent = _Agent(llm, environment, context, patience or Patience(), report or Report(model=llm.name), system)
    agent.messages += [*(history or agent.begin), *([user(task)] if task else [])]
    ended = None
    try:
        while ended is None:
            ended = agent.step(max_turns, watch)
    finally:
        agent.keep()
    ending, why, result = ended
    return Run(ending=ending, why=why, result=result, report=agent.report, messages=agent.messages)


class _Agent:
    """One run. messages: all that was said, in the model's shape."""

    def __init__(
        self, llm: Model, environment: Environment, context: Context, patience: Patience, report: Report, system: str
    ) -> None:
        self.llm = llm
        self.environment = environment
        self.context = context
        self.patience = patience
        self.report = report
        self.words = WORDS[llm.shape]
        self.begin, self.system = self.words.system(system)
        self.tools = [*map(self.words.tool, environment.tools), *context.tool_definitions(llm.shape)]
        self.messages: list[Json] = []

    def step(self, max_turns: int, watch: Callable[[Step], None]) -> tuple[Ending, str, str] | None:
        """One turn; how the run ended if it did: why, and the result."""
        if len(self.report.steps) >= max_turns:
            # Before a prompt is made: what was prepared counts as a call of the session.
            return "stopped", f"max_turns: {len(self.report.steps)} of {max_turns}", ""
        view = self._view()
        if why := _stopped(view):
            return "stopped", why, ""
        try:
            answer = self._answer(view)
        except ModelError as error:
            return "failed", str(error), ""
        self.context.record(answer.reported)
        self.messages.append(answer.message)
        pairs = self._act(answer.calls)
        watch(self.report.add(answer, pairs, view.diagnostics))
        handed_in = next((outcome for _, outcome in pairs if outcome.done), None)
        if handed_in is not None:
            return "done", "handed in", handed_in.text
        if not pairs and answer.finish != "length":
            return "done", "answered without a call", answer.text
        if not pairs:
            self.messages.append(user(GO_ON))
        return None

    def keep(self) -> None:
        """What was said last is kept as well, though no further call is made."""
        if isinstance(self.context, Keeps):
            self.report.settled(self.context.keep(self.messages, system=self.system, tools=self.tools))
        elif self.messages[-1]["role"] != "assistant":
            # A context without a way to keep what it is shown reads it when it prepares.
            self.context.prepare(self.messages, system=self.system, tools=self.tools)

    def _view(self) -> View:
        view = self.context.prepare(self.messages, system=self.system, tools=self.tools)
        self.report.prepared(view.diagnostics)
        return view

    def _answer(self, view: View) -> Answer:
        """The answer to `view`; to a shorter one where that is too long for the provider, whose limit is then known."""
        for _ in range(SHORTENED):
            try:
                return self.patience.ask(self.llm, _prompt(view))
            except ModelError as error:
                if not self.context.overflowed(str(error)):
                    raise
                view = self._view()
        return self.patience.ask(self.llm, _prompt(view))

    def _act(self, calls: Sequence[Action]) -> list[tuple[Action, Outcome]]:
        """Do what the model asked for, in order; every call gets a result, whatever happens."""
        pairs: list[tuple[Action, Outcome]] = []
        try:
            for call in calls:
                pairs.append((call, self._done(call)))
        finally:
            pairs += [(call, INTERRUPTED) for call in calls[len(pairs) :]]
            if pairs:
                self.messages += self.words.results(pairs)
            else:
                self.messages += []
        return pairs

    def _done(self, call: Action) -> Outcome:
        """What came of a call: the context's own tools first, since the model sees one list."""
        recalled = self.context.handle_tool_call(call.name, call.arguments)
        if recalled is None:
            return self.environment.execute(call)
        return Outcome(text=recalled)


def _prompt(view: View) -> Prompt:
    tools = view.tools or ()
    extra = view.extra or {}
    return Prompt(messages=view.messages, tools=tools, system=view.system, extra=extra, betas=view.betas)


def _stopped(view: View) -> str:
    """Why the context says that the run must not go on; "" if it may."""
    stop = view.diagnostics.stop
    hint = view.diagnostics.hint
    if stop is not None:
        return str(stop)
    if hint is None:
        return ""
    return f"no progress for {hint.turns} turns: {hint.why}"
