"""LangChain's messages beside those of OpenAI and Anthropic, and its sessions: what its adapters share.

Import it after `check_framework`: it imports langchain-core and LangGraph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.prebuilt import ToolRuntime

from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    RequestParts,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage, make_anthropic_tool

_ROLES: Final = (
    (HumanMessage, "user"),
    (AIMessage, "assistant"),
    (ToolMessage, "tool"),
    (SystemMessage, "system"),
    (FunctionMessage, "function"),
)
#: Blocks that name a call which `tool_calls` has too.
_CALL_BLOCKS: Final = ("tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta")
_THINKING_BLOCKS: Final = ("thinking", "redacted_thinking", "reasoning")


# -- sessions ---------------------------------------------------------------------------------------------------------


def find_session(info: Any, messages: Sequence[Any]) -> tuple[str, str]:
    """Return the names of a history and of its caller's; the second is "" for an agent that no other one called.

    info: the runtime's `execution_info`. The name is the thread. A run without a thread, and a sub-agent, which has its
    caller's thread, are named after their first message: its id is the same at each of their calls.
    """
    thread = getattr(info, "thread_id", None) or ""
    first = next((found for each in messages if (found := getattr(each, "id", None))), "")
    outer = [part.partition(":")[0] for part in getattr(info, "checkpoint_ns", "").split("|")[:-1]]
    if outer:
        return "/".join([thread or "run", *outer, str(first)])[:400], thread
    return thread or f"run/{first}", ""


# -- parts of a request -----------------------------------------------------------------------------------------------


def find_chat_model(model: Any) -> Any:
    """Return the chat model within bindings and sequences."""
    for _ in range(20):
        inner = getattr(model, "bound", None) or getattr(model, "last", None)
        if inner is None:
            break
        model = inner
    return model


def read_model_name(model: Any) -> str:
    """Return the name that a chat model sends to its provider; "" if it has none."""
    found = getattr(model, "model_name", None) or getattr(model, "model", None)
    return found if isinstance(found, str) else ""


def is_anthropic(model: Any) -> bool:
    """Return whether a chat model speaks Anthropic's own API, and passes fields of a call on to it."""
    return getattr(model, "_llm_type", "") == "anthropic-chat"


def describe_call(
    session: tuple[str, str], model: Any, tools: Sequence[Any] | None, system: Any, settings: Mapping[str, Any]
) -> CallDescription[BaseMessage]:
    """Return what to prepare a call with. settings: what the model is called with beside its own fields.

    tools: None where they cannot be seen, since a model may keep those that are bound to it as it likes.
    """
    model = find_chat_model(model)
    parts = RequestParts(system=system, model=read_model_name(model))
    if tools is not None:
        definitions = [dict(tool) if isinstance(tool, dict) else convert_to_openai_tool(tool) for tool in tools]
        parts["tools"] = list(map(make_anthropic_tool, definitions)) if is_anthropic(model) else definitions
    if is_anthropic(model):
        fields = ("context_management", "thinking", "cache_control")
        own = {name: settings.get(name, getattr(model, name, None)) for name in fields}
        parts["request"] = {name: value for name, value in own.items() if value}
    mirror = ANTHROPIC_MIRROR if is_anthropic(model) else OPENAI_MIRROR
    return CallDescription(name=session[0], parent=session[1], mirror=mirror, parts=parts)


def make_settings(call: GuardedCall[Any], model: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` with what the call needs beside its messages, such as the request to clear results."""
    view = call.view
    if view is None or not (view.extra or view.betas):
        return dict(settings)
    made = {**settings, **view.extra}
    own = settings.get("betas") or getattr(find_chat_model(model), "betas", None) or ()
    return {**made, "betas": list(dict.fromkeys([*own, *view.betas]))}


def record_usage(call: GuardedCall[Any], messages: Sequence[Any]) -> None:
    """Record the usage of the newest message that has one."""
    usage = next((found for each in reversed(messages) if (found := getattr(each, "usage_metadata", None))), None)
    if usage:
        call.record(usage)


def make_recall_tools(calls: GuardedCalls) -> list[StructuredTool]:
    """Return the recall tools. Each finds the session by the runtime that LangGraph gives it."""
    return [_make_recall_tool(calls, definition) for definition in list_recall_definitions()]


def _make_recall_tool(calls: GuardedCalls, definition: RecallDefinition) -> StructuredTool:
    def answer(runtime: ToolRuntime, **arguments: Any) -> str:
        return calls.answer_recall(_find_session_of(runtime), definition.name, arguments)

    async def answer_async(runtime: ToolRuntime, **arguments: Any) -> str:
        return await calls.answer_recall_async(_find_session_of(runtime), definition.name, arguments)

    # The annotation is a text in this module, and LangGraph looks for the class.
    answer.__annotations__["runtime"] = answer_async.__annotations__["runtime"] = ToolRuntime
    return StructuredTool(
        name=definition.name,
        description=definition.description,
        args_schema=definition.schema,
        func=answer,
        coroutine=answer_async,
    )


def _find_session_of(runtime: Any) -> str:
    state = runtime.state
    messages = state.get("messages", ()) if isinstance(state, dict) else getattr(state, "messages", ())
    return find_session(runtime.execution_info, messages)[0]


# -- OpenAI's shape ---------------------------------------------------------------------------------------------------


def _make_openai_messages(message: BaseMessage) -> list[PlainMessage]:
    role = _find_role(message)
    if not role:
        return []
    made: PlainMessage = {"role": role, "content": message.content}
    if isinstance(message.content, list):
        made |= _split_content(message)
    if isinstance(message, AIMessage) and (calls := _list_calls(message)):
        made["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id, name, arguments in calls
        ]
    if isinstance(message, ToolMessage):
        made |= {"tool_call_id": message.tool_call_id, "name": message.name or ""}
    return [made]


def _split_content(message: BaseMessage) -> PlainMessage:
    """Return the fields that have the blocks of a message: the thinking ones beside the content, as LiteLLM has them.

    In the content they would be a sign of Anthropic's shape.
    """
    blocks = [block for block in _list_blocks(message) if block.get("type") not in _CALL_BLOCKS]
    thoughts = [block for block in blocks if block.get("type") in _THINKING_BLOCKS]
    fields: PlainMessage = {"content": [block for block in blocks if block.get("type") not in _THINKING_BLOCKS]}
    return {**fields, "thinking_blocks": thoughts} if thoughts else fields


def _find_role(message: BaseMessage) -> str:
    """Return the role of a message; "" for one of a class that is not known."""
    if isinstance(message, ChatMessage):
        return str(message.role)
    return next((role for kind, role in _ROLES if isinstance(message, kind)), "")


def _list_blocks(message: BaseMessage) -> list[dict[str, Any]]:
    content = message.content
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [{"type": "text", "text": block} if isinstance(block, str) else block for block in content]


def _list_calls(message: AIMessage) -> list[tuple[str, str, Any]]:
    """Return id, name and arguments of each call."""
    calls = [*message.tool_calls, *message.invalid_tool_calls]
    return [(call["id"] or "", call["name"] or "", call["args"]) for call in calls]


def _rebuild_message(message: BaseMessage, sent: Mapping[int, PlainMessage]) -> BaseMessage:
    copied: BaseMessage = message.model_copy(update={"content": sent[0]["content"]})
    return copied


# -- Anthropic's shape ------------------------------------------------------------------------------------------------


def _make_anthropic_messages(message: BaseMessage) -> list[PlainMessage]:
    role = _find_role(message)
    if not role:
        return []
    if isinstance(message, ToolMessage):
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id, "content": message.content}
        if message.status == "error":
            result["is_error"] = True
        return [{"role": "user", "content": [result]}]
    if not isinstance(message, AIMessage):
        return [{"role": role, "content": message.content}]
    # `tool_calls` has every call, and its arguments are whole also where the content has pieces of a stream.
    said = [block for block in _list_blocks(message) if block.get("type") not in _CALL_BLOCKS]
    calls = [
        {"type": "tool_use", "id": id, "name": name, "input": arguments} for id, name, arguments in _list_calls(message)
    ]
    return [{"role": role, "content": [*said, *calls]}]


def _rebuild_anthropic_message(message: BaseMessage, sent: Mapping[int, PlainMessage]) -> BaseMessage:
    """Return a copy that says what is sent; the message itself where that has cache breakpoints and nothing else.

    LangChain sets breakpoints itself (`AnthropicPromptCachingMiddleware`), also after this: together with ours they
    would be more than a request may have.
    """
    (given,) = _make_anthropic_messages(message)
    content = _leave_breakpoints(sent[0]["content"], given["content"])
    if content == given["content"]:
        return message
    if isinstance(message, ToolMessage):
        content = content[0]["content"]
    copied: BaseMessage = message.model_copy(update={"content": content})
    return copied


def _leave_breakpoints(sent: Any, given: Any) -> Any:
    """Return the content that is sent without breakpoints that were not given."""
    if isinstance(sent, str):
        return sent
    blocks = [{"type": "text", "text": given}] if isinstance(given, str) else given
    marked = {place for place, block in enumerate(blocks) if "cache_control" in block}
    kept = [
        block if place in marked else {name: value for name, value in block.items() if name != "cache_control"}
        for place, block in enumerate(sent)
    ]
    return given if kept == blocks else kept


OPENAI_MIRROR: Final[Mirror[BaseMessage]] = Mirror(_make_openai_messages, _rebuild_message, HumanMessage)
ANTHROPIC_MIRROR: Final[Mirror[BaseMessage]] = Mirror(
    _make_anthropic_messages, _rebuild_anthropic_message, HumanMessage
)
