# mypy: ignore-errors
# What this imports is in an environment of its own.
"""Microsoft Agent Framework, with histories in files. It has an async door only.

The hook is called once for a process, as `hook(settings)`, and returns a list of context providers: every agent of the
process gets it, sub-agents too.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any, ClassVar

from agent_framework import (
    Agent,
    BaseChatClient,
    ChatMiddleware,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ContextProvider,
    FileHistoryProvider,
    FunctionInvocationLayer,
    ResponseStream,
    tool,
)
from agent_framework import (
    Message as FrameworkMessage,
)
from agent_framework.exceptions import ChatClientInvalidRequestException

from tests.adapters.recording import Answer, Call, Message, digest_image, take_turns
from tests.adapters.scenarios import PIXEL, SYSTEM, Run, describe_failure, list_part
from tests.adapters.stage import FrameworkHost, Stage


def read_message(message: FrameworkMessage) -> list[Message]:
    """Return the neutral form of a message: one for each result."""
    if message.role == "assistant":
        calls = [
            Call(each.call_id or "", each.name or "", _parse_arguments(each.arguments))
            for each in message.contents
            if each.type == "function_call"
        ]
        return [Message("assistant", message.text, calls)]
    return [_read_content(message.role, content) for content in message.contents]


def _read_content(role: str, content: Any) -> Message:
    if content.type != "function_result":
        return Message(str(role), content.text or "")
    items = content.items or ()
    return Message(
        "tool",
        content.result if isinstance(content.result, str) else str(content.result),
        answers=content.call_id,
        failed=bool(content.exception),
        images=[digest_image(item.uri.partition(",")[2].encode()) for item in items if item.type == "data"],
    )


def _parse_arguments(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else dict(arguments or {})


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """A chat client that plays a script."""

    player: Any = None

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **others: Any) -> Any:
        if stream:
            return ResponseStream(self._stream(messages, options), finalizer=ChatResponse.from_updates)
        return self._respond(messages, options)

    def _answer(self, messages: Any, options: Any) -> Answer:
        system = [Message("system", options["instructions"])] if options.get("instructions") else []
        tools = [{"name": each.name, "parameters": each.parameters()} for each in options.get("tools") or ()]
        seen = [each for message in messages for each in read_message(message)]
        answer: Answer = self.player.answer([*system, *seen], tools)
        if answer.overflow:
            raise ChatClientInvalidRequestException(answer.refusal)
        return answer

    async def _respond(self, messages: Any, options: Any) -> ChatResponse:
        answer = self._answer(messages, options)
        said = FrameworkMessage("assistant", _make_contents(answer))
        return ChatResponse(messages=[said], usage_details=_make_usage(answer))

    async def _stream(self, messages: Any, options: Any) -> AsyncIterator[ChatResponseUpdate]:
        answer = self._answer(messages, options)
        for content in _make_contents(answer):
            yield ChatResponseUpdate(role="assistant", contents=[content])
        yield ChatResponseUpdate(role="assistant", contents=[Content.from_usage(_make_usage(answer))])


def _make_contents(answer: Answer) -> list[Any]:
    calls = [
        Content.from_function_call(call.id, call.tool, arguments=json.dumps(call.arguments)) for call in answer.calls
    ]
    return calls or [Content.from_text(answer.text)]


def _make_usage(answer: Answer) -> Any:
    return {
        "input_token_count": answer.usage.prompt,
        "output_token_count": answer.usage.output,
        "total_token_count": answer.usage.prompt + answer.usage.output,
        "cache_read_input_token_count": answer.usage.cached,
        "cache_creation_input_token_count": answer.usage.written,
    }


class _NoteGiven(ChatMiddleware):
    def __init__(self, stage: Stage, agent: str) -> None:
        self.recorder, self.agent = stage.recorder, agent

    async def process(self, context: Any, call_next: Any) -> None:
        self.recorder.note_given(self.agent, context.messages)
        await call_next()


class _NoteSent(_NoteGiven):
    async def process(self, context: Any, call_next: Any) -> None:
        self.recorder.note_sent(self.agent, context.messages, read_message)
        await call_next()


class _Tap(ContextProvider):
    """Adds a middleware where it is among the context providers."""

    def __init__(self, middleware: Any) -> None:
        super().__init__(type(middleware).__name__)
        self._middleware = middleware

    async def before_run(self, *, context: Any, **others: Any) -> None:
        context.extend_middleware(self.source_id, [self._middleware])


@tool(approval_mode="never_require")
def look(part: int) -> str:
    """Lists a part."""
    return list_part(part)


@tool(approval_mode="never_require")
def fail(part: int) -> str:
    """Lists a part that cannot be read."""
    raise ValueError(describe_failure(part))


@tool(approval_mode="never_require")
def picture(part: int) -> Any:
    """Shows a part."""
    return [Content.from_text(list_part(part)), Content.from_data(PIXEL, "image/png")]


class Host(FrameworkHost):
    PACKAGES = ("agent-framework-core",)
    MISSING: ClassVar = {"bound_thinking": "its core has no client for Anthropic's API"}

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.providers = stage.attach() or []
        self.histories = FileHistoryProvider(str(stage.folder / "histories"))

    async def run(self, run: Run) -> str:
        @tool(approval_mode="never_require")
        async def delegate(part: int) -> str:
            """Asks another agent for a part."""
            agent = self._make_agent(self.stage.make_child_player(run), [look])
            return (await agent.run(f"List all of part {part}.")).text

        if run.begin == "fork":
            await self._copy_turns(run)
        tools = [look, fail, picture, delegate]
        agent = self._make_agent(self.stage.make_player(run), tools, self.histories)
        session = agent.create_session(session_id=run.thread)
        if run.stream:
            stream = agent.run(run.prompt, session=session, stream=True)
            async for _ in stream:
                pass
            return str((await stream.get_final_response()).text)
        return str((await agent.run(run.prompt, session=session)).text)

    def _make_agent(self, player: Any, tools: list[Any], *providers: Any) -> Any:
        client = ScriptedClient(
            function_invocation_configuration={
                "max_iterations": 100,
                "max_consecutive_errors_per_request": 100,
                "include_detailed_errors": True,
            }
        )
        client.player = player
        before, after = _Tap(_NoteGiven(self.stage, player.agent)), _Tap(_NoteSent(self.stage, player.agent))
        every = [*providers, before, *self.providers, after]
        return Agent(client, SYSTEM, tools=tools, context_providers=every)

    async def _copy_turns(self, run: Run) -> None:
        messages = await self.histories.get_messages(run.source)
        read = [each for message in messages for each in read_message(message)]
        kept, seen = take_turns(read, run.turns), 0
        for message in messages:
            seen += len(read_message(message))
            if seen > kept:
                return
            await self.histories.save_messages(run.thread, [message])

    async def read_history(self, thread: str) -> list[Message]:
        return [each for message in await self.histories.get_messages(thread) for each in read_message(message)]
