"""LlamaIndex's messages beside those of OpenAI, its usage, and the recall tools as it takes them.

Import it after `check_framework`: it imports llama-index-core.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.workflow import Context

from elision.adapters.guarded_calls import GuardedCall, GuardedCalls, list_recall_definitions
from elision.adapters.mirror import Mirror, PlainMessage

_ROLES: Final = {"chatbot": "assistant", "model": "assistant"}


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
            "function": {"name": block.tool_name, "arguments": _write_arguments(block.tool_kwargs)},
        }
        for block in found
    ]


def _write_arguments(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _rebuild_message(message: ChatMessage, sent: Mapping[int, PlainMessage]) -> ChatMessage:
    content = sent[0]["content"]
    text = content if isinstance(content, str) else "".join(block.get("text", "") for block in content)
    copied: ChatMessage = message.model_copy(update={"blocks": [TextBlock(text=text)]})
    return copied


def _make_user_message(text: str) -> ChatMessage:
    return ChatMessage(role=MessageRole.USER, content=text)


MIRROR: Final[Mirror[ChatMessage]] = Mirror(_make_plain_messages, _rebuild_message, _make_user_message)


def record_usage(call: GuardedCall[Any], response: Any) -> None:
    """Record the usage that the provider reported, if it did."""
    raw = getattr(response, "raw", None)
    for name in ("usage", "usage_metadata"):
        usage = raw.get(name) if isinstance(raw, Mapping) else getattr(raw, name, None)
        if usage:
            call.record(usage)
            return


class RecallToolMetadata(ToolMetadata):
    """The metadata of a recall tool, with its JSON Schema as it is."""

    schema: Mapping[str, Any]

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return dict(self.schema)


def make_recall_tool(calls: GuardedCalls, name: str, find_session: Callable[[Context], Awaitable[str]]) -> FunctionTool:
    """Return the recall tool `name`. find_session: returns the session's name for the context of a run."""
    definition = next(each for each in list_recall_definitions() if each.name == name)

    async def answer(ctx: Context, **arguments: Any) -> str:
        return await calls.answer_recall_async(await find_session(ctx), name, arguments)

    # The annotation is a text in this module, and LlamaIndex looks for the class.
    answer.__annotations__["ctx"] = Context
    metadata = RecallToolMetadata(definition.description, definition.name, None)
    metadata.schema = definition.schema
    return FunctionTool(async_fn=answer, metadata=metadata)
