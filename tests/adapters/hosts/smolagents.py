# mypy: ignore-errors
# What this imports is in an environment of its own.
"""smolagents' `ToolCallingAgent`. It has a sync door only.

The hook is called for each agent, as `hook(settings, agent)`, and returns nothing: it changes the agent.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

from openai import BadRequestError
from smolagents import ChatMessage, MessageRole, Model, TokenUsage, ToolCallingAgent, tool
from smolagents.memory import ActionStep
from smolagents.models import (
    ChatMessageStreamDelta,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    ChatMessageToolCallStreamDelta,
    get_clean_message_list,
    tool_role_conversions,
)

from tests.adapters.hosts.provider_errors import make_overflow
from tests.adapters.recording import Answer, Call, Message, SuccessivePlayers
from tests.adapters.scenarios import SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

#: The first id of the calls that a message lists, and the name of its tool.
_CALL_ID = re.compile(r"'id': '(\w+)'")
_CALL_NAME = re.compile(r"'name': '(\w+)'")


def read_messages(messages: Any) -> list[Message]:
    """Return the neutral form of a request. The calls of a step are one, as their results are one message.

    The calls of a step that failed are in no message: its result belongs to what the model said.
    """
    made: list[Message] = []
    for message in messages:
        text = "".join(part.get("text", "") for part in message.content)
        if message.role == MessageRole.TOOL_CALL:
            # What the model says before its calls is a message of its own: the same answer.
            said = made.pop().text if made and made[-1].role == "assistant" and not made[-1].calls else ""
            found = _CALL_ID.search(text)
            made.append(Message("assistant", said + text, [_make_call(found[1] if found else "", made, text)]))
        elif message.role == MessageRole.TOOL_RESPONSE:
            if not made[-1].calls:
                made[-1].calls.append(_make_call("", made))
            for prefix in ("Observation:\n", "Error:\n"):
                text = text.removeprefix(prefix)
            made.append(Message("tool", text, answers=made[-1].calls[0].id))
        else:
            made.append(Message(message.role.value, text))
    return made


def _make_call(identity: str, before: list[Message], text: str = "") -> Call:
    found = _CALL_NAME.search(text)
    number = sum(bool(message.calls) for message in before) + 1
    return Call(identity or f"step_{number}", found[1] if found else "calls", {})


class ScriptedModel(Model):
    """A model that plays a script."""

    def __init__(self, player: Any) -> None:
        super().__init__(model_id=getattr(player, "model", "scripted"))
        self.player = player

    def _answer(self, messages: Any, tools: Any) -> Answer:
        # As a real model's request is made: this refuses what a provider would.
        get_clean_message_list(copy.deepcopy(messages), role_conversions=tool_role_conversions)
        schemas = [{"name": each.name, "parameters": each.inputs} for each in tools or ()]
        answer: Answer = self.player.answer(read_messages(messages), schemas)
        if answer.overflow:
            raise make_overflow(BadRequestError, answer)
        for call in answer.calls:
            if call.tool == "delegate":
                call.arguments = {"task": f"List all of part {call.arguments['part']}."}
        return answer

    def generate(
        self,
        messages: Any,
        stop_sequences: Any = None,
        response_format: Any = None,
        tools_to_call_from: Any = None,
        **_: Any,
    ) -> ChatMessage:
        answer = self._answer(messages, tools_to_call_from)
        usage = TokenUsage(answer.usage.prompt, answer.usage.output)
        calls = [
            ChatMessageToolCall(
                id=call.id,
                type="function",
                function=ChatMessageToolCallFunction(name=call.tool, arguments=call.arguments),
            )
            for call in _end_with_call(answer)
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls, token_usage=usage)

    def generate_stream(
        self,
        messages: Any,
        stop_sequences: Any = None,
        response_format: Any = None,
        tools_to_call_from: Any = None,
        **_: Any,
    ) -> Iterator[ChatMessageStreamDelta]:
        answer = self._answer(messages, tools_to_call_from)
        for at, call in enumerate(_end_with_call(answer)):
            function = ChatMessageToolCallFunction(name=call.tool, arguments=json.dumps(call.arguments))
            delta = ChatMessageToolCallStreamDelta(index=at, id=call.id, type="function", function=function)
            yield ChatMessageStreamDelta(content="", tool_calls=[delta])
        yield ChatMessageStreamDelta(content="", token_usage=TokenUsage(answer.usage.prompt, answer.usage.output))


def _end_with_call(answer: Answer) -> list[Call]:
    return answer.calls or [Call("call_end", "final_answer", {"answer": answer.text})]


@tool
def look(part: int) -> str:
    """Lists a part.

    Args:
        part: Which.
    """
    return list_part(part)


@tool
def fail(part: int) -> str:
    """Lists a part that cannot be read.

    Args:
        part: Which.
    """
    raise ValueError(describe_failure(part))


class Host(FrameworkHost):
    PACKAGES = ("smolagents",)
    USAGE = "prompt"
    MISSING: ClassVar = {
        "async": "its agents are sync",
        "pictures": "an image in a result is kept apart from the messages",
        "resumed": "its memory is of one process",
        "bound_thinking": "it has no client for Anthropic's API",
    }

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.agents: dict[str, Any] = {}

    async def run(self, run: Run) -> str:
        model = ScriptedModel(self.stage.make_player(run))
        if run.begin == "continue":
            agent = self.agents[run.thread]
            agent.model = model
        else:
            agent = self._make_agent(run, model)
        if run.begin == "fork":
            steps = self.agents[run.source].memory.steps
            acts = [at for at, step in enumerate(steps) if isinstance(step, ActionStep)]
            agent.memory.steps = copy.deepcopy(steps[: acts[run.turns]])
        self.agents[run.thread] = agent
        fresh = run.begin == "new"
        if run.stream:
            return str(
                await asyncio.to_thread(lambda: list(agent.run(run.prompt, stream=True, reset=fresh))[-1].output)
            )
        return str(await asyncio.to_thread(agent.run, run.prompt, reset=fresh))

    def _make_agent(self, run: Run, model: Any) -> Any:
        children = SuccessivePlayers(lambda: self.stage.make_child_player(run))
        options: Any = {"max_steps": 100, "verbosity_level": 0, "instructions": SYSTEM}
        child = ToolCallingAgent(
            tools=[look],
            model=ScriptedModel(children),
            name="delegate",
            description="Lists a part.",
            **options,
        )
        agent = ToolCallingAgent(
            tools=[look, fail], model=model, managed_agents=[child], stream_outputs=run.stream, **options
        )
        for each in (child, agent):
            self.stage.attach(each)
        return agent

    async def read_history(self, thread: str) -> list[Message]:
        memory = self.agents[thread].memory
        return read_messages(
            [message for step in [memory.system_prompt, *memory.steps] for message in step.to_messages()]
        )
