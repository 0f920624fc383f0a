"""The loop: what is sent, what is done, and when it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elision.agent import ActionResult, ModelError, Prompt, RetryPolicy, Shell, Step, Tool, run_agent
from elision.agent.loop import CONTINUE_PROMPT, INTERRUPTED_RESULT, SYSTEM_PROMPT
from elision.agent.model import Shape
from elision.telemetry.diagnostics import Diagnostics
from elision.testing.builders import call, turn
from elision.testing.request_checks import find_problems
from elision.testing.scripted import Line, ScriptedModel
from elision.trajectory.plan import Stop, StopHint
from elision.trajectory.turn import Action, Turn
from tests.agent.pass_through_context import PassThroughContext

SHAPES: list[Shape] = ["openai", "anthropic"]


class Desk:
    """An environment that says what it was asked; its `finish` ends the task."""

    tools = (Tool(name="look", description="Look."), Tool(name="finish", description="End."))

    def __init__(self) -> None:
        self.done: list[Action] = []

    def execute(self, action: Action) -> ActionResult:
        self.done.append(action)
        return ActionResult(
            text=f"{action.name}: {action.arguments}", done=action.name == "finish", error="x" in action.arguments
        )


def says(*calls: Action, text: str = "") -> Turn:
    return Turn(index=1, actions=calls, content=turn(1, text=text).content)


def instant(tries: int = 4) -> tuple[RetryPolicy, list[float]]:
    """A policy that waits in a list instead of in time."""
    waited: list[float] = []
    return RetryPolicy(tries=tries, sleep=waited.append), waited


@pytest.mark.parametrize("shape", SHAPES)
def test_a_task_is_worked_on_until_it_is_handed_in(shape: Shape) -> None:
    """Calls are done in order, parallel ones too, their results go back, and every prompt is sound."""
    script: list[Line] = [
        says(call("look", id="a", at=1), call("look", id="b", at=2), text="Two at once."),
        says(call("look", id="a", at=3)),
        says(call("finish", id="a", answer="mended")),
    ]
    model, desk, context = ScriptedModel(script, shape), Desk(), PassThroughContext()
    run = run_agent(model, desk, "Mend it.", context)
    assert (run.ending, run.result) == ("done", 'finish: {"answer": "mended"}')
    assert [action.decoded_arguments.get("at") for action in desk.done] == [1, 2, 3, None]
    for prompt in model.prompts:
        body: dict[str, Any] = {"model": "m", "max_tokens": 9, "messages": [*prompt.messages], "tools": [*prompt.tools]}
        assert find_problems(shape, body | ({"system": prompt.system} if prompt.system else {})) == []
    assert [len(prompt.messages) for prompt in model.prompts] == ([2, 5, 7] if shape == "openai" else [1, 3, 5])
    assert SYSTEM_PROMPT in str(model.prompts[0].messages if shape == "openai" else model.prompts[0].system)
    assert len(context.recorded) == 3


def test_an_answer_without_a_call_is_the_end() -> None:
    """The words are the result, and the context has seen them."""
    context = PassThroughContext()
    run = run_agent(ScriptedModel(["It is 42."]), Desk(), "What is it?", context)
    assert (run.ending, run.result, run.why) == ("done", "It is 42.", "answered without a call")
    assert context.kept[-1]["content"] == "It is 42."


def test_a_cut_answer_goes_on() -> None:
    """An answer that ran into its limit without a call is no end: the model is told to go on."""

    class Cut(ScriptedModel):
        def answer(self, prompt: Prompt) -> Any:
            from dataclasses import replace

            answer = super().answer(prompt)
            return replace(answer, stop="length") if len(self.prompts) == 1 else answer

    model = Cut(["It is", "It is 42."])
    run = run_agent(model, Desk(), "What is it?", PassThroughContext())
    assert run.result == "It is 42."
    assert model.prompts[1].messages[-1] == {"role": "user", "content": CONTINUE_PROMPT}


def test_guards_stop() -> None:
    """A stop, a hint, or the agent's own limit of turns ends the run before the next request."""
    looks: list[Line] = [says(call("look", n=n)) for n in range(9)]
    stop = PassThroughContext(stop=Stop(guard="max_cost_usd", limit=1.0, value=1.2))
    run = run_agent(ScriptedModel(looks), Desk(), "Go.", stop)
    assert (run.ending, run.why, len(run.report.steps)) == ("stopped", "max_cost_usd: 1.2 of 1", 2)
    hint = PassThroughContext(hint=StopHint(turns=6, why="the same call again"))
    assert "no progress for 6 turns" in run_agent(ScriptedModel(looks), Desk(), "Go.", hint).why
    run = run_agent(ScriptedModel(looks), Desk(), "Go.", PassThroughContext(), max_turns=3)
    assert (run.ending, run.why, len(run.report.steps)) == ("stopped", "max_turns: 3 of 3", 3)
    assert run.report.prepared_calls == 3


def test_passing_errors_are_retried() -> None:
    """Each wait is twice the last, or what the server asks for; the run goes on as if nothing had been."""
    patience, waited = instant()
    script: list[Line] = [
        ModelError("busy", is_temporary=True),
        ModelError("busy", is_temporary=True, wait_seconds=7),
        "Done.",
    ]
    run = run_agent(ScriptedModel(script), Desk(), "Go.", PassThroughContext(), retry=patience)
    assert (run.ending, waited) == ("done", [1.0, 7])


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ([ModelError("busy", is_temporary=True)] * 4, 4),
        ([ModelError("no such model")], 1),
        ([ModelError("come back tomorrow", is_temporary=True, wait_seconds=86_400)], 1),
    ],
)
def test_a_model_that_fails_for_good_ends_the_run(script: list[Line], asked: int) -> None:
    """Tries are bounded; what waiting does not mend, or not soon, is not tried again."""
    patience, _ = instant()
    model = ScriptedModel(script)
    run = run_agent(model, Desk(), "Go.", PassThroughContext(), retry=patience)
    assert (run.ending, len(model.prompts)) == ("failed", asked)
    assert run.why == str(script[-1])


def test_a_prompt_that_is_too_long_is_prepared_again() -> None:
    """The context is told what the provider said, and its shorter view is sent."""
    script: list[Line] = [
        ModelError("prompt is too long: 12 tokens > 9 maximum", sent_tokens=12, room_tokens=9),
        "Done.",
    ]
    context, model = PassThroughContext(), ScriptedModel(script)
    assert run_agent(model, Desk(), "Go.", context).ending == "done"
    assert context.learned == ["prompt is too long: 12 tokens > 9 maximum"]
    assert len(model.prompts[1].messages) < len(model.prompts[0].messages)


def test_the_context_answers_its_own_tools() -> None:
    """A call of a tool of the context's is not the environment's."""
    desk = Desk()
    run = run_agent(ScriptedModel([says(call("recall", handle="t1.1")), "Done."]), desk, "Go.", PassThroughContext())
    assert desk.done == []
    assert run.messages[3]["content"] == "as it was"


def test_a_session_goes_on() -> None:
    """A history is continued as it is; the task follows it if there is one."""
    first = run_agent(ScriptedModel(["Hello."]), Desk(), "Greet.", PassThroughContext())
    model = ScriptedModel(["Bye."])
    run_agent(model, Desk(), "And now leave.", PassThroughContext(), history=first.messages)
    assert [message["role"] for message in model.prompts[0].messages] == ["system", "user", "assistant", "user"]


def test_interruption_passes_through() -> None:
    """Ctrl-C in a tool ends the run at once; the answer under way is kept, every call of it with a result."""

    class Interrupted(Desk):
        def execute(self, action: Action) -> ActionResult:
            raise KeyboardInterrupt

    context = PassThroughContext()
    with pytest.raises(KeyboardInterrupt):
        run_agent(ScriptedModel([says(call("look", id="a"), call("look", id="b"))]), Interrupted(), "Go.", context)
    assert find_problems("openai", {"model": "m", "messages": context.kept}) == []
    assert [message["content"] for message in context.kept[-2:]] == [INTERRUPTED_RESULT.text] * 2


def test_steps_are_watched_and_reported(tmp_path: Path) -> None:
    """Every turn is told when it is over: what it was for, what it called, what failed."""
    steps: list[Step] = []
    script: list[Line] = [
        says(call("bash", command="ls -la"), text="Look."),
        says(call("bash", command="printf 'def test_one():\\n    assert True\\n' > test_one.py")),
        says(call("bash", command="echo '===== 1 passed in 0.01s ====='")),
        says(call("bash", command="false")),
        "Done.",
    ]
    run = run_agent(ScriptedModel(script), Shell(tmp_path), "Test.", PassThroughContext(), watch=steps.append)
    assert [step.phase for step in steps] == ["explore", "edit", "test", "explore", "talk"]
    assert [step.failed for step in steps] == [0, 0, 0, 1, 0]
    assert steps[0].calls == ("ls -la",)
    report = run.report
    assert report.phases["explore"] == 2
    assert report.usage.input == sum(step.usage.input for step in steps if step.usage)
    assert isinstance(report.newest, Diagnostics)


def test_a_script_that_is_over_says_so() -> None:
    """A model that is asked more often than its script is long fails loudly."""
    with pytest.raises(AssertionError, match="1 lines"):
        run_agent(ScriptedModel([says(call("look"))]), Desk(), "Go.", PassThroughContext())
