# mypy: ignore-errors
# What this imports is in an environment of its own.
"""CrewAI: a crew of one agent with one task.

The hook is called for each agent, as `hook(settings, llm)`, and returns `(llm, tools)`: the LLM to ask, and the tools
of the adapter.
"""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, ClassVar

from crewai import Agent, BaseLLM, Crew, Task
from crewai.tools import tool
from crewai.utilities.exceptions.context_window_exceeding_exception import LLMContextLengthExceededError

from tests.adapters.recording import Answer, Call, Message
from tests.adapters.scenarios import SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage


def read_message(message: Any) -> list[Message]:
    """Return the neutral form of a message."""
    made = Message(message["role"], message.get("content") or "", answers=message.get("tool_call_id") or "")
    for call in message.get("tool_calls") or ():
        made.calls.append(Call(call["id"], call["function"]["name"], json.loads(call["function"]["arguments"])))
    return [made]


class ScriptedLLM(BaseLLM):
    """An LLM that plays a script."""

    player: Any = None
    stage: Any = None

    def supports_function_calling(self) -> bool:
        return True

    def get_context_window_size(self) -> int:
        return 1_000_000

    def call(self, messages: Any, tools: Any = None, *_: Any, **__: Any) -> Any:
        self.stage.recorder.note_sent(self.player.agent, messages, read_message)
        functions = [each["function"] for each in tools or ()]
        answer: Answer = self.player.answer(
            [each for message in messages for each in read_message(message)],
            [{"name": each["name"], "parameters": each["parameters"]} for each in functions],
        )
        if answer.overflow:
            raise LLMContextLengthExceededError(answer.refusal)
        usage = {"prompt_tokens": answer.usage.prompt, "completion_tokens": answer.usage.output}
        self._track_token_usage_internal({**usage, "cached_tokens": answer.usage.cached})
        if not answer.calls:
            return answer.text
        return [
            SimpleNamespace(
                id=call.id,
                type="function",
                function=SimpleNamespace(name=call.tool, arguments=json.dumps(call.arguments)),
            )
            for call in answer.calls
        ]

    async def acall(self, messages: Any, tools: Any = None, *_: Any, **__: Any) -> Any:
        return self.call(messages, tools)


@tool("look")
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


@tool("fail")
def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ValueError(describe_failure(part))


class Host(FrameworkHost):
    PACKAGES = ("crewai",)
    USAGE = "prompt"
    MISSING: ClassVar = {
        "streamed": "a stream is events beside the call of its LLM",
        "pictures": "the result of a tool is text",
        "resumed": "the messages of a task end with it",
        "forked": "the messages of a task end with it",
        "model_switch": "an agent keeps its LLM for a task",
        "bound_thinking": "its client of Anthropic's API asks for an older package",
    }

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.agents: dict[str, Any] = {}

    async def run(self, run: Run) -> str:
        @tool("delegate")
        def delegate(part: int) -> str:
            """Asks another agent for a part."""
            child = self._make_crew(self.stage.make_child_player(run), [look], f"List all of part {part}.")
            return str(child.kickoff())

        crew = self._make_crew(self.stage.make_player(run), [look, fail, delegate], run.prompt)
        self.agents[run.thread] = crew.agents[0]
        # Its sync door refuses to run where a loop does, and `kickoff_async` is that door in a thread.
        result = await (crew.kickoff_async() if run.door == "sync" else crew.akickoff())
        return str(result)

    def _make_crew(self, player: Any, tools: list[Any], prompt: str) -> Any:
        llm = ScriptedLLM(model=player.model, player=player, stage=self.stage)
        attached, more = self.stage.attach(llm) or (llm, [])
        for name in ("call", "acall"):
            # Past its model's check of fields.
            object.__setattr__(attached, name, self._note_given(getattr(attached, name), player.agent))
        agent = Agent(
            role="Lister",
            goal="List.",
            backstory=SYSTEM,
            llm=attached,
            tools=[*tools, *more],
            max_iter=100,
            verbose=False,
            cache=False,
        )
        task = Task(description=prompt, expected_output="All.", agent=agent)
        return Crew(agents=[agent], tasks=[task], verbose=False, tracing=False)

    def _note_given(self, function: Any, agent: str) -> Any:
        def call(messages: Any, *others: Any, **named: Any) -> Any:
            self.stage.recorder.note_given(agent, messages)
            return function(messages, *others, **named)

        return call

    async def read_history(self, thread: str) -> list[Message]:
        return [each for message in self.agents[thread].agent_executor.messages for each in read_message(message)]
