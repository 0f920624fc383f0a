"""LlamaIndex: its `FunctionAgent`.

elision = ElisionFunctionAgents("masking(window=10)")
agent = elision.make_agent(llm=llm, tools=tools, system_prompt="Be careful.")
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    RequestParts,
    SessionOwner,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage

check_framework("llama-index-core", "0.14.5", "llama-index")

from llama_index.core.agent.workflow import FunctionAgent  # noqa: E402
from llama_index.core.base.llms.types import (  # noqa: E402
    ChatMessage,
    ChatResponse,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402
from llama_index.core.tools import FunctionTool, ToolMetadata  # noqa: E402
from llama_index.core.workflow import Context  # noqa: E402

#: The session of the step that runs now.
_session: Final[ContextVar[str]] = ContextVar("elision_session", default="")
_ID_KEY: Final = "elision_session"
#: Of LlamaIndex's roles those that others name otherwise.
_ROLES: Final = {"chatbot": "assistant", "model": "assistant"}


class ElisionFunctionAgents(SessionOwner):
    """Make function agents of LlamaIndex whose requests stay small. Memory keeps the whole history.

        elision = ElisionFunctionAgents("masking(window=10)")
        agent = elision.make_agent(llm=llm, tools=tools, system_prompt="Be careful.")
        await agent.run("List all parts.", memory=Memory.from_defaults(session_id="thread-7"))

    One serves any number of agents, memories and event loops. Each agent of a memory has a session, `MEMORY/AGENT`,
    such as `thread-7/Agent`. The agents get the recall tools.

    strategy, options: as for `elision.Sessions`. `model` is the LLM's. sessions: a pool to use instead of an own one;
        it is not closed here.

    A prompt that the provider finds too long is made shorter and sent once more. An error of Elision is logged, and
    that request goes out unchanged. Raises FrameworkError on import without llama-index-core 0.14.5; SettingError,
    SpecError, StoreError as `Sessions` does.
    """

    def make_agent(self, **options: Any) -> FunctionAgent:
        """Return a function agent. options: as for `FunctionAgent`; its tools get the recall tools beside them."""
        agent = _SmallRequestAgent(**options)
        agent.tools = [*(agent.tools or ()), *agent.make_recall_tools(self.calls)]
        return agent


class _SmallRequestAgent(FunctionAgent):
    """A function agent whose LLM gets what Elision made of its input."""

    _calls: GuardedCalls = PrivateAttr()

    def make_recall_tools(self, calls: GuardedCalls) -> list[Any]:
        """Return the recall tools, and take the calls that answer them."""
        self._calls = calls

        async def find_session(ctx: Context) -> str:
            return await self._name_session(ctx, await ctx.store.get("memory", default=None))

        return [_make_recall_tool(calls, definition, find_session) for definition in list_recall_definitions()]

    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> Any:
        _session.set(await self._name_session(ctx, memory))
        return await super().take_step(ctx, llm_input, tools, memory)

    async def _name_session(self, ctx: Any, memory: Any) -> str:
        """Return the name of the memory's session; one that is kept in the context where the memory has none."""
        found = getattr(memory, "session_id", None)
        if not found:
            found = await ctx.store.get(_ID_KEY, default=None) or uuid.uuid4().hex
            await ctx.store.set(_ID_KEY, found)
        return f"{found}/{self.name}"

    async def _get_response(self, current_llm_input: list[ChatMessage], tools: Any) -> ChatResponse:
        call = await self._begin_call(current_llm_input, tools)
        send = super()._get_response
        response = await call.send_async(lambda: send(call.messages, tools))
        record_usage(call, response)
        return response

    async def _get_streaming_response(self, ctx: Any, current_llm_input: list[ChatMessage], tools: Any) -> ChatResponse:
        call = await self._begin_call(current_llm_input, tools)
        send = super()._get_streaming_response
        response = await call.send_async(lambda: send(ctx, call.messages, tools))
        record_usage(call, response)
        return response

    async def _begin_call(self, messages: Sequence[ChatMessage], tools: Sequence[Any]) -> GuardedCall[ChatMessage]:
        def describe() -> CallDescription[ChatMessage]:
            definitions = [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools]
            model = self.llm.metadata.model_name
            # What LlamaIndex calls a model whose name it does not know.
            parts = RequestParts(tools=definitions, model="" if model == "unknown" else model)
            return CallDescription(name=_session.get(), mirror=MIRROR, parts=parts)

        return await self._calls.begin_described_async(messages, describe)


def record_usage(call: GuardedCall[Any], response: Any) -> None:
    """Record the usage that the provider reported, if it did."""
    raw = getattr(response, "raw", None)
    for name in ("usage", "usage_metadata"):
        usage = raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)
        if usage:
            call.record(usage)
            return


class _RecallToolMetadata(ToolMetadata):
    """The metadata of a recall tool, with its JSON Schema as it is."""

    schema: Mapping[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return dict(self.schema)


def _make_recall_tool(
    calls: GuardedCalls, definition: RecallDefinition, find_session: Callable[[Context], Awaitable[str]]
) -> FunctionTool:
    """Return a recall tool. find_session: returns the session's name for the context of a run."""

    async def answer(ctx: Context, **arguments: Any) -> str:
        return await calls.answer_recall_async(await find_session(ctx), definition.name, arguments)

    # The annotation is a text in this module, and LlamaIndex looks for the class.
    answer.__annotations__["ctx"] = Context
    metadata = _RecallToolMetadata(definition.description, definition.name, None)
    metadata.schema = definition.schema
    return FunctionTool(async_fn=answer, metadata=metadata)


# -- messages ---------------------------------------------------------------------------------------------------------


def _make_plain_messages(message: Any) -> list[PlainMessage]:
    if not isinstance(message, ChatMessage):
        return []
    role = message.role.value
    blocks = [_make_block(block) for block in message.blocks if not isinstance(block, ToolCallBlock | ThinkingBlock)]
    content: Any = blocks
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        content = blocks[0]["text"]
    made: PlainMessage = {"role": _ROLES.get(role, role), "content": content}
    # Beside the content, as LiteLLM has it: in the content they would be a sign of Anthropic's shape.
    if thoughts := [_make_thought(block) for block in message.blocks if isinstance(block, ThinkingBlock)]:
        made["thinking_blocks"] = thoughts
    if calls := _list_calls(message):
        made["tool_calls"] = calls
    if message.role == MessageRole.TOOL:
        made["tool_call_id"] = message.additional_kwargs.get("tool_call_id", "")
    return [made]


def _make_block(block: Any) -> dict[str, Any]:
    if isinstance(block, TextBlock):
        return {"type": "text", "text": block.text}
    if isinstance(block, ImageBlock):
        data = base64.b64encode(block.image).decode() if isinstance(block.image, bytes) else str(block.image or "")
        return {"type": "image_url", "image_url": {"url": str(block.url or f"data:image;base64,{data}")}}
    # What others hold counts, and is not changed.
    return {"type": block.block_type, **block.model_dump(mode="json", exclude={"block_type"})}


def _make_thought(block: ThinkingBlock) -> dict[str, Any]:
    signature = block.additional_information.get("signature", "")
    return {"type": "thinking", "thinking": block.content or "", "signature": signature}


def _list_calls(message: ChatMessage) -> list[dict[str, Any]]:
    """Return the calls of a message, from its blocks, or from where older integrations keep them."""
    found = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    if not found:
        older = message.additional_kwargs.get("tool_calls") or ()
        return [each if isinstance(each, dict) else each.model_dump() for each in older]
    return [
        {
            "id": block.tool_call_id or "",
            "type": "function",
            "function": {
                "name": block.tool_name,
                "arguments": block.tool_kwargs if isinstance(block.tool_kwargs, str) else json.dumps(block.tool_kwargs),
            },
        }
        for block in found
    ]


def _rebuild_message(message: ChatMessage, sent: Mapping[int, PlainMessage]) -> ChatMessage:
    content = sent[0]["content"]
    text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    copied: ChatMessage = message.model_copy(update={"blocks": [TextBlock(text=text)]})
    return copied


MIRROR: Final[Mirror[ChatMessage]] = Mirror(
    _make_plain_messages, _rebuild_message, lambda text: ChatMessage(role=MessageRole.USER, content=text)
)
