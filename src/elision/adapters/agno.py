"""Agno: its models.

elision = ElisionAgnoModels("masking(window=10)")
agent = Agent(model=elision.wrap_model(OpenAIChat(id="gpt-5")), tools=[*tools, *elision.tools])
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cached_property
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
    state_overflow,
)
from elision.adapters.mirror import Mirror, PlainMessage, make_anthropic_tool
from elision.trajectory.usage import Usage

check_framework("agno", "3.0.0", "agno")

from agno.exceptions import ContextWindowExceededError  # noqa: E402
from agno.models.base import Model  # noqa: E402
from agno.models.message import Message  # noqa: E402
from agno.models.response import ModelResponse  # noqa: E402
from agno.models.utils import get_model  # noqa: E402
from agno.tools.function import Function  # noqa: E402

#: Packages of Agno whose Claude is another service's.
_OTHER_SERVICES: Final = ("agno.models.aws", "agno.models.vertexai", "agno.models.azure")


class ElisionAgnoModels(SessionOwner):
    """Make models of Agno whose requests stay small. Runs and stored sessions keep the whole history.

        elision = ElisionAgnoModels("masking(window=10)")
        agent = Agent(model=elision.wrap_model(OpenAIChat(id="gpt-5")), tools=[*tools, *elision.tools])

    One serves any number of models, agents and event loops. Each session of Agno has a session, under its `session_id`;
    an agent or team with a name has one of its own: `SESSION/NAME`.

    strategy, options: as for `elision.Sessions`. `model` is the wrapped one's. sessions: a pool to use instead of an
        own one; it is not closed here. tools: the recall tools.

    A prompt that the provider finds too long is made shorter and sent once more; a stream that has begun is not. An
    error of Elision is logged, and that request goes out unchanged. Raises FrameworkError on import without Agno 3.0;
    SettingError, SpecError, StoreError as `Sessions` does.
    """

    @cached_property
    def tools(self) -> list[Function]:
        """The recall tools, for the agent's tools."""
        return [_make_recall_tool(self.calls, definition) for definition in list_recall_definitions()]

    def wrap_model(self, model: Model | str) -> Model:
        """Return a copy of a model, or of the one that a text such as `openai:gpt-5` names, that sends less."""
        given = get_model(model)
        kind = type(given)
        names: dict[str, Any] = {
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "elision_calls": self.calls,
        }
        small = type(kind.__name__, (_SmallRequests, kind), names)
        wrapped: Any = object.__new__(small)
        vars(wrapped).update(vars(given))
        return wrapped


class _SmallRequests(Model):
    """What a wrapped model does instead. A class's own attribute is not copied where Agno copies a model deeply."""

    elision_calls: GuardedCalls

    def invoke(self, **request: Any) -> ModelResponse:
        call = self._begin_call(request)
        if call is None:
            return super().invoke(**request)
        response: ModelResponse = call.send(
            lambda: self._find_sender(call).invoke(**{**request, "messages": call.messages}), _describe_error
        )
        _record_usage(self, call, response)
        return response

    async def ainvoke(self, **request: Any) -> ModelResponse:
        call = await self._begin_call_async(request)
        if call is None:
            return await super().ainvoke(**request)
        response: ModelResponse = await call.send_async(
            lambda: self._find_sender(call).ainvoke(**{**request, "messages": call.messages}), _describe_error
        )
        _record_usage(self, call, response)
        return response

    def invoke_stream(self, **request: Any) -> Iterator[ModelResponse]:
        call = self._begin_call(request)
        if call is None:
            yield from super().invoke_stream(**request)
            return
        newest = None
        while newest is None:
            sender = self._find_sender(call)
            try:
                for response in sender.invoke_stream(**{**request, "messages": call.messages}):
                    newest = response if response.response_usage or newest is None else newest
                    yield response
                break
            except Exception as error:
                if newest is not None or not call.retry(_describe_error(error)):
                    raise
        _record_usage(self, call, newest)

    async def ainvoke_stream(self, **request: Any) -> AsyncIterator[ModelResponse]:
        call = await self._begin_call_async(request)
        if call is None:
            async for response in super().ainvoke_stream(**request):
                yield response
            return
        newest = None
        while newest is None:
            sender = self._find_sender(call)
            try:
                async for response in sender.ainvoke_stream(**{**request, "messages": call.messages}):
                    newest = response if response.response_usage or newest is None else newest
                    yield response
                break
            except Exception as error:
                if newest is not None or not await call.retry_async(_describe_error(error)):
                    raise
        _record_usage(self, call, newest)

    def _begin_call(self, request: dict[str, Any]) -> GuardedCall[Message] | None:
        """Begin a call of an agent; None for another of Agno's, such as the one that writes memories."""
        if not _find_session(request.get("run_response")):
            return None
        return self.elision_calls.begin_described(request["messages"], lambda: describe_call(self, request))

    async def _begin_call_async(self, request: dict[str, Any]) -> GuardedCall[Message] | None:
        """Do as `_begin_call`, with the store and the summarizer off the event loop."""
        if not _find_session(request.get("run_response")):
            return None
        return await self.elision_calls.begin_described_async(request["messages"], lambda: describe_call(self, request))

    def _find_sender(self, call: GuardedCall[Message]) -> Any:
        """Return the given model's own methods, with what the call needs beside its messages, by the same client."""
        sender: Any = self
        view = call.view
        if view is not None and (view.extra or view.betas):
            # Made once and kept by the model, so that not each copy makes its own.
            for name in ("get_client", "get_async_client"):
                getattr(self, name, lambda: None)()
            sender = copy.copy(self)
            for name, value in view.extra.items():
                setattr(sender, name, value)
            sender.betas = list(dict.fromkeys([*(sender.betas or ()), *view.betas]))
        return super(_SmallRequests, sender)


def _describe_error(error: Exception) -> Exception:
    return state_overflow(error) if isinstance(error, ContextWindowExceededError) else error


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


# -- parts of a request -----------------------------------------------------------------------------------------------


def _find_session(run: Any) -> str:
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


def describe_call(model: Any, request: Mapping[str, Any]) -> CallDescription[Message]:
    """Return what to prepare a call with. request: what the model is invoked with."""
    tools = request.get("tools") or []
    parts = RequestParts(tools=tools, model=str(model.id))
    mirror = OPENAI_MIRROR
    # Another service's Claude does not pass these fields on.
    if _is_claude(model) and not any(kind.__module__.startswith(_OTHER_SERVICES) for kind in type(model).__mro__):
        mirror = ANTHROPIC_MIRROR
        own = {name: getattr(model, name, None) for name in ("context_management", "thinking")}
        parts["tools"] = [make_anthropic_tool(tool) for tool in tools]
        parts["request"] = {name: value for name, value in own.items() if value}
    return CallDescription(name=_find_session(request["run_response"]), mirror=mirror, parts=parts)


def _record_usage(model: Any, call: GuardedCall[Message], response: ModelResponse | None) -> None:
    usage = read_usage(model, response)
    if usage is not None:
        call.record(usage)


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
