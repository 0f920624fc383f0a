"""LangChain's two middlewares, called as its agent calls them: before each request to the model."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from langchain.agents.middleware import (
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    ModelRequest,
    SummarizationMiddleware,
)
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.graph.message import add_messages
from playing import BUDGET, KEEP, SUMMARY, play, session, tell

MODEL = FakeListChatModel(responses=[SUMMARY])


def message(value: dict[str, Any]) -> AnyMessage:
    if value["role"] == "tool":
        return ToolMessage(content=value["content"], tool_call_id=value["tool_call_id"])
    if value["role"] != "assistant":
        return (SystemMessage if value["role"] == "system" else HumanMessage)(content=value["content"])
    calls = [
        {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}
        for call in value["tool_calls"]
    ]
    return AIMessage(content=value["content"] or "", tool_calls=calls)


def editing(head: list[AnyMessage], turns: list[list[AnyMessage]]) -> list[float]:
    middleware = ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger=BUDGET, keep=KEEP)])
    messages = head[1:]

    def call() -> object:
        request = ModelRequest(model=MODEL, messages=messages, system_message=head[0])
        return middleware.wrap_model_call(request, lambda edited: AIMessage(content=str(len(edited.messages))))

    return play(turns, call, messages.append)


def summarizing(head: list[AnyMessage], turns: list[list[AnyMessage]]) -> list[float]:
    middleware = SummarizationMiddleware(MODEL, trigger=("tokens", BUDGET), keep=("messages", 2 * KEEP))
    state: dict[str, Any] = {"messages": add_messages([], head[1:])}

    def call() -> None:
        if (update := middleware.before_model(state, None)) is not None:
            state["messages"] = add_messages(state["messages"], update["messages"])

    return play(turns, call, lambda each: state["messages"].append(each))


if __name__ == "__main__":
    found = session()
    head = [message(each) for each in found["head"]]
    turns = [[message(each) for each in turn] for turn in found["turns"]]
    # Copies: both leave marks in what they are given.
    tell(
        {
            "LangChain ContextEditingMiddleware": editing(list(head), turns),
            "LangChain SummarizationMiddleware": summarizing(list(head), turns),
        },
        f"langchain {version('langchain')}",
    )
