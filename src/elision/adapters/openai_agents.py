"""OpenAI Agents SDK: models that hide old tool results in what is sent, named by the `RunConfig` of a run.

    elision = ElisionAgents("masking(window=10)", store="sqlite:///agents.db")
    agent = Agent(name="Coder", tools=[*tools, *elision.tools])
    await Runner.run(agent, "Begin.", session=session, run_config=elision.run_config("thread-7"))

The items that a session, a result or a run state keeps stay whole.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import (
    CallDescription,
    GuardedCall,
    GuardedCalls,
    RequestParts,
    SessionOwner,
    list_recall_definitions,
)
from elision.errors import SettingError
from elision.trajectory.usage import Usage

check_framework("openai-agents", "0.2.8", "openai-agents")

from agents import FunctionTool, Model, ModelProvider, RunConfig  # noqa: E402
from agents.run import CallModelData, ModelInputData  # noqa: E402

#: The positional parts of a request, behind the instructions and the input.
_PARTS: Final = ("model_settings", "tools", "output_schema", "handoffs", "tracing")
_log: Final = logging.getLogger("elision.adapters")
#: Name of the session that the running agent's next request belongs to, and of that session's parent.
_session: ContextVar[tuple[str, str]] = ContextVar("elision_session", default=("", ""))


class ElisionAgents(SessionOwner):
    """Hide old tool results in the requests of OpenAI Agents SDK runs; recall them by `tools`.

    strategy, options: as for `ContextManager`. sessions: a pool to share, which stays the caller's.
    Each agent of a run has a session of its own, `THREAD/AGENT`. Requests whose history the provider keeps
    (`conversation_id`, `previous_response_id`) are sent unchanged. Raises what `Sessions` raises.
    """

    @property
    def tools(self) -> list[FunctionTool]:
        """The recall tools, for `Agent(tools=[...])`."""
        return [self._make_tool(each.name, each.description, each.schema) for each in list_recall_definitions()]

    def run_config(self, thread: str, config: RunConfig | None = None, *, parent: str = "") -> RunConfig:
        """Return `config`, by which the requests of a run belong to `thread`, such as the SDK session's id.

        It covers agents whose model is a name, or that of `config`. Agents with a model object need `wrap_model`.
        parent: name of the session that started this one, such as `thread-7/Coder`.
        Raises SettingError for a thread that is no text.
        """
        if not isinstance(thread, str):
            raise SettingError(
                f"a thread is a text, not {type(thread).__name__}: run_config('thread-7'), or run_config('thread-7', "
                "RunConfig(...)) with a config of your own"
            )
        config = config or RunConfig()
        inner_filter = config.call_model_input_filter
        warned: set[str] = set()

        async def name_session(data: CallModelData[Any]) -> ModelInputData:
            _session.set((f"{thread}/{data.agent.name}", parent))
            own_model = data.agent.model if config.model is None else None
            if not isinstance(own_model, str | None | _ElisionModel) and data.agent.name not in warned:
                warned.add(data.agent.name)
                _log.warning("agent %r has a model object: nothing is hidden without wrap_model", data.agent.name)
            if any(isinstance(tool, list | tuple) for tool in data.agent.tools):
                # The SDK's own error names no cause.
                raise SettingError(
                    f"agent {data.agent.name[:60]!r} has a list among its tools: write tools=[..., *elision.tools], "
                    "with a star"
                )
            filtered: Any = data.model_data if inner_filter is None else inner_filter(data)
            return await filtered if hasattr(filtered, "__await__") else filtered

        return replace(
            config,
            model=self.wrap_model(config.model) if isinstance(config.model, Model) else config.model,
            model_provider=_ElisionProvider(self, config.model_provider),
            call_model_input_filter=name_session,
        )

    def wrap_model(self, model: Model, name: str = "") -> Model:
        """Return a model that hides old tool results in what it sends to `model`. name: for prices and windows.

        Raises SettingError for the name of a model, which needs no wrapping.
        """
        if isinstance(model, str):
            raise SettingError(f"the name of a model needs no wrap_model: write Agent(model={model[:60]!r})")
        return model if isinstance(model, _ElisionModel) else _ElisionModel(self.calls, model, name)

    def _make_tool(self, name: str, description: str, schema: dict[str, Any]) -> FunctionTool:
        async def answer(context: Any, arguments: str) -> str:
            return await self.calls.answer_recall_async(_session.get()[0], name, arguments)

        return FunctionTool(name, description, schema, answer, strict_json_schema=False)


class _ElisionProvider(ModelProvider):
    """Wraps the models that a provider finds by their names."""

    def __init__(self, adapter: ElisionAgents, inner: ModelProvider) -> None:
        self._adapter, self._inner = adapter, inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_model(self, model_name: str | None) -> Model:
        return self._adapter.wrap_model(self._inner.get_model(model_name), model_name or "")

    async def aclose(self) -> None:
        await self._inner.aclose()


class _ElisionModel(Model):
    """A model around another: its input is prepared first, and sent once more where that was too long."""

    def __init__(self, calls: GuardedCalls, inner: Model, name: str) -> None:
        self._calls, self._inner = calls, inner
        self._name = name or str(getattr(inner, "model", ""))
        self._is_warned = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def get_retry_advice(self, request: Any) -> Any:
        return self._inner.get_retry_advice(request)

    async def close(self) -> None:
        await self._inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        await self._inner._cleanup_on_run_end(owner)

    async def get_response(self, system_instructions: Any, input: Any, *rest: Any, **named: Any) -> Any:
        parts = {**dict(zip(_PARTS, rest, strict=False)), **named}
        call = await self._begin(system_instructions, input, parts)
        response = await call.send_async(lambda: self._inner.get_response(system_instructions, call.messages, **parts))
        call.record(_read_usage(response.usage))
        return response

    async def stream_response(
        self, system_instructions: Any, input: Any, *rest: Any, **named: Any
    ) -> AsyncIterator[Any]:
        parts = {**dict(zip(_PARTS, rest, strict=False)), **named}
        call = await self._begin(system_instructions, input, parts)
        has_begun = False
        try:
            async for event in self._relay(call, system_instructions, parts):
                has_begun = True
                yield event
            return
        except Exception as error:
            if has_begun or not await call.retry_async(error):
                raise
        async for event in self._relay(call, system_instructions, parts):
            yield event

    async def _relay(
        self, call: GuardedCall[Any], system_instructions: Any, parts: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """Relay the events of one attempt, and record the usage that the last one has."""
        async with aclosing(self._inner.stream_response(system_instructions, call.messages, **parts)) as events:
            async for event in events:
                if event.type == "response.completed" and event.response.usage is not None:
                    call.record(_read_usage(event.response.usage))
                yield event

    async def _begin(self, system_instructions: Any, input: Any, parts: Mapping[str, Any]) -> GuardedCall[Any]:
        given = [{"role": "user", "content": input}] if isinstance(input, str) else input
        name, parent = _session.get()
        if not name and not self._is_warned:
            self._is_warned = True
            _log.warning("a wrapped model runs without run_config(thread) of Elision: nothing is hidden")
        if not name or parts.get("conversation_id") or parts.get("previous_response_id"):
            return GuardedCall(given)

        def describe() -> CallDescription[Any]:
            tools = [*map(_define_tool, parts.get("tools") or ()), *map(_define_handoff, parts.get("handoffs") or ())]
            found = RequestParts(system=system_instructions, tools=tools or None, model=self._name)
            return CallDescription(name=name, parent=parent, parts=found)

        return await self._calls.begin_described_async(given, describe)


def _define_tool(tool: Any) -> dict[str, Any]:
    """Return a tool as the Responses API defines it; of one that the provider runs its name alone."""
    if not isinstance(tool, FunctionTool):
        return {"type": tool.name}
    parameters = tool.params_json_schema
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": parameters}


def _define_handoff(handoff: Any) -> dict[str, Any]:
    parameters, description = handoff.input_json_schema, handoff.tool_description
    return {"type": "function", "name": handoff.tool_name, "description": description, "parameters": parameters}


def _read_usage(usage: Any) -> Usage:
    """Return the usage of a response. The SDK counts as the Responses API, whichever the provider is."""
    details = usage.input_tokens_details
    return Usage.from_inclusive(
        prompt=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=getattr(details, "cached_tokens", 0) or 0,
        cache_write=getattr(details, "cache_write_tokens", 0) or 0,
    )
