"""Agno: its models.

elision = ElisionAgnoModels("masking(window=10)")
agent = Agent(model=elision.wrap_model(OpenAIChat(id="gpt-5")), tools=[*tools, *elision.tools])
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cached_property
from typing import Any

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import CallDescription, GuardedCall, GuardedCalls, SessionOwner, state_overflow

check_framework("agno", "3.0.0", "agno")

from agno.exceptions import ContextWindowExceededError  # noqa: E402
from agno.models.base import Model  # noqa: E402
from agno.models.message import Message  # noqa: E402
from agno.models.response import ModelResponse  # noqa: E402
from agno.models.utils import get_model  # noqa: E402
from agno.tools.function import Function  # noqa: E402

from elision.adapters.agno_messages import (  # noqa: E402
    describe_call,
    find_session,
    make_recall_tools,
    make_sender,
    read_usage,
)


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
        return make_recall_tools(self.calls)

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
        try:
            response = self._find_sender(call).invoke(**{**request, "messages": call.messages})
        except Exception as error:
            if not call.retry(_describe_error(error)):
                raise
            response = self._find_sender(call).invoke(**{**request, "messages": call.messages})
        _record_usage(self, call, response)
        return response

    async def ainvoke(self, **request: Any) -> ModelResponse:
        call = await self._begin_call_async(request)
        if call is None:
            return await super().ainvoke(**request)
        try:
            response = await self._find_sender(call).ainvoke(**{**request, "messages": call.messages})
        except Exception as error:
            if not await call.retry_async(_describe_error(error)):
                raise
            response = await self._find_sender(call).ainvoke(**{**request, "messages": call.messages})
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
        if not find_session(request.get("run_response")):
            return None
        return self.elision_calls.begin_described(request["messages"], lambda: self._describe(request))

    async def _begin_call_async(self, request: dict[str, Any]) -> GuardedCall[Message] | None:
        """Do as `_begin_call`, with the store and the summarizer off the event loop."""
        if not find_session(request.get("run_response")):
            return None
        return await self.elision_calls.begin_described_async(request["messages"], lambda: self._describe(request))

    def _find_sender(self, call: GuardedCall[Message]) -> Any:
        """Return what sends a call: the given model's own methods, with what the call needs beside its messages."""
        return super(_SmallRequests, make_sender(self, call))

    def _describe(self, request: dict[str, Any]) -> CallDescription[Message]:
        return describe_call(self, request)


def _describe_error(error: Exception) -> Exception:
    return state_overflow(error) if isinstance(error, ContextWindowExceededError) else error


def _record_usage(model: Any, call: GuardedCall[Message], response: ModelResponse | None) -> None:
    usage = read_usage(model, response)
    if usage is not None:
        call.record(usage)
