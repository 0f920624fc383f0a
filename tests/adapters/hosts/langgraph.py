# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LangGraph: a graph of one's own, with a node that calls the model.

The hook is called once for a process, as `hook(settings)`, and returns `(wrap, tools)`: `wrap(model)` is a Runnable
around a Runnable: both take a list of messages and return the model's. `tools` are those of the adapter.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypedDict

from langchain_core.messages import AnyMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition

from tests.adapters.hosts.langchain import Host as LangChainHost
from tests.adapters.hosts.langchain import make_tools, read_message
from tests.adapters.scenarios import SYSTEM


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Host(LangChainHost):
    PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "langchain-core")
    MISSING: ClassVar = {"sub_agents": "a sub-graph is the graph of its caller: the scenario is LangChain's"}

    def make_agent(self, run: Any, saver: Any) -> Any:
        recorder, agent = self.stage.recorder, run.thread
        wrap, more = self.middleware or (lambda model: model, [])
        tools = [*make_tools(lambda part: ""), *more]

        def note_given(messages: list[Any]) -> list[Any]:
            recorder.note_given(agent, messages)
            return messages

        def note_sent(messages: list[Any]) -> list[Any]:
            recorder.note_sent(agent, messages, read_message)
            return [SystemMessage(SYSTEM), *messages]

        asked = RunnableLambda(note_sent) | self.make_model(self.stage.make_player(run)).bind_tools(tools)
        chain = RunnableLambda(note_given) | wrap(asked)
        node = (
            RunnableLambda(lambda state: state["messages"]) | chain | RunnableLambda(lambda said: {"messages": [said]})
        )
        graph = StateGraph(State).add_node("model", node).add_node("tools", ToolNode(tools))
        graph = (
            graph.add_edge(START, "model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
        )
        return graph.compile(checkpointer=saver)
