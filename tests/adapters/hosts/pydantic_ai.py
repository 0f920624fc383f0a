# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Pydantic AI, with message histories in JSON files.

The hook is called once for a process, as `hook(settings)`, and returns a list of capabilities: every agent of the
process has it, sub-agents too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic_ai import Agent, BinaryContent, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelContextWindowExceededError, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.usage import RequestUsage, UsageLimits

from tests.adapters.recording import Answer, Call, Message, digest_image
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

_LIMITS = UsageLimits(request_limit=200)
#: What it marks as an error: sent as one where the provider has a mark, else in a JSON object.
_FAILED = ("failed", "denied", "interrupted", "retried")


def read_message(message: ModelMessage) -> list[Message]:
    """Return the neutral form of a message: one for each part of a request."""
    if isinstance(message, ModelRequest):
        return [_read_part(part) for part in message.parts]
    made = Message("assistant")
    for part in message.parts:
        if isinstance(part, TextPart):
            made.text += part.content
        elif isinstance(part, ThinkingPart):
            made.thinking.append((part.content, part.signature or ""))
        elif isinstance(part, ToolCallPart):
            made.calls.append(Call(part.tool_call_id, part.tool_name, part.args_as_dict()))
    return [made]


def _read_part(part: Any) -> Message:
    if isinstance(part, ToolReturnPart):
        text = part.content if isinstance(part.content, str) else part.model_response_str(wrap_if_error=False)
        images = [digest_image(file.data) for file in part.files]
        return Message("tool", text, answers=part.tool_call_id, failed=part.outcome in _FAILED, images=images)
    role = "system" if isinstance(part, SystemPromptPart) else "user"
    return Message(role, part.content if isinstance(part.content, str) else str(part.content))


class ScriptedModel(FunctionModel):
    """The framework's scripted model; the usage of a stream is the script's too."""

    def __init__(self, player: Any) -> None:
        self._player = player
        self._usage = RequestUsage()
        super().__init__(self._respond, stream_function=self._respond_in_pieces, model_name=player.model)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> Answer:
        tools = [{"name": tool.name, "parameters": tool.parameters_json_schema} for tool in info.function_tools]
        system = [Message("system", info.instructions)] if info.instructions else []
        answer = self._player.answer(
            [*system, *(each for message in messages for each in read_message(message))], tools
        )
        if answer.overflow:
            raise ModelContextWindowExceededError(self._player.model, answer.refusal)
        found = answer.usage
        self._usage = RequestUsage(
            input_tokens=found.prompt,
            cache_read_tokens=found.cached,
            cache_write_tokens=found.written,
            output_tokens=found.output,
        )
        return answer

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        answer = self._answer(messages, info)
        calls = [ToolCallPart(call.tool, call.arguments, tool_call_id=call.id) for call in answer.calls]
        return ModelResponse(parts=calls or [TextPart(answer.text)], usage=self._usage)

    async def _respond_in_pieces(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        answer = self._answer(messages, info)
        for word in answer.text.split(" ") if answer.text else ():
            yield word + " "
        for at, call in enumerate(answer.calls):
            text = json.dumps(call.arguments)
            yield {at: DeltaToolCall(name=call.tool, json_args=text[:4], tool_call_id=call.id)}
            yield {at: DeltaToolCall(json_args=text[4:])}

    @asynccontextmanager
    async def request_stream(self, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        # The framework's model estimates what a stream uses, piece by piece.
        async with super().request_stream(*arguments, **named) as response:
            finish = response.get

            def get() -> Any:
                made = finish()
                made.usage = self._usage
                return made

            response.get = get
            yield response


@dataclass
class _TapBefore(AbstractCapability[Any]):
    """Notes the messages before the adapter."""

    stage: Stage
    agent: str

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        self.stage.recorder.note_given(self.agent, request_context.messages)
        return request_context


@dataclass
class _TapAfter(AbstractCapability[Any]):
    """Notes the messages that the adapter sends."""

    stage: Stage
    agent: str

    async def prepare_model_request(self, ctx: Any, request_context: Any) -> Any:
        self.stage.recorder.note_sent(self.agent, request_context.messages, read_message)
        return request_context


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ToolFailed(describe_failure(part))


def picture(part: int) -> Any:
    """Shows a part."""
    return [list_part(part), BinaryContent(PIXEL, media_type="image/png")]


class Host(FrameworkHost):
    PACKAGES = ("pydantic-ai-slim", "anthropic")
    MISSING: ClassVar = {}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.capabilities = stage.attach() or []

    async def run(self, run: Run) -> str:
        agent = self._make_agent(run)
        options: Any = {"message_history": self._load_history(run), "usage_limits": _LIMITS}
        if run.stream:
            async with agent.iter(run.prompt, **options) as running:
                async for node in running:
                    if Agent.is_model_request_node(node):
                        async with node.stream(running.ctx) as stream:
                            async for _ in stream:
                                pass
            result: Any = running.result
        elif run.door == "sync":
            # In a thread without a loop, as `run_sync` asks for one.
            result = await asyncio.to_thread(_run_sync, agent, run.prompt, options)
        else:
            result = await agent.run(run.prompt, **options)
        self._find_file(run.thread).write_bytes(result.all_messages_json())
        return str(result.output)

    def _make_agent(self, run: Run) -> Any:
        async def delegate(part: int) -> str:
            """Asks another agent for a part."""
            player = self.stage.make_child_player(run)
            agent: Any = Agent(
                ScriptedModel(player), instructions=SYSTEM, tools=[look], capabilities=self._add_taps(player.agent)
            )
            return str((await agent.run(f"List all of part {part}.", usage_limits=_LIMITS)).output)

        return Agent(
            self._make_model(run),
            instructions=SYSTEM,
            tools=[look, Tool(fail, max_retries=100), picture, delegate],
            capabilities=self._add_taps(run.thread),
        )

    def _add_taps(self, agent: str) -> list[Any]:
        return [_TapBefore(self.stage, agent), *self.capabilities, _TapAfter(self.stage, agent)]

    def _make_model(self, run: Run) -> Any:
        if self.stage.service:
            provider = AnthropicProvider(api_key="none", base_url=self.stage.service)
            return AnthropicModel(run.model, provider=provider)
        return ScriptedModel(self.stage.make_player(run))

    def _find_file(self, thread: str) -> Any:
        return self.stage.folder / f"{thread}.json"

    def _load_history(self, run: Run) -> Any:
        if run.begin == "new":
            return None
        history = ModelMessagesTypeAdapter.validate_json(
            self._find_file(run.source if run.begin == "fork" else run.thread).read_bytes()
        )
        # A turn is a response and the request with its results; the first request is the prompt.
        return history[: 1 + 2 * run.turns] if run.begin == "fork" else history

    async def read_history(self, thread: str) -> list[Message]:
        history = ModelMessagesTypeAdapter.validate_json(self._find_file(thread).read_bytes())
        return [each for message in history for each in read_message(message)]


def _run_sync(agent: Any, prompt: str, options: Any) -> Any:
    asyncio.set_event_loop(asyncio.new_event_loop())
    return agent.run_sync(prompt, **options)
