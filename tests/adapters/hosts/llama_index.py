# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LlamaIndex's `FunctionAgent`, with a memory in SQLite. It has an async door only.

The hook is called for each agent, as `hook(settings, session, options)`, and returns a `FunctionAgent` (or a subclass)
that is made of the options: `llm`, `tools`, `system_prompt`, `streaming`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ImageBlock,
    LLMMetadata,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from openai import BadRequestError

from tests.adapters.hosts.provider_errors import make_overflow
from tests.adapters.recording import Answer, Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

#: Large enough that its memory never drops a message.
_TOKEN_LIMIT = 10**9


def read_message(message: ChatMessage) -> list[Message]:
    """Return the neutral form of a message."""
    made = Message(message.role.value, answers=message.additional_kwargs.get("tool_call_id", ""))
    for block in message.blocks:
        if isinstance(block, TextBlock):
            made.text += block.text
        elif isinstance(block, ImageBlock):
            made.images.append(digest_image(bytes(block.image or b"")))
        elif isinstance(block, ToolCallBlock):
            arguments = block.tool_kwargs
            arguments = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
            made.calls.append(Call(block.tool_call_id or "", block.tool_name, arguments))
    return [made]


class ScriptedLLM(FunctionCallingLLM):
    """An LLM that plays a script."""

    player: Any = None
    stage: Any = None

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(is_function_calling_model=True, model_name=self.player.model)

    def _prepare_chat_with_tools(self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any) -> Any:
        return {"messages": chat_history or [], "tools": [tool.metadata.to_openai_tool()["function"] for tool in tools]}

    def get_tool_calls_from_response(self, response: Any, error_on_no_tool_call: bool = True, **_: Any) -> Any:
        return [
            ToolSelection(tool_id=block.tool_call_id or "", tool_name=block.tool_name, tool_kwargs=block.tool_kwargs)
            for block in response.message.blocks
            if isinstance(block, ToolCallBlock)
        ]

    def _answer(self, messages: Any, tools: Any) -> ChatResponse:
        self.stage.recorder.note_sent(self.player.agent, messages, read_message)
        seen = [each for message in messages for each in read_message(message)]
        answer: Answer = self.player.answer(
            seen, [{"name": tool["name"], "parameters": tool["parameters"]} for tool in tools or ()]
        )
        if answer.overflow:
            raise make_overflow(BadRequestError, answer)
        blocks: list[Any] = [
            ToolCallBlock(tool_call_id=call.id, tool_name=call.tool, tool_kwargs=call.arguments)
            for call in answer.calls
        ]
        usage = {
            "prompt_tokens": answer.usage.prompt,
            "completion_tokens": answer.usage.output,
            "total_tokens": answer.usage.prompt + answer.usage.output,
            "prompt_tokens_details": {"cached_tokens": answer.usage.cached},
        }
        said = ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks or [TextBlock(text=answer.text)])
        return ChatResponse(message=said, raw={"usage": usage}, delta=answer.text)

    async def achat(self, messages: Any, tools: Any = None, **_: Any) -> ChatResponse:
        return self._answer(messages, tools)

    async def astream_chat(self, messages: Any, tools: Any = None, **_: Any) -> Any:
        async def stream() -> AsyncIterator[ChatResponse]:
            yield self._answer(messages, tools)

        return stream()

    def chat(self, messages: Any, **_: Any) -> Any:
        raise NotImplementedError

    def stream_chat(self, messages: Any, **_: Any) -> Any:
        raise NotImplementedError

    def complete(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def acomplete(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    def stream_complete(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError

    async def astream_complete(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ValueError(describe_failure(part))


def picture(part: int) -> Any:
    """Shows a part."""
    return [TextBlock(text=list_part(part)), ImageBlock(image=PIXEL, image_mimetype="image/png")]


class Host(FrameworkHost):
    PACKAGES = ("llama-index-core",)
    USAGE = "cached"
    MISSING: ClassVar = {"bound_thinking": "its core has no client for Anthropic's API"}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    async def run(self, run: Run) -> str:
        async def delegate(part: int) -> str:
            """Asks another agent for a part."""
            child = self._make_agent(self.stage.make_child_player(run), [look])
            return str(await child.run(f"List all of part {part}.", max_iterations=100))

        memory = self._open_memory(run.thread)
        if run.begin == "fork":
            messages = await self._open_memory(run.source).aget_all()
            read = [each for message in messages for each in read_message(message)]
            await memory.aput_messages(messages[: take_turns(read, run.turns)])
        agent = self._make_agent(self.stage.make_player(run), [look, fail, picture, delegate], run.stream)
        handler = agent.run(run.prompt, memory=memory, max_iterations=100)
        if run.stream:
            async for _ in handler.stream_events():
                pass
        return str(await handler)

    def _make_agent(self, player: Any, tools: list[Any], streaming: bool = False) -> Any:
        options = {
            "llm": ScriptedLLM(player=player, stage=self.stage),
            "tools": [FunctionTool.from_defaults(tool) for tool in tools if tool.__name__ != "delegate"],
            "system_prompt": SYSTEM,
            "streaming": streaming,
        }
        options["tools"] += [FunctionTool.from_defaults(async_fn=tool) for tool in tools if tool.__name__ == "delegate"]
        agent = self.stage.attach(player.agent, options) or FunctionAgent(**options)
        recorder = self.stage.recorder

        class TappedAgent(type(agent)):
            """Notes the messages before the adapter, whose methods these override."""

            async def _get_response(self, current_llm_input: Any, tools: Any) -> Any:
                recorder.note_given(player.agent, current_llm_input)
                return await super()._get_response(current_llm_input, tools)

            async def _get_streaming_response(self, ctx: Any, current_llm_input: Any, tools: Any) -> Any:
                recorder.note_given(player.agent, current_llm_input)
                return await super()._get_streaming_response(ctx, current_llm_input, tools)

        agent.__class__ = TappedAgent
        return agent

    def _open_memory(self, thread: str) -> Memory:
        uri = f"sqlite+aiosqlite:///{self.stage.folder}/{thread}.db"
        return Memory.from_defaults(
            session_id=thread, token_limit=_TOKEN_LIMIT, async_database_uri=uri, tokenizer_fn=str.split
        )

    async def read_history(self, thread: str) -> list[Message]:
        messages = await self._open_memory(thread).aget_all()
        return [each for message in messages for each in read_message(message)]
