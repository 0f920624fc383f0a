"""Agno's messages beside those of OpenAI and Anthropic, its usage, its sessions, and the recall tools as it takes them.

Import it after `check_framework`: it imports Agno.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from typing import Any, Final

from agno.models.message import Message
from agno.tools.function import Function

from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RecallDefinition,
    RequestParts,
    list_recall_definitions,
)
from elision.adapters.mirror import Mirror, PlainMessage, make_anthropic_tool
from elision.trajectory.usage import Usage

#: Packages of Agno whose Claude is another service's.
_OTHER_SERVICES: Final = ("agno.models.aws", "agno.models.vertexai", "agno.models.azure")


def find_session(run: Any) -> str:
    """Return the name of the session that a run is in: Agno's, and the agent's or team's name, if it has one.

    run: the run's output, or its context; "" for a call that is no agent's.
    """
    session = getattr(run, "session_id", None)
    if not session:
        return ""
    name = getattr(run, "agent_name", None) or getattr(run, "team_name", None)
    return f"{session}/{name}" if name else str(session)


def _is_claude(model: Any) -> bool:
    """Return whether a model is Agno's Claude, of any service."""
    return any(kind.__module__.startswith("agno.models.anthropic") for kind in type(model).__mro__)


def _speaks_anthropic(model: Any) -> bool:
    """Return whether a model speaks Anthropic's own API, and passes its fields on to it."""
    return _is_claude(model) and not any(kind.__module__.startswith(_OTHER_SERVICES) for kind in type(model).__mro__)


def describe_call(model: Any, request: Mapping[str, Any]) -> CallDescription[Message]:
    """Return what to prepare a call with. request: what the model is invoked with."""
    tools = request.get("tools") or []
    parts = RequestParts(tools=tools, model=str(model.id))
    mirror = OPENAI_MIRROR
    if _speaks_anthropic(model):
        mirror = ANTHROPIC_MIRROR
        own = {name: getattr(model, name, None) for name in ("context_management", "thinking")}
        parts["tools"] = [make_anthropic_tool(tool) for tool in tools]
        parts["request"] = {name: value for name, value in own.items() if value}
    return CallDescription(name=find_session(request["run_response"]), mirror=mirror, parts=parts)


def make_sender(model: Any, call: GuardedCall[Message]) -> Any:
    """Return the model with what the call needs beside its messages, in a copy that has the same client."""
    view = call.view
    if view is None or not (view.extra or view.betas):
        return model
    # Made once and kept by the model, so that not each copy makes its own.
    for name in ("get_client", "get_async_client"):
        getattr(model, name, lambda: None)()
    sender = copy.copy(model)
    for name, value in view.extra.items():
        setattr(sender, name, value)
    sender.betas = list(dict.fromkeys([*(model.betas or ()), *view.betas]))
    return sender


def read_usage(model: Any, response: Any) -> Usage | None:
    """Return the usage of a response. Agno counts as the provider does: Claude's prompt has no cached tokens."""
    counts = getattr(response, "response_usage", None)
    if counts is None:
        return None
    prompt, output = counts.input_tokens or 0, counts.output_tokens or 0
    read, written = counts.cache_read_tokens or 0, counts.cache_write_tokens or 0
    if _is_claude(model):
        return Usage(input=prompt, output=output, cache_read=read, cache_write=written)
    return Usage.from_inclusive(prompt=prompt, output=output, cache_read=read, cache_write=written)


# -- recall -----------------------------------------------------------------------------------------------------------


def make_recall_tools(calls: GuardedCalls) -> list[Function]:
    """Return the recall tools. Agno gives each the run, whose session it answers from."""
    return [_make_recall_tool(calls, definition) for definition in list_recall_definitions()]


def _make_recall_tool(calls: GuardedCalls, definition: RecallDefinition) -> Function:
    # Agno gives what these names say.
    def answer(run_context: Any, agent: Any = None, team: Any = None, **arguments: Any) -> str:
        owner = getattr(agent, "name", None) or getattr(team, "name", None)
        session = f"{run_context.session_id}/{owner}" if owner else run_context.session_id
        return calls.answer_recall(session, definition.name, arguments)

    return Function(
        name=definition.name,
        description=definition.description,
        parameters=definition.schema,
        entrypoint=answer,
        skip_entrypoint_processing=True,
    )


# -- messages ---------------------------------------------------------------------------------------------------------


def _make_openai_messages(message: Any) -> list[PlainMessage]:
    if not isinstance(message, Message):
        return []
    made: PlainMessage = {"role": message.role, "content": _list_content(message)}
    if message.role == "assistant" and message.reasoning_content:
        made["reasoning_content"] = message.reasoning_content
    if message.role == "assistant" and message.tool_calls:
        made["tool_calls"] = message.tool_calls
    if message.role == "tool":
        made |= {"tool_call_id": message.tool_call_id or "", "name": message.tool_name or ""}
    return [made]


def _list_content(message: Message) -> Any:
    """Return the text, or blocks where the message has images; their data is not read, their names are."""
    text = message.get_content_string() or ""
    if not message.images:
        return text
    images = [{"type": "image_url", "image_url": {"url": str(image.url or image.id)}} for image in message.images]
    return [{"type": "text", "text": text}, *images]


def _make_anthropic_messages(message: Any) -> list[PlainMessage]:
    if not isinstance(message, Message):
        return []
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": _list_content(message)}
        if message.tool_call_error:
            result["is_error"] = True
        return [{"role": "user", "content": [result]}]
    if message.role != "assistant":
        return [{"role": message.role, "content": _list_content(message)}]
    blocks: list[dict[str, Any]] = []
    if message.reasoning_content:
        signature = (message.provider_data or {}).get("signature", "")
        blocks.append({"type": "thinking", "thinking": message.reasoning_content, "signature": signature})
    if text := message.get_content_string():
        blocks.append({"type": "text", "text": text})
    for call in message.tool_calls or ():
        function = call["function"]
        arguments = json.loads(function.get("arguments") or "{}")
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return [{"role": "assistant", "content": blocks}]


def _rebuild_message(message: Message, sent: Mapping[int, PlainMessage]) -> Message:
    """Return a copy that says what is sent; the message itself where that has cache breakpoints and nothing else."""
    content = sent[0]["content"]
    if isinstance(content, list) and content and content[0].get("type") == "tool_result":
        content = content[0]["content"]
    text = _join_texts(content)
    if text == message.get_content_string():
        return message
    hidden = {"content": text, "compressed_content": None, "images": None, "audio": None, "videos": None, "files": None}
    copied: Message = message.model_copy(update=hidden)
    return copied


def _join_texts(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block.get("type") == "text")


def _make_user_message(text: str) -> Message:
    return Message(role="user", content=text)


OPENAI_MIRROR: Final[Mirror[Message]] = Mirror(_make_openai_messages, _rebuild_message, _make_user_message)
ANTHROPIC_MIRROR: Final[Mirror[Message]] = Mirror(_make_anthropic_messages, _rebuild_message, _make_user_message)
