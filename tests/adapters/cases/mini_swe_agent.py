# mypy: ignore-errors
# What this imports is in an environment of its own.
"""What mini-swe-agent's adapter does beside the contract."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import litellm
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models import get_model

from elision import Sessions
from elision.adapters.mini_swe_agent import ElisionLitellmModel, ElisionLitellmTextbasedModel
from elision.errors import SettingError
from elision.manager.advanced_options import gather_options

STRATEGY = "masking(window=2, schedule=every-turn)"
END = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; echo done"


class Script:
    """LiteLLM's `completion`: each answer is a text, or calls of tools. It keeps what it was sent."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[dict[str, Any]] = []
        litellm.completion = self

    def __call__(self, **request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        message = {"role": "assistant", "content": answer if isinstance(answer, str) else None}
        if not isinstance(answer, str):
            message["tool_calls"] = [
                {
                    "id": f"call_{len(self.requests)}_{place}",
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments)},
                }
                for place, (name, arguments) in enumerate(answer)
            ]
        usage = {"prompt_tokens": 100 * len(self.requests), "completion_tokens": 7}
        return litellm.ModelResponse(usage=usage, choices=[{"finish_reason": "stop", "message": message}])


def bash(command: str) -> tuple[str, dict[str, str]]:
    return ("bash", {"command": command})


def make_options(**more: Any) -> dict[str, Any]:
    return {"model_name": "openai/gpt-5", "cost_tracking": "ignore_errors", **more}


def make_agent(model: Any, **options: Any) -> DefaultAgent:
    return DefaultAgent(
        model, LocalEnvironment(), system_template="You count.", instance_template="{{task}}", cost_limit=0, **options
    )


def count_hidden(messages: list[dict[str, Any]]) -> int:
    return sum(str(message["content"]).startswith("[") for message in messages)


def list_counts(count: int) -> list[Any]:
    return [[bash(f"seq {number}000 {number}400")] for number in range(1, count + 1)]


def check_unknown_option() -> None:
    try:
        ElisionLitellmModel(stratgy="masking", **gather_options(make_options(store="memory:")))
    except SettingError as error:
        message = str(error)
    assert "stratgy" in message


def check_made_by_name_of_class() -> None:
    """As `mini` makes it, from a configuration."""
    config = make_options(model_class="elision.adapters.mini_swe_agent.ElisionLitellmModel", store="memory:")
    with get_model("openai/gpt-5", config) as model:
        assert isinstance(model, ElisionLitellmModel)
        assert model.config.cost_tracking == "ignore_errors"


def check_recall_beside_a_command() -> None:
    """Both are answered, in the order of the calls, and the shell ran what was for it."""
    script = Script(
        *list_counts(6), [("elision_recall", {"handle": "t1.1", "head": 1}), bash("echo beside")], [bash(END)]
    )
    with ElisionLitellmModel(STRATEGY, **gather_options(make_options(store="memory:"))) as model:
        agent = make_agent(model)
        agent.run("Count.")
    recalled, beside = [message["content"] for message in script.requests[-1]["messages"][-2:]]
    assert "returncode" in recalled
    assert "beside" not in recalled
    assert "beside" in beside
    assert [action["command"] for action in agent.messages[14]["extra"]["actions"]] == [
        ': elision_recall \'{"handle": "t1.1", "head": 1}\'',
        "echo beside",
    ]
    assert count_hidden(script.requests[-1]["messages"]) >= 4
    assert count_hidden(agent.messages) == 0


def check_recall_of_nothing() -> None:
    """A handle that is none, and arguments that are no JSON: the model reads why."""
    script = Script([("elision_recall", {"handle": "t9.9"})], [("elision_search", {})], [bash(END)])
    with ElisionLitellmModel(STRATEGY, **gather_options(make_options(store="memory:"))) as model:
        make_agent(model).run("Count.")
    answers = [message["content"] for message in script.requests[-1]["messages"] if message["role"] == "tool"]
    assert len(answers) == 2
    assert all(answers), answers


def check_unusable_answer_is_billed() -> None:
    """An answer in the wrong form is paid for, though the agent throws it away."""
    Script([("no_such_tool", {})], [bash(END)])
    with ElisionLitellmModel(STRATEGY, **gather_options(make_options(store="memory:"))) as model:
        make_agent(model).run("Count.")
        (session,) = model.list_sessions()
        context = model.sessions.open(session)
        assert context.session.report().savings.basis == "reported"


def check_two_agents_in_turns() -> None:
    """One model serves two agents that take turns: each history has a session."""
    script = Script(*(answer for answer in list_counts(6) for _ in range(2)))
    with ElisionLitellmModel(STRATEGY, **gather_options(make_options(store="memory:"))) as model:
        agents = [make_agent(model) for _ in range(2)]
        for number, agent in enumerate(agents):
            agent.add_messages({"role": "system", "content": "You."}, {"role": "user", "content": f"Task {number}."})
        for _ in range(6):
            for agent in agents:
                agent.step()
        assert len(model.list_sessions()) == 2
    assert count_hidden(script.requests[-1]["messages"]) == 3


def check_shared_sessions_stay_open() -> None:
    Script([bash(END)])
    with Sessions(STRATEGY, store="memory:") as sessions:
        with ElisionLitellmModel(sessions=sessions, **gather_options(make_options())) as model:
            make_agent(model).run("Count.")
        assert len(sessions.open(model.list_sessions()[0]).turns) == 0


def check_trajectory_file() -> None:
    """It has the raw outputs, and the name of the session."""
    path = Path(mkdtemp()) / "run.json"
    Script(*list_counts(6), [bash(END)])
    with ElisionLitellmModel(STRATEGY, **gather_options(make_options(store="memory:"))) as model:
        make_agent(model, output_path=path).run("Count.")
        saved = json.loads(path.read_text(encoding="utf-8"))
        assert saved["info"]["config"]["elision"] == {"sessions": model.list_sessions()}
    assert count_hidden(saved["messages"]) == 0
    assert "1400" in saved["messages"][3]["content"]


def check_second_overflow_ends_the_run() -> None:
    error = litellm.ContextWindowExceededError(
        "prompt is too long: 9000 tokens > 4000 maximum", model="gpt-5", llm_provider="openai"
    )
    script = Script(*list_counts(5), error, error)
    with ElisionLitellmModel("masking(window=2)", **gather_options(make_options(store="memory:"))) as model:
        try:
            make_agent(model).run("Count.")
        except litellm.ContextWindowExceededError:
            pass
        else:
            raise AssertionError("the second refusal was lost")
    assert len(script.requests) == 7


def check_bound_thinking_is_left_alone() -> None:
    """Signed thinking of a model that binds it: nothing before it changes."""
    history = [{"role": "system", "content": "You count."}, {"role": "user", "content": "Count."}]
    for number in range(8):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
        thinking = {"type": "thinking", "thinking": f"Now {number}.", "signature": f"signed-{number}"}
        history.append(
            {"role": "assistant", "content": None, "tool_calls": [call], "thinking_blocks": [thinking], "extra": {}}
        )
        history.append({"role": "tool", "tool_call_id": f"c{number}", "content": f"{number}\n" * 900})
    script = Script([bash("true")])
    with ElisionLitellmModel(
        STRATEGY, **gather_options(make_options(store="memory:", model_name="anthropic/claude-opus-5-5"))
    ) as model:
        model.query(history)
    assert count_hidden(script.requests[0]["messages"]) == 0
    assert script.requests[0]["messages"][2]["thinking_blocks"] == history[2]["thinking_blocks"]


def check_text_based_model() -> None:
    """Its outputs are messages of the user; it has no tools."""
    fence = "```mswea_bash_command\n{}\n```"
    commands = [f"seq {number}000 {number}400" for number in range(1, 7)]
    script = Script(*(fence.format(command) for command in [*commands, END]))
    with ElisionLitellmTextbasedModel(STRATEGY, **gather_options(make_options(store="memory:"))) as model:
        agent = make_agent(model)
        agent.run("Count.")
    assert "tools" not in script.requests[-1]
    assert count_hidden(script.requests[-1]["messages"]) == 4
    assert count_hidden(agent.messages) == 0
