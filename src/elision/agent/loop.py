"""A whole agent: ask the model, execute its calls, return the results, until the task is done.

The context decides what each prompt holds: `context.prepare` makes it of the whole history, which the agent keeps.

`load_conversation` returns a stored session's, to be continued: messages in the model's shape, nothing hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from elision.agent.environment import ActionResult, Context, ConversationKeeper, Environment, PreparedContext, Tool
from elision.agent.model import Json, Model, ModelAnswer, ModelError, Prompt, RetryPolicy, Shape
from elision.agent.run_report import Ending, RunReport, RunResult, Step
from elision.manager.context import ContextManager
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared.base_renderer import CONTINUE_TEXT
from elision.stores.store import Store
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Action

#: The system prompt, where the user gives none.
SYSTEM_PROMPT: Final = (
    "You work on a task with the tools you are given, one step at a time. Look before you change anything, check what "
    "you changed, and say briefly what you are about to do. When the task is done, hand in the result."
)
#: Said to a model that ran into its limit of output without calling a tool.
CONTINUE_PROMPT: Final = "Your answer was cut off at its limit. Go on, in smaller steps."
#: What a call gets that was under way when the user stopped the run.
INTERRUPTED_RESULT: Final = ActionResult(text="[interrupted by the user]", error=True)
#: Calls, each with its result.
CallResults: TypeAlias = Sequence[tuple[Action, ActionResult]]
#: What stands for a result that says nothing: providers take no empty one.
EMPTY_RESULT = "(no output)"
#: Prompts that may be shortened for one answer, where the provider says that they are too long.
MAX_SHORTENINGS = 3


def run_agent(
    llm: Model,
    environment: Environment,
    task: str,
    context: Context,
    max_turns: int = 250,
    *,
    system: str = SYSTEM_PROMPT,
    history: Sequence[Json] = (),
    retry: RetryPolicy | None = None,
    report: RunReport | None = None,
    watch: Callable[[Step], None] = lambda step: None,
) -> RunResult:
    """Work on `task` until it is done, a guard stops it, or the model fails for good.

    max_turns: of this run. history: messages of the session so far; the task follows them, unless it is "".
    report:    is filled during the run. watch: called after every turn.

    KeyboardInterrupt is raised again; the messages until then are kept.
    """
    agent = _Agent(llm, environment, context, retry or RetryPolicy(), report or RunReport(model=llm.name), system)
    agent.messages += [*(history or agent.opening_messages), *([make_user_message(task)] if task else [])]
    ended = None
    try:
        while ended is None:
            ended = agent.take_turn(max_turns, watch)
    finally:
        agent.keep_messages()
    ending, why, result = ended
    return RunResult(ending=ending, why=why, result=result, report=agent.report, messages=agent.messages)


class _Agent:
    """One run. messages: the whole history, in the model's shape."""

    def __init__(
        self,
        llm: Model,
        environment: Environment,
        context: Context,
        retry: RetryPolicy,
        report: RunReport,
        system: str,
    ) -> None:
        self.llm = llm
        self.environment = environment
        self.context = context
        self.retry = retry
        self.report = report
        self.shape = llm.shape
        self.opening_messages, self.system = split_system(self.shape, system)
        own_tools = [render_tool(self.shape, tool) for tool in environment.tools]
        self.tools = [*own_tools, *context.tool_definitions(llm.shape)]
        self.messages: list[Json] = []

    def take_turn(self, max_turns: int, watch: Callable[[Step], None]) -> tuple[Ending, str, str] | None:
        """Take one turn. Return how the run ended (ending, why, result), None if it continues."""
        if len(self.report.steps) >= max_turns:
            # Checked before a prompt is prepared, since each prepared prompt counts as a call of the session.
            return "stopped", f"max_turns: {len(self.report.steps)} of {max_turns}", ""
        view = self._prepare_context()
        stop, hint = view.diagnostics.stop, view.diagnostics.hint
        if stop is not None:
            return "stopped", str(stop), ""
        if hint is not None:
            return "stopped", f"no progress for {hint.turns} turns: {hint.why}", ""
        try:
            answer = self._ask_model(view)
        except ModelError as error:
            return "failed", str(error), ""
        self.context.record(answer.reported)
        self.messages.append(answer.message)
        pairs = self._execute_calls(answer.calls)
        watch(self.report.add_turn(answer, pairs, view.diagnostics))
        handed_in = next((outcome for _, outcome in pairs if outcome.done), None)
        if handed_in is not None:
            return "done", "handed in", handed_in.text
        if not pairs and answer.stop != "length":
            return "done", "answered without a call", answer.text
        if not pairs:
            self.messages.append(make_user_message(CONTINUE_PROMPT))
        return None

    def keep_messages(self) -> None:
        """Have the context keep the last messages, although no further call is made."""
        if isinstance(self.context, ConversationKeeper):
            self.report.set_final_costs(self.context.keep(self.messages, system=self.system, tools=self.tools))
        elif self.messages[-1]["role"] != "assistant":
            # A context without `keep` reads the messages when it prepares a call.
            self.context.prepare(self.messages, system=self.system, tools=self.tools)
        if isinstance(self.context, ContextManager):
            self.report.context_report = self.context.session.report()

    def _prepare_context(self) -> PreparedContext:
        view = self.context.prepare(self.messages, system=self.system, tools=self.tools)
        self.report.add_prepared(view.diagnostics)
        return view

    def _ask_model(self, view: PreparedContext) -> ModelAnswer:
        """Return the answer to `view`; to a shorter one where that is too long, after the context learned the limit."""
        for _ in range(MAX_SHORTENINGS):
            try:
                return self.retry.ask_model(self.llm, _make_prompt(view))
            except ModelError as error:
                if not self.context.overflowed(str(error)):
                    raise
                view = self._prepare_context()
        return self.retry.ask_model(self.llm, _make_prompt(view))

    def _execute_calls(self, calls: Sequence[Action]) -> list[tuple[Action, ActionResult]]:
        """Execute the calls in order. Every call gets a result, also when the user interrupts."""
        pairs: list[tuple[Action, ActionResult]] = []
        try:
            for call in calls:
                # The context's own tools come first, since the model sees one list.
                recalled = self.context.handle_tool_call(call.name, call.arguments)
                outcome = self.environment.execute(call) if recalled is None else ActionResult(text=recalled)
                pairs.append((call, outcome))
        finally:
            pairs += [(call, INTERRUPTED_RESULT) for call in calls[len(pairs) :]]
            if pairs:
                self.messages += render_results(self.shape, pairs)
        return pairs


def _make_prompt(view: PreparedContext) -> Prompt:
    tools = view.tools or ()
    extra = view.extra or {}
    return Prompt(messages=view.messages, tools=tools, system=view.system, extra=extra, betas=view.betas)


# -- messages in the shape of the model -------------------------------------------------------------------------------


def make_user_message(text: str) -> Json:
    """Return a message of the user, which is the same in both shapes."""
    return {"role": "user", "content": text}


def render_tool(shape: Shape, tool: Tool) -> Json:
    """Return the definition of a tool."""
    return PROVIDERS[shape].render_tool(
        {"name": tool.name, "description": tool.description, "input_schema": dict(tool.parameters)}
    )


def split_system(shape: Shape, text: str) -> tuple[list[Json], str | None]:
    """Return the messages that begin a request, and the system prompt where it is apart from them."""
    if PROVIDERS[shape].system_field:
        return [], text
    return [{"role": "system", "content": text}], None


def render_results(shape: Shape, results: CallResults) -> list[Json]:
    """Return the results of one message's calls as messages."""
    if shape == "openai":
        return [
            {"role": "tool", "tool_call_id": call.id, "content": outcome.text or EMPTY_RESULT}
            for call, outcome in results
        ]
    blocks = []
    for call, outcome in results:
        block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": outcome.text or EMPTY_RESULT}
        blocks.append({**block, "is_error": True} if outcome.error else block)
    return [{"role": "user", "content": blocks}]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredConversation:
    """The messages so far. system: the prompt that is apart from them (Anthropic); "" where it is one of them."""

    messages: list[Json]
    system: str = ""


def load_conversation(store: Store, session: str, shape: Shape) -> StoredConversation | None:
    """Return the messages of the session's branch that was written last; None if the store has no such session.

    Raises StoreError.
    """
    branches = [
        info
        for info in store.sessions()
        if info.key == session or (info.family == session and info.relation in ("fork", "replaced"))
    ]
    if not branches:
        return None
    newest = max(branches, key=lambda info: info.changed)
    view = State(Sizer(make_counter())).fold_events(store.events(newest.key)).make_raw_view()
    renderer = PROVIDERS[shape].make_renderer()
    messages = renderer.render_unmarked(view)
    if messages and messages[-1]["role"] == "user" and messages[-1].get("content") == _FILLER:
        messages.pop()
    system = (str(block.get("text", "")) for block in renderer.render_system(view))
    return StoredConversation(messages=list(messages), system="\n\n".join(system))


#: What Anthropic's renderer puts behind an assistant message that is the last; the next task takes its place.
_FILLER: Final = [{"type": "text", "text": CONTINUE_TEXT}]
