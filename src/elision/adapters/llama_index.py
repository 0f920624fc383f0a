"""LlamaIndex: its `FunctionAgent`.

elision = ElisionFunctionAgents("masking(window=10)")
agent = elision.make_agent(llm=llm, tools=tools, system_prompt="Be careful.")
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import CallDescription, GuardedCall, GuardedCalls, RequestParts, SessionOwner

check_framework("llama-index-core", "0.14.5", "llama-index")

from llama_index.core.agent.workflow import FunctionAgent  # noqa: E402
from llama_index.core.base.llms.types import ChatMessage, ChatResponse  # noqa: E402
from llama_index.core.bridge.pydantic import PrivateAttr  # noqa: E402
from llama_index.core.workflow import Context  # noqa: E402

from elision.adapters.llama_index_messages import MIRROR, make_recall_tool, record_usage  # noqa: E402

#: The session of the step that runs now.
_session: Final[ContextVar[str]] = ContextVar("elision_session", default="")
_ID_KEY: Final = "elision_session"


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

        return [make_recall_tool(calls, tool, find_session) for tool in ("elision_recall", "elision_search")]

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
        try:
            response = await super()._get_response(call.messages, tools)
        except Exception as error:
            if not await call.retry_async(error):
                raise
            response = await super()._get_response(call.messages, tools)
        record_usage(call, response)
        return response

    async def _get_streaming_response(self, ctx: Any, current_llm_input: list[ChatMessage], tools: Any) -> ChatResponse:
        call = await self._begin_call(current_llm_input, tools)
        try:
            response = await super()._get_streaming_response(ctx, call.messages, tools)
        except Exception as error:
            if not await call.retry_async(error):
                raise
            response = await super()._get_streaming_response(ctx, call.messages, tools)
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
