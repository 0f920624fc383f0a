# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LlamaIndex: names of sessions, workflows of several agents, older shapes of calls, what its memory tests ask."""

from __future__ import annotations

import asyncio
from typing import Any

from llama_index.core.agent.workflow import AgentWorkflow
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from elision import ContextManager
from elision.adapters.llama_index import MIRROR, ElisionFunctionAgents, record_usage
from tests.adapters.scenarios import PIXEL, list_part

STRATEGY = "masking(window=2, schedule=every-turn)"


def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


class Script:
    """An LLM that looks at parts. hidden: how many results each request hid."""

    def __init__(self, turns: int = 6, hands_off_to: str = "") -> None:
        self.turns, self.hands_off_to = turns, hands_off_to
        self.hidden: list[int] = []
        self.asked = 0
        self.llm = MockFunctionCallingLLM(response_generator=self.answer)

    def answer(self, messages: Any, **options: Any) -> ChatMessage:
        self.hidden.append(sum("tokens hidden" in str(message.content) for message in messages))
        self.asked += 1
        if self.asked == self.turns and self.hands_off_to:
            arguments = {"to_agent": self.hands_off_to, "reason": "Go on."}
            call = ToolCallBlock(tool_call_id="h", tool_name="handoff", tool_kwargs=arguments)
            return ChatMessage(role="assistant", blocks=[call])
        if self.asked > self.turns:
            return ChatMessage(role="assistant", content="Done.")
        call = ToolCallBlock(
            tool_call_id=f"{id(self)}-{self.asked}", tool_name="look", tool_kwargs={"part": self.asked}
        )
        return ChatMessage(role="assistant", blocks=[call])


def open_memory(name: str = "m") -> Memory:
    return Memory.from_defaults(session_id=name, token_limit=10**9, tokenizer_fn=str.split)


def check_each_memory_has_a_session() -> None:
    async def work() -> None:
        with ElisionFunctionAgents(STRATEGY, store="memory:") as elision:
            script, other = Script(), Script()
            for each, name in ((script, "one"), (other, "two")):
                agent = elision.make_agent(llm=each.llm, tools=[look])
                await agent.run("Go.", memory=open_memory(name))
            assert script.hidden == other.hidden == [0, 0, 0, 1, 2, 3, 4]
            assert sorted(elision.sessions._held) == ["one/Agent", "two/Agent"]

    asyncio.run(work())


def check_a_memory_without_a_name_is_named_by_its_context() -> None:
    """LlamaIndex's default memory has none. A context that continues has the same session."""

    async def work() -> None:
        with ElisionFunctionAgents(STRATEGY, store="memory:") as elision:
            script = Script()
            agent = elision.make_agent(llm=script.llm, tools=[look])
            context = Context(agent)
            await agent.run("Go.", ctx=context)
            await agent.run("Once more.", ctx=context)
            assert len(elision.sessions) == 1
            other = Script()
            await elision.make_agent(llm=other.llm, tools=[look]).run("Go.")
            assert len(elision.sessions) == 2

    asyncio.run(work())


def check_agents_of_a_workflow_have_sessions_of_their_own() -> None:
    async def work() -> None:
        with ElisionFunctionAgents(STRATEGY, store="memory:") as elision:
            first, second = Script(5, hands_off_to="writer"), Script(5)
            one = elision.make_agent(name="reader", description="Reads.", llm=first.llm, tools=[look])
            two = elision.make_agent(name="writer", description="Writes.", llm=second.llm, tools=[look])
            workflow = AgentWorkflow(agents=[one, two], root_agent="reader")
            await workflow.run("Go.", memory=open_memory("m"), max_iterations=50)
            assert max(first.hidden) > 0
            assert max(second.hidden) > 0
            assert sorted(elision.sessions._held) == ["m/reader", "m/writer"]

    asyncio.run(work())


def check_the_memory_keeps_what_the_tools_returned() -> None:
    async def work() -> None:
        with ElisionFunctionAgents(STRATEGY, store="memory:") as elision:
            memory = open_memory()
            await elision.make_agent(llm=Script().llm, tools=[look]).run("Go.", memory=memory)
            stored = [message.content for message in await memory.aget_all() if message.role == "tool"]
            assert stored == [list_part(number) for number in range(1, 7)]

    asyncio.run(work())


def check_a_given_list_of_tools_is_not_changed() -> None:
    tools = [FunctionTool.from_defaults(look)]
    with ElisionFunctionAgents(STRATEGY, store="memory:") as elision:
        agent = elision.make_agent(llm=Script().llm, tools=tools)
        assert len(tools) == 1
        names = [tool.metadata.name for tool in agent.tools]
        assert names == ["look", "elision_recall", "elision_search"]
        assert "handle" in agent.tools[1].metadata.to_openai_tool()["function"]["parameters"]["properties"]


def check_an_error_of_the_llm_is_raised_as_it_is() -> None:
    def fail(messages: Any, **options: Any) -> ChatMessage:
        raise ConnectionError("gone")

    async def work() -> str:
        with ElisionFunctionAgents(STRATEGY, store="memory:") as elision:
            agent = elision.make_agent(llm=MockFunctionCallingLLM(response_generator=fail), tools=[look])
            try:
                await agent.run("Go.")
            except ConnectionError as error:
                return str(error)
        return ""

    assert asyncio.run(work()) == "gone"


def check_closed_sessions_do_not_end_the_run() -> None:
    async def work() -> None:
        elision = ElisionFunctionAgents(STRATEGY, store="memory:")
        elision.close()
        script = Script()
        await elision.make_agent(llm=script.llm, tools=[look]).run("Go.")
        assert set(script.hidden) == {0}

    asyncio.run(work())


def make_turn(number: int) -> list[ChatMessage]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    said = ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]})
    text = list_part(number)
    return [said, ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": f"c{number}"})]


def check_older_integrations_keep_calls_apart_from_the_blocks() -> None:
    messages = [ChatMessage(role="user", content="Go.")]
    for number in range(1, 6):
        messages += make_turn(number)
    with ContextManager(STRATEGY, model="gpt-5", store="memory:") as context:
        mirrored = MIRROR.translate(messages)
        sent = mirrored.restore(context.prepare(mirrored.plain))
    assert [place for place, message in enumerate(sent) if "tokens hidden" in message.content] == [2, 4, 6]
    assert sent[2].additional_kwargs == {"tool_call_id": "c1"}
    assert all(one is two or "tokens hidden" in one.content for one, two in zip(sent, messages, strict=True))


def check_blocks_of_every_kind_are_read() -> None:
    """An image, thinking; what is no message of LlamaIndex goes out as it is."""
    blocks = [TextBlock(text="See."), ImageBlock(image=PIXEL, image_mimetype="image/png")]
    (plain,) = MIRROR.to_plain(ChatMessage(role="user", blocks=blocks))
    assert [block["type"] for block in plain["content"]] == ["text", "image_url"]
    thought = ThinkingBlock(content="Hm.", additional_information={"signature": "s"})
    (plain,) = MIRROR.to_plain(ChatMessage(role="assistant", blocks=[thought]))
    assert plain["content"] == []
    assert plain["thinking_blocks"] == [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    assert MIRROR.to_plain("no message") == []


def check_usage_is_read_as_each_provider_reports_it() -> None:
    found = []

    class Call:
        def record(self, usage: Any) -> None:
            found.append(usage)

    message = ChatMessage(role="assistant", content="")
    for raw in ({"usage": {"prompt_tokens": 1}}, {"usage_metadata": {"prompt_token_count": 2}}, {}, None):
        record_usage(Call(), ChatResponse(message=message, raw=raw))
    assert found == [{"prompt_tokens": 1}, {"prompt_token_count": 2}]
