# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LangGraph: `create_react_agent`, models within sequences, and messages outside of any graph."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent

from elision.adapters.langgraph import ElisionGraph
from tests.adapters.bound_service import BoundService
from tests.adapters.cases.langchain import STRATEGY, look, make_turn
from tests.adapters.hosts.langchain import ScriptedChatModel
from tests.adapters.recording import Player, Recorder
from tests.adapters.scenarios import Run, look_at

HIDDEN = [0, 0, 0, *range(1, 9)]
CONFIG = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}


class Script:
    """A scripted model of 10 turns. hidden: how many results each request hid."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        player = Player(self.recorder, "agent", "gpt-5", look_at(range(1, 11)))
        self.model = ScriptedChatModel(player=player, model_name="gpt-5")

    @property
    def hidden(self) -> list[int]:
        return [sum(bool(message.handle) for message in request.messages) for request in self.recorder.requests]


def run_agent(agent: Any) -> list[Any]:
    """Return the messages of the state after a run."""
    return agent.invoke({"messages": [{"role": "user", "content": "List all parts."}]}, CONFIG)["messages"]


def make_agent(model: Any, tools: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return create_react_agent(model, tools, checkpointer=InMemorySaver(), **options)


def check_a_wrapped_model_in_create_react_agent() -> None:
    script = Script()
    with ElisionGraph(STRATEGY, store="memory:") as elision:
        tools = [look, *elision.tools]
        model = elision.wrap(script.model.bind_tools(tools))
        stored = run_agent(make_agent(lambda state, runtime: model, tools, prompt="Be careful."))
        assert script.hidden == HIDDEN
        assert "tokens hidden" not in str(stored)
        assert elision.sessions.open("t").session.report().calls


def check_the_hook_of_create_react_agent() -> None:
    """Usage comes a call later; what is returned beside the history is not the history."""
    script = Script()
    with ElisionGraph(STRATEGY, model="gpt-5", store="memory:") as elision:
        agent = make_agent(script.model, [look, *elision.tools], pre_model_hook=elision.pre_model_hook)
        run_agent(agent)
        assert script.hidden == HIDDEN
        assert "tokens hidden" not in str(agent.get_state(CONFIG).values["messages"])
        assert elision.sessions.open("t").session.awaits_response


def check_the_hook_never_fails_the_agent() -> None:
    script = Script()
    elision = ElisionGraph(STRATEGY, model="gpt-5", store="memory:")
    elision.close()
    run_agent(make_agent(script.model, [look, *elision.tools], pre_model_hook=elision.pre_model_hook))
    assert set(script.hidden) == {0}


def check_messages_outside_of_a_graph() -> None:
    """A chain without a thread: the session is named by the first message with an id."""
    script = Script()
    with ElisionGraph(STRATEGY, store="memory:") as elision:
        model = elision.wrap(script.model.bind_tools([look]))
        messages = [SystemMessage("Be careful."), HumanMessage("Go.", id="m1")]
        for number in range(1, 6):
            messages += make_turn(number)
            model.invoke(messages)
        assert script.hidden == [0, 0, 1, 2, 3]
        assert len(elision.sessions) == 1


def check_native_clearing_within_a_sequence() -> None:
    """The wish reaches the service, also where other steps come before the model, and on the asynchronous door."""
    from langchain_anthropic import ChatAnthropic

    recorder = Recorder()
    service = BoundService(recorder, Run(steps=look_at(range(1, 9)), model="claude-opus-5-5"))
    model = ChatAnthropic(model="claude-opus-5-5", base_url=service.url, api_key="none", max_retries=0)
    with ElisionGraph(STRATEGY, store="memory:") as elision:
        first = RunnableLambda(lambda messages: [SystemMessage("Be careful."), *messages])
        wrapped = elision.wrap(first | model.bind_tools([look, *elision.tools]))

        async def work() -> None:
            messages: list[Any] = [HumanMessage("Go.", id="m1")]
            for number in range(1, 9):
                said = await wrapped.ainvoke(messages)
                assert isinstance(said, AIMessage)
                messages += [said, *make_turn(number)[1:]]
                messages[-1].tool_call_id = said.tool_calls[0]["id"]

        asyncio.run(work())
    assert recorder.requests[-1].extra["context_management"]
    assert "needle-1-0" in str(recorder.requests[-1].messages)
