# mypy: ignore-errors
# What this imports is in an environment of its own.
"""LangChain's `create_agent`, with a checkpointer in SQLite.

The hook is called once for a process, as `hook(settings)`, and returns a list of middleware: every agent of the process
gets it, sub-agents too.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_anthropic import ChatAnthropic
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import StructuredTool, ToolException
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from pydantic import Field

from tests.adapters.recording import Answer, Call, Message, Player, Recorder, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage

_ROLES = {"human": "user", "ai": "assistant", "tool": "tool", "system": "system"}


def read_message(message: BaseMessage) -> list[Message]:
    """Return the neutral form of a message."""
    made = Message(_ROLES.get(message.type, message.type))
    blocks = message.content if isinstance(message.content, list) else [{"type": "text", "text": message.content}]
    for block in blocks:
        if isinstance(block, str):
            made.text += block
        elif block["type"] == "text":
            made.text += block["text"]
        elif block["type"] == "image":
            made.images.append(digest_image(block["base64"].encode()))
        elif block["type"] == "thinking":
            made.thinking.append((block["thinking"], block.get("signature", "")))
    if isinstance(message, AIMessage):
        made.calls = [Call(call["id"] or "", call["name"], call["args"]) for call in message.tool_calls]
    if message.type == "tool":
        made.answers, made.failed = message.tool_call_id, message.status == "error"
    return [made]


class ScriptedChatModel(BaseChatModel):
    """A chat model that plays a script."""

    player: Any
    model_name: str = ""
    tools: list[Any] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self.model_copy(update={"tools": [convert_to_openai_tool(tool)["function"] for tool in tools]})

    def _answer(self, messages: list[BaseMessage]) -> Answer:
        seen = [each for message in messages for each in read_message(message)]
        answer: Answer = self.player.answer(
            seen, [{"name": t["name"], "parameters": t["parameters"]} for t in self.tools]
        )
        if answer.overflow:
            raise ContextOverflowError(answer.refusal)
        return answer

    def _usage(self, answer: Answer) -> Any:
        usage = answer.usage
        return {
            "input_tokens": usage.prompt,
            "output_tokens": usage.output,
            "total_tokens": usage.prompt + usage.output,
            "input_token_details": {"cache_read": usage.cached, "cache_creation": usage.written},
        }

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        answer = self._answer(messages)
        calls = [{"id": call.id, "name": call.tool, "args": call.arguments} for call in answer.calls]
        said = AIMessage(answer.text, tool_calls=calls, usage_metadata=self._usage(answer))
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return self._generate(messages)

    def _stream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> Iterator[ChatGenerationChunk]:
        answer = self._answer(messages)
        for word in answer.text.split(" ") if answer.text else ():
            yield ChatGenerationChunk(message=AIMessageChunk(word + " "))
        for at, call in enumerate(answer.calls):
            text = json.dumps(call.arguments)
            for piece, first in ((text[:4], True), (text[4:], False)):
                chunk = {
                    "index": at,
                    "id": call.id if first else None,
                    "name": call.tool if first else None,
                    "args": piece,
                }
                yield ChatGenerationChunk(
                    message=AIMessageChunk("", tool_call_chunks=[{**chunk, "type": "tool_call_chunk"}])
                )
        yield ChatGenerationChunk(message=AIMessageChunk("", usage_metadata=self._usage(answer), chunk_position="last"))

    async def _astream(self, messages: list[BaseMessage], *_: Any, **__: Any) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages):
            yield chunk


class _TapBefore(AgentMiddleware):
    """Notes the messages before the adapter."""

    def __init__(self, recorder: Recorder, agent: str) -> None:
        super().__init__()
        self._recorder, self._agent = recorder, agent

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._recorder.note_given(self._agent, request.messages)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self._recorder.note_given(self._agent, request.messages)
        return await handler(request)


class _TapAfter(_TapBefore):
    """Notes the messages that the adapter sends."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._recorder.note_sent(self._agent, request.messages, read_message)
        return handler(request)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        self._recorder.note_sent(self._agent, request.messages, read_message)
        return await handler(request)


def make_tools(delegate: Any) -> list[StructuredTool]:
    """Return the tools. delegate: called with a part for a sub-agent."""

    def look(part: int) -> str:
        """Lists a part."""
        return list_part(part)

    def fail(part: int) -> str:
        """Lists a part that cannot be read."""
        raise ToolException(describe_failure(part))

    def picture(part: int) -> list[dict[str, Any]]:
        """Shows a part."""
        image = {"type": "image", "base64": base64.b64encode(PIXEL).decode(), "mime_type": "image/png"}
        return [{"type": "text", "text": list_part(part)}, image]

    made = [StructuredTool.from_function(function) for function in (look, picture)]
    made.append(StructuredTool.from_function(fail, handle_tool_error=True))
    made.append(StructuredTool.from_function(delegate, name="delegate", description="Asks another agent for a part."))
    return made


class Host(FrameworkHost):
    PACKAGES = ("langchain", "langchain-core", "langgraph", "langchain-anthropic")
    MISSING: ClassVar = {}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.middleware = stage.attach() or []
        self.database = str(stage.folder / "langgraph.db")
        #: Where a thread is, if it is not the newest checkpoint of the thread of that name.
        self.places: dict[str, Any] = {}
        self._runs: dict[str, Run] = {}

    async def run(self, run: Run) -> str:
        self._runs[run.thread] = run
        if run.door == "sync":
            with SqliteSaver.from_conn_string(self.database) as saver:
                return self._run_sync(run, saver)
        async with AsyncSqliteSaver.from_conn_string(self.database) as saver:
            return await self._run_async(run, saver)

    def make_agent(self, run: Run, saver: Any) -> Any:
        def delegate(part: int) -> str:
            child = self.stage.make_child_player(run)
            agent = self._make_agent(child, self.make_model(child), lambda part: "", None)
            asked = {"messages": [{"role": "user", "content": f"List all of part {part}."}]}
            return str(agent.invoke(asked, {"recursion_limit": 200})["messages"][-1].content)

        player = self.stage.make_player(run)
        return self._make_agent(player, self.make_model(player), delegate, saver)

    def _make_agent(self, player: Player, model: Any, delegate: Any, saver: Any) -> Any:
        middleware = self.make_middleware(player.agent)
        return create_agent(
            model, make_tools(delegate), system_prompt=SYSTEM, middleware=middleware, checkpointer=saver
        )

    def make_middleware(self, agent: str) -> list[Any]:
        """Return the adapter's middleware between two that note what it is given and what it sends."""
        recorder = self.stage.recorder
        return [_TapBefore(recorder, agent), *self.middleware, _TapAfter(recorder, agent)]

    def make_model(self, player: Player) -> Any:
        if self.stage.service:
            return ChatAnthropic(model=player.model, base_url=self.stage.service, api_key="none", max_retries=0)
        return ScriptedChatModel(player=player, model_name=player.model)

    def _find_place(self, agent: Any, run: Run) -> Any:
        own = {"configurable": {"thread_id": run.thread}}
        if run.begin == "fork":
            past = [
                state
                for state in agent.get_state_history({"configurable": {"thread_id": run.source}})
                if (held := state.values.get("messages"))
                and len(held) == take_turns([read_message(each)[0] for each in held], run.turns)
                and sum(each.type == "ai" for each in held) == run.turns
                and held[-1].type == "tool"
            ]
            own = past[0].config
        return {**self.places.get(run.thread, own), "recursion_limit": 200}

    def _run_sync(self, run: Run, saver: Any) -> str:
        agent = self.make_agent(run, saver)
        place = self._find_place(agent, run)
        asked = {"messages": [{"role": "user", "content": run.prompt}]}
        text = agent.invoke(asked, place)["messages"][-1].text
        newest = {"configurable": {"thread_id": place["configurable"]["thread_id"]}}
        self.places[run.thread] = agent.get_state(newest).config
        return str(text)

    async def _run_async(self, run: Run, saver: Any) -> str:
        agent = self.make_agent(run, saver)
        place = {"configurable": {"thread_id": run.thread}, "recursion_limit": 200}
        asked = {"messages": [{"role": "user", "content": run.prompt}]}
        if run.stream:
            async for _ in agent.astream(asked, place, stream_mode="messages"):
                pass
        else:
            await agent.ainvoke(asked, place)
        state = await agent.aget_state(place)
        return str(state.values["messages"][-1].text)

    async def read_history(self, thread: str) -> list[Message]:
        # A graph reads its own checkpoints: some keep a history as a chain of differences.
        own = {"configurable": {"thread_id": thread}}
        with SqliteSaver.from_conn_string(self.database) as saver:
            agent = self.make_agent(self._runs[thread], saver)
            state = agent.get_state(self.places.get(thread, own))
        return [each for message in state.values["messages"] for each in read_message(message)]
