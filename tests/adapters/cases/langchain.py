# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LangChain: its traps, bad input, and what its own tests ask of its context middleware, asked of ours."""

from __future__ import annotations

import copy
import logging
from itertools import pairwise
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ContextEditingMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_anthropic.middleware import AnthropicPromptCachingMiddleware
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from elision import ContextManager, ElisionError, Sessions
from elision.adapters.langchain import ElisionMiddleware
from elision.adapters.langchain_messages import ANTHROPIC_MIRROR, OPENAI_MIRROR
from elision.errors import SettingError
from tests.adapters.bound_service import BoundService
from tests.adapters.case_runner import catch
from tests.adapters.hosts.langchain import ScriptedChatModel
from tests.adapters.recording import Player, Recorder
from tests.adapters.scenarios import Run, list_part, look_at

STRATEGY = "masking(window=2, schedule=every-turn)"


@tool
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


class Agent:
    """An agent of 10 turns with middleware. recorder: its requests."""

    def __init__(self, *middleware: AgentMiddleware, turns: int = 10, saver: Any = None, **options: Any) -> None:
        self.recorder = Recorder()
        player = Player(self.recorder, "agent", "gpt-5", look_at(range(1, turns + 1)))
        model = ScriptedChatModel(player=player, model_name="gpt-5")
        self.graph = create_agent(model, [look], middleware=middleware, checkpointer=saver, **options)

    def run(self, **config: Any) -> list[BaseMessage]:
        """Return the messages of the state after a run."""
        asked = {"messages": [{"role": "user", "content": "List all parts."}]}
        return self.graph.invoke(asked, {"recursion_limit": 200, **config})["messages"]

    @property
    def hidden(self) -> list[int]:
        """How many results each request hid."""
        return [sum(bool(message.handle) for message in request.messages) for request in self.recorder.requests]


def make_turn(number: int, **fields: Any) -> list[BaseMessage]:
    call = {"id": f"c{number}", "name": "look", "args": {"part": number}}
    result = ToolMessage(list_part(number), tool_call_id=f"c{number}", name="look", **fields)
    return [AIMessage("", tool_calls=[call]), result]


def prepare(mirror: Any, messages: list[BaseMessage], tools: Any = None) -> list[BaseMessage]:
    with ContextManager(STRATEGY, model="claude-sonnet-4-5", store="memory:") as context:
        mirrored = mirror.translate(messages)
        return mirrored.restore(context.prepare(mirrored.plain, tools=tools))


ANTHROPIC_TOOLS = [{"name": "look", "description": "", "input_schema": {"type": "object"}}]


# -- its traps --------------------------------------------------------------------------------------------------------


def check_a_run_without_a_thread_has_a_session() -> None:
    """Without a checkpointer there is no thread: each run has a session of its own, and the requests shrink."""
    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        agent, other = Agent(middleware), Agent(middleware)
        agent.run()
        other.run()
        assert agent.hidden == other.hidden == [0, 0, 0, *range(1, 9)]
        assert len(middleware.sessions) == 2


def check_the_state_keeps_the_whole_history() -> None:
    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        stored = Agent(middleware).run()
    results = [message for message in stored if message.type == "tool"]
    assert [message.content for message in results] == [list_part(number) for number in range(1, 11)]


def check_a_hidden_result_keeps_its_other_fields() -> None:
    """Its id, name, state, artifact and metadata."""
    fields = {"id": "m1", "status": "error", "artifact": {"raw": 1}, "response_metadata": {"seconds": 2}}
    messages = [HumanMessage("Go."), *make_turn(1, **fields)]
    for number in range(2, 6):
        messages += make_turn(number)
    before = copy.deepcopy(messages)
    for mirror, tools in ((OPENAI_MIRROR, None), (ANTHROPIC_MIRROR, ANTHROPIC_TOOLS)):
        sent = prepare(mirror, messages, tools)
        assert "tokens hidden" in sent[2].content
        assert (sent[2].id, sent[2].name, sent[2].status) == ("m1", "look", "error")
        assert (sent[2].artifact, sent[2].response_metadata) == ({"raw": 1}, {"seconds": 2})
        assert sent[1] is messages[1]
        assert messages == before


def check_parallel_results_for_claude() -> None:
    """Each result is hidden in its own message, in Anthropic's shape too, and no breakpoint of ours is left."""
    calls = [{"id": f"c{number}", "name": "look", "args": {"part": number}} for number in (1, 2, 3)]
    messages = [HumanMessage("Go."), AIMessage([{"type": "text", "text": "Three."}], tool_calls=calls)]
    messages += [ToolMessage(list_part(number), tool_call_id=f"c{number}") for number in (1, 2, 3)]
    for number in range(4, 8):
        messages += make_turn(number)
    sent = prepare(ANTHROPIC_MIRROR, messages, ANTHROPIC_TOOLS)
    assert len(sent) == len(messages)
    assert [number for number, message in enumerate(sent) if "tokens hidden" in str(message.content)] == [2, 3, 4, 6, 8]
    assert all(one is two or "tokens hidden" in one.content for one, two in zip(sent, messages, strict=True))
    assert "cache_control" not in str(sent)


def check_bound_thinking_through_another_client_is_deferred_to() -> None:
    """Claude of Bedrock's client, say: nothing before the newest thought is hidden; what no model binds is."""
    messages: list[BaseMessage] = [HumanMessage("Go.")]
    for number in range(1, 7):
        said, result = make_turn(number)
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
        messages += [said.model_copy(update={"content": [thought]}), result]
    mirrored = OPENAI_MIRROR.translate(messages)
    for model, count in (("claude-opus-5-5", 0), ("gpt-5", 4)):
        with ContextManager(STRATEGY, model=model, store="memory:") as context:
            view = context.prepare(mirrored.plain)
            sent = mirrored.restore(view)
        assert view.dialect == "openai"
        assert sum("tokens hidden" in str(message.content) for message in sent) == count


def check_a_users_own_breakpoint_stays() -> None:
    block = {"type": "text", "text": "Go.", "cache_control": {"type": "ephemeral"}}
    messages = [HumanMessage([block])]
    for number in range(1, 6):
        messages += make_turn(number)
    sent = prepare(ANTHROPIC_MIRROR, messages, ANTHROPIC_TOOLS)
    assert sent[0] is messages[0]
    assert sum("tokens hidden" in str(message.content) for message in sent) == 3


def check_the_calls_of_a_streamed_message_are_read_once() -> None:
    """The content has the calls as well: as a provider's blocks, and in pieces where they were streamed."""
    blocks = [{"type": "tool_use", "id": "c1", "name": "look", "input": {}, "partial_json": '{"part": 1}'}]
    said = AIMessage(blocks, tool_calls=[{"id": "c1", "name": "look", "args": {"part": 1}}])
    (plain,) = ANTHROPIC_MIRROR.to_plain(said)
    assert plain["content"] == [{"type": "tool_use", "id": "c1", "name": "look", "input": {"part": 1}}]
    (plain,) = OPENAI_MIRROR.to_plain(said)
    assert plain["content"] == []
    assert len(plain["tool_calls"]) == 1


def check_a_call_with_broken_arguments_is_read() -> None:
    broken = {"type": "invalid_tool_call", "id": "c1", "name": "look", "args": '{"par', "error": "cut off"}
    for mirror in (OPENAI_MIRROR, ANTHROPIC_MIRROR):
        (plain,) = mirror.to_plain(AIMessage("", invalid_tool_calls=[broken]))
        assert "look" in str(plain)


def check_structured_output() -> None:
    """The last answer is a call of a tool that LangChain adds itself."""

    class Report(BaseModel):
        """A report."""

        part: int

    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        agent = Agent(middleware, response_format=ToolStrategy(Report))
        agent.run()
        assert max(agent.hidden) == 8


def check_an_agent_within_another_graph() -> None:
    """Each visit of the node continues the same session, though LangGraph names the visits anew."""
    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        from langgraph.graph import START, MessagesState, StateGraph

        agent = Agent(middleware, turns=14)
        graph = StateGraph(MessagesState).add_node("lister", agent.graph).add_edge(START, "lister")
        graph = graph.compile(checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "t"}, "recursion_limit": 200}
        for words in ("List all parts.", "Go on."):
            graph.invoke({"messages": [{"role": "user", "content": words, "id": words}]}, config)
        assert len(middleware.sessions) == 1, list(middleware.sessions._held)


# -- beside other middleware ------------------------------------------------------------------------------------------


def check_two_adapters_on_one_session() -> None:
    """The second one gets what the first made: nothing is hidden twice, and the run ends well."""
    with Sessions(STRATEGY, store="memory:") as sessions:

        class SecondMiddleware(ElisionMiddleware):
            """LangChain takes each class of middleware once."""

        agent = Agent(ElisionMiddleware(sessions=sessions), SecondMiddleware(sessions=sessions))
        stored = agent.run(configurable={"thread_id": "t"})
        assert "tokens hidden" not in str(stored)
        assert max(agent.hidden) >= 6
        assert "needle" in str(agent.recorder.requests[-1].messages[-1].text)


def check_the_same_middleware_may_not_be_given_twice() -> None:
    """LangChain says so itself."""
    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        assert "duplicate" in catch(AssertionError, lambda: Agent(middleware, middleware))


def check_a_retry_inside_is_one_call() -> None:
    """Middleware that repeats a failed attempt, nearer to the model: usage is recorded once."""

    class FailOnce(AgentMiddleware):
        failed = False

        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            if not self.failed and len(request.messages) > 6:
                self.failed = True
                raise ConnectionError("gone")
            return handler(request)

    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        agent = Agent(middleware, ModelRetryMiddleware(max_retries=1, initial_delay=0.0), FailOnce())
        agent.run()
        assert agent.hidden == [0, 0, 0, *range(1, 9)]


def check_an_error_of_the_model_is_raised_as_it_is() -> None:
    class Fail(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            raise ConnectionError("gone")

    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        assert catch(ConnectionError, Agent(middleware, Fail()).run) == "gone"


def check_its_own_editing_may_stay() -> None:
    """`ContextEditingMiddleware` outside of ours clears what it wants; each request has its pairs."""
    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        agent = Agent(ContextEditingMiddleware(), middleware)
        agent.run()
        assert max(agent.hidden) == 8


def make_claude(recorder: Recorder, parts: Any) -> ChatAnthropic:
    """Return a Claude whose service refuses what changes before its thinking."""
    service = BoundService(recorder, Run(steps=look_at(parts), model="claude-opus-5-5"))
    return ChatAnthropic(model="claude-opus-5-5", base_url=service.url, api_key="none", max_retries=0)


def check_prompt_caching_beside_native_clearing() -> None:
    """In either order: the service is asked to clear results, and refuses nothing."""
    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        for place in (0, 1):
            recorder = Recorder()
            others: list[AgentMiddleware] = [AnthropicPromptCachingMiddleware()]
            others.insert(place, middleware)
            graph = create_agent(make_claude(recorder, range(1, 9)), [look], middleware=others)
            graph.invoke({"messages": [{"role": "user", "content": "Go."}]}, {"recursion_limit": 200})
            assert recorder.requests[-1].extra["context_management"]
            assert len(recorder.requests) == 9


def check_another_providers_model_continues_the_thread() -> None:
    """From GPT to a Claude that binds its thinking, and back: one session, and no request is refused."""
    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "t"}}
    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        first = Agent(middleware, turns=6, saver=saver)
        first.run(**config)
        recorder = Recorder()
        claude = create_agent(make_claude(recorder, range(21, 27)), [look], middleware=[middleware], checkpointer=saver)
        claude.invoke({"messages": [{"role": "user", "content": "Go on."}]}, {"recursion_limit": 200, **config})
        assert recorder.requests[-1].extra["context_management"]
        last = Agent(middleware, turns=3, saver=saver)
        last.run(**config)
        assert last.hidden[-1] >= 10
        assert len(middleware.sessions) == 1


# -- bad input --------------------------------------------------------------------------------------------------------


class Note(BaseMessage):
    """A message of a class that nobody knows."""

    type: str = "note"


def check_an_unknown_message_passes_through() -> None:
    for mirror, tools in ((OPENAI_MIRROR, None), (ANTHROPIC_MIRROR, ANTHROPIC_TOOLS)):
        messages = [HumanMessage("Go."), Note(content="Between us.")]
        for number in range(1, 6):
            messages += make_turn(number)
        messages.append(Note(content="At the end."))
        sent = prepare(mirror, messages, tools)
        assert sent[1] is messages[1]
        assert sent[-1] is messages[-1]
        assert sum("tokens hidden" in str(message.content) for message in sent) == 3


def check_a_tool_that_cannot_be_described_does_not_end_the_run() -> None:
    """What fails in our hands is logged, and the request goes out as LangChain made it."""

    class AddTool(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=[*request.tools, object()]))

    class TakeTool(AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(tools=request.tools[:-1]))

    with ElisionMiddleware(STRATEGY, store="memory:") as middleware:
        logging.getLogger("elision.adapters").setLevel(logging.CRITICAL)
        agent = Agent(AddTool(), middleware, TakeTool())
        agent.run()
        assert set(agent.hidden) == {0}


def check_an_option_without_its_name_is_named() -> None:
    assert "write elisionmiddleware('masking', store='memory:')" in catch(
        SettingError, lambda: ElisionMiddleware("masking", "memory:")
    )


def check_options_beside_sessions_are_refused() -> None:
    with Sessions(STRATEGY, store="memory:") as sessions:
        assert "model" in catch(ElisionError, lambda: ElisionMiddleware(sessions=sessions, model="gpt-5"))
        with ElisionMiddleware(sessions=sessions) as middleware:
            assert middleware.sessions is sessions
        assert sessions.open("still open")


# -- what LangChain's tests ask of its own context middleware ---------------------------------------------------------


def check_nothing_changes_below_the_window() -> None:
    messages = [HumanMessage("Go."), *make_turn(1), *make_turn(2)]
    sent = prepare(OPENAI_MIRROR, messages)
    assert all(one is two for one, two in zip(sent, messages, strict=True))


def check_excluded_tools_are_never_cleared() -> None:
    """Theirs: `exclude_tools`. Ours: a rule."""
    with ElisionMiddleware(STRATEGY.replace(")", ", rules=rule(tool=look, keep=true))"), store="memory:") as middleware:
        agent = Agent(middleware)
        agent.run()
        assert set(agent.hidden) == {0}


def check_an_orphaned_result_stays() -> None:
    """A result without its call, as after a state was trimmed."""
    messages = [HumanMessage("Go."), ToolMessage(list_part(0), tool_call_id="gone")]
    for number in range(1, 6):
        messages += make_turn(number)
    sent = prepare(OPENAI_MIRROR, messages)
    assert sent[1] is messages[1]


def check_a_call_without_its_result_stays() -> None:
    """As after an interrupt."""
    messages = [HumanMessage("Go.")]
    for number in range(1, 6):
        messages += make_turn(number)
    messages += [AIMessage("", tool_calls=[{"id": "c9", "name": "look", "args": {}}]), HumanMessage("Stop that.")]
    sent = prepare(OPENAI_MIRROR, messages)
    assert len(sent) == len(messages)
    assert sent[-2:] == messages[-2:]


def check_a_second_look_changes_nothing() -> None:
    """Preparing what was prepared already hides no more of it."""
    messages = [HumanMessage("Go.")]
    for number in range(1, 6):
        messages += make_turn(number)
    once = prepare(OPENAI_MIRROR, messages)
    twice = prepare(OPENAI_MIRROR, once)
    assert [message.content for message in twice] == [message.content for message in once]


def check_the_first_request_of_the_user_stays() -> None:
    """Theirs may be lost: their summary takes it out of the state."""
    strategy = "hybrid(window=5, summarize_at=12, tail=5, schedule=every-turn)"
    with ElisionMiddleware(strategy, store="memory:") as middleware:
        agent = Agent(middleware, turns=18)
        agent.run()
        assert all(request.messages[0].text == "List all parts." for request in agent.recorder.requests)
        counts = [len(request.messages) for request in agent.recorder.requests]
        assert any(later < earlier for earlier, later in pairwise(counts)), counts
