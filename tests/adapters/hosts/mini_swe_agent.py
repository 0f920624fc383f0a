# mypy: ignore-errors
# What this imports is in an environment of its own.
"""mini-swe-agent: its default agent in a real shell, with LiteLLM's `completion` scripted. It has a sync door only.

The hook is called for each agent, as `hook(settings)`, and returns what the model's configuration has more:
`model_class`, and the fields of that class.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import litellm
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models import get_model

from tests.adapters.recording import Answer, Call, Message
from tests.adapters.scenarios import SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

_END = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


def read_message(message: Any) -> list[Message]:
    """Return the neutral form of a message."""
    if message["role"] == "exit":
        return []
    made = Message(message["role"], message.get("content") or "", answers=message.get("tool_call_id") or "")
    for call in message.get("tool_calls") or ():
        made.calls.append(Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])))
    return [made]


class Host(FrameworkHost):
    PACKAGES = ("mini-swe-agent", "litellm")
    USAGE = "cached"
    MISSING: ClassVar = {
        "async": "its agent is sync",
        "streamed": "its agent does not stream",
        "pictures": "the output of a command is text",
        "resumed": "an agent begins a new list of messages with each run",
        "forked": "an agent begins a new list of messages with each run",
        "sub_agents": "it has none",
        "model_switch": "an agent keeps its model for a run",
        "bound_thinking": "its LiteLLM is scripted here: tests/adapters/cases",
    }

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.agents: dict[str, Any] = {}
        self.players: dict[str, Any] = {}
        litellm.completion = self.complete

    async def run(self, run: Run) -> str:
        self.players[run.thread] = self.stage.make_player(run)
        for step in run.steps:
            for call in step.calls:
                text = describe_failure(call.part) if call.tool == "fail" else list_part(call.part)
                (self.stage.folder / f"{call.tool}_{call.part}").write_text(text, encoding="utf-8")
        config = {**(self.stage.attach() or {}), "model_kwargs": {"user": run.thread}}
        model = get_model(f"openai/{run.model}", config)
        shell = LocalEnvironment(cwd=str(self.stage.folder))
        agent = DefaultAgent(model, shell, system_template=SYSTEM, instance_template="{{task}}", cost_limit=0)
        self.agents[run.thread] = agent
        ending = await asyncio.to_thread(agent.run, run.prompt)
        return str(ending["submission"]).strip() or str(ending["exit_status"])

    def complete(self, *, model: str, messages: Any, tools: Any = (), user: str = "", **_: Any) -> Any:
        """Do as LiteLLM's function of that name: play the script of the agent whose name the request has."""
        player = self.players[user]
        functions = [tool["function"] for tool in tools]
        answer: Answer = player.answer(
            [each for message in messages for each in read_message(message)],
            [{"name": each["name"], "parameters": each["parameters"]} for each in functions],
        )
        if answer.overflow:
            raise litellm.ContextWindowExceededError(answer.refusal, model=model, llm_provider="openai")
        calls = [self._make_call(call) for call in answer.calls]
        calls = calls or [self._make_call(Call("call_end", "bash", {"command": f"{_END}; echo {answer.text!r}"}))]
        usage = answer.usage
        return litellm.ModelResponse(
            model=model,
            choices=[{"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": calls}}],
            usage={
                "prompt_tokens": usage.prompt,
                "completion_tokens": usage.output,
                "total_tokens": usage.prompt + usage.output,
                "prompt_tokens_details": {"cached_tokens": usage.cached},
            },
        )

    def _make_call(self, call: Call) -> Any:
        name, arguments = call.tool, call.arguments
        if name in ("look", "fail"):
            ending = "; exit 3" if name == "fail" else ""
            name, arguments = "bash", {"command": f"cat {call.tool}_{arguments['part']}{ending}"}
        return {"id": call.id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}

    async def read_history(self, thread: str) -> list[Message]:
        return [each for message in self.agents[thread].messages for each in read_message(message)]
