"""LangChain: middleware of `create_agent`.

agent = create_agent(model, tools, middleware=[ElisionMiddleware("masking(window=10)")])
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Never, Unpack

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import CallDescription, GuardedCall, SessionOwner
from elision.manager.context_options import ContextOptions
from elision.manager.session_pool import Sessions
from elision.strategies.strategy import Strategy

check_framework("langchain", "1.0.0", "langchain")
check_framework("langgraph", "1.1.3", "langchain")

from langchain.agents.middleware import AgentMiddleware, ModelRequest  # noqa: E402
from langchain_core.messages import BaseMessage  # noqa: E402

from elision.adapters.langchain_messages import (  # noqa: E402
    describe_call,
    find_session,
    make_recall_tools,
    make_settings,
    record_usage,
)


class ElisionMiddleware(AgentMiddleware, SessionOwner):
    """Keep the requests of LangChain agents small. The state keeps the whole history.

        agent = create_agent(model, tools, middleware=[ElisionMiddleware("masking(window=10)")])

    One serves any number of agents, threads and event loops: each thread has a session, and so has each sub-agent. Put
    it last, so that it gets what other middleware made of the request. The agent gets the recall tools.

    strategy, options: as for `elision.Sessions`. `model` is the request's. sessions: a pool to use instead of an own
        one; it is not closed here.

    A prompt that the provider finds too long is made shorter and sent once more. An error of Elision is logged, and
    that request goes out unchanged. Raises FrameworkError on import without LangChain 1.0; SettingError, SpecError,
    StoreError as `Sessions` does.
    """

    def __init__(
        self,
        strategy: str | Strategy = "masking",
        *misplaced: Never,
        sessions: Sessions | None = None,
        **options: Unpack[ContextOptions],
    ) -> None:
        AgentMiddleware.__init__(self)
        SessionOwner.__init__(self, strategy, *misplaced, sessions=sessions, **options)
        self.tools = make_recall_tools(self.calls)

    def wrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Any]) -> Any:
        """Call the model with the messages that Elision made of the request's."""
        call = self.calls.begin_described(request.messages, lambda: _describe_request(request))
        response = call.send(lambda: handler(_change_request(request, call)))
        record_usage(call, getattr(response, "result", [response]))
        return response

    async def awrap_model_call(self, request: ModelRequest, handler: Callable[[ModelRequest], Awaitable[Any]]) -> Any:
        """Do as `wrap_model_call`, with the store and the summarizer off the event loop."""
        call = await self.calls.begin_described_async(request.messages, lambda: _describe_request(request))
        response = await call.send_async(lambda: handler(_change_request(request, call)))
        record_usage(call, getattr(response, "result", [response]))
        return response


def _describe_request(request: ModelRequest) -> CallDescription[BaseMessage]:
    info = getattr(request.runtime, "execution_info", None)
    session = find_session(info, request.state.get("messages") or request.messages)
    system = request.system_message.content if request.system_message else None
    return describe_call(session, request.model, request.tools, system, request.model_settings)


def _change_request(request: ModelRequest, call: GuardedCall[BaseMessage]) -> ModelRequest:
    settings = make_settings(call, request.model, request.model_settings)
    return request.override(messages=call.messages, model_settings=settings)
