"""LangGraph: a model node of one's own, and `create_react_agent`.

elision = ElisionGraph("masking(window=10)")
model = elision.wrap(ChatOpenAI(model="gpt-5").bind_tools([*tools, *elision.tools]))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from elision.adapters.frameworks import check_framework
from elision.adapters.guarded_calls import CallDescription, GuardedCall, SessionOwner

check_framework("langgraph", "1.1.3", "langgraph")

from langchain_core.messages import BaseMessage  # noqa: E402
from langchain_core.runnables import Runnable, RunnableLambda, RunnableSequence  # noqa: E402
from langchain_core.tools import StructuredTool  # noqa: E402
from langgraph.runtime import get_runtime  # noqa: E402

from elision.adapters.langchain_messages import (  # noqa: E402
    describe_call,
    find_session,
    make_recall_tools,
    make_settings,
    record_usage,
)


class ElisionGraph(SessionOwner):
    """Keep the requests of LangGraph's graphs small. The state keeps the whole history.

        elision = ElisionGraph("masking(window=10)")
        model = elision.wrap(ChatOpenAI(model="gpt-5").bind_tools([*tools, *elision.tools]))
        graph.add_node("tools", ToolNode([*tools, *elision.tools]))

    `model.invoke(state["messages"])` in a node then sends what Elision made of the messages. What it returns belongs in
    the state as before. One serves any number of graphs and threads: each thread has a session.

    strategy, options: as for `elision.Sessions`. `model` is the wrapped one's. sessions: a pool to use instead of an
        own one; it is not closed here. tools: the recall tools, for `bind_tools` and `ToolNode`.

    A prompt that the provider finds too long is made shorter and sent once more. An error of Elision is logged, and
    that request goes out unchanged. Raises FrameworkError on import without LangGraph 1.1.3; SettingError, SpecError,
    StoreError as `Sessions` does.
    """

    @cached_property
    def tools(self) -> list[StructuredTool]:
        """The recall tools, for `bind_tools` and `ToolNode`."""
        return make_recall_tools(self.calls)

    def wrap(self, model: Runnable[Any, BaseMessage]) -> Runnable[Any, BaseMessage]:
        """Return a Runnable that takes a list of messages, as `model` does, and sends what Elision made of it.

        model: a chat model, with its tools bound, or a sequence that ends with one.
        """

        def call_model(messages: Sequence[BaseMessage]) -> BaseMessage:
            call = self.calls.begin_described(messages, lambda: _describe_wrapped(model, messages))
            answer: BaseMessage = call.send(lambda: _bind_settings(model, call).invoke(call.messages))
            record_usage(call, [answer])
            return answer

        async def call_model_async(messages: Sequence[BaseMessage]) -> BaseMessage:
            call = await self.calls.begin_described_async(messages, lambda: _describe_wrapped(model, messages))
            answer: BaseMessage = await call.send_async(lambda: _bind_settings(model, call).ainvoke(call.messages))
            record_usage(call, [answer])
            return answer

        return RunnableLambda(call_model, call_model_async)

    def pre_model_hook(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return what `create_react_agent` sends, for its argument of this name. Usage is recorded at the next call.

        A checkpoint keeps what is returned beside the history, and a prompt that is too long is not sent again:
        `create_agent` with `ElisionMiddleware` has neither limit.
        """
        messages = state["messages"]
        call = self.calls.begin_described(messages, lambda: self._describe_hooked(messages))
        return {"llm_input_messages": call.messages}

    def _describe_hooked(self, messages: Sequence[BaseMessage]) -> CallDescription[BaseMessage]:
        session = _find_current_session(messages)
        context = self.calls.open_session(session[0], parent=session[1])
        answered = next((each for each in reversed(messages) if getattr(each, "usage_metadata", None)), None)
        if answered is not None and context.session.awaits_response:
            context.record(answered.usage_metadata)
        return describe_call(session, None, self.tools, None, {})


def _find_current_session(messages: Sequence[BaseMessage]) -> tuple[str, str]:
    """Return the names of the session and of its caller's, within a node or outside of any graph."""
    try:
        runtime = get_runtime()
    except (RuntimeError, KeyError):
        runtime = None
    return find_session(getattr(runtime, "execution_info", None), messages)


def _describe_wrapped(model: Any, messages: Sequence[BaseMessage]) -> CallDescription[BaseMessage]:
    settings = _find_settings(model)
    session = _find_current_session(messages)
    return describe_call(session, model, settings.get("tools"), None, settings)


def _find_settings(model: Any) -> Mapping[str, Any]:
    """Return what was bound to a model, such as its tools."""
    while (last := getattr(model, "last", None)) is not None:
        model = last
    return getattr(model, "kwargs", None) or {}


def _bind_settings(model: Any, call: GuardedCall[BaseMessage]) -> Any:
    """Return the model with what the call needs beside its messages."""
    if call.view is None or not (call.view.extra or call.view.betas):
        return model
    if isinstance(model, RunnableSequence):
        return RunnableSequence(*model.steps[:-1], _bind_settings(model.steps[-1], call))
    return model.bind(**make_settings(call, model, _find_settings(model)))
