"""Pydantic AI's messages beside those of OpenAI and Anthropic. Import it after `check_framework`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from elision.adapters.mirror import Mirror, PlainMessage, read_message_text

# -- OpenAI's shape ---------------------------------------------------------------------------------------------------


def make_openai_messages(message: ModelMessage) -> list[PlainMessage]:
    """Return a plain message for each part of a request that is known, or one for a response."""
    if isinstance(message, ModelRequest):
        return [_make_openai_part(part) for part in message.parts if _is_known(part)]
    made: PlainMessage = {"role": "assistant", "content": _join_texts(message)}
    thoughts = [part for part in message.parts if isinstance(part, ThinkingPart)]
    if thoughts:
        made["reasoning_content"] = "\n".join(part.content for part in thoughts)
    if any(part.signature for part in thoughts):
        made["thinking_blocks"] = [_make_thought(part) for part in thoughts]
    if calls := [part for part in message.parts if isinstance(part, ToolCallPart)]:
        made["tool_calls"] = [
            {
                "id": part.tool_call_id,
                "type": "function",
                "function": {"name": part.tool_name, "arguments": part.args_as_json_str()},
            }
            for part in calls
        ]
    return [made]


def _make_openai_part(part: Any) -> PlainMessage:
    if _is_result(part):
        content = _list_content(part, make_openai_image)
        return {"role": "tool", "tool_call_id": part.tool_call_id, "name": part.tool_name, "content": content}
    role = "system" if isinstance(part, SystemPromptPart) else "user"
    return {"role": role, "content": _list_content(part, make_openai_image)}


def make_openai_image(file: BinaryContent | ImageUrl) -> dict[str, Any]:
    """Return the block of an image."""
    return {"type": "image_url", "image_url": {"url": _find_url(file)}}


# -- Anthropic's shape ------------------------------------------------------------------------------------------------


def make_anthropic_messages(message: ModelMessage) -> list[PlainMessage]:
    """Return a plain message for each part of a request that is known, or one for a response."""
    if isinstance(message, ModelRequest):
        return [_make_anthropic_part(part) for part in message.parts if _is_known_to_anthropic(part)]
    blocks: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, ThinkingPart):
            blocks.append(_make_thought(part))
        elif isinstance(part, TextPart):
            blocks.append({"type": "text", "text": part.content})
        elif isinstance(part, ToolCallPart):
            use = {"id": part.tool_call_id, "name": part.tool_name, "input": part.args_as_dict()}
            blocks.append({"type": "tool_use", **use})
    return [{"role": "assistant", "content": blocks}]


def _make_anthropic_part(part: Any) -> PlainMessage:
    content = _list_content(part, _make_anthropic_image)
    if not _is_result(part):
        return {"role": "user", "content": content}
    result = {"type": "tool_result", "tool_use_id": part.tool_call_id, "content": content}
    if getattr(part, "outcome", "retried") != "success":
        result["is_error"] = True
    return {"role": "user", "content": [result]}


def _make_anthropic_image(file: BinaryContent | ImageUrl) -> dict[str, Any]:
    if isinstance(file, ImageUrl):
        return {"type": "image", "source": {"type": "url", "url": file.url}}
    source = {"type": "base64", "media_type": file.media_type, "data": file.base64}
    return {"type": "image", "source": source}


def _make_thought(part: ThinkingPart) -> dict[str, Any]:
    return {"type": "thinking", "thinking": part.content, "signature": part.signature or ""}


# -- what both shapes share -------------------------------------------------------------------------------------------


def _is_result(part: Any) -> bool:
    return isinstance(part, ToolReturnPart) or (isinstance(part, RetryPromptPart) and bool(part.tool_name))


def _is_known(part: Any) -> bool:
    """Return whether a part of a request has a plain message. Others are sent with their request, unchanged."""
    return isinstance(part, SystemPromptPart | UserPromptPart | ToolReturnPart | RetryPromptPart)


def _is_known_to_anthropic(part: Any) -> bool:
    """Return the same where the parts of the system are sent beside the messages."""
    return _is_known(part) and not isinstance(part, SystemPromptPart)


def _join_texts(message: ModelResponse) -> str:
    return "".join(part.content for part in message.parts if isinstance(part, TextPart))


def _list_content(part: Any, make_image: Any) -> Any:
    """Return the text of a part; a list of blocks where it has images or other files."""
    if isinstance(part, ToolReturnPart):
        items = [part.content] if isinstance(part.content, str) else part.content_items(mode="str")
    elif isinstance(part, RetryPromptPart):
        items = [part.model_response()]
    else:
        items = [part.content] if isinstance(part.content, str) else list(part.content)
    if all(isinstance(item, str) for item in items):
        return "\n".join(items)
    return [_make_block(item, make_image) for item in items]


def _make_block(item: Any, make_image: Any) -> dict[str, Any]:
    if isinstance(item, ImageUrl) or (isinstance(item, BinaryContent) and item.is_image):
        made: dict[str, Any] = make_image(item)
        return made
    text = item if isinstance(item, str) else getattr(item, "content", None)
    return {"type": "text", "text": text if isinstance(text, str) else f"[{type(item).__name__}]"}


def _find_url(file: BinaryContent | ImageUrl) -> str:
    return str(file.url if isinstance(file, ImageUrl) else file.data_uri)


def _rebuild_openai_message(message: ModelMessage, sent: Mapping[int, PlainMessage]) -> ModelMessage | None:
    return _rebuild_message(message, sent, _is_known)


def _rebuild_anthropic_message(message: ModelMessage, sent: Mapping[int, PlainMessage]) -> ModelMessage | None:
    return _rebuild_message(message, sent, _is_known_to_anthropic)


def _rebuild_message(
    message: ModelMessage, sent: Mapping[int, PlainMessage], has_plain: Callable[[Any], bool]
) -> ModelMessage | None:
    """Return a copy of a request whose hidden parts say what is sent; None where no part is left."""
    if isinstance(message, ModelResponse):
        return message
    parts: list[Any] = []
    place = 0
    for part in message.parts:
        if not has_plain(part):
            parts.append(part)
            continue
        if place in sent:
            parts.append(_rebuild_part(part, sent[place]))
        place += 1
    if len(parts) == len(message.parts) and all(one is two for one, two in zip(parts, message.parts, strict=True)):
        return message
    return replace(message, parts=parts) if parts else None


def _rebuild_part(part: Any, sent: PlainMessage) -> Any:
    content = sent["content"]
    if _is_result(part) and isinstance(content, list) and content[0].get("type") == "tool_result":
        content = content[0]["content"]
    # Blocks are those of the part itself: what is hidden has a text. Cache breakpoints are the framework's to set.
    text = content if isinstance(content, str) else read_message_text({"content": content})
    given = _list_content(part, make_openai_image)
    if text == (given if isinstance(given, str) else read_message_text({"content": given})):
        return part
    return replace(part, content=text)


def make_user_message(text: str) -> ModelMessage:
    """Return a request of the user with a text."""
    return ModelRequest(parts=[UserPromptPart(text)])


OPENAI_MIRROR: Final[Mirror[ModelMessage]] = Mirror(make_openai_messages, _rebuild_openai_message, make_user_message)
ANTHROPIC_MIRROR: Final[Mirror[ModelMessage]] = Mirror(
    make_anthropic_messages, _rebuild_anthropic_message, make_user_message
)


def is_anthropic(model: Any) -> bool:
    """Return whether a model speaks Anthropic's own API, within the models that wrap it."""
    for _ in range(20):
        if any(kind.__name__ == "AnthropicModel" for kind in type(model).__mro__):
            return True
        if not hasattr(model, "wrapped"):
            break
        model = model.wrapped
    return False


def find_system(parameters: Any, messages: Sequence[ModelMessage], *, anthropic: bool) -> str | None:
    """Return the text that is sent beside the messages: the instructions, and to Anthropic all of the system's."""
    texts = [part.content for part in parameters.instruction_parts or ()]
    if anthropic:
        parts = [part for message in messages if isinstance(message, ModelRequest) for part in message.parts]
        texts = [part.content for part in parts if isinstance(part, SystemPromptPart)] + texts
    return "\n\n".join(texts) or None


def make_tools(parameters: Any, *, anthropic: bool) -> list[dict[str, Any]]:
    """Return the definitions of a request's tools, those for structured output too."""
    tools: Sequence[Any] = [*parameters.function_tools, *parameters.output_tools]
    if anthropic:
        return [
            {"name": tool.name, "description": tool.description or "", "input_schema": tool.parameters_json_schema}
            for tool in tools
        ]
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.parameters_json_schema,
            },
        }
        for tool in tools
    ]
